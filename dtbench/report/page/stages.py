"""What became of the training state, in words: a row for each stage of each part, and sentences on what went wrong."""

import math
from collections.abc import Iterator

from dtbench.base.columns import Unit
from dtbench.base.units import format_bytes, format_ns, list_numbers
from dtbench.base.vocabulary import StageOutcome
from dtbench.report.page.page import Block, Cell, Column, Line, Prose, Table, Tone, lines, numbers
from dtbench.report.words.marks import Marks
from dtbench.runs.stage_summary import StageSummary, StateStepsSummary
from dtbench.runs.summary import CellSummary
from dtbench.traces.known_part import name_part

TITLE = "What became of the training state (medians; collectives: of tensors + objects)"

_COLUMNS = (
    Column("stage of the"),
    *numbers(Unit.NS, "slowest\nrank", "stalled"),
    *numbers(Unit.BYTES, "tensors\nof a rank"),
    *numbers(None, "collec-\ntives"),
    *numbers(Unit.BYTES, "their\nsize", "host\nmemory"),
    Column("bits are"),
)


_TONES = {
    StageOutcome.EQUAL: Tone.GOOD,
    **dict.fromkeys((StageOutcome.BROKEN, StageOutcome.NOT_COMPARED), Tone.WARNING),
    **dict.fromkeys((StageOutcome.WRONG, StageOutcome.RAISED, StageOutcome.MENDED), Tone.BAD),
}


def stage_blocks(cell: CellSummary) -> Iterator[Block]:
    """Yield stages in the order in which they ran, then what came out wrong and what a load and a save cost."""
    if not cell.stages:
        return
    marks = Marks.of(row.known_part for row in cell.stages)
    rows = [_words(row, marks) for row in cell.stages]
    yield Table(TITLE, _COLUMNS, rows, key="stages", notes=lines(marks.lines, Tone.WARNING))
    yield Prose(tuple(_lines(cell)), key="stages:sentences")


def _lines(cell: CellSummary) -> Iterator[Line]:
    for row in cell.stages:
        yield from lines(outcome_sentences(row), _TONES[row.outcome])
        if (sentence := traffic_sentence(row)) is not None:
            yield Line(sentence, Tone.BAD)
    if (sentence := saved_sentence(cell.state_steps)) is not None:
        yield Line(sentence, Tone.BAD)
    yield from lines(step_sentences(cell.state_steps, is_judged=not cell.is_state_disturbed))


def _words(row: StageSummary, marks: Marks) -> tuple[str | Cell, ...]:
    peak_bytes = row.host_peak_bytes
    name = marks.mark(f"{row.part}: {row.stage}", row.known_part)
    outcome = Cell(row.outcome.value, _TONES[row.outcome])
    if not row.rounds:
        return (name, *("-" if row.raised else "n/a" for _ in _COLUMNS[1:-1]), outcome)
    return (
        name,
        Cell(format_ns(row.duration_ns), value=row.duration_ns),
        Cell(format_ns(row.wait_ns), value=row.wait_ns),
        Cell(_spell(row.state_bytes), value=row.state_bytes),
        _count(row),
        Cell(_spell(row.sent_bytes), value=row.sent_bytes),
        Cell("n/a" if peak_bytes is None else f"+{format_bytes(peak_bytes)}", value=peak_bytes),
        outcome,
    )


def _spell(size_bytes: int | None) -> str:
    return "n/a" if size_bytes is None else format_bytes(size_bytes)


def _count(row: StageSummary) -> str:
    if row.collectives is None:
        return "n/a"
    return f"{row.collectives}+{row.object_collectives}" if row.object_collectives else str(row.collectives)


def outcome_sentences(row: StageSummary) -> Iterator[str]:
    """Say what came out of a stage wrong, on which rank, or that it is no longer broken."""
    what = f"{row.stage} of the {row.part}"
    for wrong in row.mismatches:
        yield f"{what}, rank {wrong.rank}: {wrong.key}: {wrong.words}"
    rest = (row.mismatched or 0) - len(row.mismatches)
    if rest > 0:
        yield f"{what}: and {rest} more"
    for words, ranks in _by_words(row).items():
        where = f"rank{'' if len(ranks) == 1 else 's'} {list_numbers(ranks)}"
        yield f"{what}, {where}: {words}; stages after it did not run"
    if row.outcome is StageOutcome.MENDED:
        yield f"{what} holds; take it out of state_dict.broken"


def _by_words(row: StageSummary) -> dict[str, list[int]]:
    """Return the ranks that torch said something on, by what it said."""
    found: dict[str, list[int]] = {}
    for one in row.raised:
        found.setdefault(one.words, []).append(one.rank)
    return found


def traffic_sentence(row: StageSummary) -> str | None:
    """Say what a stage was to send, where it sent other than that."""
    if row.matches_plan is not False or row.planned is None:
        return None
    planned = ", ".join(f"{line.count} {line.operation} of {line.size_bytes} bytes" for line in row.planned)
    sent = "sent other than its formula says" if row.is_steady else "did not send the same in each round; its formula"
    return f"{row.stage} of the {row.part}: {sent}: {planned or 'nothing'}"


def step_sentences(steps: StateStepsSummary | None, *, is_judged: bool) -> Iterator[str]:
    """Say what a load and a save cost training."""
    if steps is None:
        return
    yield (
        f"{name_part(steps.known_part)}a step takes {format_ns(steps.before_ns)} before a load, "
        f"{format_ns(steps.first_ns)} right after it and "
        f"{format_ns(steps.after_ns)} from then on; the load takes {format_ns(steps.load_ns)}"
    )
    yield (
        f"an asynchronous save of {format_bytes(steps.file_bytes)} blocks training for {format_ns(steps.blocked_ns)} "
        f"and is done after {format_ns(steps.saved_ns)}; of {steps.steps} steps after the call {steps.in_flight:.3g} "
        f"began before that, and one of these takes {format_ns(steps.beside_ns)} instead of "
        f"{format_ns(steps.alone_ns)}: {_cost_words(steps, is_judged=is_judged)}"
    )


def _cost_words(steps: StateStepsSummary, *, is_judged: bool) -> str:
    """Say what a save costs training; where others had the cores, that no time of it is judged."""
    if not is_judged:
        return "what it costs training in all is not judged, since others had the cores"
    is_beside_lost = steps.in_flight > 0 and math.isnan(steps.beside_ns)
    if is_beside_lost or math.isnan(steps.blocked_ns + steps.saved_ns + steps.alone_ns):
        return "what it costs training in all is n/a, since not every save and step is told of every rank"
    if math.isnan(steps.cost_low_ns):
        return "what it costs training in all cannot be told from one round"
    interval = f"95 % interval {format_ns(steps.cost_low_ns)} to {format_ns(steps.cost_high_ns)}"
    if math.isnan(steps.cost_ns):
        return f"what it costs training in all cannot be told ({interval})"
    extent = "in these steps" if steps.in_flight >= steps.steps else "in all"  # a save that outlasts them costs more
    cost = f"{format_ns(steps.cost_ns)} of training {extent}"
    return f"{cost} ({interval}), {format_ns(steps.cost_ns_per_mib)} per MiB"


def saved_sentence(steps: StateStepsSummary | None) -> str | None:
    """Say that steps beside a save show in what it wrote."""
    if steps is None or not steps.mismatched:
        return None
    return f"steps beside a save show in what was saved: {steps.mismatched} keys are not as they were at the call"
