"""One screen of an answer: it fits, leads with the largest loss, and says nothing surer than the whole page."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Phase, Purpose
from dtbench.cli.compare import compare
from dtbench.cli.report import print_report
from dtbench.comparison.run import compare_all
from dtbench.report.page.brief.comparison import comparison_brief
from dtbench.report.page.brief.notes import MOST_NOTES
from dtbench.report.page.brief.run import run_brief
from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.checklist import CHANGED
from dtbench.report.page.comparison_page import choose_metrics
from dtbench.report.page.losses import LEAST_HELD, MOST_ROWS, Losses, loss_blocks
from dtbench.report.page.page import Bar, Block, Cell, Chart, Facts, Page, Part, Table
from dtbench.report.page.sweep import sweep_quantities
from dtbench.report.page.trace_page import traces_page
from dtbench.report.render.html_page.chart import chart_html
from dtbench.report.render.terminal import Bars, render_brief
from dtbench.report.words.advice import Advice, Bound, Loss
from dtbench.report.words.doubts import NOT_ALL_LAUNCHES, UNRELIABLE
from dtbench.report.words.sentences import (
    advice_sentences,
    answer_sentence,
    has_findings,
    limit_sentence,
    step_time_words,
    wait_sentence,
)
from dtbench.runs.cell.cell_notes import NOTHING_JUDGED
from dtbench.runs.representative import Doubt, DoubtKind
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import CellSummary, Disturbed, RunSummary
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import RunStatus, TookCores
from dtbench.traces.causes.exposed_owners import Carried
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.known_part import KnownPart
from dtbench.traces.notes.files import NumberedByName
from tests.report.test_stages_text import make_row

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "results" / "example"
RECORDED = ROOT / "tests" / "traces" / "recorded"
MS = 1_000_000


@pytest.fixture(scope="module")
def example() -> RunSummary:
    return summarize_run(EXAMPLE)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return analyze_traces([RECORDED / "fsdp2_tp_2x2_rank0.json.gz"])


def show(page: Page, width: int = 100) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(render_brief(page))
    return captured.get().splitlines()


def blocks(page: Page) -> dict[str, Block]:
    (part,) = page.parts
    return {block.key: block for block in part.blocks}


def table_of(page: Page, key: str = "losses") -> Table:
    found = blocks(page)[key]
    assert isinstance(found, Table)
    return found


def loss(owner: str, exposed_ms: float, cause: Cause = Cause.TAIL, purpose: Purpose = Purpose.UNSHARD) -> Loss:
    return Loss(owner, purpose, Operation.ALL_GATHER, cause, int(exposed_ms * MS), Carried())


def nothing(rows: Sequence[Loss]) -> list[Advice]:
    return []


def make_blocks(rows: Sequence[Loss], advise: Callable[[Sequence[Loss]], list[Advice]] = nothing) -> dict[str, Any]:
    return {block.key: block for block in loss_blocks([Losses("", rows, 1, 1000.0 * MS, advise)], "ms")}


def chart_of(page: Page, key: str = "cells") -> Chart:
    found = blocks(page)[key]
    assert isinstance(found, Chart)
    return found


def value(cell: str | Cell) -> float:
    assert isinstance(cell, Cell)
    assert cell.value is not None
    return cell.value


def test_an_answer_its_largest_loss_and_the_bound_of_its_cause_are_in_the_first_ten_lines(
    example: RunSummary, traces: TraceSet
) -> None:
    for width in (80, 100, 160):
        for page in (run_brief(example), traces_brief(traces)):
            first = "\n".join(show(page, width)[:10])
            assert re.search(r"\d ms\b.* exposed|exposed .*\d ms\b", first)
        assert "at most 76.5 ms" in " ".join(show(run_brief(example), width)[:10])


@pytest.mark.parametrize("width", [80, 100, 160])
def test_an_answer_fits_one_screen(example: RunSummary, traces: TraceSet, width: int) -> None:
    (comparison,) = compare_all([f"{EXAMPLE}:ddp", f"{EXAMPLE}:fsdp2_tp"], results=EXAMPLE.parent)
    for page in (run_brief(example), traces_brief(traces), comparison_brief(comparison)):
        shown = show(page, width)
        assert len(shown) <= (52 if width == 80 else 45)
        assert max(map(len, shown)) <= width


def test_few_rows_hold_most_of_what_is_exposed_and_one_the_rest(example: RunSummary, traces: TraceSet) -> None:
    for page in (run_brief(example), traces_brief(traces)):
        table = table_of(page)
        rest = table.rows[-1] if len(table.rows) > MOST_ROWS else None
        rows = table.rows[:MOST_ROWS]
        assert rest is None or str(rest[0]).endswith(" more")
        sums = [sum(value(row[at]) for row in table.rows) for at in range(2, len(table.columns))]
        assert sums[1::2] == [pytest.approx(1.0)] * (len(sums) // 2)
        held = sum(value(row[at]) for row in rows for at in range(2, len(table.columns), 2))
        assert held >= LEAST_HELD * sum(sums[::2])
    ddp, both = example.cells[0], table_of(run_brief(example))
    total = sum(value(row[2]) for row in both.rows)
    assert total == pytest.approx(sum(row.exposed_ns for row in ddp.owners))


def test_what_is_spread_over_many_purposes_is_told_by_cause_alone() -> None:
    purposes = [purpose for purpose in Purpose if purpose is not Purpose.PIPELINE]
    causes = [Cause.TAIL, Cause.BANDWIDTH, Cause.NEEDED_AT_ONCE]
    rows = [loss("a", 1, cause, purpose) for purpose in purposes for cause in causes]
    assert len(rows) * LEAST_HELD > MOST_ROWS
    table = make_blocks(rows)["losses"]
    assert [row[0] for row in table.rows] == ["any"] * 3
    assert sum(value(row[2]) for row in table.rows) == len(rows) * MS


def test_every_side_has_its_largest_loss_among_the_rows() -> None:
    causes = [*Cause][:7]
    large = Losses("large", [loss("a", 100 / 2**at, cause) for at, cause in enumerate(causes)], 1, 1000.0 * MS, nothing)
    small = Losses("small", [loss("b", 0.5, Cause.UNKNOWN, Purpose.TENSOR)], 1, 1000.0 * MS, nothing)
    table, _ = loss_blocks([large, small], "ms")
    assert isinstance(table, Table)
    words = [tuple(map(str, row[:2])) for row in table.rows]
    assert (Purpose.TENSOR.value, "cause unknown") in words
    assert len(words) == MOST_ROWS + 1
    assert words[-1][0] == "2 more"


def test_units_that_behave_alike_are_one_owner_and_others_are_not() -> None:
    rows = [*(loss(f"layers.{at}", 10) for at in range(4)), loss("layers.4", 9, Cause.SYNC_OP), loss("head", 35)]
    told = [fact.words for fact in make_blocks(rows)["largest"].facts]
    assert make_blocks(rows)["largest"].title == "The largest owners, and what would change them"
    assert told == [
        "layers.{0-3}'s all-gather (unshard), nothing left to hide behind: 40.0 ms (4.0 % of step)",
        "head's all-gather (unshard), nothing left to hide behind: 35.0 ms (3.5 % of step)",
        "layers.4's all-gather (unshard), issued blocking: 9.00 ms (0.9 % of step)",
    ]


def test_an_advice_is_written_out_once_and_shared_collectives_are_named_as_such() -> None:
    def advise(rows: Sequence[Loss]) -> list[Advice]:
        return [Advice("why", "Send less.", 1, bound=Bound(5.0 * MS, 100.0 * MS, "all of it"))]

    largest = make_blocks([loss("a", 10), loss("b", 9), loss("a", 8, Cause.SYNC_OP)], advise)["largest"]
    told = largest.facts
    assert [fact.words.partition(" of step)")[2] or fact.words for fact in told[:4]] == [
        "a's all-gather (unshard), nothing left to hide behind: 10.0 ms (1.0 % of step)",
        "Send less. At most 5.00 ms.",
        ". As 1. At most 5.00 ms.",
        ". As 1. At most 5.00 ms. Of collectives above: the gains do not add up.",
    ]
    assert len(told) == 4
    assert largest.title.endswith("(at most: all they took or waited)")


def test_what_the_answer_says_is_not_said_again_below_it(example: RunSummary) -> None:
    """It names the largest loss of ``fsdp2_tp`` with what changes it; the same owner is the third of the list."""
    page = run_brief(example)
    assert "leave its output sharded" in page.answer[-1].words
    told = words_of(page, "largest")
    assert not [words for words in told if "leave its output sharded" in words]
    assert [
        words
        for words in told
        if words.startswith("fsdp2_tp: head's all-gather") and words.endswith("As in the answer.")
    ]


def test_rows_that_hold_next_to_nothing_are_one_row() -> None:
    causes = [Cause.TAIL, Cause.SYNC_OP, Cause.BANDWIDTH, Cause.UNKNOWN]
    rows = [loss("a", length, cause) for length, cause in zip([900, 90, 6, 4], causes, strict=True)]
    table = make_blocks(rows)["losses"]
    assert [row[0] for row in table.rows] == ["unshard", "unshard", "2 more"]
    table = make_blocks(rows[:3])["losses"]
    assert [row[0] for row in table.rows] == ["unshard", "unshard", "unshard"]  # one is not put under another name


def test_the_owner_that_took_longest_is_first_whatever_its_step() -> None:
    slow = Losses("slow", [loss("a", 30)], 1, 1000.0 * MS, nothing)
    fast = Losses("fast", [loss("b", 20), loss("c", 2), loss("d", 25)], 1, 100.0 * MS, nothing)
    _, largest = loss_blocks([fast, slow], "ms")
    assert isinstance(largest, Facts)
    assert [fact.words.partition("'")[0] for fact in largest.facts] == ["slow: a", "fast: d", "fast: b"]
    tiny = Losses("tiny", [loss("e", 1)], 1, 100.0 * MS, nothing)
    _, largest = loss_blocks([fast, slow, tiny], "ms")
    assert isinstance(largest, Facts)
    assert [fact.words.partition("'")[0] for fact in largest.facts] == ["slow: a", "fast: d", "tiny: e"]


def test_owners_that_took_less_than_a_tenth_of_the_longest_are_left_to_the_whole_page() -> None:
    told = make_blocks([loss("a", 100), loss("b", 11), loss("c", 9)])["largest"].facts
    assert [fact.words.partition("'")[0] for fact in told] == ["a", "b"]


def test_the_answer_and_its_bound_are_in_the_first_ten_lines(example: RunSummary) -> None:
    """Machine, overrides and chosen cells come after it; what speaks against it comes before."""
    noted = example.model_copy(update={"overrides": ("repeat=1",), "only": ("ddp",)})
    lines = show(run_brief(noted), 100)
    place = next(at for at, line in enumerate(lines) if "AMD EPYC, 2 cores on vm" in line)
    assert place == 0  # beside the name, where there is room
    assert any("at most 76.5 ms to gain" in line for line in lines[:10])
    assert next(at for at, line in enumerate(lines) if line.startswith("--set repeat=1")) >= 9


def test_where_cells_ran_elsewhere_the_place_is_not_said_of_all(example: RunSummary) -> None:
    assert run_brief(with_cell(example, 0, unlike={"fsdp2_tp": "cores 2 and 64"})).place.endswith(
        "other cells were elsewhere"
    )
    assert run_brief(example).place.endswith("torch 2.13.0+cpu")


def test_of_nothing_exposed_there_is_no_table() -> None:
    assert make_blocks([]) == {}


def with_cell(summary: RunSummary, at: int, **changes: object) -> RunSummary:
    cells = list(summary.cells)
    cells[at] = cells[at].model_copy(update=changes)
    return summary.model_copy(update={"cells": tuple(cells)})


def words_of(page: Page, key: str) -> list[str]:
    if key == "answer":
        return [line.words for line in page.answer]
    found = blocks(page).get(key)
    assert isinstance(found, Facts)
    return [fact.words for fact in found.facts]


def test_what_is_no_finding_is_in_no_table_and_gets_no_advice(example: RunSummary) -> None:
    doubted = with_cell(example, 1, rank_doubts=("two files say that they are of rank 1",))
    assert [column.title for column in table_of(run_brief(doubted)).columns] == ["purpose", "cause", "exposed", "share"]
    page = run_brief(with_cell(doubted, 0, rank_doubts=("a record is missing",)))
    assert not {"losses", "largest"} & blocks(page).keys()
    said = "\n".join(show(page))
    assert "At most" not in said
    assert "`ddp`: not judged: a record is missing" in said
    assert "`fsdp2_tp`: not judged: two files say that they are of rank 1" in said


def test_a_cell_that_failed_or_cannot_be_read_is_named_with_its_reason(example: RunSummary) -> None:
    failed = with_cell(example, 0, status=RunStatus.FAILED, reason="rank 1 raised", ranks=(), owners=())
    page = run_brief(failed)
    assert "ddp FAILED: rank 1 raised" in words_of(page, "doubts")
    chart = blocks(page)["cells"]
    assert isinstance(chart, Chart)
    assert [bar.label for bar in chart.bars] == ["fsdp2_tp"]
    assert "without a profiled step that can be read: `ddp`" in chart.note
    nothing_known = run_brief(with_cell(failed, 1, ranks=(), owners=()))
    assert "cells" not in blocks(nothing_known)


def test_what_is_at_least_is_said_to_be(example: RunSummary) -> None:
    page = run_brief(with_cell(example, 0, unseen_collectives=2))
    chart = blocks(page)["cells"]
    assert isinstance(chart, Chart)
    assert chart.bars[0].figures[1:3] == ("at least 83.1 ms", "at least 17.0 %")
    assert [column.title for column in table_of(page).columns][2:] == ["exposed", "share"]  # of the other cell


def test_notes_that_do_not_fit_are_counted(example: RunSummary) -> None:
    many = with_cell(example, 0, notes=tuple(f"note {at}" for at in range(10)))
    told = words_of(run_brief(many), "doubts")
    assert len(told) == MOST_NOTES
    assert re.search(r"; and \d+ more notes: --full$", told[-1])


def test_what_was_verified_is_one_line_and_says_where_it_does_not_hold(example: RunSummary) -> None:
    assert words_of(run_brief(example), "verified") == [
        "all 4 passed, results equal one process's, no wait missing, traffic as planned, knobs as asked"
    ]
    assert example.cells[1].canary is not None
    wrong = example.cells[1].canary.model_copy(update={"passed": False})
    told = words_of(run_brief(with_cell(example, 1, canary=wrong)), "verified")[-1]
    assert "no wait missing (NOT in `fsdp2_tp`)" in told
    told = words_of(run_brief(with_cell(example, 1, canary=None, correctness=None)), "verified")[-1]
    assert "no wait missing (not known of `fsdp2_tp`)" in told
    lost = with_cell(with_cell(example, 0, receipts=()), 1, receipts=())
    assert "knobs as asked: not known" in words_of(run_brief(lost), "verified")[-1]


def test_every_check_that_did_not_pass_is_told(example: RunSummary) -> None:
    assert example.checks is not None
    first, *others = example.checks.results
    failed = first.model_copy(update={"outcome": CheckOutcome.FAILED, "got": "3.0 %"})
    checks = example.checks.model_copy(update={"results": (failed, *others)})
    told = words_of(run_brief(example.model_copy(update={"checks": checks})), "verified")
    assert told[0].startswith("FAILED: purposes.grad_reduce.hidden_fraction")
    assert "got 3.0 %" in told[0]
    assert told[1] == "the other 3 passed"
    changed = checks.model_copy(update={"changed": True})
    told = words_of(run_brief(example.model_copy(update={"checks": changed})), "verified")
    assert told[2] == CHANGED
    many = checks.model_copy(update={"results": (failed,) * 6})
    told = words_of(run_brief(example.model_copy(update={"checks": many})), "verified")
    assert told[MOST_NOTES] == f"and {6 - MOST_NOTES} more that did not pass: --full"


def bar(label: str, *lengths_ms: int) -> Bar:
    return Bar(label, tuple(one * MS for one in lengths_ms), ("",) * 4, figures=("1 ms",))


def draw(*bars: Bar, encoding: str = "utf-8", width: int = 39) -> list[str]:
    parts = [part for block in _example_chart() for part in block.parts]
    console = Console(width=width, color_system=None, legacy_windows=False)
    options = console.options.update(width=width)
    options.encoding = encoding
    chart = Chart("title", tuple(parts), tuple(bars), figures=("step",))
    return [str(line) for line in Bars(chart).__rich_console__(console, options)]


def _example_chart() -> list[Chart]:
    found = blocks(run_brief(summarize_run(EXAMPLE)))["cells"]
    assert isinstance(found, Chart)
    return [found]


def test_bars_are_as_long_as_what_they_stand_for_and_end_where_they_should() -> None:
    *_, whole, half = draw(bar("a", 10, 10, 0, 0), bar("b", 1, 1, 1, 7))
    drawn = [re.sub(r"^\w +| *1 ms$", "", line) for line in (whole, half)]
    assert len(drawn[0]) == 2 * len(drawn[1]) == 30
    assert drawn[0].count("\u2588") == drawn[0].count("\u2571") == 15
    assert {drawn[1].count(letter) for letter in "\u2588\u2571\u2592"} == {1, 2}
    plain = draw(bar("a", 1, 1, 1, 1), encoding="ascii")
    assert all(line.isascii() for line in plain)
    assert any("# compute" in line for line in plain)


def test_ranks_that_have_no_bar_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtbench.report.page.brief.traces.MOST_RANKS", 1)
    monkeypatch.setattr("dtbench.report.page.brief.traces.OF_MANY", 1)
    chart = blocks(traces_brief(analyze_traces([RECORDED / "pipelines" / "plain"])))["ranks"]
    assert isinstance(chart, Chart)
    assert len(chart.bars) == 1
    assert "of 2" in chart.note


def test_all_notes_of_traces_are_there_or_counted(traces: TraceSet) -> None:
    for many in (0, MOST_NOTES, MOST_NOTES + 3):
        noted = replace(traces, notes=tuple(NumberedByName((at,)) for at in range(many)))
        notes = [note.words for note in traces_page(noted).notes]
        found = blocks(traces_brief(noted)).get("doubts")
        told = [fact.words for fact in found.facts] if isinstance(found, Facts) else []
        more = f"; and {len(notes) - MOST_NOTES} more notes: --full" if notes[MOST_NOTES:] else ""
        assert "".join(told) == "".join(notes[:MOST_NOTES]) + more
        assert len(told) == min(len(notes), MOST_NOTES)
        assert len(notes) >= many


def test_a_comparison_shows_what_everybody_looks_for_and_counts_the_rest() -> None:
    (comparison,) = compare_all([f"{EXAMPLE}:ddp", f"{EXAMPLE}:fsdp2_tp"], results=EXAMPLE.parent)
    page = comparison_brief(comparison)
    table = table_of(page, "metrics")
    names = [str(row[0]) for row in table.rows]
    assert names[:3] == ["step time", "exposed comm", "hidden share"]
    assert {"tensor exposed", "unshard exposed", "grad_reduce exposed"} < set(names)
    in_full = len(choose_metrics(comparison))
    more = f"and {in_full - len(names)} more metrics: --full; and {len(comparison.metrics) - in_full} more metrics"
    assert table.said == (f"{more} of owners: --json",)
    sides = blocks(page)["sides"]
    assert isinstance(sides, Chart)
    assert [bar.label for bar in sides.bars] == ["ddp", "fsdp2_tp"]
    assert sides.bars[0].figures == ("83.1 ms", "17.0 %")


def test_what_launches_did_not_all_do_is_not_told_as_done_and_why_is_told() -> None:
    (comparison,) = compare_all([f"{EXAMPLE}:ddp", f"{EXAMPLE}:fsdp2_tp"], results=EXAMPLE.parent)
    assert comparison.mechanism
    doubt = "launch1 of ddp issued other collectives than launch0, which is compared"
    why = f"done: what was done differently is not established: {doubt}"
    for mechanism, more in ((comparison.mechanism, "; what was seen to differ: --full"), ((), "")):
        doubted = comparison.model_copy(update={"mechanism": mechanism, "mechanism_doubts": (doubt,)})
        changed = blocks(comparison_brief(doubted))["changed"]
        assert isinstance(changed, Facts)
        assert [f"{fact.label}: {fact.words}" for fact in changed.facts if fact.label == "done"] == [f"{why}{more}"]


def test_a_screen_is_what_is_printed_and_full_has_everything(
    example: RunSummary, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_report(example)
    brief = capsys.readouterr().out
    print_report(example, full=True)
    full = capsys.readouterr().out
    assert "Exposed communication by purpose and cause" in brief
    assert "Exposed communication by owner and cause" not in brief
    assert "Exposed communication by owner and cause" in full
    assert re.search(r"\n--full: everything; .*\n  dtbench report \S+\n", brief)


def test_compare_prints_one_screen_unless_asked_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [f"{EXAMPLE}:ddp", f"{EXAMPLE}:fsdp2_tp"]
    compare(sides, results=EXAMPLE.parent)
    brief = capsys.readouterr().out
    compare(sides, results=EXAMPLE.parent, full=True)
    assert len(brief.splitlines()) < len(capsys.readouterr().out.splitlines())
    assert "more metrics: --full" in brief


def test_a_cell_of_its_own_has_its_name_in_no_sentence(example: RunSummary) -> None:
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    (first, *_) = words_of(run_brief(alone), "answer")
    assert first.startswith("exposed 83.1 ms of a profiled step")
    cell: CellSummary = alone.cells[0]
    assert cell.name not in "".join(words_of(run_brief(alone), "largest"))


def disturb(summary: RunSummary, at: int, *takers: TookCores) -> RunSummary:
    taken = Disturbed(launch=0, phase=Phase.MEASURED, steps=8, left_alone=1, stolen_fraction=0.0, takers=takers)
    notes = (f"{NOTHING_JUDGED}somebody had the cores", *summary.cells[at].notes)
    return with_cell(summary, at, disturbed=(taken,), notes=notes)


def took(pid: int | None, cores: float) -> TookCores:
    return TookCores(phase=Phase.MEASURED, pid=pid, name=f"job{pid}", cores=cores, of_cores=2)


def test_who_had_the_machine_is_said_once_with_what_to_do(example: RunSummary) -> None:
    assert example.checks is not None
    unjudged = [one.model_copy(update={"outcome": CheckOutcome.NOT_JUDGED}) for one in example.checks.results]
    checks = example.checks.model_copy(update={"results": tuple(unjudged)})
    both = disturb(disturb(example, 0, took(7, 0.5)), 1, *(took(pid, 0.1 * pid) for pid in range(2, 7)), took(None, 1))
    page = run_brief(both.model_copy(update={"checks": checks}))
    said = "\n".join(show(page))
    told = next(words for words in words_of(page, "answer") if "Stop what can be stopped" in words)
    assert told.startswith("job6 (pid 6) took 0.60 of 2 cores")
    assert "and 3 more; too few steps are left alone in 2 of 2 cells. " in told
    assert said.count("(pid 6)") == 1
    assert "somebody had the cores" not in said
    assert "4 of 4 are not judged: see above" in words_of(page, "verified")
    assert "`ddp` and `fsdp2_tp`: unreliable, since others took the cores" in words_of(page, "doubts")


def test_where_a_rank_lost_its_record_nothing_is_verified_of_all(example: RunSummary) -> None:
    told = words_of(run_brief(with_cell(example, 1, rank_doubts=("rank 1 says nothing",))), "verified")[-1]
    for words in ("results equal one process's", "no wait missing", "traffic as planned", "knobs as asked"):
        assert f"{words} (not known of `fsdp2_tp`)" in told


def test_an_answer_is_about_one_cell_and_never_says_that_it_has_most(example: RunSummary) -> None:
    assert words_of(run_brief(example), "answer")[1].startswith("fsdp2_tp: exposed 719 ms of a profiled step")
    doubted = run_brief(with_cell(example, 1, rank_doubts=("a record is missing",)))
    assert words_of(doubted, "answer")[1].startswith("ddp: exposed 83.1 ms of a profiled step")
    bound = run_brief(with_cell(example, 0, unseen_collectives=3))
    assert not any("most of its step" in line for line in show(bound))


def test_losses_are_of_the_cell_that_they_are_said_of(example: RunSummary) -> None:
    page = run_brief(with_cell(example, 1, unknown_owners=2))
    assert words_of(page, "answer")[1].startswith("fsdp2_tp: exposed")
    assert table_of(page).title.endswith("of a profiled step of ddp")
    assert words_of(page, "largest")[0].startswith("bucket 3's all-reduce")


@pytest.mark.parametrize(
    "lost", [{"status": RunStatus.FAILED}, {"status": RunStatus.RUNNING}, {"unreadable": {1: "x"}}]
)
def test_a_cell_of_which_launches_did_not_end_or_are_left_out_has_no_finding(
    example: RunSummary, lost: dict[str, Any]
) -> None:
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    assert has_findings(alone.cells[0])
    less = with_cell(alone, 0, **lost)
    cell = less.cells[0]
    assert not has_findings(cell)
    page = run_brief(less)
    assert not {"losses", "largest"} & blocks(page).keys()
    first, *others = words_of(page, "answer")
    assert re.search(r"; not judged: (it did not end well|it is not finished|launch1 is left out)$", first)
    assert others == [NOT_ALL_LAUNCHES] == advice_sentences(cell)
    assert "bucket" not in first
    how = " (of launch0 alone, of 2)" if cell.unreadable else ": not known"
    assert f"results equal one process's{how}" in words_of(page, "verified")[-1]


def test_numbers_without_launches_that_are_left_out_have_a_mark_on_every_page(example: RunSummary) -> None:
    less = with_cell(example, 0, unreadable={1: "launch1: no files"})
    page = run_brief(less)
    chart = chart_of(page)
    assert chart.bars[0].figures[:3] == ("460 ms*", "83.1 ms*", "17.0 %*")
    assert "* of launch0 alone, of 2: not known of the others" in chart.note
    assert "of launch0 alone, of 2: 83.1 ms" in (answer_sentence(less.cells[0]) or "")
    assert wait_sentence(less.cells[0], Purpose.GRAD_REDUCE).startswith("of launch0 alone, of 2: 74.9 ms")
    assert step_time_words(less.cells[0]).startswith("of launch0 alone, of 2: 460 ms")
    exposed = next(one for one in sweep_quantities(less) if one.header == "exposed comm")
    assert [words.endswith("*") for words in exposed.words] == [True, False]


def test_a_share_has_the_mark_of_what_it_is_a_share_of(example: RunSummary) -> None:
    part = KnownPart(ranks=(0,), of_ranks=2, has_every_rank=False)
    chart = chart_of(run_brief(with_cell(example, 0, part=part)))
    assert chart.bars[0].figures[1:3] == ("83.1 ms*", "17.0 %*")


def test_a_share_of_other_steps_is_not_known(example: RunSummary) -> None:
    part = KnownPart(launches=(1,), of_launches=4)
    owners = tuple(row.model_copy(update={"part": part}) for row in example.cells[0].owners)
    alone = example.model_copy(update={"cells": example.cells[:1]})
    page = run_brief(with_cell(alone, 0, owners=owners))
    told = [words for words in words_of(page, "largest") if "'s all-reduce" in words]
    assert told[0].startswith("bucket 3's all-reduce (grad_reduce), nothing left to hide behind: 56.2 ms")
    assert all("(n/a of step)" in words for words in told)
    assert table_of(page).said == ("all times: of launch1 alone, of 4; not known of the others",)


def test_what_is_not_known_of_a_step_is_said_and_not_drawn(example: RunSummary) -> None:
    ranks = tuple(row.model_copy(update={"exposed_copy_ns": None, "idle_ns": None}) for row in example.cells[1].ranks)
    page = run_brief(with_cell(example, 1, ranks=ranks))
    chart = chart_of(page)
    assert chart.bars[1].lengths_ns[2:] == (None, None)
    assert chart.bars[1].end.endswith("exposed copy and host n/a")


def test_units_are_named_together_only_where_all_that_is_said_is_so_of_each() -> None:
    def advise(rows: Sequence[Loss]) -> list[Advice]:
        words = dict.fromkeys("Send more." if row.carried.size_bytes else "Send less." for row in rows)
        return [Advice("why", one, 1) for one in words]

    unknown = [loss(f"layers.{at}", 10, Cause.UNKNOWN) for at in range(4)]
    why = [MissingInput.LAUNCH, MissingInput.LAUNCH, MissingInput.RANKS, MissingInput.RANKS]
    rows = [replace(row, missing=(one,)) for row, one in zip(unknown, why, strict=True)]
    told = [fact.words for fact in make_blocks(rows, advise)["largest"].facts]
    assert [words.partition("'s")[0] for words in told[::2]] == ["layers.{0-1}", "layers.{2-3}"]
    sizes = [loss(f"bucket {at}", 10, Cause.BANDWIDTH) for at in range(3)]
    rows = [replace(row, carried=Carried(size_bytes=at // 2)) for at, row in enumerate(sizes)]
    told = [fact.words for fact in make_blocks(rows, advise)["largest"].facts]
    assert [words.partition("'s")[0] for words in told] == ["bucket {0-1}", "Send less.", "bucket 2", "Send more."]


def test_what_one_rank_alone_told_is_said_to_be_of_it(example: RunSummary) -> None:
    part = KnownPart(ranks=(0,), of_ranks=2, has_every_rank=False)
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    lost = {"records_part": part, "rank_doubts": ("the record of rank 1 is missing",)}
    (told,) = words_of(run_brief(with_cell(alone, 0, **lost)), "verified")
    assert "results equal one process's (of rank 0 alone, of 2)" in told
    assert "knobs as asked (of rank 0 alone, of 2)" in told
    assert "not looked at" not in told
    told = words_of(run_brief(with_cell(example, 0, **lost)), "verified")[-1]
    assert "knobs as asked (of rank 0 alone, of 2 in `ddp`)" in told
    contested = with_cell(alone, 0, contested_knobs=("parallel.static_graph",))
    assert "knobs as asked: not known" in words_of(run_brief(contested), "verified")[-1]


def test_knobs_without_effect_and_stages_that_sent_otherwise_are_not_verified(example: RunSummary) -> None:
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    receipts = tuple(one.model_copy(update={"outcome": ReceiptOutcome.NO_EFFECT}) for one in alone.cells[0].receipts)
    assert (
        "knobs as asked: none has an effect"
        in words_of(run_brief(with_cell(alone, 0, receipts=receipts)), "verified")[-1]
    )
    stages = (make_row().model_copy(update={"matches_plan": False}),)
    assert (
        "traffic as planned (NOT in `ddp`)" in words_of(run_brief(with_cell(alone, 0, stages=stages)), "verified")[-1]
    )


def test_traffic_is_not_looked_at_where_nothing_was_planned_and_not_known_where_nothing_was_seen(
    example: RunSummary,
) -> None:
    cell = example.cells[0]
    alone = example.model_copy(update={"cells": (cell,), "checks": None})
    unseen = with_cell(alone, 0, ranks=(), purposes=())
    assert "traffic as planned: not known" in words_of(run_brief(unseen), "verified")[-1]
    own = with_cell(unseen, 0, plan=cell.plan.model_copy(update={"traffic": None}))
    assert "traffic as planned: not looked at" in words_of(run_brief(own), "verified")[-1]


def test_where_no_time_is_told_apart_steps_and_waits_are_named(example: RunSummary) -> None:
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    untold = with_cell(alone, 0, ranks=(), owners=())
    assert [words.partition(" ")[0] for words in words_of(run_brief(untold), "answer")] == [
        "step",
        "gradient",
        "unshard",
    ]
    assert words_of(run_brief(untold), "answer")[0].startswith("step time 460 ms median of 8 steps")
    both = with_cell(with_cell(example, 0, ranks=(), owners=()), 1, ranks=(), owners=())
    assert "fsdp2_tp: unshard wait 77.9 ms" in "\n".join(words_of(run_brief(both), "answer"))


def test_unreliable_numbers_have_no_other_reason_for_no_finding(example: RunSummary) -> None:
    correctness = example.cells[0].correctness
    assert correctness is not None
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    wrong = with_cell(alone, 0, correctness=correctness.model_copy(update={"passed": False}))
    (said,) = words_of(run_brief(wrong), "answer")
    assert said.startswith("exposed unreliable, since its results differ")
    assert limit_sentence(wrong.cells[0]) == UNRELIABLE
    assert UNRELIABLE not in "\n".join(show(run_brief(wrong)))


def test_every_reason_of_doubt_is_told_or_counted(example: RunSummary) -> None:
    doubts = tuple(Doubt(DoubtKind.UNSURE_MEASURED, (1.0 + at, 0.9, 9.0)) for at in range(2))
    alone = example.model_copy(update={"cells": example.cells[:1], "checks": None})
    told = words_of(run_brief(with_cell(alone, 0, doubts=doubts, notes=())), "doubts")
    assert "and 1 more reason, see the notes" in told[0]
    assert told[1].startswith("PROFILED steps may not stand for the run: PROFILED steps took 2.00 x")
    lost = with_cell(alone, 0, doubts=doubts[:1], notes=(), rank_doubts=("a record is missing",))
    told = words_of(run_brief(lost), "doubts")
    assert told[:1] == ["not judged: a record is missing"]
    assert told[1].startswith("PROFILED steps may not stand for the run: PROFILED steps took 1.00 x")


def test_notes_that_only_json_has_are_not_said_to_be_on_the_whole_page(example: RunSummary) -> None:
    cells = tuple(
        example.cells[0].model_copy(update={"name": f"cell{at}", "notes": (f"note {at}",)}) for at in range(5)
    )
    many = example.model_copy(update={"cells": cells, "checks": None})
    assert words_of(run_brief(many), "doubts")[-1].endswith("more notes: --json")


def test_knobs_of_which_ranks_contradict_each_other_are_not_as_asked(example: RunSummary) -> None:
    told = words_of(run_brief(with_cell(example, 0, contested_knobs=("parallel.static_graph",))), "verified")[-1]
    assert "knobs as asked (not known of `ddp`)" in told


def test_figures_that_find_no_room_are_named(example: RunSummary) -> None:
    assert any(line.endswith("; no room for: unshard wait") for line in show(run_brief(example), 80))
    named = example.model_copy(
        update={"cells": tuple(one.model_copy(update={"name": one.name + 25 * "x"}) for one in example.cells)}
    )
    lines = show(run_brief(named), 80)
    assert "no room for: grad wait, unshard wait" in lines
    assert [line for line in lines if line.startswith("fsdp2_tpx") and line.endswith("53.8 %")]  # in one line
    assert not any(line.startswith("no room") for line in show(run_brief(example), 160))


def test_what_is_not_known_of_a_bar_is_said_and_not_drawn(example: RunSummary) -> None:
    chart = blocks(run_brief(example))["cells"]
    assert isinstance(chart, Chart)
    ddp, other = chart.bars
    unknown = replace(chart, bars=(ddp, replace(other, lengths_ns=(*other.lengths_ns[:2], None, None))))
    told = show(Page("", (), (Part("", "", (unknown,)),)))
    assert "exposed copy and host n/a, and not drawn: fsdp2_tp" in told
    assert 'exposed copy n/a, host n/a"' in chart_html(unknown)
    assert " n/a" not in chart_html(chart)


@pytest.mark.parametrize("width", [80, 100])
def test_bars_of_cells_with_long_names_have_a_line_each(example: RunSummary, width: int) -> None:
    """Names of a sweep differ in few letters: they are cut where they do not, and no figure goes to a second line."""
    names = [f"bucket_cap_mb-{cap}.bandwidth_gb_per_s-{speed}" for cap in (1, 2, 4, 8) for speed in (0.05, 0.1, 0.2)]
    cells = tuple(example.cells[0].model_copy(update={"name": name}) for name in names)
    page = run_brief(example.model_copy(update={"cells": cells, "checks": None}))
    console = Console(width=width, file=StringIO(), force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(render_brief(page))
    printed = captured.get().splitlines()
    bars = [line for line in printed if "\u2588" in line and "83.1 ms" in line]
    assert len(bars) == 12
    assert all(line.rstrip().endswith("17.0 %") or "17.0 %" in line for line in bars)
    assert len({line.split("\u2588")[0].strip() for line in bars}) == 12
    assert max(map(len, printed)) <= width
