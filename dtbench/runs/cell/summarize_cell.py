"""One cell of a run as numbers: step time, profiler cost, throughput, and where the communication went.

Throughput comes only from MEASURED steps, overlap only from PROFILED ones.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pandas as pd

from dtbench.base.redaction import redact_variables
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind, Phase, Purpose, Region, Runtime
from dtbench.plan.plan import Plan
from dtbench.plan.traffic.formula import find_own_purposes
from dtbench.runs.cell.between_steps import find_between_steps
from dtbench.runs.cell.cell_notes import find_disturbed, give_notes
from dtbench.runs.cell.peaks import peak_flops
from dtbench.runs.cell.statistics import summarize, summarize_launches, summarize_ratio
from dtbench.runs.cell.summarize_extras import summarize_extras
from dtbench.runs.cell.summarize_overlap import (
    complete,
    find_part,
    find_part_of_records,
    fraction,
    keep_known,
    mean_known,
    summarize_purposes,
    summarize_ranks,
)
from dtbench.runs.cell.summarize_owners import (
    count_unknown_owners,
    say_unowned,
    summarize_others,
    summarize_owners,
)
from dtbench.runs.cell.summarize_waits import summarize_gradient_waits, summarize_idle
from dtbench.runs.cell.worst_ranks import (
    find_contested_knobs,
    peak_memory,
    slowest_compilation,
    worst_correctness,
    worst_receipts,
    worst_warmup,
)
from dtbench.runs.reading.cell_data import CellData, LaunchData, stack
from dtbench.runs.reading.lost_evidence import find_rank_doubts
from dtbench.runs.reading.lost_steps import count_losses, count_lost, count_planned
from dtbench.runs.reading.undisturbed import job_step_times, keep_finished
from dtbench.runs.representative import Doubt, TracedSteps, doubt_launches, doubt_phases, doubt_steps, doubt_traffic
from dtbench.runs.summary import CellSummary, Interval, RegionTimes
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import CellRecord, Environment, OwnLoop, OwnLoopCell, RunStatus
from dtbench.traces.kinds.unknown import sum_names
from dtbench.traces.known_part import KnownPart
from dtbench.traces.rows.launch_tables import LaunchTables, make_empty_tables


def summarize_cell(data: CellData, device: str) -> CellSummary:
    """Return the numbers of a cell.

    Args:
        data: what it wrote.
        device: name of its accelerator, for the peak.
    """
    cell, launches = data.cell, data.launches
    ranks_planned = cell.plan.ranks
    measured = [job_step_times(launch.steps, Phase.MEASURED, ranks_planned) for launch in launches]
    profiled = [job_step_times(launch.steps, Phase.PROFILED, ranks_planned) for launch in launches]
    step_time = summarize_launches(measured)
    overlap, purposes, collectives = (_stack(launches, name) for name in ("overlap", "purposes", "collectives"))
    overlap = complete(overlap, cell.launches, ranks_planned)
    ranks = [record for launch in launches for record in launch.ranks]
    first = next((launch.ranks for launch in launches if launch.ranks), ())
    tokens_per_step = math.nan if cell.plan.tokens_per_step is None else cell.plan.tokens_per_step
    tokens_per_second = tokens_per_step * NS_PER_S / step_time.median if step_time.median else math.nan
    unseen = sum(launch.tables.unseen_collectives for launch in launches)
    purpose_summaries, purpose_notes = summarize_purposes(
        purposes, overlap, cell.plan, first, _find_unplanned(cell), is_whole=not unseen
    )
    status, reason = _status(data)
    environment = next((launch.environment for launch in launches if launch.environment is not None), None)
    profiler_cost = summarize_ratio(_pool(profiled), _pool(measured))
    disturbed = tuple(find_disturbed(data))
    between = None
    if isinstance(cell, OwnLoopCell):
        between = find_between_steps([launch.all_steps for launch in launches], ranks_planned)
    owners = summarize_owners(collectives, overlap)
    unowned = () if unseen else say_unowned(owners, collectives, overlap)
    return CellSummary(
        name=cell.name,
        coordinates=cell.coordinates,
        status=status,
        reason=reason,
        scenario=_hide_secrets(cell.scenario),
        plan=cell.plan,
        launches=cell.launches,
        step_time=step_time,
        launch_medians_ns=tuple(summarize(times).median for times in measured),
        launch_regions=tuple(_mean_regions(launch.ranks, ranks_planned) for launch in launches),
        timed_part=_find_timed(data, measured),
        records_part=_find_recorded(launches, ranks_planned, lambda _record: True),
        first_step_part=_find_recorded(launches, ranks_planned, lambda one: one.time_to_first_step_ns is not None),
        first_step_not_told=_find_no_time(launches),
        compilation_part=_find_recorded(launches, ranks_planned, lambda one: one.compilation is not None),
        profiler_cost=profiler_cost,
        time_to_first_step_ns=_median_over_launches(launches),
        tokens_per_second=tokens_per_second,
        model_flops_utilization=_utilization(cell, step_time.median, device),
        memory=peak_memory(ranks),
        cpu_ns_per_step=_cpu_time(launches, ranks_planned),
        hidden_fraction=math.nan if unseen else fraction(overlap, "hidden_comm_ns", "comm_ns"),
        exposed_step_fraction=fraction(overlap, "exposed_comm_ns", "step_ns"),
        part=find_part(keep_known(overlap), overlap),
        purposes=purpose_summaries,
        owners=owners,
        unknown_owners=count_unknown_owners(collectives, overlap),
        others=summarize_others(collectives, overlap),
        gradient_waits=summarize_gradient_waits(collectives, overlap),
        ranks=summarize_ranks(overlap),
        receipts=worst_receipts(ranks),
        contested_knobs=find_contested_knobs(ranks),
        warmup=worst_warmup(ranks),
        compilation=slowest_compilation(ranks),
        correctness=worst_correctness(ranks),
        losses=_mean_losses(first, cell.plan),
        launch_losses=tuple(_mean_losses(launch.ranks, cell.plan) for launch in launches),
        unread_events=sum(launch.tables.unread_events for launch in launches),
        unknown_names=sum_names(launch.tables.unknown_names for launch in launches),
        trace_paths=tuple(str(path) for launch in launches for path in launch.folder.find_traces().values()),
        notes=(*give_notes(data, disturbed, profiler_cost, between), *purpose_notes, *unowned),
        **summarize_extras(data, profiler_cost.low),
        between_steps=between,
        left_out_steps=_count_left_out(launches),
        disturbed=disturbed,
        unreadable=dict(data.unreadable),
        rank_doubts=find_rank_doubts(data),
        unseen_collectives=unseen,
        doubts=_find_doubts(launches, profiler_cost, overlap, step_time.median),
        idle=summarize_idle(_stack(launches, "gaps"), overlap),
        runtime=None if environment is None or cell.plan.device is DeviceKind.CPU else _find_runtime(environment),
        silent_launches=tuple(launch.place.launch for launch in launches if _is_silent(launch)),
        ranks_per_host=_count_on_host(launches, ranks_planned),
        torch=None if environment is None else environment.torch,
        nccl=None if environment is None else environment.nccl,
    )


def _mean_regions(records: Sequence[RankRecord], ranks: int) -> RegionTimes | None:
    """Return how long ranks were in each region, mean; None where some rank does not tell of each."""
    regions = (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER)
    if len(records) != ranks or not all(region in record.region_ns for record in records for region in regions):
        return None
    forward_ns, backward_ns, optimizer_ns = (
        fmean(record.region_ns[region] for record in records) for region in regions
    )
    return RegionTimes(forward_ns=forward_ns, backward_ns=backward_ns, optimizer_ns=optimizer_ns)


def _is_silent(launch: LaunchData) -> bool:
    """Tell whether nobody wrote down where a launch ran, and it has steps that are held against others'."""
    return launch.environment is None and len(launch.steps) > 0


def _count_on_host(launches: Sequence[LaunchData], ranks: int) -> int | None:
    """Return the most ranks that one host had; None: of no launch it is known of all ranks."""
    whole = [launch.ranks for launch in launches if len(launch.ranks) == ranks]
    counts = [max(Counter(record.host for record in records).values()) for records in whole]
    return max(counts, default=None)


def _find_runtime(environment: Environment) -> Runtime | None:
    if environment.hip is not None:
        return Runtime.HIP
    return None if environment.cuda is None else Runtime.CUDA


def _find_doubts(
    launches: Sequence[LaunchData], profiler_cost: Interval, overlap: pd.DataFrame, measured_ns: float
) -> tuple[Doubt, ...]:
    """Return why PROFILED steps may not stand for the run; none where none was traced."""
    if not len(overlap):
        return ()
    exposed_ns = float(overlap["exposed_comm_ns"].astype("float64").mean())
    of_launches = [
        replace(doubt, launch=launch.place.launch)
        for launch in launches
        for doubt in (*doubt_steps(_read_steps(launch.tables)), *doubt_traffic(*_count_collectives(launch)))
    ]
    cost = (profiler_cost.median, profiler_cost.low, profiler_cost.high)
    typical_ns = {launch.place.launch: mean_known(launch.tables.overlap["step_ns"]) for launch in launches}
    known_ns = {launch: float(step_ns) for launch, step_ns in typical_ns.items() if step_ns is not None}
    return (*doubt_phases(cost, exposed_ns, measured_ns), *doubt_launches(known_ns), *of_launches)


def _read_steps(tables: LaunchTables) -> TracedSteps:
    by_step = keep_known(tables.overlap).groupby("step")
    longest, exposed = by_step["step_ns"].max(), by_step["exposed_comm_ns"].agg(["mean", "count"])
    exposed = exposed["mean"][exposed["count"] == exposed["count"].max()]  # means over other ranks are no series
    return TracedSteps(
        {int(str(step)): float(step_ns) for step, step_ns in longest.items()},
        {int(str(step)): float(exposed_ns) for step, exposed_ns in exposed.items()},
        tables.repeated_steps,
    )


def _count_collectives(launch: LaunchData) -> tuple[dict[int, int], dict[int, Sequence[int]]]:
    """Count, by rank, those that its record has in each MEASURED step, and those that its trace has in PROFILED ones.

    Nothing of who recorded none or different ones, of steps whose purposes are not told, and of traces that tell that
    they lack some.
    """
    if launch.tables.unseen_collectives:
        return {}, {}
    recorded = {
        record.rank: sum(one.count for one in record.traffic)
        for record in launch.ranks
        if record.traffic and record.traffic_is_stable
    }
    told = launch.tables.purposes.groupby(["rank", "step"])["count"].sum()
    comm_ns = keep_known(launch.tables.overlap).set_index(["rank", "step"])["comm_ns"]
    counts = told.reindex(comm_ns.index)
    counts = counts.mask(counts.isna() & (comm_ns == 0), 0).dropna().astype(int)
    return recorded, {int(str(rank)): mine.tolist() for rank, mine in counts.groupby(level="rank")}


def _count_left_out(launches: Sequence[LaunchData]) -> dict[Phase, int]:
    counts = {phase: sum(len(launch.left_out.get(phase, ())) for launch in launches) for phase in Phase}
    return {phase: count for phase, count in counts.items() if count}


def _stack(launches: Sequence[LaunchData], name: str) -> pd.DataFrame:
    """Put a table of the launches below each other; without rows where there is no launch."""
    return stack(launches, name) if launches else make_empty_tables().tables[name].assign(launch=0)


def _find_timed(data: CellData, measured: Sequence[Sequence[float]]) -> KnownPart | None:
    """Return the launches and steps that a step time is of; None where it is of all MEASURED steps, or of none."""
    launches, planned = data.cell.launches, count_planned(data.cell.plan)
    timed = tuple(launch for launch, times in zip(launches, measured, strict=True) if times)
    among = [launch for launch in data.launches if launch.place.launch in timed]
    lost = sum(count_lost(launch.all_steps, planned).get(Phase.MEASURED, 0) for launch in among)
    if not timed or (len(timed) == len(launches) and not lost):
        return None
    steps = len(timed) * planned.get(Phase.MEASURED, 0)
    return KnownPart(
        launches=timed if len(timed) < len(launches) else (),
        of_launches=len(launches),
        steps=steps - lost,
        of_steps=steps,
        counted="MEASURED steps",
        has_every_rank=False,
    )


def _find_recorded(
    launches: Sequence[LaunchData], ranks: int, does_tell: Callable[[RankRecord], bool]
) -> KnownPart | None:
    """Return whose records tell something; None where those of all ranks of all launches do, or none."""
    every = [(launch.place.launch, rank) for launch in launches for rank in range(ranks)]
    told = [(launch.place.launch, one.rank) for launch in launches for one in launch.ranks if does_tell(one)]
    return find_part_of_records(told, every)


def _pool(launches: Sequence[Sequence[float]]) -> list[float]:
    return [value for values in launches for value in values]


def _median_over_launches(launches: Sequence[LaunchData]) -> float:
    """Return the time from launch to the end of the first step, of the slowest rank.

    NaN where ranks were forked, and where one took no time, as none can; see ``_find_no_time``.
    """
    times = [[record.time_to_first_step_ns for record in launch.ranks] for launch in launches]
    slowest = [max(known) for ranks in times if (known := [one for one in ranks if one is not None])]
    if _find_no_time(launches):
        return math.nan
    return summarize(slowest).median


def _find_no_time(launches: Sequence[LaunchData]) -> str:
    """Say which rank told a first step that took no time, as none can, and how long that was; empty: none did."""
    for launch in launches:
        for record in launch.ranks:
            time_ns = record.time_to_first_step_ns
            if time_ns is not None and time_ns <= 0:
                return f"rank {record.rank} of {launch.folder.path.name} tells {time_ns} ns: was a clock set meanwhile?"
    return ""


def _cpu_time(launches: Sequence[LaunchData], ranks: int) -> float:
    """Return the CPU time of a rank in a MEASURED step, median; NaN where some step has none, as no step can."""
    measured = [keep_finished(launch.steps[launch.steps["phase"] == Phase.MEASURED], ranks) for launch in launches]
    times_ns = [float(value) for steps in measured for value in steps["cpu_ns"]]
    return math.nan if any(time_ns <= 0 for time_ns in times_ns) else summarize(times_ns).median


def _utilization(cell: CellRecord | OwnLoopCell, step_ns: float, device: str) -> float:
    """Return the model's FLOP/s over the peak of all ranks (PaLM, arXiv:2204.02311, appendix B: no recomputation).

    NaN for a person's own loop or model, whose operations nobody counted.
    """
    if isinstance(cell, OwnLoopCell) or cell.plan.flops_per_step is None:
        return math.nan
    peak = peak_flops(device, _compute_dtype(cell.scenario))
    return cell.plan.flops_per_step * NS_PER_S / (step_ns * cell.plan.ranks * peak) if step_ns else math.nan


def _find_unplanned(cell: CellRecord | OwnLoopCell) -> frozenset[Purpose]:
    """Return purposes that no plan can be held against: what a person's own functions do, and what is no kernel.

    No kernels are, though ranks are devices, collectives of tensors that were offloaded.
    """
    if isinstance(cell, OwnLoopCell):
        return frozenset()
    own, parallel = find_own_purposes(cell.scenario), cell.scenario.parallel
    is_offloaded = cell.plan.device is not DeviceKind.CPU and isinstance(parallel, Fsdp2) and parallel.cpu_offload
    return own | {Purpose.OTHER} if is_offloaded else own


def _compute_dtype(scenario: Scenario) -> str:
    if scenario.precision.autocast is not None:
        return scenario.precision.autocast
    match scenario.parallel:
        case Ddp(mixed_precision=mixed) | Fsdp1(mixed_precision=mixed) | Fsdp2(mixed_precision=mixed) if (
            mixed.param_dtype is not None
        ):
            return mixed.param_dtype
        case _:
            return scenario.precision.dtype


def _hide_secrets(scenario: Scenario | None) -> Scenario | None:
    """Return a scenario as it may be shown to anybody: what is secret of its variables stays in the run's folder."""
    return None if scenario is None else scenario.model_copy(update={"env": redact_variables(scenario.env)})


def _mean_losses(ranks: Sequence[RankRecord], plan: Plan | OwnLoop) -> tuple[float, ...]:
    """Return the mean over ranks: as tensor-parallel peers have equal losses, the mean over data-parallel ranks.

    None where a rank tells of another number than it has steps: which step's each is nobody knows.
    """
    if any(len(record.losses) != count_losses(record, plan) for record in ranks):
        return ()
    return tuple(float(np.mean(losses)) for losses in zip(*(record.losses for record in ranks), strict=True))


def _status(data: CellData) -> tuple[RunStatus, str | None]:
    """Return the worst status of any launch and why; one without an end is running or was lost with its run."""
    if data.unreadable:
        return RunStatus.FAILED, next(iter(data.unreadable.values()))
    failed = [launch.record for launch in data.launches if launch.record and launch.record.status is RunStatus.FAILED]
    if failed:
        return RunStatus.FAILED, failed[0].reason
    unfinished = [one for one in data.launches if one.record is None or one.record.status is RunStatus.RUNNING]
    if unfinished and data.run_is_incomplete:
        return RunStatus.RUNNING, f"{unfinished[0].folder.path.name} has not ended"
    if unfinished:
        first = unfinished[0].folder
        ended = "has no record of its end: it was killed, or the record is gone"
        if unfinished[0].record is not None:
            ended = f"is {RunStatus.RUNNING} by its record, though its run ended: was the record edited?"
        return RunStatus.FAILED, (
            f"{first.path.name} {ended if first.has_files else 'did not begin, or its files are gone'}"
        )
    return RunStatus.COMPLETE, None
