"""Words and numbers on exposed communication that was estimated several ways: one wording for every place.

The answer first: do the estimates agree, or which two do not and why. Then what overlapping gained on the clock.
"""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import NS_PER_MS, decimals_for, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import ESTIMATE_PHRASES, Estimate
from dtbench.report.page.page import Cell, Column, Table, Tone, lines, numbers
from dtbench.report.words.marks import Marks
from dtbench.runs.exposure.agreement import ERRORS, LEAST_NS, SHARE, VOTES, Agreement, known_votes, leans_on_errors
from dtbench.runs.exposure.unjudged import judge_row
from dtbench.runs.summary import CellSummary, Estimated, ExposureRow, ExposureSummary
from dtbench.traces.known_part import name_part

LABEL: Final = "estimates"
"""Of the sentence that says whether they agree."""

NOT_ASKED: Final = "-"
"""The word for a cell of which only the trace was asked."""

MOST_RANKS: Final = 16
"""Rows of the table; ``--json`` has all."""

MOST_DISPUTES: Final = 4
"""Sentences on ranks that are disputed; ``--json`` has all."""

_EXPLAINED: Final = {
    Estimate.TRACE: "trace: communication with no compute beside it, from spans of PROFILED steps",
    Estimate.ABLATION: "ablation: steps as they are less steps without communication, neither profiled",
    Estimate.WAIT: "waits: how long consumers were blocked, by the clock (on CUDA, gaps of the compute stream)",
    Estimate.LOGGER: "DDP's logger: torch's own figure, a check on the waits for gradients",
}


def agreement_word(cell: CellSummary) -> str:
    """Say in a word or two whether a cell's estimates agree; a dash where only the trace was asked."""
    if cell.exposure is None:
        return NOT_ASKED
    outcome, disputed = judge_row(cell.exposure, cell.exposure.rows[0]), _disputed_ranks(cell.exposure)
    if disputed and outcome is not Agreement.DISPUTED:
        return f"{len(disputed)} {'rank' if len(disputed) == 1 else 'ranks'} disputed"
    return _word(outcome)


def _word(outcome: Agreement) -> str:
    return "n/a" if outcome is Agreement.UNKNOWN else outcome.value


def _disputed_ranks(exposure: ExposureSummary) -> list[ExposureRow]:
    return [row for row in exposure.rows if row.rank is not None and row.disputes]


def lead_rows(cell: CellSummary) -> Iterator[tuple[str, str]]:
    """Yield what leads, by its label: whether estimates agree, what overlapping gained; nothing if not asked."""
    if cell.exposure is None:
        return
    yield LABEL, agreement_sentence(cell.exposure)
    gain = gain_sentence(cell)
    if gain is not None:
        yield "overlap", gain


def agreement_tone(cell: CellSummary) -> Tone:
    """Tell how the sentence on whether estimates agree is meant."""
    if cell.exposure is None:
        return Tone.STRONG
    if any(row.disputes for row in cell.exposure.rows):
        return Tone.WARNING
    return Tone.GOOD if judge_row(cell.exposure, cell.exposure.rows[0]) is Agreement.AGREE else Tone.STRONG


def is_any_known(exposure: ExposureSummary) -> bool:
    """Tell whether there is anything to put into a table."""
    return any(not math.isnan(one.mean_ns) for row in exposure.rows for one in row.estimates)


def agreement_sentence(exposure: ExposureSummary) -> str:
    """Say whether the estimates of the mean over ranks agree, and with what figures."""
    mean = exposure.rows[0]
    match judge_row(exposure, mean):
        case Agreement.DISPUTED:
            rest = len(mean.disputes) - 1
            more = f"; and {rest} more {'dispute' if rest == 1 else 'disputes'}" if rest else ""
            return f"DISPUTED: {mean.disputes[0]}{more}"
        case Agreement.AGREE:
            said = f"{'agree within their errors only' if leans_on_errors(mean) else 'agree'}: {_figures(mean)}"
        case Agreement.UNKNOWN:
            said = _unknown_words(exposure)
    disputed = _disputed_ranks(exposure)
    if not disputed:
        return said
    which = f"rank {disputed[0].rank} is" if len(disputed) == 1 else f"{len(disputed)} ranks are"
    return f"{said}; but {which} disputed"


def _unknown_words(exposure: ExposureSummary) -> str:
    row = exposure.rows[0]
    known = known_votes(row)
    if not known:
        return "n/a: none is known"
    if exposure.unjudged:
        return f"not judged, since {exposure.unjudged}: {_figures(row)}"
    if len(known) == 1:
        return f"nothing to compare: only {_figures(row)} is known"
    lost = [
        f"{ESTIMATE_PHRASES[one.estimate]} n/a" for one in row.estimates if one.estimate in VOTES and one not in known
    ]
    return f"not judged: {', '.join([_figures(row), *lost])}"


def _figures(row: ExposureRow) -> str:
    known = [one for one in row.estimates if not math.isnan(one.mean_ns)]
    return ", ".join(f"{ESTIMATE_PHRASES[one.estimate]} {_least_word(one)}{_say_time(one)}" for one in known)


def _say_time(one: Estimated) -> str:
    return format_ns(one.mean_ns) if one.part is None else f"{format_ns(one.mean_ns)} (of {one.part})"


def _least_word(one: Estimated) -> str:
    return "at least " if one.is_least else ""


def gained_fraction(exposure: ExposureSummary) -> float:
    """Return the part of a step without overlap that overlapping takes off; negative: it costs; NaN: not known."""
    saved_ns = exposure.serial_ns - exposure.overlapped_ns
    return saved_ns / exposure.serial_ns if exposure.serial_ns > 0 else math.nan


def gain_sentence(cell: CellSummary) -> str | None:
    """Hold the hidden share against the clock: how much shorter steps are than those that never overlap."""
    exposure = cell.exposure
    if exposure is None or math.isnan(gained_fraction(exposure)):
        return None
    gained, saved_ns = gained_fraction(exposure), exposure.serial_ns - exposure.overlapped_ns
    hidden_ns = fmean(row.hidden_comm_ns for row in cell.ranks) if cell.ranks else math.nan
    change = f"{format_fraction(abs(gained))} of the step ({format_ns(abs(saved_ns))})"
    if exposure.unjudged and not cell.is_least:  # which no clock of a step needs
        found = f"{change} {'longer' if gained < 0 else 'shorter'}, which is not judged"
    elif abs(saved_ns) > ERRORS * exposure.gain_error_ns:  # false where nobody knows the error
        found = f"{'lost' if gained < 0 else 'gained'} {change}"
    elif math.isnan(exposure.gain_error_ns):
        found = f"{change} {'longer' if gained < 0 else 'shorter'}, with an error that is not known"
    else:
        found = f"no gain can be told from none (within {format_ns(ERRORS * exposure.gain_error_ns)})"
    hidden = format_fraction(cell.hidden_fraction)
    time = "" if hidden == "n/a" else f" ({format_ns(hidden_ns)})"  # what was seen of it alone is no time of all
    return (
        f"{name_part(cell.part)}hidden {hidden} of the communication{time}, {name_part(exposure.gain_part)}{found}: "
        f"{format_ns(exposure.overlapped_ns)}, and {format_ns(exposure.serial_ns)} where every collective is waited "
        "for at once"
    )


def dispute_sentences(exposure: ExposureSummary) -> list[str]:
    """Return every dispute of the mean over ranks; where that has none, those of ranks."""
    mean = exposure.rows[0]
    if mean.disputes:
        return list(mean.disputes)
    found = [f"rank {row.rank}: {dispute}" for row in _disputed_ranks(exposure) for dispute in row.disputes]
    rest = len(found) - MOST_DISPUTES
    return [*found[:MOST_DISPUTES], *([f"and {rest} more disputes: see --json"] if rest > 0 else [])]


def estimates_table(exposure: ExposureSummary) -> Table:
    """Return all estimates with their standard errors: the mean over ranks, each rank, then what does not agree."""
    kinds = [one.estimate for one in exposure.rows[0].estimates]
    decimals = decimals_for(one.mean_ns for row in exposure.rows for one in row.estimates)
    marks = Marks.of(one.part for row in exposure.rows for one in row.estimates if not math.isnan(one.mean_ns))
    rest = len(exposure.rows) - MOST_RANKS - 1
    rule = (
        f"two agree within the largest of {ERRORS:g} combined standard errors, {format_fraction(SHARE)} and "
        f"{format_ns(LEAST_NS)}"
    )
    return Table(
        title="Exposed communication estimated several ways, per step; ms ± standard error",
        columns=[
            Column("rank"),
            *numbers(Unit.NS, *(ESTIMATE_PHRASES[kind] for kind in kinds)),
            Column("agree?"),
        ],
        rows=[
            (
                Cell("mean", value=-1) if row.rank is None else Cell(str(row.rank), value=row.rank),
                *(
                    Cell(marks.mark(_estimate_words(one, decimals), one.part), value=one.mean_ns)
                    for one in row.estimates
                ),
                _agreement_cell(exposure, row),
            )
            for row in exposure.rows
        ],
        notes=(
            *lines((*marks.lines, *dispute_sentences(exposure)), Tone.WARNING),
            "; ".join([*(_EXPLAINED[kind] for kind in kinds), rule]),
        ),
        key="estimates",
        first=MOST_RANKS + 1,
        more=f"and {rest} more {'rank' if rest == 1 else 'ranks'}: see --json",
    )


def _agreement_cell(exposure: ExposureSummary, row: ExposureRow) -> Cell:
    outcome = judge_row(exposure, row)
    return Cell(_word(outcome), Tone.WARNING if outcome is Agreement.DISPUTED else Tone.PLAIN)


def _estimate_words(one: Estimated, decimals: int) -> str:
    if math.isnan(one.mean_ns):
        return "n/a"
    mean = f"{_least_word(one)}{format_ms(one.mean_ns, decimals)}"
    if math.isnan(one.standard_error_ns):
        return mean
    return f"{mean} ± {format_ms(one.standard_error_ns, decimals)}"


def estimate_numbers(cell: CellSummary) -> dict[str, float]:
    """Return the scalars of a cell by tag; of the trace there are others. NaN where one is not known of all ranks."""
    if cell.exposure is None:
        return {}
    others = [one for one in cell.exposure.rows[0].estimates if one.estimate is not Estimate.TRACE]
    numbers = {
        f"summary/exposed_{one.estimate}_ms": one.mean_ns / NS_PER_MS
        for one in others
        if one.part is None and not one.is_least
    }
    gained = gained_fraction(cell.exposure) if cell.exposure.gain_part is None else math.nan
    return {**numbers, "summary/overlap_gain_fraction": gained}
