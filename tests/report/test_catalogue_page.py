"""The page of a catalogue: how many passed comes first, outcomes are marked, and every medium shows the same."""

from dtbench.report.page.catalogue_page import CAN_RUN, SCOPE, Catalogue, CatalogueRow, catalogue_page
from dtbench.report.page.page import Cell, Page, Table, Tone
from dtbench.report.render.html_page import page_document
from dtbench.report.render.markdown import answer_markdown
from dtbench.store.records.checks import CheckOutcome

ROWS = (
    CatalogueRow("one", "Is it?", CheckOutcome.PASSED, "Yes, 3 | 4.", "results/one/1", 4, 12_340_000_000),
    CatalogueRow("two", "Is that?", CheckOutcome.FAILED, "no answer: of 1 check 1 failed", "results/two/1", 1, 5),
    CatalogueRow("three", "And that?", CheckOutcome.NOT_JUDGED, "FAILED: planted"),
    CatalogueRow("four", "And?", None, "cannot run here: it needs 2 GPUs"),
)


def table_of(page: Page) -> Table:
    (part,) = page.parts
    (table,) = part.blocks
    assert isinstance(table, Table)
    return table


def test_how_many_passed_is_the_answer_and_names_those_that_did_not() -> None:
    lost = "in one rank 1 left no probes: calls, and what was not reached, are of the other ranks"
    page = catalogue_page(Catalogue(ROWS, "Reached: 1 of 2 functions", (lost,)))
    (answer,) = page.answer
    assert answer.words == "1 of 3 scenarios passed; FAILED: two; not judged: three; not run here: 1"
    assert answer.tone is Tone.BAD
    assert [note.words for note in page.notes] == ["Reached: 1 of 2 functions", lost]
    (all_well,) = catalogue_page(Catalogue(ROWS[:1])).answer
    assert (all_well.words, all_well.tone) == ("1 of 1 scenario passed", Tone.STRONG)


def test_each_scenario_has_its_outcome_its_answer_and_how_long_it_took() -> None:
    table = table_of(catalogue_page(Catalogue(ROWS)))
    assert table.words == [
        ("one", "Is it?", "passed (4 launches)", "Yes, 3 | 4.", "12.3 s"),
        ("two", "Is that?", "FAILED (1 launch)", "no answer: of 1 check 1 failed", "5.00 ns"),
        ("three", "And that?", "not judged", "FAILED: planted", ""),
        ("four", "And?", "not run", "cannot run here: it needs 2 GPUs", ""),
    ]
    tones = [row[2].tone for row in table.rows if isinstance(row[2], Cell)]
    assert tones == [Tone.GOOD, Tone.BAD, Tone.WARNING, Tone.QUIET]
    assert [row[4].value for row in table.rows if isinstance(row[4], Cell)] == [12_340_000_000, 5]
    assert table.said == (SCOPE,)


def test_a_list_says_how_many_can_run_and_why_others_cannot() -> None:
    rows = (CatalogueRow("one", "Is it?", None, CAN_RUN), ROWS[3])
    page = catalogue_page(Catalogue(rows, is_only_listed=True))
    assert [line.words for line in page.answer] == ["1 of 2 scenarios with checks can run here"]
    assert table_of(page).words == [("one", "Is it?", "can run here"), ("four", "And?", ROWS[3].told)]


def test_markdown_and_a_file_show_the_same_words() -> None:
    page = catalogue_page(Catalogue(ROWS, "Reached: 1 of 2 functions"))
    markdown, html = answer_markdown(page), page_document(page)
    assert markdown.startswith("**1 of 3 scenarios passed; FAILED: two")
    assert r"| one | Is it? | passed (4 launches) | Yes, 3 \| 4. | 12.3 s |" in markdown
    for words in ("1 of 3 scenarios passed", "passed (4 launches)", "Reached: 1 of 2 functions", SCOPE.split("`")[0]):
        assert words in html
    assert 'data-value="12340000000"' in html
