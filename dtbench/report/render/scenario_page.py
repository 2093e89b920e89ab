"""The page of a folder of scenarios, ``README.md``, and the outcomes it tells, ``outcomes.json``."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from dtbench.base.errors import ScenarioError
from dtbench.base.units import NS_PER_S, count_things, format_ns
from dtbench.report.page.catalogue_page import SCOPE, judge_run
from dtbench.report.render.markdown import escape_markdown
from dtbench.report.words.settings import find_written_settings
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.runs.summary import RunSummary
from dtbench.scenario.catalog import find_files
from dtbench.scenario.checks.check_words import describe_check
from dtbench.scenario.load import ScenarioFile, digest_words, load_scenario_file, read_text
from dtbench.store.layout import RunFolder, outcomes_file, scenarios_page
from dtbench.store.read import read_outcomes
from dtbench.store.records.checks import CheckOutcome, OutcomesRecord, ScenarioOutcome
from dtbench.store.records.run import Environment
from dtbench.store.write import write_record, write_text

_MOST_KNOBS = 12

_MADE_BY = (
    "Made by `dtbench catalogue --list --write scenarios` from the files here and `outcomes.json`; a test says when it "
    "is not current. `dtbench catalogue` runs every scenario that has checks, `dtbench run <name>` one of them."
)


def write_page(scenarios: Path) -> None:
    """Make the page of a folder anew.

    Raises:
        ScenarioError: the folder holds no scenario, or a wrong one.
        StoreError: the outcomes cannot be read, or the page not be written.
    """
    write_text(scenarios_page(scenarios), render_page(scenarios))


def render_page(scenarios: Path) -> str:
    """Return the page of a folder from its files and outcomes; raises as ``write_page``."""
    paths = find_files(scenarios)
    if not paths:
        raise ScenarioError(f"{scenarios}: there is no scenario in this folder")
    files = [ListedFile(PurePosixPath(path.relative_to(scenarios)), load_scenario_file(path)) for path in paths]
    return make_page(files, read_outcomes(scenarios).outcomes)


def record_outcomes(scenarios: Path, runs: Sequence[Path]) -> None:
    """Note what runs came to; what other scenarios came to before stays, those that are gone are forgotten.

    Raises:
        StoreError: a run cannot be read, or the file not be written.
    """
    known = {path.stem for path in find_files(scenarios)}
    outcomes = {one.scenario: one for one in read_outcomes(scenarios).outcomes}
    for run in runs:
        outcome = _describe_run(run)
        outcomes[outcome.scenario] = outcome
    kept = tuple(outcomes[name] for name in sorted(outcomes) if name in known)
    write_record(outcomes_file(scenarios), OutcomesRecord(outcomes=kept))


def _describe_run(path: Path) -> ScenarioOutcome:
    data = read_run_data(path)
    summary, record = summarize_data(data), data.record
    ended_unix_ns = record.ended_unix_ns or record.started_unix_ns
    row = judge_run(summary, ended_unix_ns - record.started_unix_ns)
    results = summary.checks.results if summary.checks is not None else ()
    return ScenarioOutcome(
        scenario=summary.name,
        outcome=CheckOutcome.NOT_JUDGED if row.outcome is None else row.outcome,
        passed=sum(result.outcome is CheckOutcome.PASSED for result in results),
        checks=len(results),
        figure=row.told,
        launches=row.launches,
        duration_s=round((ended_unix_ns - record.started_unix_ns) / NS_PER_S),
        date=f"{datetime.fromtimestamp(ended_unix_ns / NS_PER_S, tz=UTC):%Y-%m-%d}",
        dtbench=record.dtbench_version,
        torch=summary.torch,
        machine=_describe_machine(data.environment, summary),
        words=digest_words(read_text(RunFolder(path).scenario)),
    )


def _describe_machine(environment: Environment | None, summary: RunSummary) -> str:
    """Say on what it ran, without naming a host."""
    if environment is None:
        return "an unknown machine"
    if any(cell.plan.device == "cuda" for cell in summary.cells):
        return summary.device
    return f"{environment.cores} CPU cores"


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
