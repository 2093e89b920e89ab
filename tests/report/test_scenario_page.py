"""The page of the scenarios in the repository is current, and says of each what a reader needs."""

from pathlib import Path

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.report.render.scenario_page import render_page, write_page
from dtbench.scenario.load import digest_words
from dtbench.store.layout import outcomes_file, scenarios_page
from dtbench.store.records.checks import CheckOutcome, OutcomesRecord, ScenarioOutcome
from dtbench.store.write import write_record

SCENARIOS = Path(__file__).parents[2] / "scenarios"

FILE = """\
# Is *one* faster?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 2, dim: 64, heads: 4, ffn_dim: 96, vocab_size: 64}
data: {global_batch: 4, sequence_length: 16}
cells:
  one: {parallel: {kind: ddp, replicas: 2, gradient_as_bucket_view: true}}
  two: {parallel: {kind: fsdp2, shards: 2}}
"""
CLAIMS = """\
functions: [distributed.DistributedDataParallel.forward]
checks: [{kind: order, value: step_time.median, cells: [one, two]}]
"""


def test_the_page_of_the_repositorys_scenarios_is_current() -> None:
    written = scenarios_page(SCENARIOS).read_text(encoding="utf-8")
    assert written == render_page(SCENARIOS), "run `dtbench catalogue --list --write scenarios` and commit the page"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "race.yaml").write_text(FILE + CLAIMS, encoding="utf-8")
    (tmp_path / "plain.yaml").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_a_scenario_has_question_functions_knobs_and_checks(folder: Path) -> None:
    blocks = render_page(folder).split("### ")
    assert blocks[2].splitlines() == [
        "[race](deep/race.yaml)",
        "",
        r"**Is \*one\* faster?**",
        "",
        "* functions: `distributed.DistributedDataParallel.forward`",
        "* cells: `one`, `two`",
        (
            "* knobs: `parallel.kind` (ddp, fsdp2), `parallel.replicas` (2, unset), "
            "`parallel.gradient_as_bucket_view` (true, unset), `parallel.shards` (unset, 2)"
        ),
        r"* check: step\_time.median: one &lt; two",
        "* last outcome: not recorded",
    ]
    assert "## deep\n" in blocks[1]


def test_a_scenario_without_checks_says_so(folder: Path) -> None:
    assert "* last outcome: it has no checks" in render_page(folder).split("### ")[1]


def _came_to(words: str | None) -> OutcomesRecord:
    outcome = ScenarioOutcome(
        scenario="race",
        outcome=CheckOutcome.PASSED,
        passed=1,
        checks=1,
        figure="Yes, by 3.00 ms.",
        launches=4,
        duration_s=90,
        date="2026-01-31",
        dtbench="1.0",
        torch="2.13.0",
        machine="2 CPU cores",
        words=words,
    )
    return OutcomesRecord(outcomes=(outcome,))


def test_the_last_outcome_says_when_where_and_with_what(folder: Path) -> None:
    write_record(outcomes_file(folder), _came_to(None))
    write_page(folder)
    page = scenarios_page(folder).read_text(encoding="utf-8")
    where = "2026-01-31, 2 CPU cores, torch 2.13.0, dtbench 1.0, 4 launches, 90.0 s"
    said = f"last outcome: passed, 1 of 1 check: Yes, by 3.00 ms. ({where})"
    assert said in page


def test_an_outcome_of_a_file_that_has_changed_since_says_so(folder: Path) -> None:
    file = folder / "deep" / "race.yaml"
    write_record(outcomes_file(folder), _came_to(digest_words(file.read_text(encoding="utf-8"))))
    assert "* last outcome: passed, 1 of 1 check" in render_page(folder)
    file.write_text(file.read_text(encoding="utf-8").replace("dim: 64", "dim: 128"), encoding="utf-8")
    assert "* last outcome: (of an earlier version of this file) passed, 1 of 1 check" in render_page(folder)


def test_a_folder_without_scenarios_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="there is no scenario in this folder"):
        render_page(tmp_path)
