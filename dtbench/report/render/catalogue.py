"""The catalogue of scenarios: a row for each that was run, and the page that lists them all with their last outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from dtbench.base.units import NS_PER_S, count_things, format_ns
from dtbench.report.page.checklist import answer_line, failure_words
from dtbench.report.page.page import Column, Table
from dtbench.report.render.markdown import escape_markdown
from dtbench.report.words.sentences import check_word, is_trusted
from dtbench.report.words.settings import find_written_settings
from dtbench.runs.summary import RunSummary
from dtbench.scenario.checks.check_words import describe_check
from dtbench.scenario.load import ScenarioFile, digest_words
from dtbench.store.records.checks import CheckOutcome, ScenarioOutcome

SCOPE = "a scenario is judged on one launch of each cell; `--repeat N` gives statistics over launches"

_MOST_KNOBS = 12

_MADE_BY = (
    "Made by `dtbench catalogue --list --write scenarios` from the files here and `outcomes.json`; a test says when it "
    "is not current. `dtbench catalogue` runs every scenario that has checks, `dtbench run <name>` one of them."
)


@dataclass(frozen=True)
class CatalogueRow:
    """One scenario of a catalogue.

    Attributes:
        outcome: None: it was not run.
        told: its answer, or why there is none.
        run: the folder, where it was run.
        launches: of the cell that has fewest.
        duration_ns: None: it was not run, or did not end.
    """

    scenario: str
    question: str
    outcome: CheckOutcome | None
    told: str
    run: str | None = None
    launches: int = 0
    duration_ns: int | None = None


def judge_run(summary: RunSummary, duration_ns: int) -> CatalogueRow:
    """Return the row of a run: failed, too, where the numbers of a cell must not be trusted."""
    doubts = [f"cell {cell.name}: {check_word(cell)}" for cell in summary.cells if not is_trusted(cell)]
    checks = summary.checks
    if doubts:
        outcome, told = CheckOutcome.FAILED, f"no answer, do not trust its numbers: {', '.join(doubts)}"
    elif checks is None:
        outcome, told = CheckOutcome.NOT_JUDGED, "it claims nothing"
    else:
        outcome, told = checks.outcome, "; ".join([answer_line(checks), *failure_words(checks)])
    launches = min((len(cell.launches) for cell in summary.cells), default=0)
    return CatalogueRow(summary.name, summary.question, outcome, told, summary.path, launches, duration_ns)


def tabulate_catalogue(rows: Sequence[CatalogueRow]) -> Table:
    """Return the scenarios in the order in which they ran: what became of each, its answer, and how long it took."""
    return Table(
        title="Catalogue",
        columns=(
            Column("scenario"),
            Column("question"),
            Column("outcome"),
            Column("answer"),
            Column("took", is_number=True),
        ),
        rows=[
            (
                row.scenario,
                row.question,
                _spell_outcome(row),
                row.told,
                "" if row.duration_ns is None else format_ns(row.duration_ns),
            )
            for row in rows
        ],
        notes=(SCOPE,),
    )


def tabulate_runnable(rows: Sequence[CatalogueRow]) -> Table:
    """Return the scenarios that would run, and why the others cannot."""
    columns = (Column("scenario"), Column("question"), Column("here"))
    return Table("Scenarios with checks", columns, [(row.scenario, row.question, row.told) for row in rows])


def _spell_outcome(row: CatalogueRow) -> str:
    if row.outcome is None:
        return "not run"
    word = "FAILED" if row.outcome is CheckOutcome.FAILED else row.outcome.value
    scope = f"{row.launches} {'launch' if row.launches == 1 else 'launches'}"
    return f"{word} ({scope})" if row.run else word


@dataclass(frozen=True)
class ListedFile:
    """A scenario file of a folder; ``path`` is relative to it."""

    path: PurePosixPath
    file: ScenarioFile


def make_page(files: Sequence[ListedFile], outcomes: Sequence[ScenarioOutcome]) -> str:
    """Return the page of a folder of scenarios as Markdown, the same for the same files and outcomes."""
    last = {outcome.scenario: outcome for outcome in outcomes}
    blocks = ["# Scenarios", f"{_MADE_BY} In an outcome {SCOPE}."]
    ordered = sorted(files, key=lambda one: (str(one.path.parent), one.path.name))
    for folder in dict.fromkeys(one.path.parent for one in ordered):
        if folder != PurePosixPath():
            blocks.append(f"## {folder}")
        mine = (one for one in ordered if one.path.parent == folder)
        blocks += [_describe_file(one, last.get(one.file.name)) for one in mine]
    return "\n\n".join(blocks) + "\n"


def _describe_file(listed: ListedFile, last: ScenarioOutcome | None) -> str:
    file = listed.file
    checklist = file.checklist
    functions = ", ".join(f"`{label}`" for label in checklist.functions) or "none under study in particular"
    lines = [
        f"### [{file.name}]({listed.path})",
        "",
        f"**{escape_markdown(file.question)}**",
        "",
        f"* functions: {functions}",
        f"* cells: {', '.join(f'`{cell.name}`' for cell in file.cells)}",
        f"* knobs: {_describe_knobs(file)}",
        *(f"* check: {escape_markdown(describe_check(check))}" for check in checklist.checks),
        f"* last outcome: {_describe_outcome(last, file)}",
    ]
    return "\n".join(lines)


def _describe_knobs(file: ScenarioFile) -> str:
    """Return every field in which cells differ, with its values in the order of the cells, each once."""
    settings = find_written_settings(file.cells)
    names = list(dict.fromkeys(name for of_cell in settings.values() for name in of_cell))
    told = [
        f"`{name}` ({', '.join(dict.fromkeys(_spell(of_cell[name]) for of_cell in settings.values()))})"
        for name in names[:_MOST_KNOBS]
    ]
    more = [f"and {len(names) - _MOST_KNOBS} more"] if len(names) > _MOST_KNOBS else []
    return ", ".join([*told, *more]) or "one cell, nothing differs"


def _describe_outcome(last: ScenarioOutcome | None, file: ScenarioFile) -> str:
    if last is None:
        return "not recorded" if file.checklist.checks else "it has no checks"
    scope = "1 launch" if last.launches == 1 else f"{last.launches} launches"
    how = (
        f"{last.date}, {last.machine}, torch {last.torch}, dtbench {last.dtbench}, {scope}, "
        f"{format_ns(last.duration_s * NS_PER_S)}"
    )
    version = "(of an earlier version of this file) " if last.words not in (None, digest_words(file.text)) else ""
    return (
        f"{version}{last.outcome.value}, {last.passed} of {count_things(last.checks, 'check')}: "
        f"{escape_markdown(last.figure)} ({escape_markdown(how)})"
    )


def _spell(value: str) -> str:
    return value.lower() if value in ("True", "False") else value
