"""What a run says in few lines, for whoever prints it or ends a notebook's cell with it; the report's own words."""

from dtbench.base.vocabulary import Purpose
from dtbench.report.page import estimates, sentences, sweep
from dtbench.report.page.checklist import answer_line, checks_section
from dtbench.report.page.section import Column, Section
from dtbench.runs.summary import CellSummary, RunSummary

MOST_ROWS = 24
"""Cells of the table; ``RunReport.summary`` has all."""


def head_words(summary: RunSummary) -> str:
    """Say which run this is and what it asks."""
    return f"{summary.name} {summary.run_id}: {summary.question}"


def answer_words(summary: RunSummary) -> list[str]:
    """Say the answer first: the file's own where it has one, which cell is fastest, what each left exposed and why.

    How the run ended comes before all where it is not complete.
    """
    ended = sentences.status_sentence("This run", summary.status, summary.reason)
    lines = [] if ended is None else [ended]
    if summary.checks is not None:
        lines.append(answer_line(summary.checks))
    if len(summary.cells) > 1:
        lines.append(sweep.finding(summary))
    if len(summary.cells) <= sweep.MOST_CELLS:
        for cell in summary.cells:
            lines += _cell_lines(cell)
    return lines


def _cell_lines(cell: CellSummary) -> list[str]:
    ended = sentences.status_sentence(cell.name, cell.status, cell.reason)
    exposed = sentences.answer_sentence(cell)
    waits = sentences.wait_sentence(cell, Purpose.GRAD_REDUCE)
    return [
        *([] if ended is None else [ended]),
        f"{cell.name}: gradient wait {waits}" if exposed is None else f"{cell.name}: exposed {exposed}",
        *(f"{cell.name}: {label} {words}" for label, words in estimates.lead_rows(cell)),
    ]


def note_words(summary: RunSummary) -> tuple[str, ...]:
    """Say what a reader of the numbers must know, with the cells that it is about."""
    return (*sweep.all_notes(summary), *(words for _, words in sentences.run_warnings(summary)))


def tables(summary: RunSummary) -> list[Section]:
    """Give the checks of the scenario, where it has any, and the cells against each other."""
    checks = [] if summary.checks is None else [checks_section(summary.checks)]
    return [*checks, cells_section(summary)]


def cells_section(summary: RunSummary) -> Section:
    """Give the cells against each other, one row each."""
    axes, columns = sweep.find_axes(summary), sweep.sweep_columns(summary)
    shown = range(len(summary.cells))[:MOST_ROWS]
    rest = len(summary.cells) - len(shown)
    return Section(
        title="Each cell, per step; times in ms",
        columns=[
            *(Column(axis.name) for axis in axes),
            *(Column(column.header, is_number=column.header not in sweep.OF_WORDS) for column in columns),
        ],
        rows=[
            (*(sweep.shorten_value(axis.values[place]) for axis in axes), *(column.words[place] for column in columns))
            for place in shown
        ],
        notes=(
            *sweep.mark_lines(summary),
            sweep.scope_words(summary).replace("`", ""),
            *([f"and {rest} more cells"] if rest else []),
        ),
    )
