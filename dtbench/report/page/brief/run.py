"""A run on one screen."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.base.vocabulary import Purpose
from dtbench.report.page.brief.losses import MOST_SIDES, Losses, loss_blocks
from dtbench.report.page.brief.notes import note_facts
from dtbench.report.page.brief.verified import check_facts
from dtbench.report.page.checklist import REMEDY, answer_line
from dtbench.report.page.looks import step_parts
from dtbench.report.page.page import Bar, BarPart, Block, Chart, Fact, Facts, Line, Page, Part, Tone
from dtbench.report.page.run_page import run_page
from dtbench.report.page.sweep import all_notes, exposed_ns, finding, mark_cells
from dtbench.report.words import sentences
from dtbench.report.words.advice import Loss, of_run
from dtbench.report.words.marks import Marks
from dtbench.runs.cell.cell_notes import NOTHING_JUDGED, name_takers
from dtbench.runs.plan_notes import planned_notes
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.checks import CheckOutcome
from dtbench.traces.known_part import name_part

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
        shown = sides if len(sides) <= MOST_SIDES else [worst] if sentences.are_causes_told(worst) else []
        which = "" if len(summary.cells) == 1 or len(shown) > 1 else f" of {worst.name}"
        blocks += loss_blocks(
            [cell_losses(cell, cell.name if len(shown) > 1 else "") for cell in shown],
            f"ms of a profiled step{which}",
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
    """Return the cell that leaves most of its step exposed: of those that are findings, where there are any."""
    return max(_find_compared(summary), key=_share, default=None)


def _find_compared(summary: RunSummary) -> list[CellSummary]:
    """Return the cells of which it is known what they leave exposed: those that are findings, where there are any."""
    known = [cell for cell in summary.cells if cell.ranks and not math.isnan(cell.exposed_step_fraction)]
    return [cell for cell in known if sentences.has_findings(cell)] or known


def _share(cell: CellSummary) -> float:
    """Return what part of a step is exposed, to sort by: what is not known is less than nothing."""
    return -1.0 if math.isnan(cell.exposed_step_fraction) else cell.exposed_step_fraction


def cell_losses(cell: CellSummary, name: str) -> Losses:
    """Return what a cell left exposed, means per step and rank."""
    part = cell.owners[0].part  # all are of the same steps
    return Losses(
        name=name,
        rows=_losses_of(cell),
        windows=1,
        step_ns=sentences.profiled_step_ns(cell),
        advise=partial(sentences.advise_cell, cell),
        limits=() if part is None else (f"{name or 'all times'}: of {part} alone",),
    )


def _losses_of(cell: CellSummary) -> list[Loss]:
    return [of_run(row) for row in cell.owners]


def _answer(summary: RunSummary, worst: CellSummary | None) -> Iterator[Line]:
    if summary.checks is not None:
        tone = Tone.STRONG if summary.checks.outcome is CheckOutcome.PASSED else Tone.BAD
        yield Line(answer_line(summary.checks), tone)
    elif len(summary.cells) > 1:
        yield Line(finding(summary), Tone.STRONG)
    if (taken := _say_taken(summary)) is not None:
        yield Line(taken)
    if worst is None:
        yield from (Line(words) for cell in summary.cells for _, words in sentences.lead_waits(cell))
        return
    who = "exposed" if len(summary.cells) == 1 else f"{worst.name} leaves most of its step exposed{_among(summary)}:"
    yield Line(f"{who} {sentences.answer_sentence(worst)}", Tone.PLAIN if summary.checks else Tone.STRONG)
    if sentences.are_causes_told(worst):
        yield from (
            Line(f"{name_part(worst.owners[0].part)}{one.why}: {one.short}") for one in sentences.lead_advice(worst)[:1]
        )
    elif (limit := sentences.limit_sentence(worst)) is not None and worst.owners:
        yield Line(limit)


def _among(summary: RunSummary) -> str:
    """Say of which cells one has most, where that is not all: the others may have more."""
    of, cells = len(_find_compared(summary)), len(summary.cells)
    return f", of the {of} of {cells} cells that are compared" if of < cells else ""


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
        yield finding(summary)


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
    step = marks.mark(format_ns(cell.step_time.median), cell.timed_part)
    exposed = marks.mark(sentences.bound_below(cell, format_ns(exposed_ns(cell))), cell.part)
    waited = [marks.mark(sentences.wait_word(cell, one), sentences.wait_part(cell, one)) for one in waits]
    share, word = sentences.bound_below(cell, format_fraction(cell.exposed_step_fraction)), _word(cell)
    return Bar(
        label=cell.name,
        lengths_ns=tuple(round(mean_ns or 0) for mean_ns in means),
        words=tuple(map(format_ns, means)),
        end=f"measured step {step}, exposed {exposed} ({share} of a profiled one){f'; {word}' if word else ''}",
        figures=(step, exposed, share, *([word] if words else []), *waited),
    )


def _word(cell: CellSummary) -> str:
    """Return in a word or two what speaks against a cell's numbers; empty: nothing does."""
    return sentences.check_word(cell) if not sentences.is_trusted(cell) else "doubtful" if cell.doubts else ""


def _doubts(summary: RunSummary) -> Facts:
    return note_facts(doubt_facts(summary))


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
    notes = (*all_notes(summary, _own_notes), *all_notes(summary, planned_notes))
    return [*facts, *(Fact("note", note) for note in notes)]


def _own_notes(cell: CellSummary) -> Iterator[str]:
    """Yield the notes of a cell without who had the machine, which the answer says."""
    yield from (note for note in sentences.own_notes(cell) if not note.startswith(NOTHING_JUDGED))
