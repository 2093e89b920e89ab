"""The page in headless Chromium, opened as a file with networking blocked: sort, filter, fold; nothing is refused."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dtbench.report.page.page import Cell, Column, Fact, Facts, Line, Page, Part, Picture, Table
from dtbench.report.render.html_page import page_document
from tests.report.html_page.conftest import ANSWERS, Written

MARKUP = "<img src=x onerror=alert(1)>"
OUTSIDE = """() => [...document.querySelectorAll("main *")]
  .filter((one) => !one.closest(".scroller, figure, svg, canvas") && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.outerHTML.slice(0, 80))"""
"""What reaches beyond the window, but for what scrolls by itself."""
ROWS = (
    ("layers.10", Cell("1.00 ms", value=1_000_000)),
    ("layers.2", Cell("20.0 us", value=20_000)),
    (MARKUP, Cell("n/a", value=float("nan"))),
    *((f"bucket {at}", Cell(f"{at} us", value=at * 1_000)) for at in range(2, 12)),
)


@contextmanager
def opened(chromium: Any, file: Path, *, width: int = 1400, scheme: str = "light") -> Iterator[Any]:
    """Open a page; whatever it complains of, asks for or is refused fails the test."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    complaints: list[str] = []

    def refuse(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
    page.on("dialog", refuse)
    page.goto(file.as_uri())
    yield page
    context.close()
    assert [one for one in complaints if not one.startswith("data:")] == []


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a page with a table of thirteen rows, of which four come first, and a part that is folded."""
    columns = (Column("owner"), Column("exposed", is_number=True))
    table = Table("Whose", columns, ROWS, key="owners", first=4)
    facts = Facts((Fact("gradient wait", "mostly nothing left to hide behind"),))
    parts = (Part("owners", "", (table,)), Part("gaps", "Gaps", (facts,), is_folded=True))
    file = tmp_path / "page.html"
    file.write_text(page_document(Page("small", (Line("An answer."),), parts)), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "is_said"), [(1400, False), (640, True)])
def test_a_picture_that_scrolls_sideways_says_so(chromium: Any, tmp_path: Path, width: int, is_said: bool) -> None:
    plot = '<svg viewBox="0 0 720 300" class="plot"></svg>'
    page_of = Page("small", (Line("An answer."),), (Part("metrics", "Metrics", ()),))
    file = tmp_path / "page.html"
    file.write_text(
        page_document(page_of, (Picture("Changes", "changes", lambda: plot, key="metrics"),)), encoding="utf-8"
    )
    with opened(chromium, file, width=width) as page:
        scrolls = page.evaluate(
            "(() => { const f = document.querySelector('figure'); return f.scrollWidth > f.clientWidth })()"
        )
        said = page.evaluate("getComputedStyle(document.querySelector('figure'), '::after').content")
        assert scrolls == is_said
        assert ("scroll it sideways" in said) == is_said


def owners(page: Any) -> list[str]:
    """Return the first words of the rows that are seen, in their order."""
    seen: list[str] = page.locator("tbody tr:visible td:first-child").all_inner_texts()
    return seen


def test_numbers_sort_by_their_values_and_what_is_not_known_comes_last(chromium: Any, small: Path) -> None:
    with opened(chromium, small) as page:
        page.get_by_role("button", name="show all 13 rows").click()
        own = owners(page)
        assert own == [name for name, _ in ROWS]
        exposed = page.get_by_role("button", name="exposed")
        exposed.click()
        assert owners(page)[:3] == ["layers.10", "layers.2", "bucket 11"]
        assert owners(page)[-1] == MARKUP
        assert page.locator("th").nth(1).get_attribute("aria-sort") == "descending"
        exposed.click()
        assert owners(page)[:2] == ["bucket 2", "bucket 3"]
        assert owners(page)[-1] == MARKUP
        exposed.click()
        assert owners(page) == own
        page.get_by_role("button", name="owner").click()
        assert [name for name in owners(page) if name.startswith(("bucket 1", "bucket 9", "layers"))] == [
            *("bucket 9", "bucket 10", "bucket 11", "layers.2", "layers.10"),
        ]


def test_a_box_filters_all_rows_and_says_how_many_it_found(chromium: Any, small: Path) -> None:
    with opened(chromium, small) as page:
        assert owners(page) == [name for name, _ in ROWS[:4]]
        box = page.get_by_role("searchbox", name="filter rows")
        box.fill("BUCKET 1")
        assert owners(page) == ["bucket 10", "bucket 11"]
        assert page.locator(".finding span").inner_text() == "2 of 13 rows"
        box.fill("onerror")
        assert owners(page) == [MARKUP]
        box.fill("")
        assert len(owners(page)) == 4


def test_parts_fold_and_a_link_unfolds_what_it_leads_to(chromium: Any, small: Path) -> None:
    with opened(chromium, small) as page:
        assert not page.get_by_text("mostly nothing left").is_visible()
        page.locator("nav a", has_text="Gaps").click()
        assert page.get_by_text("mostly").is_visible()
        page.locator("#part-0 summary").click()
        assert owners(page) == []
        page.get_by_role("button", name="unfold all").click()
        assert len(owners(page)) == 4
        page.get_by_role("button", name="fold all", exact=True).click()
        assert page.locator("details[open]").count() == 0
        page.get_by_role("button", name="unfold all").click()
        page.locator("#glossary summary").click()
        page.get_by_role("link", name="nothing left to hide behind").click()
        assert page.locator("#word-tail").is_visible()


def test_paper_has_every_row_and_every_part_and_is_light(chromium: Any, small: Path) -> None:
    with opened(chromium, small, scheme="dark") as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(31, 32, 35)"
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert len(owners(page)) == 13
        assert page.get_by_text("mostly").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert len(owners(page)) == 4


def test_without_scripts_every_row_is_there(chromium: Any, small: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(small.as_uri())
    assert page.locator("tbody tr").count() == len(page.locator("tbody tr:visible").all()) == 13
    context.close()


def test_a_script_that_comes_in_by_whatever_way_is_refused(chromium: Any, small: Path, tmp_path: Path) -> None:
    text = small.read_text(encoding="utf-8")
    assert "<main>" in text
    evil = "<main><script>window.evil = 1</script><img src='http://127.0.0.1:9/x' onerror='window.evil = 2'>"
    file = tmp_path / "evil.html"
    file.write_text(text.replace("<main>", evil), encoding="utf-8")
    page = chromium.new_page()
    refused: list[tuple[str, str]] = []
    page.on("requestfailed", lambda request: refused.append((request.url, request.failure)))
    page.goto(file.as_uri())
    assert page.evaluate("window.evil") is None
    assert refused == [("http://127.0.0.1:9/x", "csp")]
    page.close()


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_commands_page_fits_its_window_and_complains_of_nothing(
    name: str, chromium: Any, pages: Mapping[str, Written]
) -> None:
    for width, scheme in ((1400, "light"), (700, "dark"), (1400, "dark"), (700, "light")):
        with opened(chromium, pages[name].file, width=width, scheme=scheme) as page:
            page.get_by_role("button", name="fold all").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(OUTSIDE) == []


def test_the_timeline_is_drawn_with_its_own_style_in_the_pages_dark(
    chromium: Any, pages: Mapping[str, Written]
) -> None:
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(27, 31, 36)")):
        with opened(chromium, pages["trace"].file, scheme=scheme) as page:
            page.locator("#timeline canvas").wait_for()
            box = page.locator(".dtb-timeline")
            assert box.evaluate("one => getComputedStyle(one).display") == "flex"
            assert box.evaluate("one => getComputedStyle(one).backgroundColor") == ground


def test_a_plots_ink_is_the_pages(chromium: Any, pages: Mapping[str, Written]) -> None:
    inks = []
    for scheme in ("light", "dark"):
        with opened(chromium, pages["trace"].file, scheme=scheme) as page:
            inks.append(page.locator(".plot text.fill-ink").first.evaluate("one => getComputedStyle(one).fill"))
    assert inks == ["rgb(32, 33, 36)", "rgb(232, 234, 237)"]
