"""The file of a page: every word of it, each name as text, nothing from elsewhere, and the words that are explained."""

import base64
import hashlib
import math
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.report.page.cell_page import HIDDEN
from dtbench.report.page.looks import step_parts
from dtbench.report.page.page import (
    Bar,
    BarPart,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Line,
    Page,
    Part,
    Picture,
    Prose,
    Table,
    Tile,
    Tiles,
    Tone,
)
from dtbench.report.render.html_page import Inset, page_document
from dtbench.report.render.html_page.blocks import SIGNS, exact
from dtbench.report.render.html_page.chart import chart_html, patterns_svg
from dtbench.report.render.html_page.glossary import Links, read_glossary
from dtbench.report.tb_plugin.overlap import cause_parts
from tests.report.html_page.conftest import PageFile

Read = Callable[[str], PageFile]
MARKUP = "<img src=x onerror=alert(1)>'\"&amp;</script></style>"
CONTROLS = "a\x1b[2J\u202eb"
GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"


def page_of(*blocks: object, **facts: object) -> Page:
    part = Part("cell:one", "one", blocks, aside="2 ranks")  # type: ignore[arg-type]
    return Page(**({"title": "a run", "answer": (Line("It is hidden.", Tone.STRONG),), "parts": (part,)} | facts))  # type: ignore[arg-type]


def table_of(*rows: tuple[str | Cell, ...], first: int | None = None) -> Table:
    columns = [Column("owner"), Column("exposed\ncomm", is_number=True)]
    return Table("Whose", columns, rows, ("a note",), key="owners", first=first)


def marked(words: str) -> Page:
    """Return a page in which every word that may come from outside is this one."""
    line = Line(words)
    bar = Bar(words, (1, 2), (words, words), 1, words, words)
    blocks = (
        Prose((line,)),
        Facts((Fact(words, words, Tone.BAD),), title=words),
        Table(
            words, [Column(words), Column(words, is_number=True)], [(words, Cell(words, value=1))], (words,), key=words
        ),
        Tiles((Tile(words, words, words, 1.0),)),
        Chart(words, (BarPart(words, words), BarPart("queued", words)), (bar,), None, BarPart(words, words), words),
        Picture(words, words, lambda: "<svg></svg>"),
    )
    part = Part(f"cell:{words}", words, blocks, words, Fact(words, words, Tone.BAD))
    return Page(words, (line,), (part,), words, words, words, (Fact(words, words),), line, (line,))


def test_names_with_markup_are_text_wherever_they_stand(read_page: Read) -> None:
    plain, marked_page = (read_page(page_document(marked(words))) for words in ("plain", MARKUP))
    assert marked_page.names == plain.names
    assert len(marked_page.elements) == len(plain.elements)
    assert marked_page.text.count(MARKUP) == plain.text.count("plain") > 20
    assert not {name for _, has in marked_page.elements for name in has if name.startswith("on") or name == "style"}


def test_control_characters_are_spelled(read_page: Read) -> None:
    text = page_document(marked(CONTROLS))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert read_page(text).text.count(r"a\x1b[2J\u202eb") > 20


def test_nothing_is_fetched_and_nothing_else_may_run(read_page: Read) -> None:
    inset = Inset("<div id='x'></div>", ("let a = 1;",), (".x{color:red}",))
    page = read_page(page_document(page_of(table_of(("a", "1"))), timeline=inset))
    addresses = [value for _, has in page.elements for name in ("src", "href") if (value := has.get(name)) is not None]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    (policy,) = (has["content"] for _, has in page.elements if has.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    allowed = dict(one.strip().split(" ", 1) for one in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["script-src"] == " ".join(map(_hash, page.scripts))
    assert allowed["style-src"] == " ".join(map(_hash, [*page.styles, ".x{color:red}"]))
    assert (allowed["img-src"], allowed["base-uri"], allowed["form-action"]) == ("data:", "'none'", "'none'")
    assert len(page.scripts) == 2


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_answer_comes_first_and_is_not_said_again(read_page: Read) -> None:
    again = Prose((Line("It is hidden.", Tone.STRONG), Line("On two ranks.")))
    page = page_of(again, question="Is it?", place="here", problem=Line("It failed.", Tone.BAD), notes=(Line("mind"),))
    text = read_page(page_document(page)).text
    places = [text.index(words) for words in ("Is it?", "It failed.", "It is hidden.", "On two ranks.", "mind")]
    assert places == sorted(places)
    assert text.count("It is hidden.") == 1


def test_a_part_that_says_only_what_the_answer_said_is_left_out(read_page: Read) -> None:
    page = read_page(page_document(page_of(Prose((Line("It is hidden."),)))))
    assert "details" not in page.names


def test_every_number_carries_its_exact_value(read_page: Read) -> None:
    table = table_of(("a", Cell("12 ms", value=12_345_678)), ("b", Cell("n/a")), ("c", Cell("n/a", value=math.nan)))
    chart = Chart(
        "Where",
        (BarPart("compute_ns", "compute"),),
        (Bar("rank 0", (7,), ("7 ns",), 3, "3 ns"),),
        None,
        BarPart("hidden_comm_ns", "hidden"),
    )
    page = read_page(page_document(page_of(table, Tiles((Tile("step time", "1 s", "", 1.5),)), chart)))
    cells = page.table("cell:one", "owners").column("exposed comm")
    assert cells == [("12 ms", "12345678"), ("n/a", "NaN"), ("n/a", "NaN")]
    assert page.tiles["cell:one", "step time"] == ("1 s", "1.5")
    assert page.bars == [("cell:one", {"compute_ns": "7", "hidden_comm_ns": "3"})]


@pytest.mark.parametrize(("value", "spelled"), [(0, "0"), (0.1 + 0.2, "0.30000000000000004"), (math.nan, "NaN")])
def test_values_are_spelled_with_all_their_digits(value: float, spelled: str) -> None:
    assert exact(value) == spelled


def test_all_rows_of_a_table_are_there_and_how_many_come_first(read_page: Read) -> None:
    rows = tuple((f"owner {at}", Cell(str(at), value=at)) for at in range(30))
    page = read_page(page_document(page_of(table_of(*rows, first=8))))
    assert len(page.table("cell:one", "owners").rows) == 30
    assert [has.get("data-first") for name, has in page.elements if name == "table"] == ["8"]


def test_parts_fold_as_the_page_says_and_the_head_names_each(read_page: Read) -> None:
    parts = (Part("owners", "", (table_of(("a", "1")),)), Part("gaps", "Gaps", (table_of(("a", "1")),), is_folded=True))
    page = read_page(page_document(page_of(parts=parts)))
    folds = [(has.get("data-part-of-page"), "open" in has) for name, has in page.elements if name == "details"]
    assert folds[:2] == [("owners", True), ("gaps", False)]
    targets = [has["href"] for name, has in page.elements if name == "a"]
    ids = [has["id"] for _, has in page.elements if "id" in has]
    assert len(ids) == len(set(ids))
    assert {str(target)[1:] for target in targets} <= set(ids)


def test_a_tone_has_a_sign_and_both_the_sign_and_the_hatch_are_those_of_tensorboards_tab() -> None:
    static = resources.files("dtbench.report.tb_plugin") / "static"
    (signs,) = re.findall(r"SIGNS = \{(.*?)\}", (static / "dom.js").read_text(encoding="utf-8"))
    assert signs == ", ".join(f'{tone}: "{sign}"' for tone, sign in SIGNS.items())
    drawn = re.findall(r'id="hatch-([\w-]+)"', patterns_svg())
    assert re.findall(r'pattern\("([\w-]+)"', (static / "chart.js").read_text(encoding="utf-8")) == drawn
    parts = (*step_parts("idle"), HIDDEN, *cause_parts())
    assert {part.pattern for part in parts} - {""} == set(drawn)


def test_a_part_is_drawn_in_its_colour_under_its_hatch_with_words_that_can_be_read() -> None:
    parts = (
        BarPart("late", "late", colour="#D55E00", pattern="slash"),
        BarPart("queued", "queued", colour="#0072B2", is_dark=True),
    )
    drawn = chart_html(Chart("", parts, (Bar("one", (2, 2), ("2 ns", "2 ns")),)))
    late, queued = re.findall(r"<g data-part.*?</g>", drawn)
    assert re.findall(r'<rect [^>]*fill="([^"]*)"', late) == ["#D55E00", "url(#hatch-slash)"]
    assert re.findall(r'fill="([^"]*)" stroke="([^"]*)" class="words-behind', late) == [("#D55E00", "#D55E00")]
    assert re.findall(r'class="(words[^"]*)"', late) == ["words-behind behind-late", "words"]
    assert re.findall(r'<rect [^>]*fill="([^"]*)"', queued) == ["#0072B2"]
    assert re.findall(r'class="(words[^"]*)"', queued) == ["words words-light"]


def test_a_picture_stands_in_the_part_of_its_key_and_others_by_themselves() -> None:
    pictures = (
        Picture("in", "in words", lambda: "<svg id='a'></svg>", "cell:one"),
        Picture("out", "w", lambda: "<svg id='b'></svg>", "x"),
    )
    text = page_document(page_of(table_of(("a", "1"))), pictures)
    part, _, plots = text.partition('id="plots"')
    assert "<svg id='a'>" in part
    assert "<svg id='b'>" in plots


def test_the_glossary_is_that_of_the_docs() -> None:
    source = GLOSSARY.read_text(encoding="utf-8")
    entries = read_glossary()
    assert [anchor for one in entries for anchor in one.anchors] == re.findall(r'<a id="([\w-]+)">', source)
    assert all(len(one.anchors) == len(one.words) for one in entries)
    assert all(f" | {one.meaning} |" in source for one in entries)


def test_the_glossary_explains_each_cause_in_the_order_in_which_they_take_their_part() -> None:
    anchors = [anchor for one in read_glossary() for anchor in one.anchors]
    assert [one for one in anchors if one.replace("-", "_") in list(Cause)] == [one.replace("_", "-") for one in Cause]


def test_only_words_that_occur_are_explained_and_each_link_leads_to_its_word(read_page: Read) -> None:
    facts = Facts((Fact("gradient wait", "mostly nothing left to hide behind, 2 ms of it waited for rank 1"),))
    page = read_page(page_document(page_of(facts, table_of(("a", "1")))))
    ids = {has["id"] for _, has in page.elements if str(has.get("id", "")).startswith("word-")}
    links = {str(has["href"])[1:] for name, has in page.elements if name == "a" and "word" in str(has.get("class"))}
    assert links == {"word-gradient-wait", "word-tail", "word-waited-for-a-rank"}
    owner = {"word-owner", "word-unattributed"}  # of a column: its title is there to sort by
    assert ids == links | owner | {"word-unshard-wait"}
    assert "nothing left to hide behind (tail)" in page.text  # as tables call it, and as files do
    assert "no independent compute of the region starts after it" in page.text
    assert "one training iteration" not in page.text


def test_a_word_alone_is_a_link_as_a_label_and_not_in_sentences() -> None:
    links = Links(read_glossary())
    assert links.sentence("the step of a run waits in the other lane") == "the step of a run waits in the other lane"
    assert 'href="#word-step"' in links.label("step")
    assert links.label("step") == "step"  # once in a card
    links.begin_card()
    assert 'href="#word-step"' in links.label("step")
