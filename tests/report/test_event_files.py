"""Event files, read back with TensorBoard's own reader."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dtbench.analyze.summary import CellSummary, RunSummary
from dtbench.report.tensorboard import write_tensorboard


def read_back(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    reader.Reload()
    return reader


def scalars_of(folder: Path) -> dict[str, dict[int, float]]:
    reader = read_back(folder)
    return {tag: {row.step: row.value for row in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}


def text_of(folder: Path, tag: str) -> str:
    return bytes(read_back(folder).Tensors(tag)[0].tensor_proto.string_val[0]).decode()


def test_the_reports_numbers_come_back_in_ms(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "fsdp2_tp")
    assert {tag: values[0] for tag, values in found.items()} == pytest.approx(
        {
            "summary/step_ms": 231.0,
            "summary/tokens_per_second": 4433.0,
            "summary/gradient_wait_ms": 31.4,
            "summary/unshard_wait_ms": 24.5,
            "summary/exposed_ms": 91.25,
            "summary/hidden_fraction": 4 / 96,
            "summary/exposed_step_fraction": 92 / 258,
            "summary/profiler_cost": 1.12,
        }
    )


def test_each_step_is_the_slowest_ranks_and_only_measured_steps_have_a_throughput(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert found["step_ms/WARMUP"] == pytest.approx({0: 900})
    assert found["step_ms/MEASURED"] == pytest.approx({1: 111, 2: 112})
    assert found["step_ms/PROFILED"] == pytest.approx({3: 113})
    assert found["tokens_per_second"] == pytest.approx({1: 1024 / 0.111, 2: 1024 / 0.112})


def test_overlap_is_written_per_profiled_step_and_purpose_as_the_median_over_ranks(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert found["hidden_ms/grad_reduce"] == pytest.approx({3: 17})
    assert found["exposed_ms/grad_reduce"] == pytest.approx({3: 12})
    assert found["wait_ms/grad_reduce"] == pytest.approx({3: 13})


def test_a_wait_that_does_not_occur_and_a_number_that_is_unknown_are_left_out(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    cell = make_ddp(update={"tokens_per_second": float("nan")})
    write_tensorboard(make_run(cell), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert "summary/unshard_wait_ms" not in found
    assert "summary/tokens_per_second" not in found
    assert "summary/step_ms" in found


def test_figures_come_back_as_png_and_texts_as_markdown(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    image = read_back(tmp_path / "tb").Images("step_breakdown")[0]
    assert image.encoded_image_string.startswith(b"\x89PNG")
    assert image.width > image.height > 0
    assert read_back(tmp_path / "tb" / "ddp").Images("step_times")
    assert "| ddp | 2 | 142.0 |" in text_of(tmp_path / "tb", "summary")
    assert "optimizer.fused" in text_of(tmp_path / "tb" / "fsdp2_tp", "receipts")


def test_several_launches_get_a_folder_each(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    both = pd.concat([steps, steps.assign(launch=1, duration_ns=steps["duration_ns"] * 2)])
    write_tensorboard(make_run(make_ddp()), tmp_path / "tb", steps=both, purposes=purposes, environment=None)
    assert scalars_of(tmp_path / "tb" / "ddp" / "launch1")["step_ms/WARMUP"] == pytest.approx({0: 1800})
    assert "step_ms/WARMUP" not in scalars_of(tmp_path / "tb" / "ddp")


def test_a_cell_that_died_before_its_first_step_still_has_its_texts(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    cell = make_ddp(update={"ranks": (), "purposes": ()})
    write_tensorboard(make_run(cell), tmp_path / "tb", steps=steps.head(0), purposes=purposes.head(0), environment=None)
    assert "summary/gradient_wait_ms" not in scalars_of(tmp_path / "tb" / "ddp")
    assert "n/a: no trace was written" in text_of(tmp_path / "tb", "summary")


def test_writing_again_replaces_every_old_file(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tb"
    write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
    before = set(folder.rglob("*tfevents*"))
    write_tensorboard(make_run(make_ddp()), folder, steps=steps, purposes=purposes, environment=None)
    after = set(folder.rglob("*tfevents*"))
    assert not before & after
    assert {path.parent.name for path in after} == {"tb", "ddp"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failure_while_writing_leaves_the_old_files(
    make_run: Callable[..., RunSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "tb"
    write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
    before = set(folder.rglob("*tfevents*"))
    monkeypatch.setattr("dtbench.report.tensorboard.plot_step_times", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
    assert set(folder.rglob("*tfevents*")) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_event_files_are_written_where_torch_and_tensorflow_cannot_be_imported(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        sys.modules["torch"] = sys.modules["tensorflow"] = None
        from dtbench.report.tensorboard import _scalar, _text, _write_events
        _write_events(Path(sys.argv[1]), [(1, _scalar("x", 2.0)), (0, _text("t", "words"))])
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path)], check=True)
    assert scalars_of(tmp_path) == {"x": {1: 2.0}}
    assert text_of(tmp_path, "t") == "words"
