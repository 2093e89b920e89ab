"""What a notebook shows: the answer first, every name as text, nothing from elsewhere."""

import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import dtbench
from dtbench.base.errors import ComparisonError
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.page import run_page
from dtbench.report.page.page import Page, lines
from dtbench.report.plots.names import figure_png
from dtbench.report.render.html import MOST_NOTES, MOST_ROWS, page_html
from dtbench.runs.summary import CellSummary, OwnerSummary, RunSummary
from dtbench.store.records.run import RunStatus
from tests.report.shown import markdown_run

RESULTS = Path(__file__).parents[2] / "results"
RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
MARKUP = "<b onclick='x'>&amp;$x_{$ [red]*y*</b>"
MS = 1_000_000
FOLDS = ("details", "summary", "ul", "li", "br")


class Elements(HTMLParser):
    """Collects the names of elements, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    return elements


def report_of(summary: RunSummary) -> RunReport:
    empty = pd.DataFrame()
    return RunReport(summary=summary, steps=empty, overlap=empty, purposes=empty, collectives=empty, tables={})


@pytest.fixture
def marked(make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]) -> RunSummary:
    """Build a run in which everything that comes from outside has markup."""
    owner = OwnerSummary(
        owner=MARKUP,
        operation=Operation.ALL_REDUCE,
        purpose=Purpose.GRAD_REDUCE,
        cause=Cause.TAIL,
        exposed_ns=12 * MS,
        owner_exposed_ns=12 * MS,
    )
    cells = [
        make_ddp(
            update={"name": f"{MARKUP}{place}", "owners": (owner,), "notes": (MARKUP,), "coordinates": {MARKUP: value}}
        )
        for place, value in enumerate((MARKUP, "1"))
    ]
    changes = {"name": MARKUP, "question": MARKUP, "host": MARKUP, "torch": MARKUP}
    return make_run(*cells, **changes, status=RunStatus.FAILED, reason=MARKUP)


def test_the_answer_comes_first_and_then_the_same_words_as_in_print(make_run: Callable[..., RunSummary]) -> None:
    run = report_of(make_run())
    html = run._repr_html_()
    bold = re.findall(r"<strong>(.*?)</strong>", html)
    assert [unescape(words) for words in bold] == run_page.answer_words(run.summary)[:1]
    said = str(run).splitlines()
    assert all(line.removeprefix("Note: ") in unescape(html) for line in said)


def test_markup_in_a_runs_names_is_text_in_a_notebook(marked: RunSummary) -> None:
    elements = read(report_of(marked)._repr_html_())
    assert elements.names <= {"div", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td", *FOLDS}
    assert elements.text.count(MARKUP) >= 6


def test_markup_in_a_runs_names_is_text_in_every_figure(marked: RunSummary) -> None:
    run = report_of(marked)
    for figure in (run.plot_breakdown(), run.plot_owners(), run.plot_sweep()):
        assert figure_png(figure).startswith(b"\x89PNG")
        words = "".join(
            text
            for axes in figure.axes
            for text in (axes.get_title(loc="left"), *(one.get_text() for one in axes.texts))
        )
        words += figure.get_suptitle() + "".join(
            label.get_text() for axes in figure.axes for label in axes.get_yticklabels()
        )
        assert not re.search(r"(?<!\\)\$", words), "a bare dollar sign begins mathematics"


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated:DeprecationWarning")  # what TensorBoard imports
def test_markup_in_a_runs_names_is_text_in_tensorboards_markdown(marked: RunSummary) -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    shown = read(markdown_to_safe_html(markdown_run(marked)))
    assert not shown.names & {"b", "em", "a", "code", "script"}
    assert shown.text.count(MARKUP) >= 4


def test_markup_in_a_comparison_is_text() -> None:
    found = dtbench.compare(f"{RESULTS}/example_sweep:micro_batches-1", f"{RESULTS}/example_sweep:micro_batches-4")
    comparison = found.comparison.model_copy(
        update={
            "sentence": MARKUP,
            "notes": (MARKUP,),
            "candidate": found.comparison.candidate.model_copy(update={"label": MARKUP}),
            "mechanism": tuple(row.model_copy(update={"subject": MARKUP}) for row in found.comparison.mechanism),
            "collectives": tuple(row.model_copy(update={"owner": MARKUP}) for row in found.comparison.collectives),
        }
    )
    marked = type(found)(comparison)
    elements = read(marked._repr_html_())
    assert "b" not in elements.names
    assert elements.text.count(MARKUP) >= 5
    assert figure_png(marked.plot()).startswith(b"\x89PNG")
    assert "<b " not in marked.mechanism.to_html()


def test_a_comparison_shows_mechanism_and_cost_and_folds_the_rest() -> None:
    found = dtbench.compare(f"{RESULTS}/example_sweep:micro_batches-1", f"{RESULTS}/example_sweep:micro_batches-4")
    html = found._repr_html_()
    assert unescape(html.split("</strong>")[0]).endswith(found.comparison.clauses[0])
    assert all(clause in unescape(html) for clause in found.comparison.clauses)
    captions = re.findall(r"<caption[^>]*>(.*?)</caption>", html.split("<details>")[0])
    assert captions == ["What was done differently, per step", "What it cost", "Where the sides are from"]
    assert str(found).splitlines()[0] == found.sentence
    assert found.metrics["metric"].iloc[0] == "step_time"
    assert found.metrics["ratio"].iloc[0] == found.comparison.metrics[0].ratio
    assert found.mechanism["what"].tolist() == [row.what for row in found.comparison.mechanism]
    assert found.collectives["candidate_exposed_ns"].tolist() == [
        row.exposed_ns[1] for row in found.comparison.collectives
    ]


def test_runs_that_were_loaded_are_compared_like_their_paths() -> None:
    run = dtbench.load_run(RESULTS / "example_sweep")
    with pytest.raises(ComparisonError, match=f"`{RESULTS}/example_sweep` has several cells"):
        dtbench.compare(run, RECORDED / "ddp_2ranks_rank0.json.gz")


def test_traces_show_their_owners_and_fold_the_steps() -> None:
    traces = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")
    html = traces._repr_html_()
    assert unescape(html).startswith('<div class="dtbench"><div><strong>step 112 ms, 30.2 ms exposed (26.9 %)')
    assert "Exposed communication by owner and cause, per step" in html.split("<details>")[0]
    assert "Where the time went" in html.partition("<details>")[2]


@pytest.mark.parametrize(
    "html",
    [
        lambda: dtbench.load_run(RESULTS / "example")._repr_html_(),
        lambda: dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")._repr_html_(),
    ],
    ids=["run", "traces"],
)
def test_nothing_is_fetched_and_no_colour_fights_the_notebooks_theme(html: Callable[[], str]) -> None:
    text = html()
    assert not re.search(r"https?:|src=|href=|<script|<style|@import|url\(", text)
    assert not re.search(r"(?<![-\w])(color|background)\s*:", text)


def test_many_notes_are_cut_and_counted() -> None:
    notes = lines(f"note {place}" for place in range(MOST_NOTES + 5))
    html = page_html(Page("t", lines(["answer"]), (), notes=notes))
    assert f"{MOST_NOTES + 5} notes" in html
    assert "and 5 more" in html


def test_a_sweep_of_many_cells_is_a_short_table(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    cells = [make_ddp(update={"name": f"c{place}", "coordinates": {"axis": str(place)}}) for place in range(100)]
    html = report_of(make_run(*cells))._repr_html_()
    assert html.count("<tr>") == 1 + MOST_ROWS
    assert "and 76 more rows" in html
