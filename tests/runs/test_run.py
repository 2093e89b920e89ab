"""From a run folder to its summary, whatever is in it."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import StoreError, TraceError
from dtbench.base.vocabulary import (
    Arm,
    Axis,
    Cause,
    DeviceKind,
    Operation,
    Phase,
    Purpose,
    Region,
    Runtime,
    Stage,
    StatePart,
)
from dtbench.cli.main import main
from dtbench.comparison.reading.measure import measure_launch
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.plan.traffic.planned import PlannedTraffic
from dtbench.report.words.advice import Loss, advise_loss
from dtbench.report.words.cell_knobs import describe_cell
from dtbench.report.words.sentences import check_word, throughput_words
from dtbench.runs.cell import summarize_cell
from dtbench.runs.cell_numbers import find_number
from dtbench.runs.reading.gains import GAINS
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import analyze_run, summarize_run
from dtbench.runs.summary import BetweenSteps, RegionTimes
from dtbench.scenario.checks.values import read_value
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.finish import STEPS
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_launch, read_run, read_table
from dtbench.store.records.arms import ArmBlock, ArmCount, ArmSteps
from dtbench.store.records.canary import CanaryResult, MissedWait
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.nodes import NodePlace, NodesRecord
from dtbench.store.records.rank import (
    CorrectnessResult,
    Memory,
    RankRecord,
    WarmupEnd,
)
from dtbench.store.records.run import (
    CellRecord,
    Environment,
    HeldBack,
    LaunchRecord,
    OwnLoop,
    OwnLoopCell,
    RunRecord,
    RunStatus,
    TookCores,
    WorkerOrder,
)
from dtbench.store.records.state import StageRecord, StateDictRecord
from dtbench.store.records.traffic import ExpectedTraffic, OverlapPossible, Owned, Traffic
from dtbench.store.use_file import USES
from dtbench.store.write import write_record, write_table
from dtbench.traces.causes.exposed_owners import Carried
from dtbench.traces.rows.launch_tables import derive_tables, read_tables
from dtbench.traces.rows.tables import TABLES
from tests.known import total
from tests.made_receipts import EVERY_KNOB

MS = 1_000_000

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@dataclass(frozen=True)
class MadeRun:
    folder: RunFolder

    @property
    def launch(self) -> LaunchFolder:
        return self.folder.launch("ddp", 0)


def rank_record(rank: int, losses: tuple[float, ...]) -> RankRecord:
    return RankRecord(
        rank=rank,
        host="here",
        pid=3619,  # of the recorded trace's process
        time_to_first_step_ns=(rank + 1) * MS,
        memory=Memory(rss_peak_bytes=100 + rank, allocated_peak_bytes=None, reserved_peak_bytes=None),
        warmup=WarmupEnd(steps=8, settled=True, reason="stable"),
        correctness=None,
        losses=(*losses, *(0.25 for _ in range(9 - len(losses)))),  # of 5 WARMUP, 3 MEASURED and 1 PROFILED step
        receipts=EVERY_KNOB,
        traffic=(
            Traffic(
                purpose=Purpose.GRAD_REDUCE,
                axis=Axis.REPLICATE,
                operation=Operation.ALL_REDUCE,
                count=3,
                size_bytes=3 * 4_194_304,
                count_async=3,
            ),
        ),
        traffic_is_stable=True,
        overlap_possible=(OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=True, reason="buckets"),),
        process_groups=(),
        bucket_bytes_per_step=(),
        fsdp_units=(),
    )


def make_run(path: Path, scenario: Scenario, *, planned_bytes: int, status: RunStatus = RunStatus.COMPLETE) -> MadeRun:
    traffic = PlannedTraffic(
        purpose=Purpose.GRAD_REDUCE,
        axis=Axis.REPLICATE,
        operation=Operation.ALL_REDUCE,
        count=3,
        size_bytes=planned_bytes,
    )
    plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=2)).model_copy(
        update={"traffic": (traffic,), "tokens_per_step": 1000, "measured_steps": 3}
    )
    run = RunRecord(
        dtbench_version="0",
        name="small",
        run_id="20260101T000000-abcd",
        question="Why?",
        overrides=(),
        status=status,
        reason=None,
        started_unix_ns=0,
        ended_unix_ns=None,
        cells=(CellRecord(name="ddp", scenario=scenario, plan=plan, launches=(0,)),),
    )
    write_record(RunFolder(path).run, run)
    return MadeRun(RunFolder(path))


def fill_launch(folder: LaunchFolder, recorded: Path) -> None:
    rows = [
        (rank, step, phase, 0, duration_ms * MS + rank, (5 if phase == "MEASURED" else 9) * MS, math.nan)
        for rank in (0, 1)
        for step, phase, duration_ms in [
            (0, "WARMUP", 900),
            (1, "MEASURED", 10),
            (2, "MEASURED", 20),
            (3, "MEASURED", 30),
            (4, "PROFILED", 40),
        ]
    ]
    write_table(folder.steps, pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes))
    for rank in (0, 1):
        write_record(folder.rank_record(rank), rank_record(rank, (1.0 + rank, 0.5)))
    folder.traces.mkdir(parents=True)
    shutil.copy(recorded / "ddp_2ranks_rank0.json.gz", folder.trace(0, 1))
    record = LaunchRecord(
        cell="ddp",
        index=0,
        status=RunStatus.COMPLETE,
        started_unix_ns=0,
        duration_ns=1,
        reason=None,
        failures=(),
    )
    write_record(folder.launch, record)


@pytest.fixture
def made(tmp_path: Path, scenario: Callable[..., Scenario], recorded: Path) -> MadeRun:
    unchecked = scenario(correctness={"enabled": False})
    run = make_run(tmp_path / "run", unchecked, planned_bytes=3 * 4_194_304)
    fill_launch(run.launch, recorded)
    return run


def test_throughput_comes_from_measured_steps_of_the_slowest_rank(made: MadeRun) -> None:
    (cell,) = summarize_run(made.folder.path).cells
    assert (cell.step_time.median, cell.step_time.count) == (20 * MS + 1, 3)
    assert cell.launch_medians_ns == (20 * MS + 1,)
    assert cell.tokens_per_second == pytest.approx(1000 / 0.020, rel=1e-6)
    assert cell.profiler_cost.median == pytest.approx(2.0, rel=1e-6)
    assert (cell.time_to_first_step_ns, cell.cpu_ns_per_step) == (2 * MS, 5 * MS)
    assert math.isnan(cell.model_flops_utilization)
    assert cell.memory is not None
    assert cell.memory.rss_peak_bytes == 101
    assert cell.losses[:3] == (1.5, 0.5, 0.25)
    assert cell.status is RunStatus.COMPLETE


def test_regions_are_means_over_ranks_and_not_known_where_some_rank_does_not_tell(made: MadeRun) -> None:
    (untold,) = summarize_run(made.folder.path).cells
    assert untold.launch_regions == (None,)
    told = {Region.FORWARD: 4 * MS, Region.BACKWARD: 9 * MS, Region.OPTIMIZER: 1 * MS}
    for rank in (0, 1):
        record = rank_record(rank, (1.0 + rank, 0.5))
        longer = {region: time_ns + rank * MS for region, time_ns in told.items()}
        write_record(made.launch.rank_record(rank), record.model_copy(update={"region_ns": longer}))
    (cell,) = summarize_run(made.folder.path).cells
    assert cell.launch_regions == (RegionTimes(forward_ns=4.5 * MS, backward_ns=9.5 * MS, optimizer_ns=1.5 * MS),)
    assert cell.cores is None  # nobody wrote down on which machine it ran
    without = rank_record(1, (2.0, 0.5)).model_copy(update={"region_ns": {Region.FORWARD: MS}})
    write_record(made.launch.rank_record(1), without)
    assert summarize_run(made.folder.path).cells[0].launch_regions == (None,)


def test_the_cores_of_the_machine_are_those_that_the_run_says() -> None:
    assert {cell.cores for cell in summarize_run(EXAMPLE).cells} == {2}


def test_utilization_is_of_the_peak_of_all_ranks_in_the_time_of_the_slowest(
    made: MadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarize_cell, "peak_flops", lambda _device, dtype: {"float32": 4e12}[dtype])
    (cell,) = summarize_run(made.folder.path).cells
    assert isinstance(cell.plan, Plan)
    assert cell.plan.flops_per_step
    per_rank = cell.plan.flops_per_step / 2 / 0.020  # two ranks; a step of 20 ms
    assert cell.model_flops_utilization == pytest.approx(per_rank / 4e12, rel=1e-6)


def test_how_many_ranks_share_a_host_is_the_most_that_one_has(made: MadeRun) -> None:
    for host, most in (("here", 2), ("there", 1)):
        write_record(made.launch.rank_record(1), rank_record(1, (1.0,)).model_copy(update={"host": host}))
        (cell,) = summarize_run(made.folder.path).cells
        assert cell.ranks_per_host == most


def test_the_canary_of_a_cell_is_that_of_the_rank_that_names_what_was_read_too_early(made: MadeRun) -> None:
    missed = MissedWait(
        purpose=Purpose.UNSHARD,
        operation=Operation.ALL_GATHER,
        region=Region.FORWARD,
        owner="layers.1",
        place=None,
        count=1,
        was_awaited=False,
    )
    (cell,) = summarize_run(made.folder.path).cells
    assert cell.canary is None
    for rank, found in ((0, ()), (1, (missed,))):
        canary = CanaryResult(
            passed=False, steps=2, collectives=3, is_equal=False, loss_error=0.0, gradient_error=math.inf, missed=found
        )
        update = {"extras": RankExtras(canary=canary)}
        write_record(made.launch.rank_record(rank), rank_record(rank, (1.0,)).model_copy(update=update))
    (cell,) = summarize_run(made.folder.path).cells
    assert cell.canary is not None
    assert cell.canary.missed == (missed,)
    assert math.isinf(cell.canary.gradient_error), "it came through a file"


def test_communication_comes_from_the_trace_and_is_held_against_the_plan(made: MadeRun) -> None:
    (cell,) = summarize_run(made.folder.path).cells
    (purpose,) = cell.purposes
    assert (purpose.count, purpose.size_bytes, purpose.matches_plan) == (3, 3 * 4_194_304, True)
    assert (purpose.overlap_possible, purpose.overlap_reason) == (True, "buckets")
    assert purpose.hidden_fraction == pytest.approx(cell.hidden_fraction)
    (rank,) = cell.ranks
    steps = read_table(made.launch.overlap)
    assert total((rank.compute_ns, rank.exposed_comm_ns, rank.exposed_copy_ns, rank.idle_ns)) == rank.step_ns
    assert rank.step_ns == steps["step_ns"].sum() // len(steps)
    assert purpose.exposed_ns == rank.exposed_comm_ns == steps["exposed_comm_ns"].sum() // len(steps)


def test_a_note_says_that_the_worker_saw_another_owner_than_the_trace_says(made: MadeRun) -> None:
    def notes_if_seen(owner: str) -> list[str]:
        told = rank_record(0, (1.0, 0.5)).model_copy(update={"owned": (Owned(group="0", seq=13, owner=owner),)})
        write_record(made.launch.rank_record(0), told)
        return [note for note in derive_tables(made.launch).notes if "another owner" in note]

    assert notes_if_seen("bucket 0") == []
    (note,) = notes_if_seen("layers.0")
    assert note.startswith("rank 0: 1 of 1 collective has another owner")


@pytest.mark.parametrize(("taken", "is_said"), [(None, False), (0.019, False), (0.5, True)])
def test_times_of_a_training_states_stages_are_not_told_where_others_had_the_cores(
    made: MadeRun, taken: float | None, is_said: bool
) -> None:
    stage = StageRecord(stage=Stage.GATHER, part=StatePart.MODEL, duration_ns=(7,), state_bytes=40)
    for rank, fraction in ((0, None), (1, taken)):
        path = made.launch.rank_record(rank)
        update = {"extras": RankExtras(state_dict=StateDictRecord(stages=(stage,), taken_fraction=fraction))}
        write_record(path, RankRecord.model_validate_json(path.read_bytes()).model_copy(update=update))
    cell = summarize_run(made.folder.path).cells[0]
    notes = [note for note in cell.notes if "no time of a stage, load or save is judged" in note]
    assert len(notes) == is_said
    assert math.isnan(find_number(cell, read_value("stages.model.gather.duration_ns"))) is is_said
    assert find_number(cell, read_value("stages.model.gather.state_bytes")) == 40
    linked = (cell.stages[0].model_copy(update={"link_ns": 5.0}),)
    of_link = find_number(cell.model_copy(update={"stages": linked}), read_value("stages.model.gather.link_ns"))
    assert of_link == 5, "a formula's time is nobody's to disturb"


@pytest.mark.parametrize(("stolen", "is_said"), [(None, False), (0, False), (0.019, False), (0.02, True), (0.5, True)])
def test_a_note_says_how_much_of_the_machine_others_had(made: MadeRun, stolen: float | None, is_said: bool) -> None:
    path = made.launch.rank_record(1)
    write_record(path, RankRecord.model_validate_json(path.read_bytes()).model_copy(update={"stolen_fraction": stolen}))
    notes = [note for note in summarize_run(made.folder.path).cells[0].notes if "of its cores" in note]
    assert len(notes) == is_said
    assert all(f"had {100 * (stolen or 0):.1f} % of its cores" in note for note in notes)


def test_steps_that_others_disturbed_are_left_out_of_all_numbers_and_counted(made: MadeRun, recorded: Path) -> None:
    """Of five MEASURED steps two were stolen from, and of four PROFILED ones, three of which are in the trace."""
    durations_ms = {1: (10, 0.0), 2: (500, 0.3), 3: (20, 0.01), 4: (30, math.nan), 5: (600, 0.02)}
    measured = [(0, n, "MEASURED", 0, ms * MS, 5 * MS, stolen) for n, (ms, stolen) in durations_ms.items()]
    numbers = sorted(set(read_tables(made.launch).overlap["step"]))
    profiled = [(0, n, "PROFILED", 0, 40 * MS, 5 * MS, 0.5 * (n == numbers[0])) for n in (*numbers, 99)]
    table = pd.DataFrame([*measured, *profiled], columns=list(STEPS.dtypes)).astype(STEPS.dtypes)
    both = pd.concat([table, table.assign(rank=1, stolen_fraction=math.nan)], ignore_index=True)
    write_table(made.launch.steps, both)
    before = read_tables(made.launch)
    (cell,) = summarize_run(made.folder.path).cells
    assert (cell.step_time.median, cell.step_time.count) == (20 * MS, 3)
    kept = before.overlap[before.overlap["step"] != numbers[0]]
    assert len(kept) < len(before.overlap)
    assert cell.ranks[0].steps == len(kept)
    assert cell.ranks[0].exposed_comm_ns == pytest.approx(kept["exposed_comm_ns"].mean(), abs=1)
    assert cell.left_out_steps == {Phase.MEASURED: 2, Phase.PROFILED: 1}
    (note,) = (note for note in cell.notes if "steps are left out" in note)
    assert note == (
        "launch0: 2 MEASURED and 1 PROFILED steps are left out: "
        "other virtual machines had 2.0 % of the cores or more in them"
    )


def test_where_nothing_was_left_alone_the_report_says_what_is_left(made: MadeRun) -> None:
    stolen = (0.9, 0.4, 0.5, 0.6, 0.8)
    rows = [
        (rank, step, "MEASURED", 0, 10 * MS, 5 * MS, fraction)
        for rank in (0, 1)
        for step, fraction in enumerate(stolen)
    ]
    write_table(made.launch.steps, pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes))
    notes = summarize_run(made.folder.path).cells[0].notes
    left_out = "launch0: 2 MEASURED steps are left out: other virtual machines had 2.0 % of the cores or more in them"
    assert f"{left_out}; the least disturbed are kept, with 50.0 % there" in notes


@pytest.mark.parametrize(
    ("measured", "profiled", "found"),
    [
        ((0.0,) * 8, (0.0,) * 3, []),
        ((0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0), (0.0,) * 3, []),
        ((0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0), (0.0,) * 3, [(Phase.MEASURED, 8, 3)]),
        ((0.0,) * 8, (0.5, 0.5, 0.0), [(Phase.PROFILED, 3, 1)]),
        ((math.nan,) * 8, (math.nan,) * 3, []),
        ((0.5,) * 8, (0.5,) * 3, [(Phase.MEASURED, 8, 0), (Phase.PROFILED, 3, 0)]),
        ((0.015,) * 8, (0.0,) * 3, []),
    ],
)
def test_a_phase_of_which_processes_left_less_than_half_alone_judges_nothing(
    made: MadeRun, measured: Sequence[float], profiled: Sequence[float], found: list[tuple[Phase, int, int]]
) -> None:
    rows = [
        (rank, step, "MEASURED" if step < 8 else "PROFILED", 0, 10 * MS, 5 * MS, 0.0, 0.0, taken if rank else 0.0)
        for rank in (0, 1)
        for step, taken in enumerate((*measured, *profiled))
    ]
    write_table(
        made.launch.steps,
        pd.DataFrame(rows, columns=[*STEPS.dtypes, *{one.name: one.dtype for one in USES}]).astype(
            {**STEPS.dtypes, **{one.name: one.dtype for one in USES}}
        ),
    )
    taker = TookCores(phase=Phase.MEASURED, pid=7, name="cc1", cores=0.5, of_cores=2)
    write_record(made.launch.launch, read_launch(made.launch).model_copy(update={"takers": (taker,)}))
    (cell,) = summarize_run(made.folder.path).cells
    assert [(one.phase, one.steps, one.left_alone) for one in cell.disturbed] == found
    assert all(one.takers == ((taker,) if one.phase is Phase.MEASURED else ()) for one in cell.disturbed)
    assert (check_word(cell) == "cores taken") is bool(found)
    left_out = [note for note in cell.notes if "steps are left out" in note]
    assert all("others had 2.0 % of the cores or more in them" in note for note in left_out)
    judged = [note for note in cell.notes if note.startswith("nothing is judged by these numbers: ")]
    named = [note for note in (*left_out, *judged) if "cc1 (pid 7) took 0.50 of 2 cores" in note]
    is_named = bool(left_out) or Phase.MEASURED in [phase for phase, *_ in found]
    assert len(named) == is_named, "nothing is left out without a name, which is said once"
    assert len(judged) == bool(found)
    assert len(left_out) == (sum(fraction >= 0.02 for fraction in measured) in (4, 5))


def test_what_was_seen_of_gpus_is_noted(made: MadeRun) -> None:
    hot = HeldBack(gpu=1, why="heat", share=0.5, clock_mhz=1200.0, most_clock_mhz=1980)
    update = {"held_back": (hot, hot.model_copy(update={"gpu": 2, "share": 0.01})), "gpus_unseen": ("nobody asks",)}
    write_record(made.launch.launch, read_launch(made.launch).model_copy(update=update))
    (cell,) = summarize_run(made.folder.path).cells
    told = [note for note in cell.notes if "GPU" in note]
    assert told == [f"launch0: {hot.words}", "launch0: who else had the GPUs is not known: nobody asks"]


@pytest.mark.parametrize("is_own", [True, False])
def test_what_lies_between_the_steps_of_a_loop_of_ones_own_is_counted_and_compared(
    made: MadeRun, *, is_own: bool
) -> None:
    times = [(1, "MEASURED", 0, 20), (2, "MEASURED", 80, 20), (3, "MEASURED", 160, 20), (4, "PROFILED", 900, 40)]
    rows = [
        (rank, step, phase, start * MS, length * MS, 5 * MS, 0.0)
        for rank in (0, 1)
        for step, phase, start, length in times
    ]
    write_table(made.launch.steps, pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes))
    run = read_run(made.folder.path)
    if is_own:
        loop = OwnLoop(
            script="train.py", device=DeviceKind.CPU, backend="gloo", mesh=(), ranks=2, min_warmup_steps=8,
            max_warmup_steps=60, measured_steps=3, profiled_steps=1, tokens_per_step=1000, notes=(),
        )  # fmt: skip
        write_record(
            made.folder.run,
            run.model_copy(update={"cells": (OwnLoopCell(name="ddp", plan=loop, launches=(0,)),)}),
        )
    data = read_run_data(made.folder.path)
    (cell,) = summarize_run(made.folder.path).cells
    measured, _ = measure_launch(data.cells[0], 0, "unknown", is_doubted=False)
    compared = [one.value for one in measured.measurements if one.metric == "between_steps"]
    said = "60.0 ms lie between a MEASURED step and the next, in the mean, 75.0 % of the time"
    if not is_own:
        assert (cell.between_steps, compared) == (None, [])
        assert not any(said in note for note in cell.notes)
        assert throughput_words(cell) == "50.0 k tokens/s"
        return
    assert cell.between_steps == BetweenSteps(between_ns=60 * MS, cycle_ns=80 * MS)
    assert compared == [60 * MS]
    assert f"{said} (batches that are loaded there, evaluation, logging): it is in no step time" in cell.notes
    assert throughput_words(cell) == "50.0 k tokens/s in steps alone, 12.5 k with what lies between them"
    slow = cell.model_copy(update={"between_steps": BetweenSteps(between_ns=0.1 * MS, cycle_ns=334 * MS)})
    assert throughput_words(slow) == "50.0 k tokens/s in steps alone, 49.8 k with what lies between them"
    unknown = cell.model_copy(update={"between_steps": None})
    assert throughput_words(unknown) == "50.0 k tokens/s in steps alone"


@pytest.mark.parametrize(("throttled", "is_said"), [(None, False), (0.01, False), (0.1, True)])
def test_a_limit_on_cpu_time_is_a_note(made: MadeRun, throttled: float | None, *, is_said: bool) -> None:
    update = {"throttled_fraction": throttled}
    write_record(made.launch.launch, read_launch(made.launch).model_copy(update=update))
    (cell,) = summarize_run(made.folder.path).cells
    assert (
        any("a limit on CPU time held the ranks back for 10.0 % of the time" in note for note in cell.notes) is is_said
    )


def test_what_guests_and_processes_had_adds_up(made: MadeRun) -> None:
    rows = [(rank, step, "MEASURED", 0, 10 * MS, 5 * MS, 0.015, 0.0, 0.015) for rank in (0, 1) for step in range(8)]
    write_table(
        made.launch.steps,
        pd.DataFrame(rows, columns=[*STEPS.dtypes, *{one.name: one.dtype for one in USES}]).astype(
            {**STEPS.dtypes, **{one.name: one.dtype for one in USES}}
        ),
    )
    (cell,) = summarize_run(made.folder.path).cells
    assert [one.left_alone for one in cell.disturbed] == [0]


def test_a_table_of_steps_from_before_others_were_looked_at_is_read(made: MadeRun) -> None:
    write_table(made.launch.steps, read_table(made.launch.steps).drop(columns="stolen_fraction"))
    (cell,) = summarize_run(made.folder.path).cells
    assert (cell.step_time.count, cell.left_out_steps) == (3, {})


def test_another_plan_does_not_match(tmp_path: Path, scenario: Callable[..., Scenario], recorded: Path) -> None:
    run = make_run(tmp_path / "run", scenario(), planned_bytes=17)
    fill_launch(run.launch, recorded)
    (purpose,) = summarize_run(run.folder.path).cells[0].purposes
    assert (purpose.planned_count, purpose.planned_size_bytes, purpose.matches_plan) == (3, 17, False)


@pytest.mark.parametrize(
    ("size_bytes", "matches"), [(3 * 4_194_304, True), (17, False)], ids=["as expected", "other bytes"]
)
def test_a_rank_that_expects_bytes_only_is_believed_over_the_plan(
    tmp_path: Path, scenario: Callable[..., Scenario], recorded: Path, size_bytes: int, matches: bool
) -> None:
    run = make_run(tmp_path / "run", scenario(), planned_bytes=5)
    fill_launch(run.launch, recorded)
    expected = ExpectedTraffic(purpose=Purpose.GRAD_REDUCE, count=None, size_bytes=size_bytes)
    for rank in (0, 1):
        record = rank_record(rank, (1.0 + rank, 0.5)).model_copy(update={"planned": (expected,)})
        write_record(run.launch.rank_record(rank), record)
    (purpose,) = summarize_run(run.folder.path).cells[0].purposes
    assert (purpose.planned_count, purpose.planned_size_bytes, purpose.matches_plan) == (None, size_bytes, matches)


@pytest.mark.parametrize("changed", [{"size_bytes": 17}, {"count": 1}])
def test_measured_steps_are_held_to_the_plan_as_profiled_ones_are(
    tmp_path: Path, scenario: Callable[..., Scenario], recorded: Path, changed: dict[str, int]
) -> None:
    run = make_run(tmp_path / "run", scenario(), planned_bytes=3 * 4_194_304)
    fill_launch(run.launch, recorded)
    record = rank_record(1, (2.0, 0.5))
    assert summarize_run(run.folder.path).cells[0].purposes[0].matches_plan
    (traffic,) = record.traffic
    other = record.model_copy(update={"traffic": (traffic.model_copy(update=changed),)})
    write_record(run.launch.rank_record(1), other)
    cell = summarize_run(run.folder.path).cells[0]
    assert cell.purposes[0].matches_plan is False
    assert any("recorded other collectives in MEASURED steps" in note for note in cell.notes)


def test_derived_tables_are_made_once_read_back_and_can_be_made_again(made: MadeRun) -> None:
    first = summarize_run(made.folder.path)
    assert all(made.launch.derived_table(table.name).exists() for table in TABLES)
    trace = made.launch.find_traces()[0]
    content = trace.read_bytes()
    trace.unlink()
    trace.write_bytes(b"")  # nobody reads it a second time
    assert summarize_run(made.folder.path).model_dump_json() == first.model_dump_json()
    trace.write_bytes(content)
    made.launch.overlap.unlink()
    assert list(analyze_run(made.folder.path)) == [("ddp", 0)]
    assert summarize_run(made.folder.path).model_dump_json() == first.model_dump_json()


def test_tables_on_disk_have_the_columns_and_types_that_are_written_down(made: MadeRun) -> None:
    analyze_run(made.folder.path)
    for table in TABLES:
        written = read_table(made.launch.derived_table(table.name))
        assert {name: str(dtype) for name, dtype in written.dtypes.items()} == table.dtypes
    assert read_table(made.launch.derived_table("collectives"))["seq"].notna().all()


def drop_a_column_and_a_table(launch: LaunchFolder) -> None:
    """Leave what a dtbench would have written that knew less."""
    overlap = launch.overlap
    write_table(overlap, read_table(overlap).drop(columns=["exposed_copy_ns"]))
    launch.derived_table("collectives").unlink()


def test_tables_of_a_version_that_knew_less_are_made_again(made: MadeRun) -> None:
    first = read_tables(made.launch)
    drop_a_column_and_a_table(made.launch)
    again = read_tables(made.launch)
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(again.tables[name], table)
    assert again.notes == first.notes


def test_a_derived_table_that_is_broken_is_made_again_from_the_traces(made: MadeRun) -> None:
    first = read_tables(made.launch)
    made.launch.overlap.write_bytes(b"PAR1")
    again = read_tables(made.launch)
    pd.testing.assert_frame_equal(again.overlap, first.overlap)
    pd.testing.assert_frame_equal(pd.read_parquet(made.launch.overlap), first.overlap)
    for trace in made.launch.find_traces().values():
        trace.unlink()
    made.launch.overlap.write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"overlap\.parquet: not a readable table"):
        read_tables(made.launch)


def lose_rank(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["rank"] == 0]


def lose_step(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[:-1]


def say_twice(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame[:1]])


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lose_rank, r"steps of a complete launch are lost: rank 1 has 0 of \d+"),
        (lose_step, r"steps of a complete launch are lost: rank 1 has \d+ of \d+"),
        (lambda frame: frame[:0], "steps of a complete launch are lost: there are none"),
        (say_twice, "has steps twice"),
    ],
)
def test_a_complete_launch_that_lost_steps_is_refused(
    made: MadeRun, lose: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    write_table(made.launch.steps, lose(read_table(made.launch.steps)))
    with pytest.raises(StoreError, match=rf"steps\.parquet: {said}.*was it"):
        summarize_run(made.folder.path)


@pytest.mark.parametrize(("node", "where"), [(0, "b:/copy"), (1, "a:/results/1")])
def test_ranks_of_a_node_that_shares_no_folder_are_not_called_lost(made: MadeRun, node: int, where: str) -> None:
    places = [NodePlace(node=0, host="a", folder="/results/1", is_apart=False)]
    places.append(NodePlace(node=1, host="b", folder="/copy", is_apart=True))
    write_record(made.folder.nodes, NodesRecord(node=node, nodes=tuple(places)))
    write_table(made.launch.steps, lose_rank(read_table(made.launch.steps)))
    said = rf"rank 1 has 0 of \d+; other nodes have theirs in {where}: `dtbench merge` joins them"
    with pytest.raises(StoreError, match=said):
        summarize_run(made.folder.path)


def test_tables_with_ranks_whose_traces_are_lost_are_not_replaced(made: MadeRun) -> None:
    first = read_tables(made.launch)
    other = first.overlap.assign(rank=1)
    write_table(made.launch.overlap, pd.concat([first.overlap, other]))
    made.launch.derived_table("gaps").write_bytes(b"PAR1")
    for again in (read_tables(made.launch), analyze_run(made.folder.path)["ddp", 0]):
        assert set(again.overlap["rank"]) == {0, 1}
        assert len(again.tables["gaps"]) == len(first.tables["gaps"]), (
            "what is broken comes from the traces that are there"
        )
        assert any("tables of an earlier analysis are kept: they hold rank 1" in note for note in again.notes)
        assert set(read_table(made.launch.overlap)["rank"]) == {0, 1}


def test_the_environment_of_a_launch_stands_in_for_a_broken_copy(made: MadeRun) -> None:
    shutil.copy(EXAMPLE / "env.json", made.folder.environment)
    before = summarize_run(made.folder.path)
    assert before.host != "unknown"
    made.folder.environment.write_text("{", encoding="utf-8")
    assert summarize_run(made.folder.path).host == "unknown"
    made.launch.environment.parent.mkdir(exist_ok=True)
    shutil.copy(EXAMPLE / "env.json", made.launch.environment)
    after = summarize_run(made.folder.path)
    assert (after.host, after.torch, after.device) == (before.host, before.torch, before.device)


def test_a_link_to_a_trace_that_is_gone_is_no_trace(made: MadeRun) -> None:
    first = read_tables(made.launch)
    made.launch.trace(1, 1).symlink_to("nowhere")
    assert list(made.launch.find_traces()) == [0]
    again = read_tables(made.launch)  # older than no trace that is left
    pd.testing.assert_frame_equal(again.overlap, first.overlap)


@pytest.mark.parametrize("attrs", [{"unread_events": "many"}, {"notes": 3}, {"unknown_names": [[1]]}])
def test_a_table_that_says_odd_things_of_itself_is_made_again(made: MadeRun, attrs: dict[str, Any]) -> None:
    first = read_tables(made.launch)
    odd = pd.read_parquet(made.launch.overlap)
    odd.attrs.update(attrs)
    odd.to_parquet(made.launch.overlap, index=False)
    again = read_tables(made.launch)
    assert (again.notes, again.unread_events, again.unknown_names) == (
        first.notes,
        first.unread_events,
        first.unknown_names,
    )


def test_tables_of_a_version_that_knew_less_are_read_as_they_are_where_the_traces_are_gone(made: MadeRun) -> None:
    first = read_tables(made.launch)
    drop_a_column_and_a_table(made.launch)
    for trace in made.launch.find_traces().values():
        trace.unlink()
    again = read_tables(made.launch)
    assert again.overlap["exposed_copy_ns"].isna().all()
    assert again.overlap["exposed_comm_ns"].tolist() == first.overlap["exposed_comm_ns"].tolist()
    assert list(again.collectives.columns) == list(first.collectives.columns)
    assert len(again.collectives) == 0
    assert again.lacking == ("collectives",)
    (cell,) = summarize_run(made.folder.path).cells
    assert "collectives.parquet cannot be made: the traces of this launch are gone" in cell.notes


def test_a_damaged_trace_of_one_rank_is_left_out_and_said(made: MadeRun) -> None:
    content = made.launch.find_traces()[0].read_bytes()
    made.launch.trace(1, 1).write_bytes(content[:5000])
    (cell,) = summarize_run(made.folder.path).cells
    assert [rank.rank for rank in cell.ranks] == [0]
    assert any("rank 1 is left out" in note and "did the rank die" in note for note in cell.notes)
    (again,) = summarize_run(made.folder.path).cells  # the note outlives the analysis
    assert again.notes == cell.notes


def test_a_run_that_never_ended_is_summarised_with_what_is_there(
    tmp_path: Path, scenario: Callable[..., Scenario]
) -> None:
    run = make_run(tmp_path / "run", scenario(), planned_bytes=17, status=RunStatus.RUNNING)
    run.launch.path.mkdir(parents=True)
    summary = summarize_run(run.folder.path)
    (cell,) = summary.cells
    assert summary.reason is not None
    assert summary.reason.startswith("incomplete")
    assert (summary.torch, cell.status, cell.purposes, cell.ranks, cell.memory) == (
        "unknown",
        RunStatus.RUNNING,
        (),
        (),
        None,
    )
    for number in (cell.step_time.median, cell.tokens_per_second, cell.hidden_fraction, cell.exposed_step_fraction):
        assert math.isnan(number)
    assert "no PROFILED step was traced: overlap is not known" in cell.notes


def test_a_failed_launch_says_why(made: MadeRun) -> None:
    record = LaunchRecord.model_validate_json(made.launch.launch.read_bytes())
    failed = record.model_copy(update={"status": RunStatus.FAILED, "reason": "rank 1 hung"})
    write_record(made.launch.launch, failed)
    (cell,) = summarize_run(made.folder.path).cells
    assert (cell.status, cell.reason) == (RunStatus.FAILED, "rank 1 hung")


def test_analyzing_a_run_whose_traces_are_gone_keeps_its_tables(made: MadeRun) -> None:
    before = summarize_run(made.folder.path)
    for trace in made.launch.find_traces().values():
        trace.unlink()
    with pytest.raises(TraceError, match="the tables stay as they are"):
        analyze_run(made.folder.path)
    assert all(made.launch.derived_table(table.name).exists() for table in TABLES)
    assert summarize_run(made.folder.path).model_dump_json(exclude=_TRACES) == before.model_dump_json(exclude=_TRACES)


_TRACES: Any = {"cells": {"__all__": {"trace_paths"}}}


def test_a_rank_without_a_trace_is_said_and_not_dropped(made: MadeRun, scenario: Callable[..., Scenario]) -> None:
    wanted = scenario()
    order = WorkerOrder(
        cell="ddp",
        index=0,
        scenario=wanted,
        plan=make_plan(wanted, Machine(cpu_cores=2, cuda_devices=2)),
        folder=str(made.launch.path),
        reference=None,
        is_reference=False,
        launched_unix_ns=None,
    )
    write_record(made.launch.order, order)
    analyze_run(made.folder.path)
    notes = summarize_run(made.folder.path).cells[0].notes
    assert "rank 1 is left out: it has no trace" in notes


ENVIRONMENT = Environment(
    host="here",
    system="test",
    processor="test",
    cores=2,
    memory_bytes=1,
    python="3.12",
    torch="2.13.0",
    cuda=None,
    nccl=None,
    packages={},
    devices=(),
    variables={},
    notes=(),
)


@pytest.mark.parametrize(
    ("device", "cuda", "hip", "runtime", "named"),
    [
        (DeviceKind.CUDA, "13.0", None, Runtime.CUDA, "`CUDA_DEVICE_MAX_CONNECTIONS`"),
        (DeviceKind.CUDA, None, "7.1.2", Runtime.HIP, "`GPU_MAX_HW_QUEUES`"),
        (DeviceKind.CUDA, None, None, None, ""),
        (DeviceKind.CPU, "13.0", None, None, ""),
    ],
)
def test_an_advice_names_the_knobs_of_the_runtime_that_the_ranks_wrote_down(
    made: MadeRun, device: DeviceKind, cuda: str | None, hip: str | None, runtime: Runtime | None, named: str
) -> None:
    run = read_run(made.folder.path)
    plan = run.cells[0].plan.model_copy(update={"device": device})
    write_record(made.folder.run, run.model_copy(update={"cells": (run.cells[0].model_copy(update={"plan": plan}),)}))
    write_record(made.launch.environment, ENVIRONMENT.model_copy(update={"cuda": cuda, "hip": hip}))
    (cell,) = summarize_run(made.folder.path).cells
    assert cell.runtime is runtime
    loss = Loss("x", Purpose.OTHER, None, Cause.SERIALIZED, 5, Carried())
    words = advise_loss(loss, describe_cell(cell))
    assert [knob for knob in ("`CUDA_DEVICE_MAX_CONNECTIONS`", "`GPU_MAX_HW_QUEUES`") if knob in words] == (
        [named] if named else []
    )
    assert ("`NCCL_MAX_CTAS`" in words) is (runtime is Runtime.CUDA)


def test_a_cell_whose_ranks_had_another_torch_says_so(made: MadeRun) -> None:
    environment = ENVIRONMENT
    write_record(made.folder.environment, environment)
    write_record(made.launch.environment, environment)
    assert not any("ran torch" in note for note in summarize_run(made.folder.path).cells[0].notes)
    write_record(made.launch.environment, environment.model_copy(update={"torch": "2.11.0"}))
    assert "the ranks of this cell ran torch 2.11.0" in summarize_run(made.folder.path).cells[0].notes
    write_record(made.launch.environment, environment.model_copy(update={"processor": "other", "torch": "2.11.0"}))
    said = "the ranks of this cell ran torch 2.11.0 on other, 2 cores"
    assert said in summarize_run(made.folder.path).cells[0].notes
    write_record(made.launch.environment, environment.model_copy(update={"torch": "2.16.0", "notes": ("untested",)}))
    summary = summarize_run(made.folder.path)
    assert (summary.environment_notes, "untested" in summary.cells[0].notes) == ((), True)
    write_record(made.folder.environment, environment.model_copy(update={"torch": "2.16.0", "notes": ("untested",)}))
    summary = summarize_run(made.folder.path)
    assert (summary.environment_notes, "untested" in summary.cells[0].notes) == (("untested",), False)


def test_a_cell_keeps_its_place_on_the_axes(made: MadeRun) -> None:
    run = read_run(made.folder.path)
    placed = run.cells[0].model_copy(update={"coordinates": {"seed": "3"}})
    write_record(made.folder.run, run.model_copy(update={"cells": (placed,), "resumed_unix_ns": (5,)}))
    summary = summarize_run(made.folder.path)
    assert summary.cells[0].coordinates == {"seed": "3"}
    assert summary.resumed_unix_ns == (5,)


def test_estimates_of_exposed_communication_come_from_the_records_of_ranks_and_their_traces(
    tmp_path: Path, scenario: Callable[..., Scenario], recorded: Path
) -> None:
    asked = scenario(measure={"exposure": ["trace", "ablation", "wait"]})
    run = make_run(tmp_path / "run", asked, planned_bytes=3 * 4_194_304)
    fill_launch(run.launch, recorded)
    blocks = [ArmBlock(arm=arm, step_ns=(time_ms * MS,) * 3) for arm, time_ms in ((Arm.FULL, 90), (Arm.REMOVED, 70))]
    waits = {Purpose.GRAD_REDUCE: (18 * MS,) * 3}
    arms = ArmSteps(
        blocks=(blocks[0].model_copy(update={"wait_ns": waits}), blocks[1]),
        counts=tuple(ArmCount(arm=arm, operators=9, traffic=()) for arm in (Arm.FULL, Arm.REMOVED)),
    )
    write_record(
        run.launch.rank_record(0), rank_record(0, (1.0, 0.5)).model_copy(update={"extras": RankExtras(exposure=arms)})
    )
    (cell,) = summarize_run(run.folder.path).cells
    assert cell.exposure is not None
    trace, ablation, wait, logger = cell.exposure.rows[0].estimates
    assert round(trace.mean_ns) == pytest.approx(cell.ranks[0].exposed_comm_ns, abs=1)
    assert (ablation.mean_ns, wait.mean_ns) == (20 * MS, 18 * MS)
    assert math.isnan(logger.mean_ns), "DDP's own logger is asked with the waits, and no rank tells of it"
    assert cell.exposure.notes == (
        "the steps for ablation and waits are missing on rank 1",
        "the mean over ranks leaves out rank 1, of which an estimate is missing",
    )


def test_a_run_that_asked_for_the_trace_only_has_no_other_estimates(made: MadeRun) -> None:
    assert summarize_run(made.folder.path).cells[0].exposure is None


def test_analyzing_names_a_launch_that_is_left_out(
    made: MadeRun, recorded: Path, scenario: Callable[..., Scenario], capsys: pytest.CaptureFixture[str]
) -> None:
    run = read_run(made.folder.path)
    write_record(
        made.folder.run, run.model_copy(update={"cells": (run.cells[0].model_copy(update={"launches": (0, 1)}),)})
    )
    torn = made.folder.launch("ddp", 1)
    fill_launch(torn, recorded)
    torn.launch.write_bytes(torn.launch.read_bytes()[:20])

    def analyze(*options: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["analyze", str(made.folder.path), *options])
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    code, out, _ = analyze()
    assert code == 0
    assert "Note: ddp, launch 1 is left out: " in out
    (left_out,) = json.loads(analyze("--json")[1])["left_out"]
    assert (left_out["cell"], left_out["launch"]) == ("ddp", 1)
    assert "launch.json" in left_out["reason"]
    for launch in (made.launch, torn):
        launch.rank_record(0).write_bytes(b"{")
    code, _, err = analyze()
    assert (code, err.count("rank0.json: broken")) == (6, 2)
    assert "no launch of this run can be used: " in err


def test_a_rank_whose_record_is_missing_leaves_every_check_of_its_cell_unjudged(made: MadeRun) -> None:
    made.launch.rank_record(1).unlink()
    (cell,) = summarize_run(made.folder.path).cells
    assert cell.rank_doubts[0] == "launch0: the record of rank 1 is missing, its checks are lost"
    assert cell.rank_doubts[0] in cell.notes


@pytest.mark.parametrize(
    ("content", "said"), [(None, "it has no trace"), (b'{"traceEvents": [', "its trace cannot be used")]
)
def test_a_rank_whose_trace_is_missing_or_broken_leaves_every_check_of_its_cell_unjudged(
    made: MadeRun, content: bytes | None, said: str
) -> None:
    if content is not None:
        made.launch.trace(1, 1).write_bytes(content)
    for _ in range(2):  # made, and read back
        (cell,) = summarize_run(made.folder.path).cells
        assert cell.rank_doubts == (f"launch0: rank 1 is left out: {said}",)
        assert any(cell.rank_doubts[0].removeprefix("launch0: ") in note for note in cell.notes)
        assert check_word(cell) != "passed"


def test_a_record_under_another_ranks_name_is_nobodys(made: MadeRun) -> None:
    shutil.copy(made.launch.rank_record(0), made.launch.rank_record(1))
    with pytest.raises(StoreError, match=r"rank1\.json: holds what rank 0 found out; was it copied or renamed\?"):
        summarize_run(made.folder.path)


def test_a_trace_that_is_another_ranks_leaves_checks_unjudged_also_when_the_tables_are_read_back(made: MadeRun) -> None:
    content = next(iter(made.launch.find_traces().values())).read_bytes()
    made.launch.trace(1, 1).write_bytes(content)
    for _ in range(2):
        (cell,) = summarize_run(made.folder.path).cells
        assert len(cell.rank_doubts) == 1
        assert cell.rank_doubts[0].startswith("launch0: rank")
        assert any(cell.rank_doubts[0].removeprefix("launch0: ") in note for note in cell.notes)


@pytest.mark.parametrize("times", [1, 2])
def test_analyzing_a_run_reads_no_table_that_it_has_just_made(
    made: MadeRun, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The second time it looks once which ranks the tables before it hold; a replay needs the timed steps before."""
    counts: Counter[str] = Counter()
    real = pd.read_parquet

    def read(path: Any, *args: Any, **kwargs: Any) -> pd.DataFrame:
        table = real(path, *args, **kwargs)
        counts[Path(path).name] += 1
        return table

    monkeypatch.setattr(pd, "read_parquet", read)
    for _ in range(times):
        counts.clear()
        with pytest.raises(SystemExit) as ended:
            main(["analyze", str(made.folder.path), "--json"])
        assert not ended.value.code
    assert counts == {"steps.parquet": 2, "gains.parquet": 1, **({"overlap.parquet": 1} if times == 2 else {})}


def test_the_tables_say_of_which_launch_they_are(made: MadeRun) -> None:
    analyze_run(made.folder.path)
    told = {path.name: pd.read_parquet(path).attrs.get("place") for path in made.launch.path.glob("*.parquet")}
    place = {"run": read_run(made.folder.path).run_id, "cell": "ddp", "launch": 0}
    names = [*(table.name for table in TABLES), GAINS.name]
    assert told == {"steps.parquet": None, **{f"{name}.parquet": place for name in names}}


@pytest.mark.parametrize(("units", "is_said"), [(("",), True), (("", "layers.0"), False), ((), False)])
def test_a_custom_model_in_one_unit_of_fsdp_says_so_and_what_shard_by_does(
    tmp_path: Path, recorded: Path, scenario: Callable[..., Scenario], units: tuple[str, ...], is_said: bool
) -> None:
    custom = {"kind": "custom", "factory": "my_model:build"}
    parallel = {"kind": "fsdp2", "shards": 2}
    run = make_run(tmp_path, scenario(model=custom, parallel=parallel), planned_bytes=16)
    fill_launch(run.launch, recorded)
    for rank in (0, 1):
        record = rank_record(rank, (1.0, 0.5)).model_copy(update={"fsdp_units": units})
        write_record(run.launch.rank_record(rank), record)
    (cell,) = summarize_run(tmp_path).cells
    assert any("one unit, the root" in note and "`shard_by=(Block,)`" in note for note in cell.notes) == is_said


@pytest.mark.parametrize(
    ("device", "knobs", "error", "is_said"),
    [
        ("cuda", {"mixed_precision": {"param_dtype": "bfloat16"}}, 0.9, True),
        ("cuda", {"mixed_precision": {"param_dtype": "bfloat16"}}, math.nan, True),
        ("cuda", {"mixed_precision": {"param_dtype": "bfloat16"}}, 0.01, False),
        ("cpu", {}, 0.9, False),
    ],
)
def test_wrong_gradients_of_ddps_mixed_precision_are_said_to_be_torchs(
    tmp_path: Path,
    recorded: Path,
    scenario: Callable[..., Scenario],
    device: str,
    knobs: dict[str, object],
    error: float,
    is_said: bool,
) -> None:
    parallel = {"kind": "ddp", "replicas": 2, **knobs}
    run = make_run(tmp_path, scenario(device=device, parallel=parallel), planned_bytes=16)
    fill_launch(run.launch, recorded)
    found = CorrectnessResult(
        passed=error <= 0.05,
        loss_error=0.001,
        loss_tolerance=0.02,
        gradient_error=error,
        gradient_tolerance=0.05,
        worst_parameter="layers.0",
    )
    write_record(run.launch.rank_record(0), rank_record(0, (1.0, 0.5)).model_copy(update={"correctness": found}))
    (cell,) = summarize_run(tmp_path).cells
    assert any("as torch's DDP is known to make them" in note for note in cell.notes) == is_said
