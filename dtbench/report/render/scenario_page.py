"""The page of a folder of scenarios, ``README.md``, and the outcomes it tells, ``outcomes.json``."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from dtbench.base.errors import ScenarioError
from dtbench.base.units import NS_PER_S
from dtbench.report.render.catalogue import ListedFile, judge_run, make_page
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.runs.summary import RunSummary
from dtbench.scenario.catalog import find_files
from dtbench.scenario.load import digest_words, load_scenario_file, read_text
from dtbench.store.layout import RunFolder, outcomes_file, scenarios_page
from dtbench.store.read import read_outcomes
from dtbench.store.records.checks import CheckOutcome, OutcomesRecord, ScenarioOutcome
from dtbench.store.records.run import Environment
from dtbench.store.write import write_record, write_text


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
