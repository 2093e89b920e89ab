"""What a person should know before believing a cell's numbers: what is missing, what differs, what others disturbed."""

import math
from collections.abc import Container, Iterator, Sequence
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns, name_ranks
from dtbench.base.vocabulary import Phase
from dtbench.machine.disturbance import DISTURBED, is_enough
from dtbench.runs.cell.summarize_overlap import keep_known, keep_of_steps
from dtbench.runs.cell.worst_ranks import most_state_taken
from dtbench.runs.exposure.estimates import count_left_alone as count_blocks_left_alone
from dtbench.runs.exposure.estimates import read_blocks
from dtbench.runs.reading.cell_data import STEPS_NAME, CellData, LaunchData
from dtbench.runs.reading.lost_evidence import find_lost_evidence, find_unchecked, has_ended
from dtbench.runs.reading.undisturbed import (
    JUDGED,
    count_left_alone,
    describe_left_out,
    find_disturbance,
    keep_finished,
)
from dtbench.runs.reading.untold_others import find_untold
from dtbench.runs.summary import BetweenSteps, Disturbed, Interval
from dtbench.scenario.schema.ddp import Ddp, DdpMixedPrecision
from dtbench.scenario.schema.model import Custom
from dtbench.store.records.checks import CORES_KIND, GPUS_KIND
from dtbench.store.records.checks import DISTURBED as TAKEN
from dtbench.store.records.run import TookCores, TookMachine, UsedGpu, tell_reason_in_a_line
from dtbench.traces.notes.tables import TablesGone
from dtbench.traces.rows.launch_tables import LaunchTables

NOTHING_JUDGED: Final = "nothing is judged by these numbers: "
"""How the note begins that says who had the machine."""

_MOST_NAMED = 3
_FAR = 5.0  # times the median; what a busy machine does to single steps is below it
_LEAST_STEPS = 3
_LEAST_BETWEEN = 0.02  # of the time, from which what lies between steps is told
_ROOT_FQN = ""
_AGAIN = "run it again before you believe a small difference"


def give_notes(
    data: CellData, disturbed: Sequence[Disturbed], profiler_cost: Interval, between: BetweenSteps | None
) -> list[str]:
    """Return the notes of its ranks' records, of its traces, and of the machine: what weighs most first.

    They are for a reader. What anything is judged by is a value of the summary: ``unreadable``, ``disturbed``,
    ``rank_doubts``, ``doubts``.

    Args:
        data: what the cell wrote.
        disturbed: as ``find_disturbed`` gives it.
        profiler_cost: PROFILED over MEASURED step times.
        between: what lies between its MEASURED steps; None: nothing, or not known.
    """
    left_out = [f"launch{index} is left out: {sentence}" for index, sentence in data.unreadable.items()]
    taken = [f"{NOTHING_JUDGED}{describe_disturbed(disturbed)}"] if disturbed else []
    found = (
        *_wrong_gradient_notes(data),
        *_record_notes(data, disturbed),
        *_launch_notes(data.launches),
        *_state_notes(data.launches),
        *_load_notes(profiler_cost),
        *_unit_notes(data),
        *_between_notes(between),
    )
    return [*left_out, *taken, *found]


def _state_notes(launches: Sequence[LaunchData]) -> list[str]:
    """Say that others had cores while a training state went through stages, which no phase covers."""
    taken = most_state_taken([record for launch in launches for record in launch.ranks])
    if taken is None or taken < DISTURBED:
        return []
    had = f"others had {format_fraction(taken)} of the cores while the training state went through stages"
    return [f"{had}: no time of a stage, load or save is judged"]


def _unit_notes(data: CellData) -> list[str]:
    """Say where FSDP has all of a person's model in one unit: then every parameter is there at once, and early."""
    is_custom = data.cell.scenario is not None and isinstance(data.cell.scenario.model, Custom)
    units = {record.fsdp_units for launch in data.launches for record in launch.ranks}
    if not is_custom or units != {(_ROOT_FQN,)}:
        return []
    note = (
        "FSDP has one unit, the root: all parameters are gathered before forward begins and all gradients reduced when "
        "backward ends, with no compute beside them; `shard_by=(Block,)` in TrainingModel makes each Block a unit, "
        "which is gathered while the one before it computes"
    )
    return [note]


def _wrong_gradient_notes(data: CellData) -> list[str]:
    """Say which fault of torch's is known to make the gradients of step 1 wrong, where they are."""
    parallel = None if data.cell.scenario is None else data.cell.scenario.parallel
    is_mixed = isinstance(parallel, Ddp) and parallel.mixed_precision != DdpMixedPrecision()
    checked = [record.correctness for launch in data.launches for record in launch.ranks]
    if not is_mixed or all(one is None or one.gradient_error <= one.gradient_tolerance for one in checked):
        return []
    note = (
        "the gradients of step 1 are wrong, as torch's DDP is known to make them with mixed_precision (torch 2.11 to "
        "2.15): its first backward reduces a buffer that nothing was written to. Those of later backwards are right: "
        "throw the first one's away before the first update (zero_grad), or take precision.autocast"
    )
    return [note]


def _launch_notes(launches: Sequence[LaunchData]) -> list[str]:
    notes = [
        f"{launch.folder.path.name}: {note}" if len(launches) > 1 else note
        for launch in launches
        for note in (*launch.tables.notes, *_name_lacking(launch.tables), *_count_untold(launch.tables))
    ]
    if launches and not any(len(launch.tables.overlap) for launch in launches):
        notes.append(f"{_say_untraced(launches)}: overlap is not known")
    return notes


def _name_lacking(tables: LaunchTables) -> list[str]:
    return [str(TablesGone(tables.lacking))] if tables.lacking else []


def _say_untraced(launches: Sequence[LaunchData]) -> str:
    """Say why no launch tells where time went: no step ran for it, or what was written of such steps is gone."""
    ran = {phase for launch in launches for phase, _, steps in _count_steps(launch) if steps}
    if Phase.PROFILED not in ran:
        return "no PROFILED step was traced"
    return "PROFILED steps ran, and neither a trace nor a table of where their time went is there"


def _count_untold(tables: LaunchTables) -> Iterator[str]:
    """Say how many PROFILED steps, and collectives of the others, are in no mean: their account is not known."""
    overlap, collectives = tables.overlap, tables.collectives
    untold = len(overlap) - len(keep_known(overlap))
    if untold:
        yield f"where the time went is not known of {untold} of {len(overlap)} PROFILED steps of all ranks: left out"
    issued = keep_of_steps(collectives, keep_known(overlap))
    unknown = int(issued["exposed_ns"].isna().sum())
    if unknown:
        known = f"{unknown} of {len(issued)} collectives of steps that are"
        yield f"what was exposed is not known of {known}: means of their owners are over other steps"


def _say_unwatched(launch: LaunchData) -> Iterator[str]:
    """Say where it is not known what others had of the cores; what is lost of it is among the lost evidence."""
    yield from (one.words for one in find_untold(launch) if not (one.is_lost and has_ended(launch)))


def _record_notes(data: CellData, disturbed: Sequence[Disturbed]) -> list[str]:
    """Say what the ranks' records lack or disagree about, and what a launch that completed had to say."""
    notes = find_unchecked(data)
    for launch in data.launches:
        name = launch.folder.path.name
        notes += [f"{name}: {sentence}" for sentence in find_lost_evidence(data, launch)]
        if launch.record is not None and has_ended(launch) and launch.record.reason is not None:
            notes.append(f"{name}: every result was written, but {tell_reason_in_a_line(launch.record.reason)}")
        unstable = [record.rank for record in launch.ranks if not record.traffic_is_stable]
        if unstable:
            notes.append(f"{name}: {name_ranks(unstable)} issued different collectives in different MEASURED steps")
        lost = [record.rank for record in launch.ranks if any(math.isnan(loss) for loss in record.losses)]
        if lost:
            notes.append(f"{name}: the loss of {name_ranks(lost)} became NaN: the model does not train")
        unfinished = _count_unfinished(launch, data.cell.plan.ranks)
        said = {taker for one in disturbed if one.launch == launch.place.launch for taker in one.takers}
        notes += [
            f"{name}: {note}"
            for note in (
                *unfinished,
                *_say_unwatched(launch),
                *_long_step_notes(launch),
                *_disturbance_notes(launch, said),
            )
        ]
    return notes


def _count_unfinished(launch: LaunchData, ranks: int) -> Iterator[str]:
    """Say how many steps no number is of, because some rank did not finish them."""
    steps = launch.steps[launch.steps["phase"].isin(JUDGED)]
    lost = steps["step"].nunique() - keep_finished(steps, ranks)["step"].nunique()
    if lost:
        yield f"{count_things(lost, 'step')} that not every rank finished {'is' if lost == 1 else 'are'} left out"


def find_disturbed(data: CellData) -> Iterator[Disturbed]:
    """Yield the phases of launches of which others left too few steps alone for anything to be judged."""
    for launch in data.launches:
        takers = () if launch.record is None else launch.record.takers
        for phase, left_alone, steps in _count_steps(launch):
            if not is_enough(left_alone, steps):
                of_phase = launch.steps[launch.steps["phase"] == phase] if phase else launch.steps
                yield Disturbed(
                    launch=launch.place.launch,
                    of_launches=len(data.launches) + len(data.unreadable),
                    phase=phase,
                    steps=steps,
                    left_alone=left_alone,
                    stolen_fraction=float(of_phase.groupby("step")["stolen_fraction"].max().median()),
                    takers=tuple(taker for taker in takers if phase in (None, taker.phase)),
                )


def _count_steps(launch: LaunchData) -> Iterator[tuple[Phase | None, int, int]]:
    """Yield each phase's steps that others left alone, and all; None: the steps of arms, after all phases."""
    for phase in JUDGED:
        kept = launch.steps["step"][launch.steps["phase"] == phase].nunique()
        yield phase, count_left_alone(launch.steps, phase), kept + len(launch.left_out.get(phase, ()))
    blocks = {record.rank: read_blocks(arms) for record in launch.ranks if (arms := record.extras.exposure) is not None}
    yield None, *count_blocks_left_alone(blocks)


def describe_disturbed(disturbed: Sequence[Disturbed]) -> str:
    """Say who had the cores or GPUs of a cell, and how few steps they left alone.

    Args:
        disturbed: of one cell, at least one.
    """
    launches = list(dict.fromkeys(one.launch for one in disturbed))
    told = [_describe_launch([one for one in disturbed if one.launch == launch]) for launch in launches]
    if disturbed[0].of_launches == 1:
        return told[0]
    named = [f"launch{launch}: {words}" for launch, words in zip(launches, told, strict=True)]
    return ". ".join([*named[:_MOST_NAMED], *_count_more(len(named), " likewise")])


def _describe_launch(phases: Sequence[Disturbed]) -> str:
    left = [f"{one.left_alone} of {one.steps} {one.phase or 'arm'} steps" for one in phases]
    takers = [taker for one in phases for taker in one.takers]
    stolen = max((one.stolen_fraction for one in phases if one.stolen_fraction > 0), default=0.0)
    guests = (
        [f"other virtual machines of the host had {format_fraction(stolen)} of its cores"]
        if stolen >= DISTURBED
        else []
    )
    who = " and ".join([*([name_takers(takers)] if takers else []), *guests]) or "others had the cores"
    return f"{who}; they left {' and '.join(left)} alone"


def _count_more(number: int, words: str = "") -> list[str]:
    """Count what is not named of a number of things; nothing where all are."""
    return [f"{number - _MOST_NAMED} more{words}"] if number > _MOST_NAMED else []


def find_disturbed_kind(disturbed: Sequence[Disturbed]) -> str:
    """Return the kind of result that says who had the machine: its GPUs only where nobody had its cores.

    Args:
        disturbed: at least one.
    """
    takers = [taker for one in disturbed for taker in one.takers]
    has_guests = any(one.stolen_fraction >= DISTURBED for one in disturbed)
    return GPUS_KIND if _had_only_gpus(takers) and not has_guests else CORES_KIND


def _had_only_gpus(takers: Sequence[TookMachine]) -> bool:
    return bool(takers) and all(isinstance(taker, UsedGpu) for taker in takers)


def say_taken(disturbed: Sequence[Disturbed]) -> str:
    """Say what others had of the machine of a cell, as a clause."""
    return TAKEN[find_disturbed_kind(disturbed)]


def name_takers(takers: Sequence[TookMachine]) -> str:
    """Say which other processes had how many cores or GPUs, each once, where it had most; empty where there is none.

    Processes without a name may be the same in two phases, or be named in one: each phase says what those of it had.
    """
    cores: dict[tuple[str | None, int, str], str] = {}
    unnamed: list[str] = []
    found = dict.fromkeys(one for one in takers if isinstance(one, TookCores))
    for one in sorted(found, key=lambda one: -one.cores):
        if one.pid is None:
            unnamed.append(f"{one.words} in {one.phase} steps")
        else:
            cores.setdefault((one.host, one.pid, one.name), one.words)
    gpus: dict[tuple[str | None, int, int], str] = {}
    for used in sorted((one for one in takers if isinstance(one, UsedGpu)), key=lambda one: -one.share):
        gpus.setdefault((used.host, used.gpu, used.pid), used.words)
    named = [*[*cores.values()][:_MOST_NAMED], *_count_more(len(cores)), *unnamed]
    return " and ".join([*named, *[*gpus.values()][:_MOST_NAMED], *_count_more(len(gpus))])


def _long_step_notes(launch: LaunchData) -> Iterator[str]:
    """Say which MEASURED steps took so much longer than the others that only a median holds."""
    measured = launch.steps[launch.steps["phase"] == Phase.MEASURED]
    step_ns = measured.groupby("step")["duration_ns"].max()
    if len(step_ns) < _LEAST_STEPS:
        return
    typical_ns = float(step_ns.median())
    long_ns = step_ns[step_ns > _FAR * typical_ns].sort_values(ascending=False)
    if not len(long_ns):
        return
    named = [f"step {step} took {format_ns(time_ns)}" for step, time_ns in long_ns.items()][:_MOST_NAMED]
    more = f" and {len(long_ns) - len(named)} more likewise" if len(long_ns) > len(named) else ""
    yield (
        f"of {len(step_ns)} MEASURED steps, half of which took {format_ns(typical_ns)} or less, "
        f"{', '.join(named)}{more}: the median holds, a mean would not"
    )


def _disturbance_notes(launch: LaunchData, said: Container[TookMachine]) -> Iterator[str]:
    """Say what others had of the machine, and which steps are left out for it.

    Args:
        launch: what it wrote.
        said: who is named by another note.
    """
    stolen = max((record.stolen_fraction or 0.0 for record in launch.ranks), default=0.0)
    if stolen >= DISTURBED:
        yield f"other virtual machines of the host had {format_fraction(stolen)} of its cores; {_AGAIN}"
    throttled = 0.0 if launch.record is None else launch.record.throttled_fraction or 0.0
    if throttled >= DISTURBED:
        yield (
            f"a limit on CPU time held the ranks back for {format_fraction(throttled)} of the time: "
            "plan for as many cores as their control group may use"
        )
    if launch.record is not None:
        yield from (one.words for one in launch.record.held_back if one.share >= DISTURBED)
        yield from (f"who else had the GPUs is not known: {why}" for why in launch.record.gpus_unseen)
    if launch.left_out:
        kept = find_disturbance(launch.steps)
        takers = () if launch.record is None else launch.record.takers
        who = name_takers([taker for taker in takers if taker not in said])
        rest = f"; the least disturbed are kept, with {format_fraction(kept)} there" if kept >= DISTURBED else ""
        disturbed = launch.left_out_rows.get(STEPS_NAME, launch.steps)
        by_processes = "taken_fraction" in disturbed and bool((disturbed["taken_fraction"] >= DISTURBED / 2).any())
        others = "others" if takers or by_processes else "other virtual machines"
        of = "a GPU" if _had_only_gpus(takers) else "the cores"
        yield f"{describe_left_out(launch.left_out, others=others, of=of)}{rest}{f'; {who}' if who else ''}"


def _load_notes(profiler_cost: Interval) -> list[str]:
    """Say when PROFILED steps were faster: no profiler makes them so, and what did is not known."""
    if not profiler_cost.high < 1:
        return []
    return ["PROFILED steps were faster than MEASURED ones, which no profiler makes them: why is not known"]


def _between_notes(between: BetweenSteps | None) -> list[str]:
    """Say how much of the time was in no step, where that is not next to nothing."""
    if between is None or between.fraction < _LEAST_BETWEEN:
        return []
    lies = f"{format_ns(between.between_ns)} lie between a MEASURED step and the next, in the mean"
    share = f"{format_fraction(between.fraction)} of the time"
    return [f"{lies}, {share} (batches that are loaded there, evaluation, logging): it is in no step time"]
