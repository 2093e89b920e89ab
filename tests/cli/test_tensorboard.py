"""``dtbench tensorboard``."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtbench.base.errors import DtbenchError, StoreError
from dtbench.cli.tensorboard import find_folder, refuse_taken_port, serve
from dtbench.report.event_files.server import narrow, tensorboard_command

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of one scenario; only the later has event files."""
    for run_id in ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb"):
        run = tmp_path / "results" / "small" / run_id
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
    events = tmp_path / "results" / "small" / "20260102T120000Z-bbbb" / "tb" / "ddp"
    events.mkdir(parents=True)
    (events / "events.out.tfevents.1.dtbench").touch()
    return tmp_path / "results"


def test_without_a_name_all_runs_are_served(results: Path) -> None:
    assert find_folder(None, results) == results


def test_a_scenarios_name_serves_all_its_runs(results: Path) -> None:
    assert find_folder("small", results) == results / "small"


def test_a_run_is_served_as_a_whole_so_that_its_tab_sees_it(results: Path) -> None:
    run = results / "small" / "20260102T120000Z-bbbb"
    assert find_folder(str(run), results) == run
    assert find_folder(run.name, results) == run


def test_a_run_without_event_files_is_served_for_its_tab(results: Path) -> None:
    run = results / "small" / "20260101T120000Z-aaaa"
    assert find_folder(run.name, results) == run


def test_event_files_without_a_run_are_served(results: Path) -> None:
    events = results / "small" / "20260102T120000Z-bbbb" / "tb"
    assert find_folder(str(events), results) == events


def add_event_files(run: Path, *folders: str) -> None:
    for folder in folders:
        (run / "tb" / folder).mkdir(parents=True, exist_ok=True)
        (run / "tb" / folder / "events.out.tfevents.1.dtbench").touch()


def test_of_too_many_event_files_tensorboard_itself_is_given_the_newest_runs(results: Path) -> None:
    (old, new) = sorted((results / "small").iterdir())
    add_event_files(old, "", "ddp")
    add_event_files(new, "", "ddp/launch0", "ddp/launch1")
    with narrow(results, 6) as served:
        assert (served.folder, served.shown) == (results, None)
    for folder in (results, results / "small"):
        with narrow(folder, 5) as served:
            assert (served.shown, served.of) == (1, 2)
            (link,) = (path for path in served.folder.rglob("2026*") if path.is_symlink())
            assert link.resolve() == new.resolve()
            assert link.relative_to(served.folder) == new.relative_to(folder)
        assert not served.folder.exists()
        assert new.exists()
    with narrow(results, 2) as served:
        assert served.shown == 1, "one run there always is"


def test_a_run_of_its_own_is_served_whatever_it_has(results: Path) -> None:
    run = results / "small" / "20260102T120000Z-bbbb"
    with narrow(run, 0) as served:
        assert served.folder == run


def test_traces_are_served_as_they_lie(tmp_path: Path) -> None:
    folder = RECORDED / "pipelines" / "1f1b"
    assert find_folder(str(folder), tmp_path / "results") == folder
    assert find_folder(str(folder / "rank0.json.gz"), tmp_path / "results") == folder / "rank0.json.gz"


def test_a_folder_with_neither_says_how_to_get_a_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"neither a run nor a TensorBoard event file in .*: `dtbench run"):
        find_folder(str(tmp_path), tmp_path / "results")


def test_an_unknown_name_is_refused_with_the_nearest_or_the_latest_run(results: Path) -> None:
    with pytest.raises(StoreError, match=r"No run is called `smal` in .*; did you mean `small`\?"):
        find_folder("smal", results)
    with pytest.raises(StoreError, match=r"No run is called `other` in .*the latest is .*bbbb"):
        find_folder("other", results)


def test_an_empty_results_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no runs here"):
        find_folder(None, tmp_path / "results")


def test_a_taken_port_is_refused_with_one_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DtbenchError, match=r"the port is taken.*use `--port \d+`, which is free"):
            refuse_taken_port("127.0.0.1", taken.getsockname()[1])


def test_a_free_port_is_accepted() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    refuse_taken_port("127.0.0.1", port)


def test_the_server_is_the_one_of_this_interpreter(tmp_path: Path) -> None:
    command = tensorboard_command(tmp_path, host="localhost", port=7000)
    assert command[:4] == [sys.executable, "-P", "-m", "tensorboard.main"]
    assert command[4:] == ["--logdir", str(tmp_path), "--host", "localhost", "--port", "7000"]


def test_a_server_that_fails_is_an_error_with_its_code() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(DtbenchError, match="ended with code 3"):
            serve([sys.executable, "-c", "raise SystemExit(3)"])
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 0, ""), (signal.SIGTERM, 143, "stopped\n"), (signal.SIGHUP, 129, "stopped\n")],
)
def test_a_signal_ends_the_server_too_and_quietly(tmp_path: Path, number: signal.Signals, code: int, said: str) -> None:
    with start_serving(tmp_path) as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)  # the server holds the pipe: this would hang if it lived on
    assert process.returncode == code
    assert stderr == said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_a_server_dies_with_a_command_that_cannot_end_it(tmp_path: Path, number: signal.Signals) -> None:
    with start_serving(tmp_path) as process:
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == -number


def start_serving(folder: Path) -> "subprocess.Popen[str]":
    """Start a command that serves; gives it when its server runs."""
    alive = folder / "alive"
    child = f"import pathlib, time; pathlib.Path({str(alive)!r}).touch(); time.sleep(60)"
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup, or behind a shell's `&`
        "signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from dtbench.cli.main import heed_signals, make_app, run_app\n"
        "from dtbench.cli.tensorboard import serve\n"
        f"app = make_app([('look', lambda: serve([sys.executable, '-c', {child!r}]))])\n"
        "with heed_signals(to_the_end=True):\n    run_app(app, ['look'])"
    )
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    while not alive.exists():
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    return process
