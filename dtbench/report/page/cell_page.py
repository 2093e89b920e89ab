"""A cell of a run as a part of a page: the two waits first, the step, where it went, and what was verified."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, decimals_for, format_bytes, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import PURPOSE_TIMES, Purpose
from dtbench.report.page import estimates, stages
from dtbench.report.page.cell_rows import (
    mark_owners,
    mark_purposes,
    mark_ranks,
    missing_lines,
    owner_lines,
    owner_rows,
    purpose_times,
    rest_of_owners,
    sum_causes,
)
from dtbench.report.page.looks import HIDDEN_COMM, bar_part, step_parts
from dtbench.report.page.losses import Losses, losses_table, say_limit
from dtbench.report.page.page import (
    Bar,
    BarPart,
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Line,
    Part,
    Prose,
    Table,
    Tile,
    Tiles,
    Tone,
    lines,
    numbers,
)
from dtbench.report.page.slowest_ranks import choose_slowest, say_which
from dtbench.report.words import sentences
from dtbench.report.words.advice import of_run
from dtbench.report.words.canary import canary_words
from dtbench.report.words.marks import Marks
from dtbench.report.words.rank_groups import describe_slow_group
from dtbench.runs.cell.summarize_overlap import StepMean
from dtbench.runs.summary import CellSummary, PurposeSummary, RankBreakdown
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import OwnLoop, RunStatus
from dtbench.traces.ranks.by_group.groupings import group_by_plan
from dtbench.traces.ranks.by_group.slow_group import find_slow_group

MOST_BARS: Final = 64
"""Ranks that have a bar each; of more, those that a narrow medium shows."""

MOST_OWNERS: Final = 8
"""Owners and causes that a narrow medium shows; the rest is summed."""

MOST_PARAMETERS: Final = 12
"""Parameters whose waits a narrow medium shows."""

MOST_NAMES: Final = 10
"""Unknown event names that are listed."""

SHARES_EXPLAINED: Final = (
    "hidden share: how much of the communication overlapped with compute; "
    "exposed share: how much of the step communication took alone"
)
HIDDEN: Final = bar_part("hidden_comm_ns", "hidden comm (overlapped with compute)", HIDDEN_COMM)

_OUTCOMES: Final = {None: Tone.WARNING, True: Tone.GOOD, False: Tone.BAD}


def cell_part(cell: CellSummary) -> Part:
    """Return the part of a cell; of one of which nothing can be read, why."""
    return Part(
        key=f"cell:{cell.name}",
        title=cell.name,
        aside=f"{sentences.mesh_words(cell)} {sentences.backend_words(cell)}",
        check=Fact("state", sentences.check_word(cell), _check_tone(cell)),
        blocks=tuple(_blocks(cell)),
    )


def _blocks(cell: CellSummary) -> Iterator[Block]:
    ended = sentences.status_sentence("This cell", cell.status, cell.reason)
    if ended is not None:
        tone = Tone.WARNING if cell.status is RunStatus.RUNNING else Tone.BAD  # what has not ended is no failure
        yield Prose((Line(ended, tone),), key="problem")
    if not cell.launches:  # none can be read: what it did is not known, which is not that it did nothing
        yield Prose(lines([*cell.unreadable.values()][1:]), key="unreadable")
        return
    yield Facts(tuple(_lead_facts(cell)), key="lead")
    yield Tiles(tuple(_tiles(cell)))
    yield Facts(tuple(_step_facts(cell)), key="step")
    for tell in (_breakdown, _estimates, _owners, gradient_wait_blocks, _purposes, _overlap, stages.stage_blocks):
        yield from tell(cell)
    yield Facts(tuple(_check_facts(cell)), key="checks")


def _estimates(cell: CellSummary) -> Iterator[Block]:
    if cell.exposure is not None and estimates.is_any_known(cell.exposure):
        yield estimates.estimates_table(cell.exposure)


def _check_tone(cell: CellSummary) -> Tone:
    if cell.status is RunStatus.RUNNING:
        return Tone.WARNING
    return Tone.GOOD if sentences.is_trusted(cell) else Tone.BAD


def _lead_facts(cell: CellSummary) -> Iterator[Fact]:
    """Yield what leads: the two waits, what is exposed, whose and why, and if estimates agree."""
    for label, words in sentences.lead_waits(cell):
        yield Fact(label, words, Tone.STRONG)
    answer = sentences.answer_sentence(cell)
    if answer is not None:
        yield Fact("exposed", answer, Tone.STRONG)
    for label, words in estimates.lead_rows(cell):
        yield Fact(label, words, estimates.agreement_tone(cell) if label == estimates.LABEL else Tone.STRONG)


def _tiles(cell: CellSummary) -> Iterator[Tile]:
    step = cell.step_time
    timed = sentences.name_told_part(cell, cell.timed_part)
    interval = f"95 % interval {sentences.range_words(step.low, step.high)} {sentences.launches_words(cell)}"
    yield Tile("step time", format_ns(step.median), f"{timed}{interval}", step.median)
    scope = "".join(f"{words}; " for words in (sentences.throughput_scope(cell),) if words)
    used = f"{timed}{scope}MFU {sentences.utilization_words(cell)}"
    yield Tile("throughput", sentences.throughput_word(cell), used, cell.tokens_per_second)
    part = sentences.name_told_part(cell, cell.part)
    exposed, hidden = cell.exposed_step_fraction, cell.hidden_fraction
    shown = sentences.bound_below(cell, format_fraction(exposed))
    yield Tile("exposed share", shown, f"{part}of the step, communication alone", exposed)
    yield Tile("hidden share", format_fraction(hidden), f"{part}of communication, overlapped with compute", hidden)
    for label, purpose in (("gradient wait", Purpose.GRAD_REDUCE), ("unshard wait", Purpose.UNSHARD)):
        word = sentences.wait_word(cell, purpose)
        told = sentences.wait_sentence(cell, purpose).replace(word, "", 1).lstrip(" ,:")
        yield Tile(label, word, told, sentences.wait_ns(cell, purpose))


def _step_facts(cell: CellSummary) -> Iterator[Fact]:
    """Yield what a step costs: time, throughput, profiler, start, memory."""
    if knobs := sentences.knob_words(cell):
        yield Fact("knobs", ", ".join(knobs))
    yield Fact("step time", sentences.step_time_words(cell))
    if len(cell.launches) > 1:
        yield Fact("launches", ", ".join(format_ns(median) for median in cell.launch_medians_ns) + " (medians)")
    yield Fact("throughput", f"{sentences.throughput_words(cell)}, MFU {sentences.utilization_words(cell)}")
    yield Fact("profiler", sentences.profiler_words(cell))
    yield Fact("first step", sentences.first_step_words(cell))
    yield Fact("memory peak", sentences.memory_words(cell))
    yield Fact("CPU time", sentences.cpu_time_words(cell))
    if (words := sentences.compilation_words(cell)) is not None:
        yield Fact("compiling", words)


def bound_lines(cell: CellSummary, marks: Marks) -> tuple[Line, ...]:
    """Say which numbers of a table are bounds, and of what those with a mark are."""
    return lines((*sentences.least_sentences(cell), *marks.lines), Tone.WARNING)


def _breakdown(cell: CellSummary) -> Iterator[Block]:
    """Yield where each rank's profiled step went; the four parts add up to the step."""
    if not cell.ranks:
        return
    idle, title = sentences.idle_word(cell), "Where a profiled step went, ms"
    marks, is_known = mark_ranks(cell.ranks), not cell.is_least
    added = f"step = compute + exposed comm + exposed copy + {idle}; {SHARES_EXPLAINED}"
    parts, bounds = step_parts(idle), bound_lines(cell, marks)
    shown, rest = choose_slowest(cell)
    which = say_which(cell, shown, rest) if rest else ""
    drawn = cell.ranks if len(cell.ranks) <= MOST_BARS else shown
    yield Chart(
        title="Where a profiled step went, mean of each rank",
        parts=parts,
        bars=tuple(step_bar(marks.mark(f"rank {row.rank}", row.part), row, parts, is_known=is_known) for row in drawn),
        below=HIDDEN,
        note="; ".join([*([] if drawn is cell.ranks else [which]), *(line.words for line in bounds), added]),
        table=Table(
            title,
            (
                Column("rank"),
                *numbers(Unit.NS, "step", "compute", "exposed\ncomm", "exposed\ncopy", idle),
                *numbers(Unit.FRACTION, "hidden share\nof comm", "exposed share\nof step"),
            ),
            [_rank_row(cell, row, marks) for row in (*shown, *rest)],
            notes=(*bounds, *_slow_group(cell), added),
            first=len(shown),
            more=which,
        ),
        key="breakdown",
    )


def _slow_group(cell: CellSummary) -> list[str]:
    """Say which ranks compute longer for their place in the mesh; nothing where no place explains how ranks differ."""
    if isinstance(cell.plan, OwnLoop):
        return []
    groupings = group_by_plan({axis.name: axis.size for axis in cell.plan.mesh})
    found = find_slow_group({row.rank: row.compute_ns for row in cell.ranks}, groupings)
    return [] if found is None else [describe_slow_group(found, "computes", "per step")]


def _rank_row(cell: CellSummary, row: RankBreakdown, marks: Marks) -> tuple[Cell, ...]:
    decimals = decimals_for(one.step_ns for one in cell.ranks)
    parts_ns = (row.step_ns, row.compute_ns, row.exposed_comm_ns, row.exposed_copy_ns, row.idle_ns)
    hidden, exposed = _hidden_share(row, is_known=not cell.is_least), _exposed_share(row)
    return (
        Cell(marks.mark(str(row.rank), row.part), value=row.rank),
        *(Cell(format_ms(part_ns, decimals), value=part_ns) for part_ns in parts_ns),
        Cell(format_fraction(hidden), value=hidden),
        Cell(sentences.bound_below(cell, format_fraction(exposed)), value=exposed),
    )


def _hidden_share(row: RankBreakdown, *, is_known: bool) -> float:
    return sentences.fraction_of(row.hidden_comm_ns, row.comm_ns) if is_known else math.nan


def _exposed_share(row: RankBreakdown) -> float:
    return sentences.fraction_of(row.exposed_comm_ns, row.step_ns)


def step_bar(label: str, row: StepMean | RankBreakdown, parts: Sequence[BarPart], *, is_known: bool = True) -> Bar:
    """Return the bar of one mean step; parts that are not known are not drawn, and named at its end.

    Args:
        label: what stands before it.
        row: of the mean step.
        parts: of the bar.
        is_known: all communication was seen, so that the hidden share is known.
    """
    least = "" if is_known else "at least "
    exposed = format_fraction(sentences.fraction_of(row.exposed_comm_ns, row.step_ns))
    hidden = sentences.fraction_of(row.hidden_comm_ns, row.comm_ns) if is_known else math.nan
    lengths_ns: list[int | None] = [getattr(row, part.key) for part in parts]
    bar = Bar(
        label=label,
        lengths_ns=tuple(lengths_ns),
        words=tuple(map(format_ns, lengths_ns)),
        below_ns=row.hidden_comm_ns,
        below_words=format_ns(row.hidden_comm_ns),
    )
    said = f"exposed {least}{exposed} of step, hidden {format_fraction(hidden)} of comm"
    return replace(bar, end=", ".join(filter(None, (said, bar.name_unknown(parts)))))


def find_cell_losses(cell: CellSummary, name: str = "") -> Losses:
    """Return what a cell left exposed, means per step and rank."""
    part = cell.owners[0].part  # all are of the same steps
    return Losses(
        name=name,
        rows=[of_run(row) for row in cell.owners],
        windows=1,
        step_ns=sentences.profiled_step_ns(cell) if part == cell.part else math.nan,
        advise=sentences.make_adviser(cell),
        limits=() if part is None else (say_limit(part, name),),
    )


def _owners(cell: CellSummary) -> Iterator[Block]:
    """Yield whose communication was exposed and why, and what would change the largest causes."""
    if not cell.owners:
        return
    summed = [sum_causes(cell)] if len(cell.owners) > MOST_OWNERS else []
    told = (*summed, *missing_lines(cell), *sentences.advice_sentences(cell))
    if sentences.are_causes_told(cell):
        yield losses_table([find_cell_losses(cell)], "ms of a profiled step")
    yield Table(
        "Exposed communication by owner and cause, per step and rank; times in ms",
        (
            *(Column(title) for title in ("owner", "collective", "purpose", "cause")),
            *numbers(Unit.NS, "exposed"),
            *numbers(Unit.FRACTION, "share"),
        ),
        owner_rows(cell),
        notes=(*bound_lines(cell, mark_owners(cell)), *lines(owner_lines(cell), Tone.WARNING), *told),
        key="owners",
        first=MOST_OWNERS,
        rest=rest_of_owners(cell, MOST_OWNERS),
    )


def gradient_wait_blocks(cell: CellSummary) -> Iterator[Block]:
    """Yield what each tensor-parallel gradient was waited for, the longest first."""
    if not cell.gradient_waits:
        return
    rows = sorted(cell.gradient_waits, key=lambda row: -row.wait_ns)
    titles = ("its hook\nwaits", "goes on\nafter issue", "hidden", "exposed")
    times_ns = ((row.wait_ns, row.since_issue_ns, row.hidden_ns, row.exposed_ns) for row in rows)
    marks = Marks.of(row.part for row in rows)
    rest = len(rows) - MOST_PARAMETERS
    yield Table(
        "What hooks wait for gradients of the tensor axis, medians per backward",
        (Column("gradient of"), *numbers(Unit.NS, *titles)),
        [
            (
                marks.mark(row.parameter, row.part),
                *(Cell(format_ns(time_ns), value=time_ns) for time_ns in of_row),
            )
            for row, of_row in zip(rows, times_ns, strict=True)
        ],
        notes=lines(marks.lines, Tone.WARNING),
        key="gradient_waits",
        first=MOST_PARAMETERS,
        more=f"and {count_things(rest, 'parameter')} with shorter waits; --json has all",
    )


def _purposes(cell: CellSummary) -> Iterator[Block]:
    """Yield what each purpose communicated, against the plan if any, and whether it could have been hidden here."""
    if not cell.purposes:
        return
    has_plan = sentences.plan_words(cell) is None
    yield Table(
        "Communication by purpose, per step and rank; times in ms",
        (
            Column("purpose"),
            Column("count", is_number=True),
            Column("size", is_number=True, unit=Unit.BYTES),
            *([Column("plan", is_number=True)] if has_plan else []),
            *numbers(Unit.NS, *PURPOSE_TIMES.values(), "wait"),
            *numbers(Unit.FRACTION, "hidden\nshare"),
            Column("overlap\npossible\nhere", is_number=True),
        ),
        [
            (
                row.purpose.value,
                Cell(str(row.count), value=row.count),
                Cell(format_bytes(row.size_bytes), value=row.size_bytes),
                *([_plan_cell(row)] if has_plan else []),
                *purpose_times(cell, row),
                sentences.overlap_word(row),
            )
            for row in cell.purposes
        ],
        notes=(*bound_lines(cell, mark_purposes(cell)), *_plan_lines(cell), sentences.WAIT_EXPLAINED),
        key="purposes",
    )


def _plan_cell(row: PurposeSummary) -> str | Cell:
    return Cell("DIFFERS", Tone.BAD) if row.matches_plan is False else sentences.plan_word(row)


def _plan_lines(cell: CellSummary) -> Iterator[Line]:
    for row in cell.purposes:
        if row.matches_plan is False:
            is_same = (row.planned_count, row.planned_size_bytes) == (row.count, row.size_bytes)
            differ = ", other ranks or steps otherwise" if is_same else ""
            got = f"got {row.count} with {format_bytes(row.size_bytes)}{differ}"
            yield Line(f"{row.purpose.value}: {sentences.plan_word(row)}, {got}", Tone.BAD)


def _overlap(cell: CellSummary) -> Iterator[Facts]:
    """List purposes with an equal reason together, so that each reason is read once."""
    by_reason: dict[str, list[str]] = {}
    for row in cell.purposes:
        if row.overlap_reason:
            by_reason.setdefault(sentences.overlap_sentence(row), []).append(row.purpose.value)
    if by_reason:
        told = tuple(Fact(", ".join(names), reason) for reason, names in by_reason.items())
        yield Facts(told, key="overlap", title="Overlap possible here?")


def _check_facts(cell: CellSummary) -> Iterator[Fact]:
    """Yield what was verified and what must be known: results, receipts, warm-up, notes, what could not be read."""
    words = sentences.plan_words(cell)
    if words is not None:
        yield Fact("plan", words)
    is_right = None if cell.correctness is None else cell.correctness.passed
    yield Fact("correctness", sentences.correctness_words(cell), _tone_of(cell, is_right))
    if cell.canary is not None:
        words = f"{sentences.name_told_part(cell, cell.records_part)}{canary_words(cell.canary)}"
        yield Fact("canary", words, _tone_of(cell, cell.canary.passed))
    if cell.prediction is not None:
        yield Fact("prediction", cell.prediction.sentence, _OUTCOMES[cell.prediction.is_inside])
    yield from _receipt_facts(cell)
    yield _warmup_fact(cell)
    yield from _unread_facts(cell)
    yield from (Fact("note", note) for note in sentences.cell_notes(cell))


def _tone_of(cell: CellSummary, outcome: Literal[True, False, None]) -> Tone:
    """Return the tone of an outcome: what passed on some ranks alone is not good yet."""
    return _OUTCOMES[None if outcome and cell.records_part is not None else outcome]


def _receipt_facts(cell: CellSummary) -> Iterator[Fact]:
    if cell.scenario is None and not cell.receipts:
        return
    yield Fact("receipts", sentences.agreeing_words(cell))
    for receipt in cell.receipts:
        if receipt.outcome is ReceiptOutcome.DISAGREES:
            yield Fact("", f"DISAGREES  {sentences.receipt_words(receipt)}", Tone.BAD)
        elif receipt.outcome is ReceiptOutcome.NO_EFFECT:
            yield Fact("", f"no effect here  {sentences.receipt_words(receipt)}", Tone.WARNING)
        elif receipt.knob in cell.contested_knobs:
            yield Fact("", f"contested  {sentences.receipt_words(receipt)}", Tone.WARNING)


def _warmup_fact(cell: CellSummary) -> Fact:
    if cell.warmup is None:
        return Fact("warm-up", "n/a: no record says that it ended", Tone.WARNING)
    words = f"settled after {count_things(cell.warmup.steps, 'step')}: {cell.warmup.reason}"
    return Fact("warm-up", words) if cell.warmup.settled else Fact("warm-up", f"NOT {words}", Tone.WARNING)


def _unread_facts(cell: CellSummary) -> Iterator[Fact]:
    if cell.unread_events:
        counted = f"{cell.unread_events} trace events could not be read; no number counts them"
        yield Fact("unread", counted, Tone.WARNING)
    if cell.unknown_names:
        named = ", ".join(f"{name} ({count})" for name, count in cell.unknown_names[:MOST_NAMES])
        rest = len(cell.unknown_names) - MOST_NAMES
        more = f" and {rest} more names" if rest > 0 else ""
        yield Fact("unknown", f"device events that no rule knows: {named}{more}", Tone.WARNING)
