"""A page in a file, taken apart: its elements, links, tables, tiles and bars, as a browser would have them."""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main

RESULTS = Path(__file__).parents[3] / "results"
RECORDED = Path(__file__).parents[2] / "traces" / "recorded"

VOID = {"meta", "link", "br", "img", "input", "rect", "path", "use", "line", "circle"}


@dataclass
class ReadTable:
    """A table: the keys of its part and block, its titles, and of each cell words and exact value."""

    part: str
    block: str
    titles: list[str] = field(default_factory=list)
    rows: list[list[tuple[str, str | None]]] = field(default_factory=list)

    def column(self, title: str) -> list[tuple[str, str | None]]:
        at = self.titles.index(title)
        return [row[at] for row in self.rows]


class PageFile(HTMLParser):
    """What stands in a page; fails where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.tables: list[ReadTable] = []
        self.tiles: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.bars: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    @property
    def values(self) -> list[str]:
        """Every exact value, as it is spelled."""
        return [value for _, attributes in self.elements if (value := attributes.get("data-value")) is not None]

    def table(self, part: str, block: str) -> ReadTable:
        (found,) = (one for one in self.tables if (one.part, one.block) == (part, block))
        return found

    def _inside(self, attribute: str) -> str:
        return next((str(has[attribute]) for _, has in reversed(self._open) if attribute in has), "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), "an attribute stands twice"
        self.elements.append((tag, attributes))
        self._begin(tag, attributes)
        if tag not in VOID:
            self._open.append((tag, attributes))

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
        match tag:
            case "table":
                self.tables.append(ReadTable(self._inside("data-part-of-page"), self._inside("data-block")))
            case "tr":
                self.tables[-1].rows.append([])
            case "th":
                self.tables[-1].titles.append("")
            case "td":
                self.tables[-1].rows[-1].append(("", attributes.get("data-value")))
            case "br":
                self._add(" ")
            case "svg" if attributes.get("class") == "bar":
                self.bars.append((self._inside("data-part-of-page"), {}))
            case "g" if "data-part" in attributes:
                self.bars[-1][1][str(attributes["data-part"])] = attributes["data-value"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open.pop()[0] == tag
        if tag == "thead":
            self.tables[-1].rows.clear()

    def handle_data(self, data: str) -> None:
        match self._open[-1][0] if self._open else "":
            case "script":
                self.scripts.append(data)
            case "style":
                self.styles.append(data)
            case _:
                self.text += data
                self._add(data)

    def _add(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        if "th" in tags and "a" not in tags:
            self.tables[-1].titles[-1] += data
        elif "td" in tags:
            words, value = self.tables[-1].rows[-1][-1]
            self.tables[-1].rows[-1][-1] = (words + data, value)
        elif "tile-label" in (kinds := [has.get("class") for _, has in self._open]):
            self._label = data
        elif "tile-words" in kinds:
            value = self._open[-1][1].get("data-value")
            self.tiles[self._inside("data-part-of-page"), self._label] = (data, value)


@pytest.fixture
def read_page() -> Callable[[str], PageFile]:
    """Return what takes a page apart."""
    return PageFile


@dataclass(frozen=True)
class Written:
    """What a command wrote: the page, and what it printed."""

    file: Path
    out: str
    err: str
    code: int

    @property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")


def run_command(*arguments: str | Path, file: Path | None = None) -> Written:
    """Run a command with ``--html FILE``, or without; any exit code."""
    written = () if file is None else ("--html", str(file))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([*map(str, arguments), *written])
    return Written(file or Path(), out.getvalue(), err.getvalue(), int(end.value.code or 0))


@pytest.fixture(scope="session")
def run_with() -> Callable[..., Written]:
    """Return what runs a command."""
    return run_command


ANSWERS = {
    "example": ("report", RESULTS / "example"),
    "example_sweep": ("report", RESULTS / "example_sweep"),
    "trace": ("analyze", RECORDED / "ddp_2ranks_rank0.json.gz"),
    "comparison": ("compare", RESULTS / "example"),
}
"""Commands by the name of the page that they write."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Written]:
    """Return the page of each command, written once."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: run_command(*words, file=folder / f"{name}.html") for name, words in ANSWERS.items()}


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return the JSON of each command, printed beside a page."""
    file = tmp_path_factory.mktemp("json") / "page.html"
    return {name: json.loads(run_command(*words, "--json", file=file).out) for name, words in ANSWERS.items()}
