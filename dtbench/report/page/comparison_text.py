"""A comparison in words: what leads, then tables, the same ones for a terminal and for Markdown.

Names come from outside and stay plain text here; who prints them escapes what his medium would read as markup.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.columns import Better
from dtbench.base.units import count_things, three_digits
from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.comparison.comparison import CollectiveChange, Comparison, EnvironmentChange, MetricChange, Outcome, Side
from dtbench.comparison.gate import spell_number
from dtbench.comparison.mechanism import say_same
from dtbench.comparison.metrics import EXPOSED_BY_OWNER, spell_metric
from dtbench.comparison.sentence import percent, spell_interval
from dtbench.report.page.causes import UNATTRIBUTED, name_operation, spell_owner
from dtbench.report.page.section import Column, Section
from dtbench.report.page.sentences import decimals_for, format_ms

MOST_ROWS: Final = 12
"""Rows of a table that hangs on the model; ``--json`` has all."""

MOST_OWNERS: Final = 8

_OUTCOMES: Final = {
    Outcome.BELOW_THRESHOLD: "too small",
    Outcome.NO_DIFFERENCE: "no difference",
    Outcome.NOT_ESTABLISHED: "not established",
    Outcome.SAME: "the same",
    Outcome.NOT_ENOUGH_LAUNCHES: "too few",
    Outcome.UNKNOWN: "not known",
}
_ESTABLISHED: Final = (Outcome.HIGHER, Outcome.LOWER)

_MANIFOLD: Final = 10.0
"""A ratio from which "times" is easier to read than percent."""


def comparison_sections(comparison: Comparison) -> tuple[Section, ...]:
    """Give the tables: what was done differently first, then what it cost; those that have rows."""
    return (
        *_treatment_section(comparison),
        *_environment_section(comparison),
        *_mechanism_section(comparison),
        _metrics_section(comparison),
        *_collectives_section(comparison),
    )


def basis_lines(comparison: Comparison) -> tuple[str, ...]:
    """Say what is compared, and what noise and threshold the numbers stand against."""
    lines = [_describe_side("baseline", comparison.baseline), _describe_side("candidate", comparison.candidate)]
    if not math.isnan(comparison.noise_floor):
        floor = percent(comparison.noise_floor)
        lines.append(f"noise floor: halves of one side differ by up to {floor} in step time")
    return tuple(lines)


def remark_lines(comparison: Comparison) -> tuple[str, ...]:
    """Give the notes, and launches far from the others of their side, which are counted."""
    far = [name for change in comparison.metrics[:1] for name in change.outliers]
    outliers = [f"far from the others in step time, and counted: {', '.join(far)}"] if far else []
    return (*comparison.notes, *outliers)


def summary_section(comparisons: Sequence[Comparison]) -> Section:
    """Give several candidates against one baseline, or cells of two runs, in one row each."""
    rows = []
    is_one = len({comparison.baseline.label for comparison in comparisons}) == 1
    for comparison in comparisons:
        step = comparison.metrics[0]
        rows.append(
            (
                comparison.candidate.label,
                *(() if is_one else (comparison.baseline.label,)),
                spell_number(step.candidate.median, step.unit),
                spell_number(step.baseline.median, step.unit),
                _change_words(step),
                _interval_words(step),
                outcome_words(step),
            )
        )
    words = ("candidate",) if is_one else ("candidate", "baseline")
    columns = (
        *(Column(header) for header in words),
        *(Column(header, is_number=True) for header in ("step time", "baseline's", "change", "95 % interval")),
        Column("outcome"),
    )
    title = f"Step times against {comparisons[0].baseline.label}" if is_one else "Step times"
    return Section(title, columns, rows)


def outcome_words(change: MetricChange) -> str:
    """Say what can be said of a metric, in few letters, and whether that is good.

    Only what is established is called better or worse.
    """
    if change.outcome not in _ESTABLISHED:
        return _OUTCOMES[change.outcome]
    if change.better is Better.NEITHER:
        return str(change.outcome)
    return "better" if (change.outcome is Outcome.HIGHER) == (change.better is Better.HIGHER) else "worse"


def _describe_side(which: str, side: Side) -> str:
    count = f"{side.launches} launch{'' if side.launches == 1 else 'es'}"
    turns = ", which took turns with the other side's" if side.is_interleaved else ""
    return f"{which} {side.label}: {count}{turns}"


def _treatment_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.treatment:
        rows = [(change.field, change.baseline, change.candidate) for change in comparison.treatment]
        yield _words_section("What was asked for", ("field", "baseline", "candidate"), rows)


def _environment_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.environment:
        rows = [
            (change.what, change.baseline, change.candidate, *_say_difference(change))
            for change in comparison.environment
        ]
        yield _words_section("Where it ran", ("what", "baseline", "candidate", "differs", "why"), rows)


def _say_difference(change: EnvironmentChange) -> tuple[str, str]:
    if change.is_declared:
        return "by the scenario", ""
    return ("NOT ALIKE", change.why) if change.why else ("does not matter", "")


def _mechanism_section(comparison: Comparison) -> Iterator[Section]:
    title, doubts = "What was done differently, per step", comparison.mechanism_doubts
    rows: list[tuple[str, ...]]
    if comparison.mechanism:
        rows = [(change.what, change.subject, change.baseline, change.candidate) for change in comparison.mechanism]
        yield _words_section(title, ("what", "of", "baseline", "candidate"), rows, doubts)
    elif doubts:
        yield _words_section(title, ("what", "why"), [("not established", words) for words in doubts])
    elif comparison.is_mechanism_known:
        yield _words_section(title, ("what", "of"), [("nothing", say_same(comparison))])


def _words_section(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> Section:
    rest = len(rows) - MOST_ROWS
    more = (f"and {rest} more: see --json",) if rest > 0 else ()
    return Section(title, tuple(Column(header) for header in headers), rows[:MOST_ROWS], (*more, *notes))


def _metrics_section(comparison: Comparison) -> Section:
    shown = [change for change in comparison.metrics if change.metric != EXPOSED_BY_OWNER]
    found = [
        change for change in comparison.metrics if change.metric == EXPOSED_BY_OWNER and change.outcome in _ESTABLISHED
    ]
    rows = [_metric_row(change) for change in (*shown, *found[:MOST_OWNERS])]
    note = (
        "medians over launches; step time is the slowest rank's, the median over steps; exposed, hidden, idle, "
        "compute and wait are means over PROFILED steps and ranks, so they need not add up to it; "
        "the interval is the change's, wider the more numbers were tested beside it; an outcome goes by it: "
        f"*no difference* where it lies within {percent(comparison.threshold)}, which do not matter, "
        "else *not established* unless a change was found"
    )
    rest = len(found) - MOST_OWNERS
    more = (f"and {count_things(rest, 'more owner')} whose change is established: see --json",) if rest > 0 else ()
    headers = ("metric", "baseline", "candidate", "change", "95 % interval", "outcome")
    columns = tuple(Column(header, is_number=place in (1, 2, 3, 4)) for place, header in enumerate(headers))
    return Section("What it cost", columns, rows, (*more, note))


def _metric_row(change: MetricChange) -> tuple[str, ...]:
    return (
        spell_metric(change.metric, change.subject),
        spell_number(change.baseline.median, change.unit),
        spell_number(change.candidate.median, change.unit),
        _change_words(change),
        _interval_words(change),
        outcome_words(change),
    )


def _change_words(change: MetricChange) -> str:
    if math.isnan(change.ratio):
        return "n/a"
    return f"{three_digits(change.ratio)} x" if _is_manifold(change) else f"{100 * (change.ratio - 1):+.1f} %"


def _is_manifold(change: MetricChange) -> bool:
    """Tell whether change and interval are spelled as so many times, both alike."""
    return any(ratio >= _MANIFOLD for ratio in (change.ratio, change.high))


def _interval_words(change: MetricChange) -> str:
    if math.isnan(change.low) or math.isnan(change.high):
        return "n/a"
    if _is_manifold(change):
        return f"{three_digits(change.low)} to {three_digits(change.high)} x"
    return spell_interval(change)


def _collectives_section(comparison: Comparison) -> Iterator[Section]:
    rows = [row for row in comparison.collectives if _has_changed(row)]
    if not rows:
        return
    shown = rows[:MOST_OWNERS]
    exposed = decimals_for(time_ns for row in shown for time_ns in row.exposed_ns)
    took = decimals_for(time_ns for row in shown for time_ns in row.duration_ns)
    rest = len(rows) - len(shown)
    headers = ("owner", "collective", "exposed", "now", "took", "now", "mostly")
    columns = tuple(Column(header, is_number=place in (2, 3, 4, 5)) for place, header in enumerate(headers))
    yield Section(
        "Whose exposed time changed most, per step and rank; times in ms",
        columns,
        [_collective_row(row, exposed, took) for row in shown],
        (f"and {rest} more: see --json",) if rest > 0 else (),
    )


def _has_changed(row: CollectiveChange) -> bool:
    return any(before != after for before, after in (row.exposed_ns, row.duration_ns, row.count))


def _collective_row(row: CollectiveChange, exposed: int, took: int) -> tuple[str, ...]:
    owner = spell_owner(row.owner) if row.owner else f"{UNATTRIBUTED}{f', {row.place}' if row.place else ''}"
    return (
        owner,
        f"{row.purpose} {name_operation(row.operation)}",
        *(format_ms(time_ns, exposed) for time_ns in row.exposed_ns),
        *(format_ms(time_ns, took) for time_ns in row.duration_ns),
        "" if row.cause is None else CAUSE_PHRASES[row.cause],
    )
