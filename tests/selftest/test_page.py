"""The page of a selftest: a line for each cell, and why rows failed."""

from dtbench.report.page.page import Tone
from dtbench.report.render.html_page import page_document
from dtbench.report.render.markdown import answer_markdown
from dtbench.selftest.page import rows_table, selftest_page
from dtbench.selftest.records import Answer, RowOutcome
from tests.made_selftest import CELL, FAILED, record_of


def test_each_cell_is_a_line_with_answer_estimates_and_closed_form() -> None:
    row = RowOutcome(row="clock", claim="", passed=True, cells=(CELL, CELL), checks=())
    section = rows_table([row])
    first, second, third = section.words
    assert list(first) == ["clock", *[""] * 7, "PASS"]
    assert list(second) == [*(" tail  tail of bucket 3", "15.0", "-2.0", "n/a", "yes", "14.0", "130.4", "128.0", "")]
    assert third == second
    assert {len(line) for line in section.rows} == {len(section.columns)}
    assert section.said == ()


def test_a_row_and_its_only_cell_of_the_same_name_are_one_line() -> None:
    (line,) = rows_table([RowOutcome(row="tail", claim="", passed=True, cells=(CELL,), checks=())]).words
    assert (line[0], line[1], line[-1]) == ("tail  tail of bucket 3", "15.0", "PASS")


def test_what_is_not_known_of_a_cell_reads_otherwise_than_what_there_is_none_of() -> None:
    unknown = {"answer": Answer(exposed_ns=None), "agree": None}
    nothing = {"answer": Answer(exposed_ns=0), "agree": None, "estimates": ()}
    cells = tuple(CELL.model_copy(update=update) for update in (unknown, nothing))
    _, *lines = rows_table([RowOutcome(row="tail", claim="", passed=True, cells=cells, checks=())]).words
    assert [list(line[:5]) for line in lines] == [
        [" tail  n/a", "n/a", "-2.0", "n/a", "n/a"],
        [" tail  -", "0.0", "-", "-", "-"],
    ]


def test_a_row_that_failed_says_why_below_the_table() -> None:
    disputed = CELL.model_copy(update={"agree": False, "foretold": None, "step_ns": None})
    row = RowOutcome(row="tail", claim="", passed=False, cells=(disputed,), checks=(FAILED,))
    section = rows_table([row])
    assert list(section.words[0])[4:] == ["no", "-", "n/a", "-", "FAIL"]
    assert section.said == ("tail FAILED: cell tail: it took too long",)


def test_a_row_of_which_others_left_nothing_says_so_and_what_to_do() -> None:
    row = RowOutcome(
        row="caps", claim="", passed=False, cells=(CELL,), checks=(FAILED,), disturbed={"caps_1": 0.81, "caps_6": 0.01}
    )
    *_, note = rows_table([row]).said
    assert note == (
        "caps cannot be judged: others had part of the machine (81.0 % in caps_1, in too many steps of caps_6); run "
        "`dtbench selftest --only caps` when they are gone"
    )


def test_a_row_that_was_tried_again_says_so_and_why() -> None:
    row = RowOutcome(row="tail", claim="", passed=True, cells=(CELL,), checks=(), earlier=("a stall",))
    section = rows_table([row])
    assert section.words[0][-1] == "PASS, tried again"
    assert section.said == ("tail failed before: a stall",)


def test_how_many_rows_passed_is_the_answer_and_says_where_their_cells_are() -> None:
    well = RowOutcome(row="tail", claim="", passed=True, cells=(CELL,), checks=())
    wrong = RowOutcome(row="caps", claim="", passed=False, cells=(CELL,), checks=(FAILED,))
    (answer,) = selftest_page(record_of(well, wrong)).answer
    assert (answer.words, answer.tone) == (
        "seed 3: 1 of 2 rows passed; `dtbench report results/selftest/1`",
        Tone.BAD,
    )
    assert selftest_page(record_of(well)).answer[0].tone is Tone.STRONG


def test_markdown_and_a_file_show_the_table_of_the_terminal() -> None:
    page = selftest_page(record_of(RowOutcome(row="tail", claim="", passed=False, cells=(CELL,), checks=(FAILED,))))
    markdown, html = answer_markdown(page), page_document(page)
    for shown in (markdown, html):
        assert "tail  tail of bucket 3".replace("  ", " ") in " ".join(shown.split())
        assert "tail FAILED: cell tail: it took too long" in shown
    assert 'data-value="130440000"' in html
