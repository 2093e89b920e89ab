"""The words of a report, as plain strings: one wording for terminal, Markdown, plots and TensorBoard.

A number that could not be computed reads ``n/a``, never 0.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import Final

from dtbench.base.units import NS_PER_S, count_things, format_bytes, format_count, format_fraction, format_ns
from dtbench.base.vocabulary import REDUCTIONS, Cause, DeviceKind, Operation, Phase, Purpose, StageOutcome
from dtbench.plan.plan import Plan
from dtbench.plan.traffic.formula import find_own_purposes
from dtbench.report.words.advice import Advice, Loss, advise, is_bubble_least, of_run
from dtbench.report.words.causes import describe_cause, describe_leading, find_leading, name_collective, say_part
from dtbench.report.words.cell_knobs import describe_cell
from dtbench.report.words.doubts import (
    NO_FINDING,
    NOT_ALL_LAUNCHES,
    NOT_ALL_OWNERS,
    NOT_SEEN,
    NOT_WHOLE,
    UNRELIABLE,
    UNSEEN_BUBBLE,
    UNSEEN_CONSUMER,
    say_doubts,
)
from dtbench.report.words.gains import bound_by_replay, say_refused
from dtbench.report.words.larger_losses import HostWait, describe_copies, describe_host
from dtbench.runs.cell.cell_notes import say_taken
from dtbench.runs.doubt_words import describe_doubt
from dtbench.runs.plan_notes import is_linked, planned_notes
from dtbench.runs.representative import DoubtKind
from dtbench.runs.summary import CellSummary, Interval, OwnerSummary, PurposeSummary, RunSummary
from dtbench.runs.wrong_results import (
    find_wrong_result,
    find_wrong_results,
    say_unseen,
    why_no_total,
    why_not_whole,
    why_unreliable,
)
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Parallel
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.run import OwnLoop, RunStatus
from dtbench.store.running import describe_neighbours
from dtbench.traces.known_part import KnownPart, name_part

NAN = float("nan")

WAIT_EXPLAINED: Final = (
    "wait: how long a rank was blocked on it; more than comm where waking up takes long, less than exposed where the "
    "rank had other host work to do"
)


def fraction_of(part: float, whole: float) -> float:
    """Return ``part / whole``; NaN when the whole is 0 or unknown."""
    return part / whole if whole > 0 else NAN


def idle_word(cell: CellSummary) -> str:
    """Name what is neither compute, communication nor copy: on CPU it holds Python and dispatch."""
    return "host" if cell.plan.device is DeviceKind.CPU else "idle"


def find_purpose(cell: CellSummary, purpose: Purpose) -> PurposeSummary | None:
    """Return the summary of one purpose; None when the run issued no collective for it."""
    found = [row for row in cell.purposes if row.purpose is purpose and row.count > 0]
    return found[0] if found else None


def profiled_step_ns(cell: CellSummary) -> float:
    """Return the median over ranks of a profiled step; NaN when no step was profiled."""
    return median(row.step_ns for row in cell.ranks) if cell.ranks else NAN


def wait_ns(cell: CellSummary, purpose: Purpose) -> float:
    """Return the wait of one purpose per step, as every table has it; NaN where it is not known or does not occur."""
    row = find_purpose(cell, purpose)
    return NAN if row is None or row.wait_ns is None else row.wait_ns


def wait_part(cell: CellSummary, purpose: Purpose) -> KnownPart | None:
    """Return over what that wait is a mean, where it is not known of all; None: it is, or of nothing."""
    row = find_purpose(cell, purpose)
    return None if row is None else row.wait_part


def wait_word(cell: CellSummary, purpose: Purpose) -> str:
    """Return the wait of one purpose per step, ``none`` where there are no such collectives, ``n/a`` where unknown."""
    is_absent = _are_purposes_told(cell) and find_purpose(cell, purpose) is None and not _count_planned(cell, purpose)
    if is_absent and not _is_own(cell, purpose) and _find_untold(cell, purpose) is None:
        return "none"
    return bound_wait(cell, purpose, format_ns(wait_ns(cell, purpose)))


def wait_sentence(cell: CellSummary, purpose: Purpose) -> str:
    """Say how long a step stood still for one purpose, or why it never did."""
    time_ns, step_ns = wait_ns(cell, purpose), profiled_step_ns(cell)
    if not math.isnan(time_ns):
        part = wait_part(cell, purpose)
        share = fraction_of(time_ns, step_ns) if part == cell.part else NAN  # else of other steps than their length is
        of_step = f"{bound_wait(cell, purpose, format_fraction(share))} of a profiled step"
        shown = of_step if cell.ranks else _why_untold(cell)
        return f"{name_told_part(cell, part)}{bound_wait(cell, purpose, format_ns(time_ns))} per step ({shown})"
    if not cell.ranks:
        return f"n/a: {_why_untold(cell)}"
    if find_purpose(cell, purpose) is not None:
        return f"n/a: {UNSEEN_CONSUMER}"
    if not _are_purposes_told(cell):
        return "n/a: what communication was for is not known"
    return _why_absent(cell, purpose)


_NEVER: Final = {Purpose.GRAD_REDUCE: (Operation.BARRIER,), Purpose.UNSHARD: (*REDUCTIONS, Operation.BARRIER)}
"""What cannot be of a purpose; by any other operation a loop may hand gradients or parameters on, in steps or codes."""


def _are_purposes_told(cell: CellSummary) -> bool:
    """Tell whether it is known what communication was for, or that there was none."""
    return bool(cell.ranks) and bool(cell.purposes or not any(rank.comm_ns for rank in cell.ranks))


def _is_own(cell: CellSummary, purpose: Purpose) -> bool:
    """Tell whether a function of a person's own does it, by collectives or otherwise."""
    return cell.scenario is not None and purpose in find_own_purposes(cell.scenario)


def _find_untold(cell: CellSummary, purpose: Purpose) -> tuple[int, int | None] | None:
    """Return how many a step may be of a purpose, and their bytes: a loop of one's own may hand on what it likes.

    None: nothing is of purpose other, or only what its operation shows to be none, or that it is a number or two.
    """
    other = find_purpose(cell, Purpose.OTHER) if cell.scenario is None else None
    if other is None:
        return None
    if not cell.others:
        return other.count, other.size_bytes
    may_be = [one for one in cell.others if not one.are_numbers and one.operation not in _NEVER[purpose]]
    sizes = [one.size_bytes for one in may_be if one.size_bytes is not None]
    size_bytes = sum(sizes) if len(sizes) == len(may_be) else None
    return (sum(one.count for one in may_be), size_bytes) if may_be else None


def _why_untold(cell: CellSummary) -> str:
    """Say why nothing is known of where the time of profiled steps went."""
    if not cell.launches and cell.unreadable:
        return "all of its launches are left out"
    if cell.purposes:
        return "where the time of its profiled steps went is not known"
    return "no step was profiled" if math.isnan(cell.profiler_cost.median) else "no trace is there"


def lead_waits(cell: CellSummary) -> Iterator[tuple[str, str]]:
    """Yield what leads every report, by name: the two waits that people ask about, of a pipeline its bubble."""
    yield "gradient wait", wait_sentence(cell, Purpose.GRAD_REDUCE)
    yield "unshard wait", wait_sentence(cell, Purpose.UNSHARD)
    if (pipeline := find_purpose(cell, Purpose.PIPELINE)) is not None and cell.ranks:
        yield "pipeline bubble", _bubble_sentence(cell, pipeline)


def _bubble_sentence(cell: CellSummary, pipeline: PurposeSummary) -> str:
    """Say how long a stage of a pipeline stood still for its neighbours, which two ranks' traces show together."""
    rows = [row for row in cell.owners if row.purpose is Purpose.PIPELINE]
    bubble_ns = sum(row.exposed_ns for row in rows if row.cause is Cause.BUBBLE)
    is_unmatched = not bubble_ns and all(row.skew_wait_ns is None for row in rows)
    if pipeline.exposed_ns is None or (pipeline.exposed_ns and is_unmatched):
        return "n/a: no send is matched with its receive"
    parts = {row.part for row in rows} or {cell.part}
    if cell.unknown_owners or len(parts) > 1:
        return f"n/a: {why_no_total(cell)}"
    part = parts.pop()
    share = fraction_of(bubble_ns, profiled_step_ns(cell)) if part == cell.part else NAN
    least = "at least " if cell.is_least or is_bubble_least([of_run(row) for row in rows]) else ""
    if least and not bubble_ns:
        return f"n/a: {UNSEEN_BUBBLE}"
    shown = "n/a" if math.isnan(share) else f"{least}{format_fraction(share)}"
    return f"{name_told_part(cell, part)}{least}{format_ns(bubble_ns)} per step ({shown})"


MOST_ADVICE = 3
"""Sentences on what would change the largest causes."""


def answer_sentence(cell: CellSummary) -> str | None:
    """Say how much communication is exposed, whose most of it is and why; None where no rank was profiled.

    Of which ranks, where that is not all of them, and why nothing is judged by it, if so.
    """
    if not cell.ranks:
        return None
    is_said = cell.part is not None and not cell.part.has_every_rank
    why = next(iter(cell.rank_doubts), why_not_whole(cell))
    unjudged = f"; not judged: {why}" if why is not None and not is_said else ""
    return f"{name_told_part(cell, cell.part)}{_say_exposed(cell)}{unjudged}"


def find_told_part(cell: CellSummary, part: KnownPart | None) -> KnownPart | None:
    """Return of what a number is that is known of a part of what a cell read: of launches that are left out it is not.

    Args:
        cell: whose number it is.
        part: of the launches that were read.
    """
    if not cell.unreadable or not cell.launches:
        return part
    launches = cell.launches if part is None or not part.launches else part.launches
    of_launches = len(cell.launches) + len(cell.unreadable)
    return replace(KnownPart() if part is None else part, launches=launches, of_launches=of_launches)


def name_told_part(cell: CellSummary, part: KnownPart | None) -> str:
    """Return what stands before such a number in a sentence; empty: it is known of all."""
    return name_part(find_told_part(cell, part))


def _say_exposed(cell: CellSummary) -> str:
    exposed_ns = sum(row.exposed_comm_ns for row in cell.ranks) / len(cell.ranks)
    time, share = (
        bound_below(cell, words) for words in (format_ns(exposed_ns), format_fraction(cell.exposed_step_fraction))
    )
    said = f"{time} of a profiled step ({share})"
    if cell.disturbed:
        return f"unreliable, since {say_taken(cell.disturbed)}: {said}"
    if (wrong := find_wrong_results(cell)) is not None:
        return f"unreliable, since {wrong}: {said}"
    doubt = say_doubts(cell.doubts)
    if doubt is not None:
        return f"{said}; {doubt}"
    said = f"{_say_host(cell, exposed_ns)}{_say_copies(cell, exposed_ns)}{said}"
    return f"{said}; {_say_whose(cell)}" if cell.owners and exposed_ns and has_findings(cell) else said


def _say_whose(cell: CellSummary) -> str:
    """Say whose most of what is exposed is and why, or why that is not told."""
    if not cell.is_least and (why := why_no_total(cell)) is not None:
        return f"whose most of it is, is not known: {why}"
    if (part := cell.owners[0].part) not in (None, cell.part):
        return f"whose it is, is known of {part}"
    return describe_leading(cell.owners, 1, _describe_owner)


def least_word(cell: CellSummary) -> str:
    """Return what stands before what was exposed where collectives were launched that nobody saw run."""
    return "at least " if cell.is_least else ""


def bound_below(cell: CellSummary, words: str) -> str:
    """Return a time of communication in words, as a bound where it is one; of n/a it is none."""
    return words if words == "n/a" else f"{least_word(cell)}{words}"


def bound_wait(cell: CellSummary, purpose: Purpose, words: str) -> str:
    """Return a wait in words, as a bound also where not every consumer of its collectives can be seen."""
    row = find_purpose(cell, purpose)
    is_least = row is not None and row.is_wait_least and words != "n/a"
    return f"at least {words}" if is_least else bound_below(cell, words)


def least_sentences(cell: CellSummary) -> tuple[str, ...]:
    """Say which numbers of a cell's tables are bounds; none where all that was launched was seen to run."""
    if (lost := say_unseen(cell)) is None:
        return ()
    return (
        f"{lost}: communication, and what of it was exposed or waited for, is at least this, copies and idle at most",
    )


def _say_host(cell: CellSummary, exposed_ns: float) -> str:
    """Say how long the devices wait for the host, where that is the larger loss."""
    if cell.idle is None or cell.idle.part != cell.part:  # of other steps than what it is set against
        return ""
    unknown_ns = cell.idle.comm_wait_at_most_ns - cell.idle.comm_wait_ns
    return describe_host(
        HostWait(cell.idle.host_wait_ns, cell.idle.host_sync_ns, unknown_ns),
        comm_ns=cell.idle.comm_wait_at_most_ns,
        exposed_ns=exposed_ns,
        step_ns=profiled_step_ns(cell),
        of="a profiled step",
    )


def _say_copies(cell: CellSummary, exposed_ns: float) -> str:
    """Say how long the devices only copied, where that is the larger loss."""
    copies_ns = [rank.exposed_copy_ns for rank in cell.ranks]
    if cell.is_least or None in copies_ns:  # a copy may have run beside what was not seen
        return ""
    copy_ns = sum(time_ns or 0 for time_ns in copies_ns) / len(copies_ns)
    return describe_copies(copy_ns=copy_ns, exposed_ns=exposed_ns, step_ns=profiled_step_ns(cell), of="a profiled step")


def _describe_owner(row: OwnerSummary, of_ns: int) -> str:
    who = name_collective(row.owner or None, row.operation, row.outsized_bytes)
    return f"{who}, {say_part(row.exposed_ns, of_ns)}{describe_cause(row.cause, waited_for=row.waited_for)}"


def has_findings(cell: CellSummary) -> bool:
    """Tell whether causes are findings, for every report: steps stand for others, and records and launches are whole.

    And nothing is unreliable.
    """
    return not (cell.doubts or cell.rank_doubts or why_unreliable(cell) or why_not_whole(cell))


def are_causes_told(cell: CellSummary) -> bool:
    """Tell whether causes of a cell are said: they are findings, and owners' times add up to what is exposed."""
    return bool(cell.owners) and has_findings(cell) and why_no_total(cell) is None


def doubts_of_cells(cells: Iterable[CellSummary]) -> dict[str, str]:
    """Say it of each cell of a run that there is something to say of, also that it is unreliable and why."""
    said = {}
    for cell in cells:
        why, lost = why_unreliable(cell), next(iter(cell.rank_doubts), say_unseen(cell))
        words = f"unreliable, since {why}" if why is not None else f"not judged: {lost}" if lost else None
        words = words or say_doubts(cell.doubts) or (None if is_trusted(cell) else check_word(cell))
        if words is not None:
            said[cell.name] = words
    return said


def doubts_of_owners(cells: Sequence[CellSummary]) -> dict[str, str]:
    """Say likewise why no owner of a cell is told to have most of what is exposed."""
    totals = {cell.name: why for cell in cells if cell.owners and (why := why_no_total(cell)) is not None}
    return {name: f"which owner leaves most exposed is not told: {why}" for name, why in totals.items()} | (
        doubts_of_cells(cells)
    )


def _is_unsure(cell: CellSummary) -> bool:
    return bool(cell.doubts) and all(doubt.kind is DoubtKind.UNSURE_MEASURED for doubt in cell.doubts)


_MORE_LAUNCHES: Final = "More launches may settle it: `--set repeat=4`."


def limit_sentence(cell: CellSummary) -> str | None:
    """Say why no advice follows from whose communication was exposed, and why; None: something may."""
    if not has_findings(cell):
        return _say_no_finding(cell)
    if cell.is_least:
        return NOT_SEEN
    return None if why_no_total(cell) is None else NOT_ALL_OWNERS


def _say_no_finding(cell: CellSummary) -> str:
    if why_unreliable(cell) is not None:
        return UNRELIABLE
    if cell.rank_doubts:
        return NOT_WHOLE
    if why_not_whole(cell) is not None:
        return NOT_ALL_LAUNCHES
    more = f" {_MORE_LAUNCHES}" if cell.scenario and _is_unsure(cell) else ""
    return f"{NO_FINDING}{more}"


def advice_sentences(cell: CellSummary, spell: Callable[[Advice], str] = attrgetter("told")) -> list[str]:
    """Say what would change the largest causes, largest first, each sentence once; that none are findings, if so.

    None where its numbers are unreliable.
    """
    if why_unreliable(cell) is not None:
        return []
    if (limit := limit_sentence(cell)) is not None:
        return [limit] if cell.owners else []
    of_part = name_part(cell.owners[0].part if cell.owners else None)  # all are of the same steps
    told = told_advice(cell)
    refused = say_refused(told, cell.gains)
    return [*(f"{of_part}{spell(one)}" for one in told), *([] if refused is None else [refused])]


def told_advice(cell: CellSummary) -> list[Advice]:
    """Return what would change the largest causes, largest first; nothing where they are no findings."""
    return lead_advice(cell)[:MOST_ADVICE] if why_unreliable(cell) is None and limit_sentence(cell) is None else []


def lead_advice(cell: CellSummary) -> list[Advice]:
    """Say what would change all losses of a cell, first of what its answer leads with."""
    lead = of_run(find_leading(cell.owners)) if cell.owners else None
    return make_adviser(cell, lead)([of_run(row) for row in cell.owners])


def make_adviser(cell: CellSummary, lead: Loss | None = None) -> Callable[[Sequence[Loss]], list[Advice]]:
    """Return what says what would change some losses of a cell, largest first, whether or not they are findings."""
    comm_ns = max((rank.comm_ns for rank in cell.ranks), default=NAN)
    step_ns = profiled_step_ns(cell)
    ran = describe_cell(cell)

    def say(rows: Sequence[Loss]) -> list[Advice]:
        found = advise(rows, ran, step_ns=step_ns, comm_ns=comm_ns, lead=lead)
        return bound_by_replay(found, cell.gains)

    return say


def _why_absent(cell: CellSummary, purpose: Purpose) -> str:
    planned = _count_planned(cell, purpose)
    if planned:
        return f"n/a: the plan expects {planned} collectives per step, none was seen"
    if _is_own(cell, purpose):
        return "n/a: a function of your own does it, and no such collective was seen"
    if (untold := _find_untold(cell, purpose)) is not None:
        count, size_bytes = untold
        size = "" if size_bytes is None else f", {format_bytes(size_bytes)} a step,"
        return f"n/a: none could be told; {count_things(count, 'collective')} of purpose other{size} may be such"
    if cell.scenario is None:
        return "none, no such collective was issued"
    if purpose is Purpose.GRAD_REDUCE:
        return "none, there are no gradient reductions: one rank sees the whole batch"
    return f"none, there are no parameter all-gathers: {_why_never_gathered(cell.scenario.parallel)}"


def _why_never_gathered(parallel: Parallel) -> str:
    match parallel:
        case Ddp():
            return "DDP keeps full parameters"
        case Fsdp1(sharding_strategy="NO_SHARD"):
            return "NO_SHARD keeps full parameters"
        case Fsdp1(shards=1) | Fsdp2(shards=1):
            return "the only shard is the whole parameter"
        case Fsdp1() | Fsdp2():
            return "parameters stay gathered between steps"


def _count_planned(cell: CellSummary, purpose: Purpose) -> int:
    """Return what the plan expects per step, or the ranks do where the plan itself cannot know."""
    of_ranks = [row.planned_count or 0 for row in cell.purposes if row.purpose is purpose]
    of_plan = (cell.plan.traffic or ()) if isinstance(cell.plan, Plan) and not _is_own(cell, purpose) else ()
    return max(sum(one.count for one in of_plan if one.purpose is purpose), *of_ranks, 0)


def parallel_words(cell: CellSummary) -> str:
    """Say how the model is spread, for example ``4 ranks: fsdp2, shard 2 x tensor 2, sequence_parallel=true``."""
    return ", ".join([mesh_words(cell), *knob_words(cell)])


def mesh_words(cell: CellSummary) -> str:
    """Say the same without the knobs: ``4 ranks: fsdp2, shard 2 x tensor 2``."""
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in cell.plan.mesh)
    kind = "your own loop" if cell.scenario is None else cell.scenario.parallel.kind
    words = f"{count_things(cell.plan.ranks, 'rank')}: {kind}"
    return ", ".join([words, *([axes] if axes else [])])


def backend_words(cell: CellSummary) -> str:
    """Say what the ranks talk over."""
    if cell.plan.backend is None:
        return "without a process group"
    return f"on {cell.plan.backend}, {LINKED}" if is_linked(cell) else f"on {cell.plan.backend}"


LINKED = "over an emulated link"


_SHAPE = {"kind", "replicas", "shards", "tensor"}
"""Fields of a strategy that its mesh has told already."""


def knob_words(cell: CellSummary) -> list[str]:
    """Name the knobs of the strategy that are not at torch's default: what tells one cell from the next."""
    if cell.scenario is None:
        return []
    sections = {
        "": cell.scenario.parallel.model_dump(exclude_defaults=True, exclude=_SHAPE),
        "accumulation.": cell.scenario.accumulation.model_dump(exclude_defaults=True),
    }
    knobs: dict[str, object] = {}
    for prefix, section in sections.items():
        for name, value in section.items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            knobs.update({f"{prefix}{name}.{field}" if field else f"{prefix}{name}": one for field, one in inner})
    return [f"{name.removesuffix('.kind')}={_value_word(value)}" for name, value in knobs.items()]


def _value_word(value: object) -> str:
    """Spell a knob's value as a person would in the scenario."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple() | list():
            return "[" + ", ".join(_value_word(item) for item in value) + "]"
        case _:
            return str(value)


def step_time_words(cell: CellSummary) -> str:
    """Say the step time with its interval and spread, and over what the interval holds."""
    interval = cell.step_time
    if math.isnan(interval.median):
        return "n/a: no MEASURED step is known"
    scope, part = launches_words(cell), name_told_part(cell, cell.timed_part)
    return (
        f"{part}{format_ns(interval.median)} median of {count_things(interval.count, 'step')}, "
        f"95 % interval {range_words(interval.low, interval.high)} {scope}, "
        f"IQR {range_words(interval.quartile1, interval.quartile3)}"
    )


def launches_words(cell: CellSummary) -> str:
    """Say over what the interval of a step time holds."""
    timed = () if cell.timed_part is None else cell.timed_part.launches
    count = len(timed or cell.launches)
    return f"over {count} launches" if count > 1 else "within this launch"


def range_words(low_ns: float, high_ns: float) -> str:
    """Return both ends of a range of times; ``n/a`` when an end is unknown."""
    if math.isnan(low_ns) or math.isnan(high_ns):
        return "n/a"
    return f"{format_ns(low_ns)} to {format_ns(high_ns)}"


def profiler_words(cell: CellSummary) -> str:
    """Say how much longer a step takes under the profiler, of the launches that were timed."""
    words = profiler_cost_words(cell.profiler_cost)
    return words if words == "n/a" else f"{name_told_part(cell, cell.timed_part)}{words}"


def profiler_cost_words(ratio: Interval) -> str:
    """Say how much longer a step takes under the profiler."""
    if math.isnan(ratio.median):
        return "n/a"
    words = f"a profiled step takes {ratio.median:.3f} x a measured one"
    if math.isnan(ratio.low) or math.isnan(ratio.high):
        return words
    return f"{words}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"


def first_step_words(cell: CellSummary) -> str:
    """Say how long it took from the launch to the end of the first step."""
    if math.isnan(cell.time_to_first_step_ns):
        if cell.first_step_not_told:
            return f"n/a: {cell.first_step_not_told}"
        return _NO_RECORDS if cell.memory is None else "n/a: no rank has told it; ranks that are forked cannot"
    return f"{name_told_part(cell, cell.first_step_part)}{format_ns(cell.time_to_first_step_ns)} after the launch"


def utilization_words(cell: CellSummary) -> str:
    """Return the model FLOPs utilization, or say what nobody knows."""
    if cell.scenario is not None and isinstance(cell.scenario.model, Timed):
        return "n/a (its blocks take a given time)"
    if isinstance(cell.plan, Plan) and cell.plan.flops_per_step is None:
        return "n/a (the model's FLOPs are unknown)"
    if math.isnan(cell.model_flops_utilization):
        return "n/a (your own model)" if cell.scenario is None else "n/a (peak unknown)"
    return format_fraction(cell.model_flops_utilization)


def compilation_words(cell: CellSummary) -> str | None:
    """Say what ``torch.compile`` took and made on the rank where it took longest; None: nothing was compiled."""
    if (compilation := cell.compilation) is None:
        return None
    counts = {"graph": compilation.graphs, "recompile": compilation.recompiles, "graph break": compilation.graph_breaks}
    words = [count_things(count, name) for name, count in counts.items()]
    slowest = "" if cell.compilation_part is not None else " on the slowest rank"
    time = f"{name_told_part(cell, cell.compilation_part)}{format_ns(compilation.duration_ns)}{slowest}"
    return f"{time}: {', '.join(words)}"


def throughput_words(cell: CellSummary) -> str:
    """Return tokens per second of the whole job, of the launches that were timed."""
    if math.isnan(cell.tokens_per_second):
        return throughput_word(cell)
    return " ".join(
        filter(None, (f"{name_told_part(cell, cell.timed_part)}{throughput_word(cell)}", throughput_scope(cell)))
    )


def throughput_word(cell: CellSummary) -> str:
    """Return the number of ``throughput_words`` alone, with its unit."""
    return tokens_word(cell) if math.isnan(cell.tokens_per_second) else f"{tokens_word(cell)} tokens/s"


def throughput_scope(cell: CellSummary) -> str:
    """Say what the number leaves out, a loop's time between its steps, and what it is with it; empty: nothing."""
    if cell.scenario is not None or math.isnan(cell.tokens_per_second):
        return ""
    if (between := cell.between_steps) is None or cell.plan.tokens_per_step is None:
        return "in steps alone"
    whole_ns = cell.step_time.median + between.between_ns  # of the same step as before, else slow ones lie between
    whole = format_count(cell.plan.tokens_per_step * NS_PER_S / whole_ns)
    return f"in steps alone, {whole} with what lies between them"


def tokens_word(cell: CellSummary) -> str:
    """Return the same for a column whose header says what it is."""
    if not math.isnan(cell.tokens_per_second):
        return format_count(cell.tokens_per_second)
    return "n/a (say tokens_per_step)" if cell.plan.tokens_per_step is None else "n/a"


def cpu_time_words(cell: CellSummary) -> str:
    """Return the CPU time of a rank in a MEASURED step, of the launches that were timed."""
    if math.isnan(cell.cpu_ns_per_step):
        return "n/a"
    return f"{name_told_part(cell, cell.timed_part)}{format_ns(cell.cpu_ns_per_step)} per step and rank"


def memory_words(cell: CellSummary) -> str:
    """Return the largest memory peaks of any rank."""
    if (memory := cell.memory) is None:
        return "n/a"
    words = f"{name_told_part(cell, cell.records_part)}{format_bytes(memory.rss_peak_bytes)} host"
    if cell.plan.device is DeviceKind.CPU:
        return words
    of_device = (memory.allocated_peak_bytes, memory.reserved_peak_bytes)
    allocated, reserved = (format_bytes(NAN if peak is None else peak) for peak in of_device)
    return f"{words}, {allocated} allocated on the device, {reserved} reserved"


def plan_word(row: PurposeSummary) -> str:
    """Say whether a purpose's collectives equal the plan's formula; a dash where there is no formula."""
    if row.matches_plan is None:
        return "-"
    if row.matches_plan:
        return "= plan"
    planned_bytes = NAN if row.planned_size_bytes is None else row.planned_size_bytes
    count = "any number" if row.planned_count is None else row.planned_count
    return f"plan: {count} with {format_bytes(planned_bytes)}"


def overlap_word(row: PurposeSummary) -> str:
    """Say whether a purpose's collectives can run beside compute here; some that cannot meet another thread's."""
    word = _can_overlap(row)
    return "no, by chance" if word == "no" and row.hidden_ns else word


def _can_overlap(row: PurposeSummary) -> str:
    if row.overlap_possible is None:
        return "unknown"
    return "yes" if row.overlap_possible else "no"


def overlap_sentence(row: PurposeSummary) -> str:
    """Say whether a purpose's collectives can be hidden here, and by what mechanism or why not."""
    return f"{_can_overlap(row)}: {row.overlap_reason}"


def plan_words(cell: CellSummary) -> str | None:
    """Say that nothing was planned; None for a run with a plan."""
    return f"none: your own loop in {cell.plan.script}" if isinstance(cell.plan, OwnLoop) else None


_NO_RECORDS = "n/a: the records that would tell are not there"


def correctness_words(cell: CellSummary) -> str:
    """Say how far the run is from a single process that sees the whole batch."""
    result = cell.correctness
    if result is None:
        if cell.scenario is None:
            return "not checked: your own loop"
        is_lost = (cell.rank_doubts or cell.memory is None) and cell.scenario.correctness.enabled
        return _NO_RECORDS if is_lost else "not checked against a single process"
    errors = (
        f"loss error {_exponent(result.loss_error)} (tolerance {_exponent(result.loss_tolerance)}), "
        f"gradient error {_exponent(result.gradient_error)} (tolerance {_exponent(result.gradient_tolerance)})"
    )
    if result.passed:
        return f"passed against a single process: {name_told_part(cell, cell.records_part)}{errors}"
    return f"FAILED, differs from a single process: {errors}, worst parameter {result.worst_parameter}"


def _exponent(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.1e}"


def receipt_words(receipt: Receipt) -> str:
    """Say what was asked and what torch says it got."""
    note = f"; {receipt.note}" if receipt.note else ""
    return f"{receipt.knob}: asked {receipt.asked}, got {receipt.got}{note}"


def agreeing_words(cell: CellSummary) -> str:
    """Say of how many knobs it is known that they did what was asked."""
    if not cell.receipts and (cell.rank_doubts or cell.memory is None):
        return _NO_RECORDS
    agreeing = sum(
        receipt.outcome is ReceiptOutcome.AGREES and receipt.knob not in cell.contested_knobs
        for receipt in cell.receipts
    )
    return f"{name_told_part(cell, cell.records_part)}{agreeing} {'knob agrees' if agreeing == 1 else 'knobs agree'}"


_MENDED_WORD = "stage works"
"""Of a cell whose scenario says that torch breaks a stage which it does not."""

DISTURBED_WORD = "cores taken"
"""Of a cell of which others left too few steps alone."""


def check_word(cell: CellSummary) -> str:
    """Say in a word or two whether a cell's numbers may be trusted."""
    if cell.status is not RunStatus.COMPLETE:
        return "run failed" if cell.status is RunStatus.FAILED else "incomplete"
    if (wrong := find_wrong_result(cell)) is not None:
        return wrong.word
    if any(row.outcome is StageOutcome.MENDED for row in cell.stages):
        return _MENDED_WORD
    if any(receipt.outcome is ReceiptOutcome.DISAGREES for receipt in cell.receipts):
        return "knob differs"
    return _time_word(cell) or ("not checked" if cell.correctness is None else "passed")


def _time_word(cell: CellSummary) -> str | None:
    """Say what speaks against its times, or against judging by them."""
    if cell.disturbed:
        return DISTURBED_WORD
    if cell.rank_doubts:
        return "not judged"
    return "time differs" if cell.prediction is not None and cell.prediction.is_inside is False else None


def status_sentence(what: str, status: RunStatus, reason: str | None) -> str | None:
    """Say how a run or cell ended and why; None for one that is complete."""
    match status:
        case RunStatus.COMPLETE:
            return None
        case RunStatus.FAILED:
            return f"{what} FAILED: {reason or 'no reason was recorded'}"
        case RunStatus.RUNNING:
            why = (reason or "it still runs, or it was killed").removeprefix("incomplete: ")
            return f"{what} is not finished: {why}"


def resumed_sentence(times: int) -> str | None:
    """Say that launches of a run lie apart; None for a run that went through at once."""
    if not times:
        return None
    how_often = "once" if times == 1 else f"{times} times"
    return f"stopped and resumed {how_often}: launches before and after are not interleaved with each other"


def run_warnings(summary: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield what a reader of any number of a run must know of where it ran or lies: about what, and a sentence."""
    yield from (("environment", note) for note in summary.environment_notes)
    neighbours = describe_neighbours(summary.neighbours)
    if neighbours is not None:
        yield "other runs", neighbours
    yield from (("other launches", note) for note in summary.unlisted)


def is_trusted(cell: CellSummary) -> bool:
    """Tell whether nothing speaks against a cell's numbers."""
    return check_word(cell) in ("passed", "not checked")


def mistrusted(cells: Iterable[CellSummary]) -> dict[str, str]:
    """Return by name, in a word or two, what speaks against the numbers of cells, where something does."""
    return {cell.name: check_word(cell) for cell in cells if not is_trusted(cell)}


def count_left_out(cells: Iterable[CellSummary], phase: Phase) -> int:
    """Count the steps of a phase that others disturbed, over all launches of these cells: in no number of theirs."""
    return sum(cell.left_out_steps.get(phase, 0) for cell in cells)


def cell_notes(cell: CellSummary) -> tuple[str, ...]:
    """Return what a reader of the numbers must know, the plan's notes first, each once."""
    return tuple(dict.fromkeys((*planned_notes(cell), *doubt_notes(cell), *own_notes(cell))))


def doubt_notes(cell: CellSummary) -> tuple[str, ...]:
    """Return every reason why its PROFILED steps may not stand for the run."""
    return tuple(f"PROFILED steps may not stand for the run: {describe_doubt(doubt)}" for doubt in cell.doubts)


def own_notes(cell: CellSummary) -> tuple[str, ...]:
    """Return what is of this run alone, without why its steps may not stand for others, what weighs most first."""
    of_estimates = cell.exposure.notes if cell.exposure else ()
    return tuple(dict.fromkeys((*cell.notes, *of_estimates)))
