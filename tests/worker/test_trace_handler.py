"""A person's own profiler writes traces that the analysing wing reads, and nothing else."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import dtbench
from dtbench.base.errors import StoreError
from dtbench.store.layout import LaunchFolder
from dtbench.worker.loop.trace_handler import export_trace, find_rank


def profile_loop(folder: Path, *, repeat: int = 1) -> None:
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=repeat),
        on_trace_ready=dtbench.trace_handler(folder),
    ) as profiler:
        for _ in range(4 * repeat):
            torch.ones(64, 64) @ torch.ones(64, 64)
            profiler.step()


def test_a_persons_own_profiler_writes_a_trace_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    folder = tmp_path / "launch" / "traces"
    profile_loop(folder)
    (written,) = folder.iterdir()  # nothing else, no temporary file
    assert LaunchFolder(folder.parent).find_traces() == {3: written}
    assert written.read_bytes().startswith(b"\x1f\x8b")
    traces = dtbench.read_trace(folder)
    assert traces.overlap[["rank", "step"]].to_numpy().tolist() == [[3, 2], [3, 3]]
    assert (traces.overlap["compute_ns"] > 0).all()


@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle")
def test_every_cycle_of_a_schedule_is_a_file_and_the_newest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    profile_loop(tmp_path, repeat=2)
    _, newer = sorted(tmp_path.iterdir())
    traces = dtbench.read_trace(tmp_path)
    assert [one.path for one in traces.traces.analyses] == [str(newer)]
    assert f"{tmp_path}: an older trace or copy of the same rank is left out" in traces.notes


@pytest.mark.parametrize(("said", "rank"), [(None, 0), ("", 0), ("17", 17), ("none", 0)])
def test_without_a_process_group_the_launcher_says_the_rank(
    monkeypatch: pytest.MonkeyPatch, said: str | None, rank: int
) -> None:
    monkeypatch.delenv("RANK", raising=False) if said is None else monkeypatch.setenv("RANK", said)
    assert find_rank() == rank


def test_the_process_group_says_the_rank_before_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert find_rank() == 0
    finally:
        torch.distributed.destroy_process_group()


def test_a_folder_that_cannot_be_made_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="traces cannot be written there"):
        dtbench.trace_handler(tmp_path / "file" / "traces")


def test_a_folder_that_goes_away_loses_the_trace_and_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "traces"
    handler = dtbench.trace_handler(folder)
    folder.rmdir()
    folder.write_text("")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(2):
            profiler.step()
    (record,) = caplog.records
    assert "this trace is lost" in record.message
    assert str(folder) in record.message


class Cut:
    """A profiler that cannot write its trace to the end, and says nothing of it, as torch on a full disk."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": [{"name": "aten::mm"')


def test_a_trace_that_torch_could_not_finish_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="free some space"):
        export_trace(Cut(), tmp_path / "trace.json.gz")
    assert list(tmp_path.iterdir()) == []


class Gone:
    """A profiler that takes away what it could not finish, as torch does where its own writer sees the disk full."""

    def export_chrome_trace(self, path: str) -> None:
        assert not Path(path).exists()


@pytest.mark.parametrize("profiler", [Cut(), Gone()])
def test_what_torch_could_not_write_is_said_to_be_for_want_of_room(tmp_path: Path, profiler: object) -> None:
    with pytest.raises(StoreError, match="torch could not write all of it; most likely: No space left on device"):
        export_trace(profiler, tmp_path / "trace.json.gz")


class Full:
    """A profiler that finds the disk full before it can name what it has written."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path + ".tmp").write_text('{"traceEvents": [')
        raise RuntimeError("no space left")


def test_what_torch_leaves_of_a_trace_on_a_full_disk_goes(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no space left"):
        export_trace(Full(), tmp_path / "trace.json.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only there a folder has another name")
@pytest.mark.parametrize("name", ["a\nb", "back\\slash", 'quoted"', "tab\there", "plain name"])
def test_a_trace_is_written_whatever_its_folder_is_called(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "rank0.1.pt.trace.json.gz"
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        sum(range(10))
    export_trace(profiler, path)
    assert "traceEvents" in json.loads(gzip.decompress(path.read_bytes()))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
