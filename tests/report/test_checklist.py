"""The checks of a scenario, wherever a run is shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from dtbench.report.event_files.publish import publish_checks
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.page.checklist import answer_line, checks_table, failure_words
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import RunFolder
from dtbench.store.records.checks import CheckOutcome, CheckResult, ChecksSummary
from tests.report.shown import markdown_run, terminal_run

PASSED, FAILED, NOT_JUDGED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.NOT_JUDGED


def make_checks(*outcomes: CheckOutcome, launches: int = 1, changed: bool = False) -> ChecksSummary:
    results = tuple(
        CheckResult(
            kind="bound",
            words=f"step_time.median of [cell{place}]: at most 9.00 ms",
            outcome=outcome,
            got=f"{place}.00 ms",
            because="it | is so" if place == 0 else "",
        )
        for place, outcome in enumerate(outcomes)
    )
    worst = next((one for one in (FAILED, NOT_JUDGED) if one in outcomes), PASSED)
    answer = "Yes, [by] 3.00 ms." if worst is PASSED else None
    return ChecksSummary(outcome=worst, results=results, answer=answer, launches=launches, changed=changed)


def shown(summary: RunSummary) -> str:
    console = Console(width=140, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal_run(summary))
    return capture.get()


def test_the_answer_leads_where_all_checks_passed() -> None:
    assert answer_line(make_checks(PASSED, PASSED)) == "Yes, [by] 3.00 ms."


def test_there_is_no_answer_where_one_did_not() -> None:
    checks = make_checks(FAILED, PASSED, NOT_JUDGED, FAILED)
    assert answer_line(checks) == "no answer: of 4 checks 2 failed and 1 could not be judged"
    assert failure_words(checks) == [
        "failed: step_time.median of [cell0]: at most 9.00 ms; got 0.00 ms",
        "could not be judged: step_time.median of [cell2]: at most 9.00 ms; got 2.00 ms",
        "failed: step_time.median of [cell3]: at most 9.00 ms; got 3.00 ms",
    ]


def test_a_file_without_a_sentence_says_that_its_checks_passed() -> None:
    assert answer_line(make_checks(PASSED).model_copy(update={"answer": None})) == "all checks passed (1)"


@pytest.mark.parametrize(
    ("checks", "note"),
    [
        (make_checks(PASSED), "judged on one launch; `--set repeat=4` gives statistics"),
        (make_checks(PASSED, launches=4), "judged on medians over 4 launches"),
    ],
)
def test_a_reader_knows_how_many_launches_they_were_judged_on(checks: ChecksSummary, note: str) -> None:
    assert checks_table(checks).said == (note,)


def test_a_reader_knows_when_they_do_not_count() -> None:
    assert "do not count" in checks_table(make_checks(FAILED, changed=True)).said[1]


def test_the_terminal_shows_outcome_words_figure_and_reason(make_run: Callable[..., RunSummary]) -> None:
    text = shown(make_run(checks=make_checks(PASSED, FAILED)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "passed step_time.median of [cell0]: at most 9.00 ms 0.00 ms" in lines
    assert "because it | is so" in lines
    assert "FAILED step_time.median of [cell1]: at most 9.00 ms 1.00 ms" in lines
    assert "no answer: of 2 checks 1 failed" in lines


def test_a_run_whose_file_claims_nothing_is_shown_as_before(make_run: Callable[..., RunSummary]) -> None:
    assert "Checks of the scenario" not in shown(make_run())
    assert "outcome" not in markdown_run(make_run())


def test_markdown_has_the_answer_and_a_row_for_each(make_run: Callable[..., RunSummary]) -> None:
    text = markdown_run(make_run(checks=make_checks(PASSED, PASSED)))
    assert r"**Yes, \[by\] 3.00 ms.**" in text
    assert r"| passed | step\_time.median of \[cell0\]: at most 9.00 ms because it \| is so | 0.00 ms |" in text


def test_a_notebook_has_them_too(make_run: Callable[..., RunSummary]) -> None:
    table = pd.DataFrame()
    empty = RunReport(make_run(), table, table, table, table, {})
    report = replace(empty, summary=make_run(checks=make_checks(PASSED, FAILED)))
    assert "no answer: of 2 checks 1 failed" in str(report)
    page = report._repr_html_()
    assert "step_time.median of [cell1]: at most 9.00 ms" in page
    assert "Checks of the scenario" in page
    assert "Checks of the scenario" not in empty._repr_html_()


def test_they_lie_in_the_runs_folder(make_run: Callable[..., RunSummary], tmp_path: Path) -> None:
    checks = make_checks(PASSED, FAILED)
    publish_checks(make_run(checks=checks, path=str(tmp_path), cells=()))
    assert ChecksSummary.model_validate_json(RunFolder(tmp_path).checks.read_bytes()) == checks
