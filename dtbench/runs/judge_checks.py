"""What became of a file's checks in a run: each judged by the numbers of its cells, and the answer, if all hold.

A check on a number that nobody knows is *not judged*, which is no pass: the answer then stays away as if it had failed.
So is one that a number would keep of which only a bound is known, unless every number beyond that bound keeps it too.
So is every check on a cell that has not ended, or not well, whose results are wrong, or of which others left fewer than
half of a phase's steps alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from dtbench.base.units import format_fraction, format_ns
from dtbench.base.vocabulary import Cause, StageOutcome
from dtbench.runs.cell.cell_notes import describe_disturbed, find_disturbed_kind
from dtbench.runs.cell_numbers import (
    exposed_by_cause,
    find_number,
    find_part,
    find_part_of_causes,
    leaves_out_unseen,
    why_least,
)
from dtbench.runs.environments import say_silent_cells, say_unlike_cells
from dtbench.runs.exposure.agreement import VOTES, Agreement, judge
from dtbench.runs.representative import UNSURE, DoubtKind
from dtbench.runs.stage_summary import StageSummary
from dtbench.runs.summary import CellSummary
from dtbench.runs.told_apart import tell_apart
from dtbench.runs.wrong_results import find_wrong_results, say_unseen, why_unreliable
from dtbench.scenario.checks.answer import Slot, fill_slots
from dtbench.scenario.checks.check_words import describe_check, format_quantity
from dtbench.scenario.checks.checklist import (
    AgreeingEstimates,
    Bound,
    Check,
    Checklist,
    EqualLosses,
    InsidePrediction,
    KnobReceipt,
    LeadingCause,
    Order,
    name_cells,
)
from dtbench.scenario.checks.values import Quantity, ValueName, read_value
from dtbench.scenario.mistakes import find_nearest
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.checks import CheckOutcome, CheckResult, ChecksSummary
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import RunStatus
from dtbench.traces.known_part import KnownPart

FIRST_LOSSES = 5
"""Losses that cells are compared by: those of the first steps, which every cell records alike."""

_MOST_NAMED = 4

Cells = Mapping[str, CellSummary]
_Finding = tuple[CheckOutcome, str]
"""An outcome, and the figure that it was judged by."""

PASSED, FAILED, NOT_JUDGED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.NOT_JUDGED


def judge_checklist(
    checklist: Checklist, cells: Sequence[CellSummary], overrides: Sequence[str]
) -> ChecksSummary | None:
    """Judge what a file claims; None where it claims nothing.

    Args:
        checklist: as the file had it when it ran.
        cells: of the run.
        overrides: of the run; any but those of ``repeat`` make it another experiment than the file claims about.
    """
    if checklist.is_empty:
        return None
    by_name = {cell.name: cell for cell in cells}
    results = [_judge(check, by_name) for check in checklist.checks]
    if checklist.functions:
        results.insert(0, _judge_functions(checklist.functions, cells))
    results = [*_doubt(cells), *_judge_broken(cells), *results]
    outcome = _worst([result.outcome for result in results])
    answer = checklist.answer
    if answer is not None:
        answer = fill_slots(answer, lambda slot: _fill(slot, by_name)) if outcome is PASSED else None
    return ChecksSummary(
        outcome=outcome,
        results=tuple(results),
        answer=answer,
        launches=min((len(cell.launches) for cell in cells), default=0),
        doubted=tuple(cell.name for cell in cells if any(doubt.kind not in UNSURE for doubt in cell.doubts)),
        changed=any(not _is_of_repeat(override) for override in overrides),
    )


def _doubt(cells: Sequence[CellSummary]) -> Iterator[CheckResult]:
    """Judge nothing finally where launches or ranks are left out: numbers of the others may pass by what is missing."""
    left_out = [f"{cell.name} launch{index}" for cell in cells for index in cell.unreadable]
    if left_out:
        got = name_some(left_out)
        words = "every launch can be read, and is no copy"
        yield CheckResult(kind="launches", words=words, outcome=NOT_JUDGED, got=got, because="")
    ends = {RunStatus.FAILED: "failed", RunStatus.RUNNING: "not finished"}
    ended = {how: [cell.name for cell in cells if cell.status is status] for status, how in ends.items()}
    got = ", ".join(f"{name_some(names)} {how}" for how, names in ended.items() if names)
    if got:
        yield CheckResult(kind="launches", words="every launch ends well", outcome=NOT_JUDGED, got=got, because="")
    told = [f"{cell.name}: {describe_disturbed(cell.disturbed)}" for cell in cells if cell.disturbed]
    if told:
        words = "others leave at least half of the steps of each phase alone"
        yield CheckResult(
            kind=find_disturbed_kind([one for cell in cells for one in cell.disturbed]),
            words=words,
            outcome=NOT_JUDGED,
            got="; ".join(told[:_MOST_NAMED]),
            because="",
        )
    wrong = [f"{cell.name}: {what}" for cell in cells if (what := find_wrong_results(cell)) is not None]
    if wrong:
        words = "every cell computes what it should"
        got = "; ".join(wrong[:_MOST_NAMED])
        yield CheckResult(kind="results", words=words, outcome=NOT_JUDGED, got=got, because="")
    doubts = [f"{cell.name} {sentence}" for cell in cells for sentence in cell.rank_doubts]
    if doubts:
        got = "; ".join(doubts[:_MOST_NAMED])
        yield CheckResult(kind="ranks", words="every rank is seen", outcome=NOT_JUDGED, got=got, because="")


def _judge_broken(cells: Sequence[CellSummary]) -> Iterator[CheckResult]:
    """Judge what cells say that torch breaks of a training state, where it is not seen to be broken."""
    found = [(cell, row) for cell in cells for row in cell.stages if row.outcome is StageOutcome.MENDED]
    unseen = [(cell, row) for cell in cells for row in cell.stages if _is_broken_unseen(cell, row)]
    for outcome, rows, what in ((FAILED, found, "holds"), (NOT_JUDGED, unseen, "was not compared")):
        if rows:
            got = "; ".join(
                f"{cell.name}: the {row.stage} of the {row.part} {what}" for cell, row in rows[:_MOST_NAMED]
            )
            words = "each stage that its cell calls broken in torch is so"
            yield CheckResult(kind="stages", words=words, outcome=outcome, got=got, because="")


def _is_broken_unseen(cell: CellSummary, row: StageSummary) -> bool:
    asked = None if cell.scenario is None else cell.scenario.state_dict
    is_known = asked is not None and asked.find_broken(row.part, row.stage) is not None
    return is_known and row.outcome is StageOutcome.NOT_COMPARED


def _is_of_repeat(override: str) -> bool:
    return override.partition("=")[0].strip().partition(".")[0] == "repeat"


def _worst(outcomes: Sequence[CheckOutcome]) -> CheckOutcome:
    return next((one for one in (FAILED, NOT_JUDGED) if one in outcomes), PASSED)


def _judge(check: Check, cells: Cells) -> CheckResult:
    names = _name_judged(check, cells)
    doubted = [name for name in names if cells[name].rank_doubts]
    outcome, got = (NOT_JUDGED, cells[doubted[0]].rank_doubts[0]) if doubted else _find_outcome(check, cells)
    if any(_is_unreliable(cells[name]) for name in names):
        outcome = NOT_JUDGED
    return CheckResult(
        kind=check.kind, words=describe_check(check), outcome=outcome, got=got, because=check.because or ""
    )


def _is_unreliable(cell: CellSummary) -> bool:
    return cell.status is not RunStatus.COMPLETE or why_unreliable(cell) is not None


def _name_judged(check: Check, cells: Cells) -> Sequence[str]:
    """Name the cells by whose numbers a check is judged."""
    named = name_cells(check)
    is_of_all = not named or (isinstance(check, Bound) and check.cell is None)
    return list(cells) if is_of_all else named


def _find_outcome(check: Check, cells: Cells) -> _Finding:
    match check:
        case Bound():
            return _judge_bound(check, cells)
        case Order():
            return _judge_order(check, cells)
        case EqualLosses():
            return _judge_losses(check, cells)
        case _:
            names = list(cells) if check.cell is None else [check.cell]
            return _join([(name, _judge_cell(check, cells[name])) for name in names])


def _judge_cell(
    check: InsidePrediction | KnobReceipt | LeadingCause | AgreeingEstimates, cell: CellSummary
) -> _Finding:
    match check:
        case InsidePrediction():
            return _judge_prediction(cell)
        case KnobReceipt():
            return _judge_receipt(check, cell)
        case LeadingCause():
            return _judge_cause(check, cell)
        case AgreeingEstimates():
            return _judge_estimates(cell)


def _join(found: Sequence[tuple[str, _Finding]]) -> _Finding:
    """Put the findings of several cells together: what went wrong first."""
    worst = _worst([outcome for _, (outcome, _) in found])
    if len(found) == 1:
        return worst, found[0][1][1]
    ordered = sorted(found, key=lambda one: one[1][0] is not worst)
    shown = [f"{name} {got}" for name, (_, got) in ordered[:_MOST_NAMED]]
    more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return worst, ", ".join([*shown, *more])


def _judge_bound(check: Bound, cells: Cells) -> _Finding:
    others = (check.over, check.minus)
    names = [name for name in cells if name not in others] if check.cell is None else [check.cell]
    return _join([(name, _judge_number(check, name, cells)) for name in names])


def _judge_number(check: Bound, cell: str, cells: Cells) -> _Finding:
    of, others = (cells[cell], check.name), [(cells[name], check.name) for name in (check.over, check.minus) if name]
    if check.per is not None:
        others = [(cells[cell], read_value(check.per))]
        number = _divide(find_number(*of), find_number(*others[0]))
    else:
        number = _compute(check.name, cells, cell, over=check.over, minus=check.minus)
    if (why := _say_part([of, *others]) or _say_environments([of, *others])) is not None:
        return NOT_JUDGED, why
    got = format_quantity(number, check.quantity)
    if math.isnan(number):
        return NOT_JUDGED, got
    side = _find_side(of, others)
    low = -math.inf if check.low is None else check.low
    high = math.inf if check.high is None else check.high
    lowest, highest = side.span(number)
    if low <= lowest and highest <= high:
        return PASSED, side.spell(got)
    if highest < low or high < lowest:
        return FAILED, side.spell(got)
    return NOT_JUDGED, f"{side.spell(got)}: {side.why}"


_Number = tuple[CellSummary, ValueName]


@dataclass(frozen=True)
class _Side:
    """On which side of a number that was computed the true one may lie, as it or others it came from are at least this.

    Attributes:
        why: empty: it is the true one.
    """

    may_be_higher: bool
    may_be_lower: bool
    why: str

    def span(self, number: float) -> tuple[float, float]:
        """Return between what the true one lies."""
        return -math.inf if self.may_be_lower else number, math.inf if self.may_be_higher else number

    def spell(self, words: str) -> str:
        """Say of a number in words what it is."""
        if self.may_be_higher and self.may_be_lower:
            return "n/a"
        bound = "at least " if self.may_be_higher else "at most " if self.may_be_lower else ""
        return words if words == "n/a" else f"{bound}{words}"


def _find_side(of: _Number, others: Sequence[_Number]) -> _Side:
    """Find it for a number, or for what remains of it when others are divided by or subtracted."""
    higher, lower = why_least(*of), next((why for one in others if (why := why_least(*one))), None)
    return _Side(may_be_higher=higher is not None, may_be_lower=lower is not None, why=higher or lower or "")


def _say_part(numbers: Sequence[_Number]) -> str | None:
    """Say of what the first number is that leaves a rank of some launch, or what was not seen, out; None: none does."""
    parts = (
        say_unseen(cell) if leaves_out_unseen(cell, name) else _spell_part(find_part(cell, name))
        for cell, name in numbers
    )
    return next((part for part in parts if part is not None), None)


def _say_not_comparable(numbers: Sequence[_Number]) -> str | None:
    """Say why numbers cannot be held against each other, as one is of a part or only a bound; None: they can."""
    bounds = (f"{cell.name} at least this: {why}" for cell, name in numbers if (why := why_least(cell, name)))
    return _say_part(numbers) or _say_environments(numbers) or next(bounds, None)


def _say_environments(numbers: Sequence[_Number]) -> str | None:
    """Say why numbers of several cells that a machine and its software make are not of alike ones; None: they are."""
    cells = list({cell.name: cell for cell, name in numbers if not _is_issued(name)}.values())
    if len(cells) < 2:
        return None
    unlike = say_unlike_cells(cells)
    return say_silent_cells(cells) if unlike is None else f"they ran in {unlike}"


def _is_issued(name: ValueName) -> bool:
    """Tell whether a number is of what was issued, which leaves nothing to chance."""
    return name.quantity in (Quantity.COUNT, Quantity.SIZE) and name.path[0] in ("purposes", "probes", "stages")


def _spell_part(part: KnownPart | None) -> str | None:
    return None if part is None or part.has_every_rank else f"known of {part}"


def _compute(name: ValueName, cells: Cells, cell: str, *, over: str | None = None, minus: str | None = None) -> float:
    number = find_number(cells[cell], name)
    if over is not None:
        return _divide(number, find_number(cells[over], name))
    return number if minus is None else number - find_number(cells[minus], name)


def _divide(number: float, whole: float) -> float:
    return number / whole if whole else math.nan


def _judge_order(check: Order, cells: Cells) -> _Finding:
    name = read_value(check.value)
    if (why := _say_not_comparable([(cells[cell], name) for cell in check.cells])) is not None:
        return NOT_JUDGED, why
    numbers = [find_number(cells[cell], name) for cell in check.cells]
    pairs = zip(check.cells, numbers, strict=True)
    got = ", ".join(f"{cell} {format_quantity(number, name.quantity)}" for cell, number in pairs)
    if any(math.isnan(number) for number in numbers):
        return NOT_JUDGED, got
    steps = pairwise(numbers)
    is_ordered = all(later > former and later - former >= check.apart * abs(former) for former, later in steps)
    return (PASSED if is_ordered else FAILED), got


def _judge_losses(check: EqualLosses, cells: Cells) -> _Finding:
    """Compare the losses of all launches of these cells with each other: the worst pair counts."""
    recorded = [losses[:FIRST_LOSSES] for name in check.cells or cells for losses in _losses_of(cells[name])]
    if not all(len(losses) == FIRST_LOSSES and all(map(math.isfinite, losses)) for losses in recorded):
        return NOT_JUDGED, "losses are not known"
    if len(recorded) < 2:
        return NOT_JUDGED, "there is one launch alone: nothing to compare its losses with"
    largest = max((_differ(of_step) for of_step in zip(*recorded, strict=True)), default=0.0)
    outcome = PASSED if largest <= check.tolerance else FAILED
    return outcome, f"largest relative difference {format_quantity(largest, Quantity.ERROR)}"


def _losses_of(cell: CellSummary) -> Sequence[Sequence[float]]:
    return cell.launch_losses or (cell.losses,)


def _differ(losses: Sequence[float]) -> float:
    """Return the largest difference between any two losses of a step, over the larger of these two."""
    pairs = combinations(dict.fromkeys(losses), 2)
    return max((abs(one - other) / max(abs(one), abs(other)) for one, other in pairs), default=0.0)


def _judge_prediction(cell: CellSummary) -> _Finding:
    held = cell.prediction
    if held is None or held.is_inside is None:
        return NOT_JUDGED, "no closed form" if held is None else held.sentence
    got = f"{format_ns(cell.step_time.median)}, bounds {format_ns(held.low_ns)} to {format_ns(held.high_ns)}"
    return (PASSED if held.is_inside else FAILED), got


def _judge_receipt(check: KnobReceipt, cell: CellSummary) -> _Finding:
    wanted = ReceiptOutcome.AGREES if check.outcome == "agrees" else ReceiptOutcome.NO_EFFECT
    receipt = next((one for one in cell.receipts if one.knob == check.knob), None)
    if receipt is None:
        near = find_nearest(check.knob, [one.knob for one in cell.receipts])
        return NOT_JUDGED, f"no receipt of it{f', there is one of {near}' if near else ''}"
    got = f"asked {receipt.asked}, got {receipt.got}: {receipt.outcome.value}"
    if check.knob in cell.contested_knobs:
        return NOT_JUDGED, f"{got}; {receipt.note}"
    return (PASSED if receipt.outcome is wanted else FAILED), got


def _is_no_finding(cell: CellSummary) -> bool:
    """Tell whether PROFILED steps of a cell may not stand for others: why they exposed what they did says nothing."""
    return any(doubt.kind is not DoubtKind.UNSURE_MEASURED for doubt in cell.doubts)


def _judge_cause(check: LeadingCause, cell: CellSummary) -> _Finding:
    if _is_no_finding(cell):
        return NOT_JUDGED, "no finding: PROFILED steps may not stand for others"
    part = say_unseen(cell) or _spell_part(find_part_of_causes(cell, check.purpose))
    if part is not None:
        return NOT_JUDGED, part
    return _judge_leading(check, cell)


def _judge_leading(check: LeadingCause, cell: CellSummary) -> _Finding:
    """Judge whether a cause leads by what is exposed on all ranks."""
    exposed = {cause: exposed_by_cause(cell, cause, check.purpose) for cause in Cause}
    total = sum(exposed.values())
    if math.isnan(total) or not total:
        return NOT_JUDGED, "causes are not known" if math.isnan(total) else "nothing is exposed"
    ordered = sorted(exposed, key=lambda cause: -exposed[cause])
    got = ", ".join(f"{cause} {format_fraction(exposed[cause] / total)}" for cause in ordered[:2] if exposed[cause])
    if check.leads is Cause.UNKNOWN:
        return (PASSED if ordered[0] is Cause.UNKNOWN else FAILED), got
    mine_ns, unknown_ns = exposed[check.leads], exposed[Cause.UNKNOWN]
    other_ns = max(time_ns for cause, time_ns in exposed.items() if cause not in (check.leads, Cause.UNKNOWN))
    if mine_ns > other_ns + unknown_ns:
        return PASSED, got
    if other_ns >= mine_ns + unknown_ns:
        return FAILED, got
    return NOT_JUDGED, f"{got}: {format_fraction(unknown_ns / total)} are unknown, which may decide it"


def _judge_estimates(cell: CellSummary) -> _Finding:
    if cell.exposure is None:
        return NOT_JUDGED, "not estimated"
    if (unseen := say_unseen(cell)) is not None:  # the trace's is too small
        return NOT_JUDGED, unseen
    mean = cell.exposure.rows[0]
    if (part := next((words for one in mean.estimates if (words := _spell_part(one.part))), None)) is not None:
        return NOT_JUDGED, part
    known = [one for one in mean.estimates if not math.isnan(one.mean_ns)]
    lacking = [one.estimate for one in mean.estimates if one.estimate in VOTES and one not in known]
    told = [f"{one.estimate} {format_ns(one.mean_ns)}" for one in known]
    got = ", ".join([*told, *(f"{estimate} n/a" for estimate in lacking)]) if known else "none is known"
    return _AGREEMENT[judge(mean)], got


_AGREEMENT = {Agreement.AGREE: PASSED, Agreement.DISPUTED: FAILED, Agreement.UNKNOWN: NOT_JUDGED}


def _judge_functions(labels: Sequence[str], cells: Sequence[CellSummary]) -> CheckResult:
    """Judge whether each function that the file names, and the installed torch has, was called in some cell."""
    calls: dict[str, int] = {}
    for cell in cells:
        for probe in cell.probes:
            calls[probe.label] = max(calls.get(probe.label, 0), probe.most_calls)
    has_not = {label for cell in cells for label in cell.absent_functions}
    uncalled = [f"{label} never called" for label in labels if calls.get(label) == 0]
    absent = [f"{label} not in this torch" for label in labels if label not in calls and label in has_not]
    unwatched = [f"{label} not watched" for label in labels if label not in calls and label not in has_not]
    doubts = [doubt for cell in cells for doubt in cell.rank_doubts]
    outcome, missing = NOT_JUDGED, [*uncalled, *unwatched, *absent]
    if doubts:
        missing = doubts[:1]
    elif not calls.keys() & set(labels):
        missing = ["no function was probed"]
    elif not any(map(_is_unreliable, cells)):
        outcome = FAILED if uncalled else NOT_JUDGED if unwatched else PASSED
    what = "the function" if len(labels) == 1 else f"each of {len(labels)} functions"
    return CheckResult(
        kind="functions",
        words=f"{what} under study that it is about is called",
        outcome=outcome,
        got=", ".join(missing) if missing else "called",
        because="",
    )


def _fill(slot: Slot, cells: Cells) -> str:
    """Spell what stands in a slot, and over what it is a mean where that is not all."""
    if slot.how in ("lowest", "highest"):
        return _choose_cell(slot, cells)
    quantity = Quantity.RATIO if slot.how == "over" else slot.value.quantity
    named = [cells[name] for name in slot.cells or [next(iter(cells))]]
    part = next((f" (of {part})" for cell in named if (part := find_part(cell, slot.value)) is not None), "")
    unseen = next((f" (where {say_unseen(cell)})" for cell in named if leaves_out_unseen(cell, slot.value)), "")
    of, *others = [(cell, slot.value) for cell in named]
    if _say_environments([of, *others]) is not None:
        return "n/a"
    return f"{_find_side(of, others).spell(format_quantity(_fill_number(slot, cells), quantity))}{part}{unseen}"


def _choose_cell(slot: Slot, cells: Cells) -> str:
    """Name the cell with the lowest or highest number, if it can be told from every other.

    ``n/a`` where some is of other ranks or launches than others, is only a bound, or has what was launched and not seen
    left out. Where it is not known of some, theirs may be lower or higher: it is said of how many it is known.
    """
    known = {name: find_number(cell, slot.value) for name, cell in cells.items()}
    known = {name: number for name, number in known.items() if not math.isnan(number)}
    if not known or _say_not_comparable([(cells[name], slot.value) for name in known]) is not None:
        return "n/a"
    choose = min if slot.how == "lowest" else max
    chosen = choose(known, key=lambda name: known[name])
    part = "" if len(known) == len(cells) else f" (of the {len(known)} of {len(cells)} cells of which it is known)"
    return f"{chosen if _is_told(chosen, known, slot.value, cells) else NOT_TOLD}{part}"


NOT_TOLD = "a cell that cannot be told from others"
"""Stands for the name of a cell that may have the lowest or highest number by chance."""


def _is_told(chosen: str, known: Mapping[str, float], value: ValueName, cells: Cells) -> bool:
    """Tell whether a cell's number is surely another than that of each other: step times by a test over launches.

    Counts and sizes of what was issued leave nothing to chance; of other numbers no launch's value is there to test by.
    """
    others = [name for name in known if name != chosen]
    if _is_issued(value):
        return all(known[name] != known[chosen] for name in others)
    if value.path != ("step_time", "median"):
        return not others
    told, *_ = tell_apart([cells[name].launch_medians_ns for name in (chosen, *others)])
    return len(told) == len(others)


def _fill_number(slot: Slot, cells: Cells) -> float:
    cell = next(iter(cells)) if slot.cell is None else slot.cell
    over, minus = (slot.other if slot.how == how else None for how in ("over", "minus"))
    return _compute(slot.value, cells, cell, over=over, minus=minus)
