"""One cell of a run as numbers: step time, profiler cost, throughput, and where the communication went.

Throughput comes only from MEASURED steps, overlap only from PROFILED ones.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dtbench.analyze.exposure.summarize import LaunchExposure, summarize_exposure
from dtbench.analyze.kinds.unknown import sum_names
from dtbench.analyze.launch_tables import LaunchTables
from dtbench.analyze.peaks import peak_flops
from dtbench.analyze.stage_plan import StagePlan
from dtbench.analyze.statistics import summarize, summarize_launches, summarize_ratio
from dtbench.analyze.summarize_overlap import fraction, summarize_purposes, summarize_ranks
from dtbench.analyze.summarize_owners import summarize_owners
from dtbench.analyze.summarize_probes import summarize_probes
from dtbench.analyze.summarize_stages import summarize_stages
from dtbench.analyze.summarize_state_steps import summarize_state_steps
from dtbench.analyze.summarize_waits import summarize_gradient_waits
from dtbench.analyze.summary import CellSummary, ExposureSummary, Interval
from dtbench.analyze.undisturbed import LeftOut, find_disturbance
from dtbench.disturbance import DISTURBED
from dtbench.scenario.schema import Fsdp2, Scenario
from dtbench.store.layout import LaunchFolder
from dtbench.store.records import (
    CanaryResult,
    CellRecord,
    Compilation,
    CorrectnessResult,
    LaunchRecord,
    Memory,
    OwnLoopCell,
    RankRecord,
    Receipt,
    ReceiptOutcome,
    RunStatus,
    WarmupEnd,
)
from dtbench.units import NS_PER_S, format_fraction
from dtbench.vocabulary import Phase

_AGAIN = "run it again before you believe a small difference"


@dataclass(frozen=True)
class LaunchData:
    """Everything that one launch wrote, less the steps that other guests of its machine disturbed.

    Attributes:
        record: None for a launch that did not end.
        steps: columns as in ``tables.STEPS``.
        left_out: numbers of the steps that ``steps`` and ``tables`` lack.
    """

    folder: LaunchFolder
    record: LaunchRecord | None
    ranks: tuple[RankRecord, ...]
    steps: pd.DataFrame
    tables: LaunchTables
    left_out: LeftOut = field(default_factory=dict)


@dataclass(frozen=True)
class CellData:
    """Everything that one cell wrote; the run is incomplete when it never said how it ended."""

    cell: CellRecord | OwnLoopCell
    run_is_incomplete: bool
    launches: tuple[LaunchData, ...]


def summarize_cell(data: CellData, device: str) -> CellSummary:
    """Give the numbers of a cell.

    Args:
        data: what it wrote.
        device: name of its accelerator, for the peak.
    """
    cell, launches = data.cell, data.launches
    ranks_planned = cell.plan.ranks
    measured = [job_step_times(launch.steps, Phase.MEASURED, ranks_planned) for launch in launches]
    profiled = [job_step_times(launch.steps, Phase.PROFILED, ranks_planned) for launch in launches]
    step_time = summarize_launches(measured)
    overlap = _stack([launch.tables.overlap for launch in launches])
    purposes = _stack([launch.tables.purposes for launch in launches])
    collectives = _stack([launch.tables.collectives for launch in launches])
    ranks = [record for launch in launches for record in launch.ranks]
    first = next((launch.ranks for launch in launches if launch.ranks), ())
    tokens_per_step = math.nan if cell.plan.tokens_per_step is None else cell.plan.tokens_per_step
    tokens_per_second = tokens_per_step * NS_PER_S / step_time.median if step_time.median else math.nan
    purpose_summaries, purpose_notes = summarize_purposes(purposes, overlap, cell.plan, first)
    status, reason = _status(data)
    profiler_cost = summarize_ratio(_pool(profiled), _pool(measured))
    return CellSummary(
        name=cell.name,
        coordinates=cell.coordinates,
        status=status,
        reason=reason,
        scenario=cell.scenario,
        plan=cell.plan,
        launches=cell.launches,
        step_time=step_time,
        launch_medians_ns=tuple(summarize(times).median for times in measured),
        profiler_cost=profiler_cost,
        time_to_first_step_ns=_median_over_launches(launches),
        tokens_per_second=tokens_per_second,
        model_flops_utilization=_utilization(cell, step_time.median, device),
        memory=_peak_memory(ranks),
        cpu_ns_per_step=_cpu_time(launches),
        hidden_fraction=fraction(overlap, "hidden_comm_ns", "comm_ns"),
        exposed_step_fraction=fraction(overlap, "exposed_comm_ns", "step_ns"),
        purposes=purpose_summaries,
        owners=summarize_owners(collectives, len(overlap)),
        gradient_waits=summarize_gradient_waits(collectives),
        ranks=summarize_ranks(overlap),
        receipts=_worst_receipts(ranks),
        warmup=_worst_warmup(ranks),
        compilation=_slowest_compilation(ranks),
        correctness=_worst_correctness(ranks),
        losses=_mean_losses(first),
        unread_events=sum(launch.tables.unread_events for launch in launches),
        unknown_names=sum_names(launch.tables.unknown_names for launch in launches),
        trace_paths=tuple(str(path) for launch in launches for path in launch.folder.find_traces().values()),
        notes=(*_launch_notes(launches), *purpose_notes, *_record_notes(data), *_load_notes(profiler_cost)),
        exposure=_summarize_exposure(data),
        probes=summarize_probes([record.probes for record in ranks if record.probes is not None]),
        canary=_worst_canary(ranks),
        state_steps=summarize_state_steps([launch.ranks for launch in launches]),
        stages=summarize_stages(
            [launch.ranks for launch in launches],
            StagePlan(cell.scenario, cell.plan.mesh if cell.scenario else (), cell.plan.device),
        ),
        left_out_steps=_count_left_out(launches),
    )


def _summarize_exposure(data: CellData) -> ExposureSummary | None:
    asked = data.cell.scenario.measure.exposure if data.cell.scenario else ()
    launches = [
        LaunchExposure(
            name=launch.folder.path.name,
            has_ended=launch.record is not None or not data.run_is_incomplete,
            ranks=launch.ranks,
            overlap=launch.tables.overlap,
            purposes=launch.tables.purposes,
            collectives=launch.tables.collectives,
        )
        for launch in data.launches
    ]
    return summarize_exposure(asked, launches, data.cell.plan.device)


def _slowest_compilation(ranks: Sequence[RankRecord]) -> Compilation | None:
    found = [record.compilation for record in ranks if record.compilation is not None]
    return max(found, key=lambda compilation: compilation.duration_ns, default=None)


def _count_left_out(launches: Sequence[LaunchData]) -> dict[Phase, int]:
    counts = {phase: sum(len(launch.left_out.get(phase, ())) for launch in launches) for phase in Phase}
    return {phase: count for phase, count in counts.items() if count}


def _stack(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put the launches' tables below each other, with a column ``launch``."""
    return pd.concat([table.assign(launch=place) for place, table in enumerate(tables)], ignore_index=True)


def _pool(launches: Sequence[Sequence[float]]) -> list[float]:
    return [value for values in launches for value in values]


def job_step_times(steps: pd.DataFrame, phase: Phase, ranks: int) -> list[float]:
    """Give the slowest rank's time of each step of a phase, ns; a step that some rank did not finish is left out."""
    chosen = steps[steps["phase"] == phase]
    if not len(chosen):
        return []
    by_step = chosen.groupby("step")["duration_ns"].agg(["max", "count"])
    return [float(time_ns) for time_ns in by_step["max"][by_step["count"] == ranks]]


def _median_over_launches(launches: Sequence[LaunchData]) -> float:
    """Give the time from launch to the end of the first step, of the slowest rank; NaN where ranks were forked."""
    times = [[record.time_to_first_step_ns for record in launch.ranks] for launch in launches]
    slowest = [max(known) for ranks in times if (known := [one for one in ranks if one is not None])]
    return summarize(slowest).median


def _cpu_time(launches: Sequence[LaunchData]) -> float:
    tables = [launch.steps["cpu_ns"][launch.steps["phase"] == Phase.MEASURED] for launch in launches]
    return summarize([float(value) for table in tables for value in table]).median


def _utilization(cell: CellRecord | OwnLoopCell, step_ns: float, device: str) -> float:
    """Give the model's FLOP/s over the peak of all ranks (PaLM, arXiv:2204.02311, appendix B: no recomputation).

    NaN for a person's own loop or model, whose operations nobody counted.
    """
    if isinstance(cell, OwnLoopCell) or cell.plan.flops_per_step is None:
        return math.nan
    peak = peak_flops(device, _compute_dtype(cell.scenario))
    return cell.plan.flops_per_step * NS_PER_S / (step_ns * cell.plan.ranks * peak) if step_ns else math.nan


def _compute_dtype(scenario: Scenario) -> str:
    if scenario.precision.autocast is not None:
        return scenario.precision.autocast
    match scenario.parallel:
        case Fsdp2(mixed_precision=mixed) if mixed.param_dtype is not None:
            return mixed.param_dtype
        case _:
            return scenario.precision.dtype


def _peak_memory(ranks: Sequence[RankRecord]) -> Memory | None:
    """Give the largest peak of any rank, each figure for itself."""
    if not ranks:
        return None
    memories = [record.memory for record in ranks]
    return Memory(
        rss_peak_bytes=max(memory.rss_peak_bytes for memory in memories),
        allocated_peak_bytes=_max_known([memory.allocated_peak_bytes for memory in memories]),
        reserved_peak_bytes=_max_known([memory.reserved_peak_bytes for memory in memories]),
    )


def _max_known(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _worst_correctness(ranks: Sequence[RankRecord]) -> CorrectnessResult | None:
    """Give a result that failed, if any rank of any launch has one, else the one with the largest gradient error."""
    results = [record.correctness for record in ranks if record.correctness is not None]
    return max(
        results,
        key=lambda result: (not result.passed, np.nan_to_num(result.gradient_error, nan=math.inf)),
        default=None,
    )


def _worst_canary(ranks: Sequence[RankRecord]) -> CanaryResult | None:
    """Give a result that failed, naming most, if any rank of any launch has one, else one that nobody can tell."""
    results = [record.canary for record in ranks if record.canary is not None]
    return max(
        results,
        key=lambda result: (result.passed is False, result.passed is None, len(result.missed), result.gradient_error),
        default=None,
    )


def _mean_losses(ranks: Sequence[RankRecord]) -> tuple[float, ...]:
    """Give the mean over ranks: as tensor-parallel peers have equal losses, the mean over data-parallel ranks."""
    return tuple(float(np.mean(losses)) for losses in zip(*(record.losses for record in ranks), strict=False))


def _status(data: CellData) -> tuple[RunStatus, str | None]:
    """Give the worst status of any launch and why; a launch without a record is running or was lost with its run."""
    failed = [launch.record for launch in data.launches if launch.record and launch.record.status is RunStatus.FAILED]
    if failed:
        return RunStatus.FAILED, failed[0].reason
    unfinished = [launch for launch in data.launches if launch.record is None]
    if unfinished and data.run_is_incomplete:
        return RunStatus.RUNNING, f"launch {unfinished[0].folder.path.name} has not ended"
    if unfinished:
        return RunStatus.FAILED, f"launch {unfinished[0].folder.path.name} never ended"
    return RunStatus.COMPLETE, None


def _launch_notes(launches: Sequence[LaunchData]) -> list[str]:
    notes = [
        f"{launch.folder.path.name}: {note}" if len(launches) > 1 else note
        for launch in launches
        for note in launch.tables.notes
    ]
    if not any(len(launch.tables.overlap) for launch in launches):
        notes.append("no PROFILED step was traced: overlap is not known")
    return notes


def _load_notes(profiler_cost: Interval) -> list[str]:
    """Say when the machine changed between phases: a profiler never makes steps faster."""
    if not profiler_cost.high < 1:
        return []
    return ["PROFILED steps were faster than MEASURED ones: the machine's load changed between the phases"]


def _worst_receipts(ranks: Sequence[RankRecord]) -> tuple[Receipt, ...]:
    """Give each knob's receipt, one that disagrees if any rank of any launch has one."""
    worst: dict[str, Receipt] = {}
    for receipt in (receipt for record in ranks for receipt in record.receipts):
        if receipt.knob not in worst or receipt.outcome is ReceiptOutcome.DISAGREES:
            worst[receipt.knob] = receipt
    return tuple(worst.values())


def _worst_warmup(ranks: Sequence[RankRecord]) -> WarmupEnd | None:
    """Give a warm-up that did not settle, if any launch has one, else the longest."""
    return max((record.warmup for record in ranks), key=lambda end: (not end.settled, end.steps), default=None)


def _record_notes(data: CellData) -> list[str]:
    """Say what the ranks' records lack or disagree about, and what a launch that completed had to say."""
    notes = []
    for launch in data.launches:
        name = launch.folder.path.name
        if launch.record is not None and launch.record.status is RunStatus.COMPLETE:
            absent = sorted(set(range(data.cell.plan.ranks)) - {record.rank for record in launch.ranks})
            notes += [f"{name}: the record of rank {rank} is missing, its checks are lost" for rank in absent]
            if launch.record.reason is not None:
                notes.append(f"{name}: every result was written, but {launch.record.reason.splitlines()[0]}")
        unstable = [record.rank for record in launch.ranks if not record.traffic_is_stable]
        notes += [f"{name}: rank {rank} issued different collectives in different MEASURED steps" for rank in unstable]
        lost = [record.rank for record in launch.ranks if any(math.isnan(loss) for loss in record.losses)]
        notes += [f"{name}: the loss of rank {rank} became NaN: the model does not train" for rank in lost]
        notes += [f"{name}: {note}" for note in _disturbance_notes(launch)]
    return notes


def _disturbance_notes(launch: LaunchData) -> Iterator[str]:
    """Say what other guests of the machine had of it, and which steps are left out for it."""
    stolen = max((record.stolen_fraction or 0.0 for record in launch.ranks), default=0.0)
    if stolen >= DISTURBED:
        yield f"other guests of the machine had {format_fraction(stolen)} of its cores; {_AGAIN}"
    if launch.left_out:
        counts = " and ".join(f"{len(steps)} {phase}" for phase, steps in launch.left_out.items())
        kept = find_disturbance(launch.steps)
        others = f"other guests had {format_fraction(DISTURBED)} of the cores or more in them"
        rest = f", and {format_fraction(kept)} in those that are kept" if kept >= DISTURBED else ""
        yield f"{counts} steps are left out: {others}{rest}"
