"""A run as a page: which it is, its answer, its checks, its cells against each other, then each cell."""

from collections.abc import Iterator

from dtbench.base.vocabulary import Purpose
from dtbench.report.page import estimates, sweep
from dtbench.report.page.cell_page import cell_part
from dtbench.report.page.checklist import answer_line, checks_part, remedy_line
from dtbench.report.page.page import Fact, Facts, Line, Page, Part, Prose, Tone, lines
from dtbench.report.words import sentences
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.run import shorten_revision


def run_page(summary: RunSummary, chosen: str | None = None) -> Page:
    """Make the page of a run.

    Args:
        summary: the run.
        chosen: the cell that is told in full, of more than a person reads; None: those that must not be trusted are.
    """
    ended = sentences.status_sentence("This run", summary.status, summary.reason)
    return Page(
        title=summary.name,
        aside=summary.run_id,
        question=summary.question,
        place=_say_place(summary),
        facts=tuple(_facts(summary)),
        problem=None if ended is None else Line(ended, Tone.BAD),
        answer=lines(answer_words(summary)),
        parts=tuple(_parts(summary, chosen)),
        notes=lines(note_words(summary)),
    )


def _say_place(summary: RunSummary) -> str:
    """Say on what machine and software the run was; of which cells not, where some were elsewhere."""
    built = "" if summary.torch_git is None else f" ({shorten_revision(summary.torch_git)})"
    code = "" if summary.commit is None else f", code at {summary.commit.words}"
    where = f"{summary.device} on {summary.host}, torch {summary.torch}{built}{code}"
    elsewhere = any(cell.unlike for cell in summary.cells)
    return f"{where}; other cells were elsewhere" if elsewhere else where


def _facts(summary: RunSummary) -> Iterator[Fact]:
    if summary.overrides:
        yield Fact("set", " ".join(f"--set {override}" for override in summary.overrides), Tone.QUIET)
    if summary.only:
        yield Fact("only", f"only {name_some(summary.only)} of the scenario: what it claims of others is left out")
    resumed = sentences.resumed_sentence(len(summary.resumed_unix_ns))
    if resumed is not None:
        yield Fact("resumed", resumed, Tone.WARNING)
    yield from (Fact(about, words, Tone.WARNING) for about, words in sentences.run_warnings(summary))
    yield from (Fact("traces", words, Tone.QUIET) for words in summary.cleaned)
    if summary.repeat_end is not None:
        yield Fact("launches", summary.repeat_end, Tone.QUIET)


def _parts(summary: RunSummary, chosen: str | None) -> Iterator[Part]:
    if summary.checks is not None:
        yield checks_part(summary.checks)
    if len(summary.cells) > 1:
        yield sweep.cells_part(summary)
    if len(summary.cells) <= sweep.MOST_CELLS:
        yield from map(cell_part, summary.cells)
        return
    yield Part("notes", "", (Facts(tuple(Fact("note", note) for note in sweep.note_sentences(summary)), key="notes"),))
    told = [cell for cell in summary.cells if not sentences.is_trusted(cell)]
    rest = 0 if chosen else len(told) - sweep.MOST_CELLS
    told = [cell for cell in summary.cells if cell.name == chosen] if chosen else told[: sweep.MOST_CELLS]
    yield from map(cell_part, told)
    if rest > 0:
        more = Line(f"and {rest} more cells that must not be trusted: see the column check", Tone.BAD)
        yield Part("more", "", (Prose((more,)),))


def head_words(summary: RunSummary) -> str:
    """Say which run this is and what it asks."""
    return f"{summary.name} {summary.run_id}: {summary.question}"


def answer_words(summary: RunSummary) -> list[str]:
    """Say the answer first: the file's own where it has one, which cell is fastest, what each left exposed and why.

    How the run ended comes before all where it is not complete.
    """
    ended = sentences.status_sentence("This run", summary.status, summary.reason)
    said = [] if ended is None else [ended]
    if summary.checks is not None:
        remedy = remedy_line(summary.checks)
        said += [answer_line(summary.checks), *([] if remedy is None else [remedy])]
    if len(summary.cells) > 1:
        said.append(sweep.finding(summary))
    if len(summary.cells) <= sweep.MOST_CELLS:
        for cell in summary.cells:
            said += _cell_lines(cell)
    return said


def _cell_lines(cell: CellSummary) -> list[str]:
    ended = sentences.status_sentence(cell.name, cell.status, cell.reason)
    exposed = sentences.answer_sentence(cell)
    waits = sentences.wait_sentence(cell, Purpose.GRAD_REDUCE)
    advised = sentences.lead_advice(cell)[:1] if sentences.are_causes_told(cell) else []
    return [
        *([] if ended is None else [ended]),
        f"{cell.name}: gradient wait {waits}" if exposed is None else f"{cell.name}: exposed {exposed}",
        *(f"{cell.name}: {one.why}: {one.short}" for one in advised),
        *(f"{cell.name}: {label} {words}" for label, words in estimates.lead_rows(cell)),
    ]


def note_words(summary: RunSummary) -> tuple[str, ...]:
    """Say what a reader of the numbers must know, with the cells that it is about."""
    return (*sweep.all_notes(summary), *(words for _, words in sentences.run_warnings(summary)))
