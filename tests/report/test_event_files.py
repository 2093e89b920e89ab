"""Event files, read back with TensorBoard's own reader."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import metadata

from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.report.event_files.dashboards import write_cell, write_tensorboard
from dtbench.report.event_files.files import replace_folder, scalar, text, write_events
from dtbench.runs.summary import CellSummary, OwnerSummary, RunSummary
from dtbench.traces.known_part import KnownPart


def read_back(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    reader.Reload()
    return reader


def scalars_of(folder: Path) -> dict[str, dict[int, float]]:
    reader = read_back(folder)
    return {tag: {row.step: row.value for row in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}


def records_of(file: Path) -> list[Event]:
    return list(EventFileLoader(str(file)).Load())


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
            "summary/time_to_first_step_ms": 3870.0,
            "summary/cpu_ms": 204.0,
            "summary/peak_host_mib": 655.0,
            "correctness/loss_error": 2.2e-7,
            "correctness/gradient_error": 5e-7,
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


def test_a_step_that_not_every_rank_finished_is_no_point(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    died = steps[(steps["rank"] == 0) | (steps["step"] < 2)]
    write_tensorboard(make_run(), tmp_path / "tb", steps=died, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert found["step_ms/MEASURED"] == pytest.approx({1: 111})
    assert found["tokens_per_second"] == pytest.approx({1: 1024 / 0.111})
    assert set(found["cpu_ms/MEASURED"]) == {1}
    assert "step_ms/PROFILED" not in found


def test_overlap_is_written_per_profiled_step_and_purpose_as_the_median_over_ranks(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert found["hidden_ms/grad_reduce"] == pytest.approx({3: 17})
    assert found["exposed_ms/grad_reduce"] == pytest.approx({3: 12})
    assert found["wait_ms/grad_reduce"] == pytest.approx({3: 13})


def test_one_rank_far_from_the_others_moves_no_curve(
    make_ddp: Callable[..., CellSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    first, of_first = purposes[purposes["step"] == 3].head(1), steps[steps["rank"] == 0]
    times_ms = (4, 5, 60)
    ranks = [
        first.assign(rank=rank, **dict.fromkeys(("hidden_ns", "exposed_ns", "wait_ns"), ms * 1_000_000))
        for rank, ms in enumerate(times_ms)
    ]
    worked = [of_first.assign(rank=rank, cpu_ns=ms * 1_000_000) for rank, ms in enumerate(times_ms)]
    write_cell(make_ddp(), tmp_path, steps=pd.concat(worked), purposes=pd.concat(ranks), settings={})
    found = scalars_of(tmp_path / "ddp")
    for tag in ("hidden_ms", "exposed_ms", "wait_ms"):
        assert found[f"{tag}/grad_reduce"] == pytest.approx({3: 5})
    assert found["cpu_ms/MEASURED"] == pytest.approx({1: 5, 2: 5})


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


def test_a_number_that_is_only_a_bound_is_no_point_of_a_curve(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    cell = make_ddp()
    least = tuple(row.model_copy(update={"is_wait_least": True}) for row in cell.purposes)
    purposes["is_wait_least"] = purposes["rank"] == 0
    lost = {"purposes": least, "rank_doubts": ("rank 1 lost its rows of a purpose",)}
    write_tensorboard(make_run(make_ddp(update=lost)), tmp_path, steps=steps, purposes=purposes, environment=None)
    assert not {"exposed_ms/grad_reduce", "hidden_ms/grad_reduce"} & scalars_of(tmp_path / "ddp").keys()
    for place, update in enumerate(({"purposes": least}, {"unseen_collectives": 1})):
        folder = tmp_path / str(place)
        write_tensorboard(make_run(make_ddp(update=update)), folder, steps=steps, purposes=purposes, environment=None)
        found = scalars_of(folder / "ddp")
        assert "summary/gradient_wait_ms" not in found
        assert ("summary/exposed_ms" in found) == (place == 0)
        assert any(tag.startswith("exposed_ms_by_owner") for tag in found) == (place == 0 and bool(cell.owners))
        assert "wait_ms/grad_reduce" not in found
        assert ("exposed_ms/grad_reduce" in found) == (place == 0)
        assert ("hidden_ms/grad_reduce" in found) == (place == 0)


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
    assert "n/a: no trace is there" in text_of(tmp_path / "tb", "summary")


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
    assert {path.parent.name for path in after} == {"tb", "ddp"}
    assert list(tmp_path.iterdir()) == [folder]
    for emptied in before & after:
        assert len(records_of(emptied)) == 1, "the latest old name stays for TensorBoard's loader in Python, empty"
    write_tensorboard(make_run(make_ddp()), folder, steps=steps, purposes=purposes, environment=None)
    assert len(list((folder / "ddp").iterdir())) == 2


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
    monkeypatch.setattr("dtbench.report.event_files.dashboards.plot_step_times", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
    assert set(folder.rglob("*tfevents*")) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_event_files_are_written_where_torch_and_tensorflow_cannot_be_imported(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        sys.modules["torch"] = sys.modules["tensorflow"] = None
        from dtbench.report.event_files.files import replace_folder, scalar, text, write_events
        values = [(1, scalar("x", 2.0)), (0, text("t", "words"))]
        replace_folder(Path(sys.argv[1]), lambda folder: write_events(folder, values))
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path)], check=True)
    assert scalars_of(tmp_path) == {"x": {1: 2.0}}
    assert text_of(tmp_path, "t") == "words"


def test_a_loader_that_stands_on_a_replaced_file_goes_on_to_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "tb" / "ddp"

    def write(number: float) -> None:
        values = [(step, scalar("x", number + step)) for step in (0, 1)] + [(0, text("t", str(number)))]
        replace_folder(folder, lambda unfinished: write_events(unfinished, values))

    write(1.0)
    reader = plugin_event_accumulator.EventAccumulator(str(folder))
    reader.Reload()
    for number in (10.0, 20.0, 30.0):
        write(number)
        reader.Reload()
        assert [event.tensor_proto.float_val[0] for event in reader.Tensors("x")] == [number, number + 1]
        assert [bytes(event.tensor_proto.string_val[0]) for event in reader.Tensors("t")] == [str(number).encode()]
    assert len(list(folder.iterdir())) == 2


def test_no_file_is_seen_by_tensorboard_before_all_are_written(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(unfinished: Path) -> None:
        for cell in ("a", "b"):
            write_events(unfinished / cell, [(0, scalar("x", 1.0))])
            seen.extend(tmp_path.rglob("*tfevents*"))

    replace_folder(tmp_path / "tb", write)
    assert seen == []
    assert {file.parent.name for file in tmp_path.rglob("*tfevents*")} == {"a", "b"}


def test_the_owners_with_most_exposed_time_are_scalars_and_all_are_a_text(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    rows = [
        owner_row("layers.1", Cause.TAIL, 3),
        owner_row("layers.1", Cause.LATE_ISSUE, 1),
        owner_row("", Cause.SKEW, 2),
    ]
    rows += [owner_row(f"<b>small|{place}", Cause.TAIL, 0.1) for place in range(12)]
    cell = make_ddp(update={"owners": tuple(rows)})
    write_tensorboard(make_run(cell), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = {tag: values[0] for tag, values in scalars_of(tmp_path / "tb" / "ddp").items() if "by_owner" in tag}
    assert found["exposed_ms_by_owner/layers.1 all-reduce"] == pytest.approx(4)
    assert found["exposed_ms_by_owner/unattributed all-reduce"] == pytest.approx(2)
    assert len(found) == 10
    words = text_of(tmp_path / "tb" / "ddp", "owners")
    assert "| layers.1 | all-reduce | grad\\_reduce | nothing left to hide behind | 3.0" in words
    assert "&lt;b\\>small\\|11" in words


def owner_row(owner: str, cause: Cause, exposed_ms: float) -> OwnerSummary:
    return OwnerSummary(
        owner=owner,
        operation=Operation.ALL_REDUCE,
        purpose=Purpose.GRAD_REDUCE,
        cause=cause,
        exposed_ns=round(exposed_ms * 1_000_000),
        owner_exposed_ns=round(exposed_ms * 1_000_000),
    )


Scalars = dict[str, dict[int, float]]
ScalarsWith = Callable[..., Scalars]


@pytest.fixture
def scalars_with(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary], purposes: pd.DataFrame, tmp_path: Path
) -> ScalarsWith:
    """Return the scalars that are written of a cell with some values, and a table of steps."""

    def write(steps: pd.DataFrame, **update: object) -> Scalars:
        cell = make_ddp(update=update)
        write_tensorboard(make_run(cell), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
        return scalars_of(tmp_path / "tb" / "ddp")

    return write


def test_losses_stand_at_the_steps_that_they_were_recorded_in(scalars_with: ScalarsWith, steps: pd.DataFrame) -> None:
    """Of eight warm-up steps the first five have one."""
    warmup = pd.concat([steps[steps["step"] == 0].assign(step=step) for step in range(8)])
    others = steps[steps["step"] > 0].assign(step=steps["step"] + 7)
    losses = (9.0, 8.0, 7.0, 6.0, 5.0, 4.0, float("nan"), 2.0)
    written = scalars_with(pd.concat([warmup, others]), losses=losses)
    assert written["loss"] == {0: 9, 1: 8, 2: 7, 3: 6, 4: 5, 8: 4, 10: 2}


def test_losses_have_no_steps_where_one_is_lost(scalars_with: ScalarsWith, steps: pd.DataFrame) -> None:
    assert "loss" not in scalars_with(steps[steps["step"] != 1], losses=(9.0, 8.0, 7.0, 6.0))


def test_what_records_of_some_ranks_tell_is_no_number_of_the_cell(
    scalars_with: ScalarsWith, steps: pd.DataFrame
) -> None:
    part = KnownPart(ranks=(0,), of_ranks=2, steps=1, of_steps=1, counted="rank records")
    tags = {"loss", "summary/peak_host_mib", "summary/time_to_first_step_ms", "correctness/loss_error"}
    for known in (None, part):
        written = scalars_with(steps, losses=(9.0, 8.0, 7.0, 6.0), records_part=known)
        assert tags & set(written) == (tags if known is None else set())
    of_some = set(scalars_with(steps, losses=(9.0, 8.0, 7.0, 6.0), first_step_part=part))
    assert tags - of_some == {"summary/time_to_first_step_ms"}


def test_a_step_in_which_a_ranks_row_is_lost_has_no_time_of_that_purpose(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    later = purposes[purposes["rank"] == 0].assign(step=4)
    every = pd.concat([purposes, later])
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=every, environment=None)
    assert set(scalars_of(tmp_path / "tb" / "ddp")["exposed_ms/grad_reduce"]) == {3}


def test_cpu_time_is_the_median_of_the_ranks(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    assert scalars_of(tmp_path / "tb" / "ddp")["cpu_ms/MEASURED"] == pytest.approx({1: 90, 2: 90})


def test_a_cell_appears_while_others_still_run_and_says_the_same_in_the_end(
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run" / "tb"
    settings = {"ddp": {"parallel.kind": "ddp"}, "fsdp2_tp": {"parallel.kind": "fsdp2"}}
    write_cell(make_ddp(), folder, steps=steps, purposes=purposes, settings=settings)
    early = scalars_of(folder / "ddp")
    assert early["step_ms/MEASURED"] == pytest.approx({1: 111, 2: 112})
    assert metadata.EXPERIMENT_TAG in read_back(folder).summary_metadata
    assert metadata.SESSION_START_INFO_TAG in read_back(folder / "ddp").summary_metadata
    write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
    assert scalars_of(folder / "ddp") == early
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["tb"]


def test_the_first_of_several_launches_has_a_folder_of_its_own_from_the_start(
    make_ddp: Callable[..., CellSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    cell = make_ddp(update={"launches": (0, 1, 2)})
    write_cell(cell, tmp_path / "tb", steps=steps, purposes=purposes, settings={})
    assert "step_ms/MEASURED" in scalars_of(tmp_path / "tb" / "ddp" / "launch0")
    assert "step_ms/MEASURED" not in scalars_of(tmp_path / "tb" / "ddp")
