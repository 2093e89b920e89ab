"""A comparison as a page: the answer, what it stands against, what was done differently, what it cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from dtbench.base.columns import Better, Unit
from dtbench.base.units import NS_PER_S, count_launches, count_things, decimals_for, format_ms, format_ns, three_digits
from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.comparison.comparison import (
    ESTABLISHED,
    CollectiveChange,
    Comparison,
    KernelChange,
    KernelOutcome,
    MetricChange,
    Outcome,
    Side,
)
from dtbench.comparison.gate import Gate, spell_number
from dtbench.comparison.mechanism import say_same
from dtbench.comparison.metrics import EXPOSED_BY_OWNER, spell_metric
from dtbench.comparison.sentence import percent, spell_interval
from dtbench.report.page.bounds import bounds_part
from dtbench.report.page.page import Cell, Column, Fact, Line, Page, Part, Prose, Table, Tone, lines, numbers
from dtbench.report.words.causes import UNATTRIBUTED, name_operation, spell_owner
from dtbench.report.words.kernel_names import shorten_apart
from dtbench.runs.environments import EnvironmentChange

MOST_ROWS: Final = 12
"""Rows of a table that depends on the model; ``--json`` has all."""

MOST_OWNERS: Final = 8

_OUTCOMES: Final = {
    Outcome.BELOW_THRESHOLD: "too small",
    Outcome.NO_DIFFERENCE: "no difference",
    Outcome.NOT_ESTABLISHED: "not established",
    Outcome.SAME: "the same",
    Outcome.NOT_ENOUGH_LAUNCHES: "too few",
    Outcome.UNKNOWN: "not known",
}

_MANIFOLD: Final = 10.0
"""A ratio from which "times" is easier to read than percent."""


def comparisons_page(comparisons: Sequence[Comparison], gate: Gate | None = None) -> Page:
    """Make the page of one comparison, or of several: their step times in one table, then each.

    Args:
        comparisons: at least one, of one command.
        gate: its bounds; None: it has none.
    """
    left_out = left_out_facts(comparisons)
    if len(comparisons) == 1:
        return replace(comparison_page(comparisons[0], gate), facts=left_out)
    return Page(
        title=f"{len(comparisons)} comparisons",
        answer=tuple(Line(f"{one.candidate.label}: {one.sentence}") for one in comparisons),
        parts=(*bounds_part(gate), Part("summary", "", (summary_table(comparisons),)), *map(_fold, comparisons)),
        facts=left_out,
    )


def left_out_facts(comparisons: Sequence[Comparison]) -> tuple[Fact, ...]:
    """Say what is in none of the comparisons of a command."""
    return tuple(Fact("left out", f"WARNING: left out: {words}", Tone.WARNING) for words in comparisons[0].left_out)


def _fold(comparison: Comparison) -> Part:
    """Put a page of its own into a part of another."""
    page = comparison_page(comparison)
    told = (Prose(page.answer), *(block for part in page.parts for block in part.blocks), Prose(page.notes))
    title = f"{comparison.candidate.label} against {comparison.baseline.label}"
    return Part(f"candidate:{comparison.candidate.label}", title, told)


def comparison_page(comparison: Comparison, gate: Gate | None = None) -> Page:
    """Make the page of one comparison, its sentence a clause a line, with the bounds on it where there are any."""
    first, *others = comparison.clauses
    return Page(
        title=f"{comparison.candidate.label} against {comparison.baseline.label}",
        answer=(
            Line(first, Tone.STRONG),
            *lines(others),
            *lines(kernel_lines(comparison)),
            *lines(basis_lines(comparison), Tone.QUIET),
        ),
        parts=(
            *bounds_part(gate),
            *(
                Part(table.key, "", (table,), is_folded=table.key not in _OPEN)
                for table in comparison_tables(comparison)
            ),
        ),
        notes=tuple(
            Line(note, Tone.WARNING if note.startswith("WARNING") else Tone.PLAIN) for note in remark_lines(comparison)
        ),
    )


_OPEN: Final = ("mechanism", "metrics", "origins")
"""Tables that a medium which can fold shows at once."""


def comparison_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return the tables: what was done differently first, then what it cost; those that have rows."""
    return (
        *_treatment_table(comparison),
        *_environment_table(comparison),
        *_mechanism_table(comparison),
        _metrics_table(comparison),
        *collectives_table(comparison),
        *kernels_table(comparison),
        *_origins_table(comparison),
    )


def _origins_table(comparison: Comparison) -> Iterator[Table]:
    """Yield of which run, when and where each side is, where one tells: a page that was sent is asked a week later."""
    sides = [_tell_origin(side) for side in (comparison.baseline, comparison.candidate)]
    rows = [(what, *(told[what] or "n/a" for told in sides)) for what in sides[0] if any(told[what] for told in sides)]
    if not rows:
        return
    headers = ("", comparison.baseline.label, comparison.candidate.label)
    yield Table("Where the sides are from", tuple(map(Column, headers)), rows, key="origins")


def _tell_origin(side: Side) -> dict[str, str]:
    return {
        "scenario": ", ".join(dict.fromkeys(origin.scenario for origin in side.origins)),
        "run": ", ".join(origin.run_id for origin in side.origins),
        "began (UTC)": ", ".join(_spell_utc(origin.started_unix_ns) for origin in side.origins),
        "torch": side.torch,
        "machine": side.machine,
    }


def _spell_utc(unix_ns: int) -> str:
    return f"{datetime.fromtimestamp(unix_ns / NS_PER_S, tz=UTC):%Y-%m-%d %H:%M}"


def kernel_lines(comparison: Comparison) -> tuple[str, ...]:
    """Say which compute kernels took longer in two sides of traces, or why none is compared; of runs nothing."""
    if comparison.kernels_not_compared:
        return (comparison.kernels_not_compared,)
    slower = [row for row in comparison.kernels if row.outcome is KernelOutcome.LONGER]
    if not slower:
        return ()
    names = shorten_apart([row.name for row in slower])
    named = [
        f"{names[row.name]} {format_ns(row.median_ns[0])} -> {format_ns(row.median_ns[1])} "
        f"({100 * (row.ratio - 1):+.1f} %, {count_things(round(row.count[0]), 'run')} per step)"
        for row in slower[:_MOST_SLOWER]
    ]
    more = [f"and {len(slower) - _MOST_SLOWER} more"] if len(slower) > _MOST_SLOWER else []
    return (f"compute kernels that took longer in these traces: {'; '.join([*named, *more])}",)


_OF_KERNELS: Final = (
    "those with the same work first, by the time lost per step; medians over steps of one launch each: longer is said "
    "of these traces, not of what another launch takes, as launches of one thing differ by more than their steps; "
    "different work where one side runs it more often, in some steps or in all, or with another launch shape; "
    "not known where launch shapes are not told"
)
_MOST_SLOWER: Final = 3


def kernels_table(comparison: Comparison) -> Iterator[Table]:
    """Yield what compute kernels took in the traces of both sides, where they tell any."""
    if not comparison.kernels:
        return
    sides = ("baseline", "candidate")
    runs, took = (tuple(f"{what}\n{side}" for side in sides) for what in ("runs", "median"))
    kernels = comparison.kernels
    names = shorten_apart([row.name for row in kernels])
    has_shapes = len(names) < len(kernels)
    left_out = comparison.kernels_left_out
    told = (f"{count_things(left_out, 'more kernel')} that took less: left out",) if left_out else ()
    yield Table(
        "Compute kernels, per step and rank",
        (
            Column("kernel"),
            *((Column("launch shape"),) if has_shapes else ()),
            *numbers(Unit.COUNT, *runs),
            *numbers(Unit.NS, *took),
            *numbers(None, "change", "interval\nover steps"),
            Column("here"),
        ),
        [(names[row.name], *((row.shape,) if has_shapes else ()), *_kernel_cells(row)) for row in kernels],
        notes=(*told, _OF_KERNELS),
        key="kernels",
        first=MOST_OWNERS,
        more=f"and {len(kernels) - MOST_OWNERS} more: --full",
    )


def _kernel_cells(row: KernelChange) -> tuple[str | Cell, ...]:
    interval = "n/a" if math.isnan(row.low) else f"{100 * (row.low - 1):+.1f} to {100 * (row.high - 1):+.1f} %"
    return (
        *(Cell(f"{count:g}" if count < _WHOLE else f"{count:.0f}", value=count) for count in row.count),
        *(Cell(format_ns(time_ns), value=time_ns) for time_ns in row.median_ns),
        Cell("n/a" if math.isnan(row.ratio) else f"{100 * (row.ratio - 1):+.1f} %", value=row.ratio),
        interval,
        Cell(row.outcome),
    )


_WHOLE: Final = 1000


def basis_lines(comparison: Comparison) -> tuple[str, ...]:
    """Say what is compared, and what noise and threshold the numbers stand against."""
    lines = _describe_sides(comparison.baseline, comparison.candidate)
    if not math.isnan(comparison.noise_floor):
        floor = percent(comparison.noise_floor)
        lines.append(f"noise floor: halves of one side differ by up to {floor} in step time")
    return tuple(lines)


def remark_lines(comparison: Comparison) -> tuple[str, ...]:
    """Return the notes, and launches far from the others of their side, which are counted."""
    far = [name for change in comparison.metrics[:1] for name in change.outliers]
    outliers = [f"far from the others in step time, and counted: {', '.join(far)}"] if far else []
    return (*comparison.notes, *outliers)


def summary_table(comparisons: Sequence[Comparison]) -> Table:
    """Return several candidates against one baseline, or cells of two runs, in one row each."""
    rows = []
    is_one = len({comparison.baseline.label for comparison in comparisons}) == 1
    for comparison in comparisons:
        step = comparison.metrics[0]
        rows.append(
            (
                comparison.candidate.label,
                *(() if is_one else (comparison.baseline.label,)),
                *_change_cells(step, step.candidate.median, step.baseline.median),
            )
        )
    words = ("candidate",) if is_one else ("candidate", "baseline")
    columns = (
        *(Column(header) for header in words),
        *(Column(header, is_number=True) for header in ("step time", "baseline's", "change", "95 % interval")),
        Column("outcome"),
    )
    title = f"Step times against {comparisons[0].baseline.label}" if is_one else "Step times"
    return Table(title, columns, rows, key="summary")


def outcome_words(change: MetricChange) -> str:
    """Say what can be said of a metric, in few letters, and whether that is good.

    Only what is established is called better or worse.
    """
    if change.outcome not in ESTABLISHED:
        return _OUTCOMES[change.outcome]
    if change.better is Better.NEITHER:
        return str(change.outcome)
    return "better" if (change.outcome is Outcome.HIGHER) == (change.better is Better.HIGHER) else "worse"


def _describe_sides(baseline: Side, candidate: Side) -> list[str]:
    """Say how often each side was launched, in one line where that is alike."""
    is_whole = not baseline.left_out and not candidate.left_out
    told = {(side.launches, side.is_interleaved) for side in (baseline, candidate)}
    if is_whole and len(told) == 1:
        turns = ", which took turns" if baseline.is_interleaved else ""
        return [
            f"baseline {baseline.label}, candidate {candidate.label}: {count_launches(baseline.launches)} each{turns}"
        ]
    return [_describe_side("baseline", baseline), _describe_side("candidate", candidate)]


def _describe_side(which: str, side: Side) -> str:
    turns = ", which took turns with the other side's" if side.is_interleaved else ""
    left = f"; {_say_left_out(side)} (why: below)" if side.left_out else ""
    return f"{which} {side.label}: {count_launches(side.launches)}{turns}{left}"


def _say_left_out(side: Side) -> str:
    return f"{', '.join(side.left_out)} {'is' if len(side.left_out) == 1 else 'are'} left out"


def _treatment_table(comparison: Comparison) -> Iterator[Table]:
    if comparison.treatment:
        rows = [(change.field, change.baseline, change.candidate) for change in comparison.treatment]
        yield _words_table("treatment", "What was asked for", ("field", "baseline", "candidate"), rows)


def _environment_table(comparison: Comparison) -> Iterator[Table]:
    if comparison.environment:
        rows = [
            (change.what, change.baseline, change.candidate, *_say_difference(change))
            for change in comparison.environment
        ]
        yield _words_table("environment", "Where it ran", ("what", "baseline", "candidate", "differs", "why"), rows)


def _say_difference(change: EnvironmentChange) -> tuple[str, str]:
    if change.is_declared:
        return "by the scenario", ""
    if change.why and change.is_of_class:
        return "within the runner class", change.why
    return ("NOT ALIKE", change.why) if change.why else ("does not matter", "")


def _mechanism_table(comparison: Comparison) -> Iterator[Table]:
    title, doubts = "What was done differently, per step", comparison.mechanism_doubts
    rows: list[tuple[str, ...]]
    if comparison.mechanism:
        rows = [(change.what, change.subject, change.baseline, change.candidate) for change in comparison.mechanism]
        yield _words_table("mechanism", title, ("what", "of", "baseline", "candidate"), rows, doubts)
    elif doubts:
        yield _words_table("mechanism", title, ("what", "why"), [("not established", words) for words in doubts])
    elif comparison.is_mechanism_known:
        yield _words_table("mechanism", title, ("what", "of"), [("nothing", say_same(comparison))])


def _words_table(
    key: str, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> Table:
    more = f"and {len(rows) - MOST_ROWS} more: see --json"
    columns = tuple(map(Column, headers))
    return Table(title, columns, rows, tuple(notes), key=key, first=MOST_ROWS, more=more)


def _metrics_table(comparison: Comparison) -> Table:
    shown, found = choose_metrics(comparison), _find_changed_owners(comparison)
    note = (
        "medians over launches; step time is the slowest rank's, the median over steps; exposed, hidden, idle, "
        "compute and wait are means over PROFILED steps and ranks, so they need not add up to it; "
        "the interval is the change's, wider the more numbers were tested beside it; an outcome goes by it: "
        f"no difference where it lies within {percent(comparison.threshold)}, which do not matter, "
        "else not established unless a change was found"
    )
    more = f"and {count_things(len(found) - MOST_OWNERS, 'more owner')} whose change is established: see --json"
    rows = [*shown, *found[MOST_OWNERS:]]
    return replace(metrics_table(rows), notes=(note,), first=len(shown), more=more)


def choose_metrics(comparison: Comparison) -> list[MetricChange]:
    """Return the metrics that a terminal has on the whole page: of owners those whose change is established."""
    of_all = [change for change in comparison.metrics if change.metric != EXPOSED_BY_OWNER]
    return [*of_all, *_find_changed_owners(comparison)[:MOST_OWNERS]]


def _find_changed_owners(comparison: Comparison) -> list[MetricChange]:
    changes = [change for change in comparison.metrics if change.metric == EXPOSED_BY_OWNER]
    return [change for change in changes if change.outcome in ESTABLISHED]


def metrics_table(changes: Sequence[MetricChange]) -> Table:
    """Return what some metrics were on both sides, and what can be said of their change."""
    headers = ("metric", "baseline", "candidate", "change", "95 % interval", "outcome")
    columns = tuple(Column(header, is_number=place in (1, 2, 3, 4)) for place, header in enumerate(headers))
    return Table("What it cost", columns, [*map(_metric_row, changes)], key="metrics")


def _metric_row(change: MetricChange) -> tuple[str | Cell, ...]:
    return (
        spell_metric(change.metric, change.subject),
        *_change_cells(change, change.baseline.median, change.candidate.median),
    )


def _change_cells(change: MetricChange, *medians: float) -> tuple[str | Cell, ...]:
    """Return medians, the change with its interval, and what can be said of it."""
    return (
        *(Cell(spell_number(median, change.unit), value=median) for median in medians),
        Cell(_change_words(change), value=change.ratio),
        _interval_words(change),
        Cell(outcome_words(change), _TONES.get(outcome_words(change), Tone.PLAIN)),
    )


_TONES: Final = {"better": Tone.GOOD, "worse": Tone.BAD}


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


def collectives_table(comparison: Comparison) -> Iterator[Table]:
    """Yield whose exposed time changed most, where any did."""
    rows = [row for row in comparison.collectives if _has_changed(row)]
    if not rows:
        return
    exposed = decimals_for(time_ns for row in rows[:MOST_OWNERS] for time_ns in row.exposed_ns)
    took = decimals_for(time_ns for row in rows[:MOST_OWNERS] for time_ns in row.duration_ns)
    sides = ("baseline", "candidate")
    headers = ["owner", "collective", *(f"{what}\n{side}" for what in ("exposed", "took") for side in sides)]
    headers += ["mostly"] if any(row.cause is not None for row in rows) else []  # else the notes say why none is told
    yield Table(
        "Whose exposed time changed most, per step and rank; times in ms",
        tuple(Column(header, is_number=place in (2, 3, 4, 5)) for place, header in enumerate(headers)),
        [_collective_row(row, exposed, took)[: len(headers)] for row in rows],
        notes=tuple(
            f"of {side.label}'s other {'launch' if side.launches == 1 else 'launches'} alone: {_say_left_out(side)}"
            for side in (comparison.baseline, comparison.candidate)
            if side.left_out
        ),
        key="collectives",
        first=MOST_OWNERS,
        more=f"and {len(rows) - MOST_OWNERS} more: see --json",
    )


def _has_changed(row: CollectiveChange) -> bool:
    """Tell whether a number of an owner differs, or one side alone knows it."""
    told = (row.exposed_ns, row.duration_ns, row.count)
    return any(before != after for before, after in told if not (math.isnan(before) and math.isnan(after)))


def _collective_row(row: CollectiveChange, exposed: int, took: int) -> tuple[str | Cell, ...]:
    owner = spell_owner(row.owner) if row.owner else f"{UNATTRIBUTED}{f', {row.place}' if row.place else ''}"
    return (
        owner,
        f"{row.purpose} {name_operation(row.operation)}",
        *(Cell(format_ms(time_ns, exposed), value=time_ns) for time_ns in row.exposed_ns),
        *(Cell(format_ms(time_ns, took), value=time_ns) for time_ns in row.duration_ns),
        "" if row.cause is None else CAUSE_PHRASES[row.cause],
    )
