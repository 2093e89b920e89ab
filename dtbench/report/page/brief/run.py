"""A run on one screen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.base.vocabulary import Purpose
from dtbench.report.page.brief.notes import note_facts
from dtbench.report.page.brief.verified import check_facts
from dtbench.report.page.cell_page import find_cell_losses
from dtbench.report.page.checklist import REMEDY, answer_line
from dtbench.report.page.looks import step_parts
from dtbench.report.page.losses import MOST_SIDES, loss_blocks
from dtbench.report.page.page import Bar, BarPart, Block, Chart, Fact, Facts, Line, Page, Part, Tone
from dtbench.report.page.run_page import run_page
from dtbench.report.page.sweep import MOST_CELLS, all_notes, exposed_ns, finding, finding_below_bars, mark_cells
from dtbench.report.words import sentences
from dtbench.report.words.advice import Advice
from dtbench.report.words.doubts import say_doubts
from dtbench.report.words.marks import Marks
from dtbench.runs.cell.cell_notes import NOTHING_JUDGED, name_takers
from dtbench.runs.plan_notes import planned_notes
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.checks import CheckOutcome
from dtbench.traces.known_part import KnownPart

_WAITS: Final = {Purpose.GRAD_REDUCE: "grad wait", Purpose.UNSHARD: "unshard wait"}

MOST_BARS: Final = 12
"""Cells, or ranks, that have a bar each."""


def run_brief(summary: RunSummary) -> Page:
    """Make the first screen of a run."""
    whole = run_page(summary)
    worst = find_worst(summary)
    blocks: list[Block] = []
    if worst is not None:
        blocks.append(_chart(summary))
        sides = [cell for cell in summary.cells if sentences.are_causes_told(cell)]
        shown = sides if len(sides) <= MOST_SIDES else [max(sides, key=_share)]
        which = f" of {shown[0].name}" if len(summary.cells) > 1 and len(shown) == 1 else ""
        blocks += loss_blocks(
            [find_cell_losses(cell, cell.name if len(shown) > 1 else "") for cell in shown],
            f"ms of a profiled step{which}",
            _find_advice(worst),
        )
    blocks += [_doubts(summary), check_facts(summary)]
    return Page(
        title=whole.title,
        aside=whole.aside,
        question=whole.question,
        place=whole.place,
        facts=whole.facts,
        problem=whole.problem,
        answer=tuple(_answer(summary, worst)),
        parts=(Part("brief", "", tuple(block for block in blocks if not isinstance(block, Facts) or block.facts)),),
    )


def find_worst(summary: RunSummary) -> CellSummary | None:
    """Return the cell that an answer is about: with the largest share of a step exposed of those that are findings.

    Of all that are known, where none is. Not that it has most: no test over launches tells exposed shares apart.
    """
    known = [cell for cell in summary.cells if cell.ranks and not math.isnan(cell.exposed_step_fraction)]
    return max(known, key=lambda cell: (sentences.has_findings(cell), cell.exposed_step_fraction), default=None)


def _share(cell: CellSummary) -> float:
    """Return what part of a step is exposed, to sort by: what is not known is less than nothing."""
    return -1.0 if math.isnan(cell.exposed_step_fraction) else cell.exposed_step_fraction


def _answer(summary: RunSummary, worst: CellSummary | None) -> Iterator[Line]:
    if summary.checks is not None:
        tone = Tone.STRONG if summary.checks.outcome is CheckOutcome.PASSED else Tone.BAD
        yield Line(answer_line(summary.checks), tone)
    elif len(summary.cells) > 1:
        yield Line(finding(summary), Tone.STRONG)
    if (taken := _say_taken(summary)) is not None:
        yield Line(taken)
    if worst is None:
        yield from map(Line, _say_times(summary))
        return
    tone = Tone.PLAIN if summary.checks else Tone.STRONG
    yield Line(f"{_name_in(summary, worst)}exposed {sentences.answer_sentence(worst)}", tone)
    yield from map(Line, sentences.advice_sentences(worst, attrgetter("leading"))[:1])


def _find_advice(worst: CellSummary) -> Advice | None:
    """Return what the answer says would change the largest loss; None: nothing."""
    return next(iter(sentences.told_advice(worst)), None)


def _name_in(summary: RunSummary, cell: CellSummary) -> str:
    """Return what stands before what is said of a cell; empty: there is no other."""
    return f"{cell.name}: " if len(summary.cells) > 1 else ""


def _say_times(summary: RunSummary) -> Iterator[str]:
    """Say what is known of steps where it is not known where their time went."""
    for cell in summary.cells[:MOST_CELLS]:
        told = (("step time", sentences.step_time_words(cell)), *sentences.lead_waits(cell))
        yield from (f"{_name_in(summary, cell)}{label} {words}" for label, words in told)
    if (rest := len(summary.cells) - MOST_CELLS) > 0:
        yield f"and {count_things(rest, 'more cell')}: --full"


def _say_taken(summary: RunSummary) -> str | None:
    """Say who had the machine, in how many cells, and what to do about it; None: nobody had too much of it."""
    disturbed = [one for cell in summary.cells for one in cell.disturbed]
    if not disturbed:
        return None
    takers = [taker for one in disturbed for taker in one.takers]
    who = name_takers([taker for taker in takers if taker.pid is not None] or takers) or "others of the host had cores"
    cells = sum(bool(cell.disturbed) for cell in summary.cells)
    where = "" if len(summary.cells) == 1 else f" in {cells} of {len(summary.cells)} cells"
    return f"{who}; too few steps are left alone{where}. {REMEDY}"


def _chart(summary: RunSummary) -> Chart:
    cells = [cell for cell in summary.cells if cell.ranks]
    most = {cell.name for cell in sorted(cells, key=_share, reverse=True)[:MOST_BARS]}
    shown = [cell for cell in cells if cell.name in most]
    marks, words = mark_cells(summary), [_word(cell) for cell in shown]
    parts = step_parts(sentences.idle_word(shown[0]))
    waits = sorted(_WAITS, key=lambda one: -max(_wait_ns(cell, one) for cell in shown))  # a narrow screen has the first
    return Chart(
        title="Where a profiled step went, mean over ranks",
        parts=parts,
        bars=tuple(_cell_bar(cell, parts, marks, words if any(words) else (), waits) for cell in shown),
        note="\n".join(_chart_notes(summary, shown, marks)),
        figures=("measured step", "exposed", "of step", *([""] if any(words) else []), *(_WAITS[one] for one in waits)),
        kept=4 if any(words) else 3,
        key="cells",
    )


def _chart_notes(summary: RunSummary, shown: Sequence[CellSummary], marks: Marks) -> Iterator[str]:
    unknown = [cell.name for cell in summary.cells if not cell.ranks]
    if unknown:
        yield f"without a profiled step that can be read: {name_some(unknown)}"
    if rest := len(summary.cells) - len(unknown) - len(shown):
        yield f"and {count_things(rest, 'more cell')}, of which less is exposed or that is not known: --full"
    yield from marks.lines
    if len(summary.cells) > 1 and summary.checks is not None:
        yield finding(summary) if rest or unknown else finding_below_bars(summary)


def _wait_ns(cell: CellSummary, purpose: Purpose) -> float:
    wait_ns = sentences.wait_ns(cell, purpose)
    return 0.0 if math.isnan(wait_ns) else wait_ns


def _cell_bar(
    cell: CellSummary, parts: Sequence[BarPart], marks: Marks, words: Sequence[str], waits: Sequence[Purpose]
) -> Bar:
    """Return the bar of a cell: means over its ranks.

    Args:
        cell: one with ranks.
        parts: of a step.
        marks: of what is known in part.
        words: of all cells, what speaks against them; empty: nothing does.
        waits: whose waits are told, in this order.
    """
    known = {part.key: [getattr(row, part.key) for row in cell.ranks] for part in parts}
    means = [None if None in times_ns else sum(times_ns) / len(times_ns) for times_ns in known.values()]
    word = _word(cell)

    def mark(words: str, part: KnownPart | None) -> str:
        return marks.mark(words, sentences.find_told_part(cell, part))

    step = mark(format_ns(cell.step_time.median), cell.timed_part)
    exposed, share = (
        mark(sentences.bound_below(cell, one), cell.part)
        for one in (format_ns(exposed_ns(cell)), format_fraction(cell.exposed_step_fraction))
    )
    waited = [mark(sentences.wait_word(cell, one), sentences.wait_part(cell, one)) for one in waits]
    bar = Bar(
        label=cell.name,
        lengths_ns=tuple(None if mean_ns is None else round(mean_ns) for mean_ns in means),
        words=tuple(map(format_ns, means)),
        figures=(step, exposed, share, *([word] if words else []), *waited),
    )
    said = f"measured step {step}, exposed {exposed} ({share} of a profiled one)"
    return replace(bar, end="; ".join(filter(None, (said, bar.name_unknown(parts), word))))


def _word(cell: CellSummary) -> str:
    """Return in a word or two what speaks against a cell's numbers; empty: nothing does."""
    return sentences.check_word(cell) if not sentences.is_trusted(cell) else "doubtful" if cell.doubts else ""


def _doubts(summary: RunSummary) -> Facts:
    where = "--full" if len(summary.cells) <= MOST_CELLS else "--json"  # of more, --full has the first notes alone
    return note_facts(doubt_facts(summary), where)


def doubt_facts(summary: RunSummary) -> list[Fact]:
    """Return what must be doubted: how cells ended, why they are not to be gone by, then notes."""
    many, cells = len(summary.cells) > 1, summary.cells
    ended = (sentences.status_sentence(cell.name if many else "This cell", cell.status, cell.reason) for cell in cells)
    alike: dict[str, list[str]] = {}
    for name, words in sentences.doubts_of_cells(cells).items():
        alike.setdefault(words, []).append(name)
    doubts = (f"{name_some(names)}: {words}" if many else words for words, names in alike.items())
    facts = [Fact("ended", words, Tone.BAD) for words in ended if words is not None]
    facts += [Fact("doubt", words, Tone.WARNING) for words in doubts]
    notes = [note for tell in (_more_doubts, _own_notes, planned_notes) for note in all_notes(summary, tell)]
    return [*facts, *(Fact("note", note) for note in notes)]


def _more_doubts(cell: CellSummary) -> Sequence[str]:
    """Return why PROFILED steps may not stand for the run, without the first reason where that is said of the cell."""
    is_said = say_doubts(cell.doubts) in sentences.doubts_of_cells([cell]).values()
    return sentences.doubt_notes(cell)[1 if is_said else 0 :]


def _own_notes(cell: CellSummary) -> Iterator[str]:
    """Yield the notes of a cell without who had the machine, which the answer says."""
    yield from (note for note in sentences.own_notes(cell) if not note.startswith(NOTHING_JUDGED))
