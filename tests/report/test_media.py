"""What a small made page says stands in each medium once: answer, warnings, rows, what was cut, each in its tone."""

import pytest

from dtbench.report.page.page import Cell, Column, Fact, Line, Page, Part, Table, Tone
from dtbench.report.render.markdown import answer_markdown, page_markdown, part_markdown
from dtbench.report.render.terminal import make_table, render_line

TABLE = Table(
    "Whose",
    (Column("owner"), Column("exposed", is_number=True)),
    tuple((f"layers.{place}", Cell(f"{place} ms", value=place)) for place in range(5)),
    ("shares are of what was seen",),
    key="owners",
    first=2,
    rest=("3 more", Cell("9 ms", value=9)),
    more="and 3 more: see --json",
)
PAGE = Page(
    title="new against old",
    answer=(Line("new is slower", Tone.STRONG), Line("noise floor: 3 %", Tone.QUIET)),
    parts=(Part("owners", "Whose", (TABLE,)),),
    facts=(Fact("left out", "WARNING: left out: launch 2", Tone.WARNING),),
    notes=(Line("WARNING: other machines", Tone.WARNING), Line("far from the others: launch 3")),
)


def test_an_answer_in_markdown_says_warnings_above_its_tables_and_notes_below() -> None:
    lines = answer_markdown(PAGE).splitlines()
    table = next(place for place, line in enumerate(lines) if line.startswith("| owner |"))
    above, below = lines[:table], lines[table:]
    assert [line for line in above if line.startswith(("> ", "**new"))] == [
        "> WARNING: left out: launch 2",
        "**new is slower**",
        "> WARNING: other machines",
    ]
    assert below[-2:] == ["- noise floor: 3 %", "- far from the others: launch 3"]


def test_a_short_table_says_what_it_cut_and_a_long_one_has_every_row() -> None:
    short, long = (part_markdown(PAGE.parts[0], is_short=is_short) for is_short in (True, False))
    assert [line for line in short.splitlines() if line.startswith(("| layers", "| 3 more"))] == [
        "| layers.0 | 0 ms |",
        "| layers.1 | 1 ms |",
        "| 3 more | 9 ms |",
    ]
    assert "and 3 more: see --json" in short
    assert "shares are of what was seen" in short
    assert sum(line.startswith("| layers") for line in long.splitlines()) == 5
    assert "3 more" not in long
    assert "shares are of what was seen" in long


def test_a_runs_markdown_says_its_warnings_and_notes_below_tables() -> None:
    words = page_markdown(PAGE)
    assert words.count("WARNING: left out: launch 2") == 1
    assert words.count("shares are of what was seen") == 1


@pytest.mark.parametrize(
    ("tone", "style"),
    [
        (Tone.GOOD, "green"),
        (Tone.WARNING, "yellow"),
        (Tone.BAD, "bold red"),
        (Tone.STRONG, "bold"),
        (Tone.QUIET, "dim"),
        (Tone.PLAIN, ""),
    ],
)
def test_a_terminal_shows_a_tone_in_its_colour_in_lines_and_in_cells(tone: Tone, style: str) -> None:
    assert render_line(Line("words", tone)).style == style
    (cell,) = make_table(Table("", (Column("a"),), ((Cell("words", tone),),))).columns[0].cells
    assert str(getattr(cell, "style", None)) == style
