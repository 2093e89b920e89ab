"""The words of the glossary in a page: linked where they occur, and explained at its end, as ``docs/glossary.md`` does.

A label (of a column, a fact, a tile) that is a term leads to it. In sentences only terms of several words do, and what
a cause is called: *step*, *run* or *other* alone would be a link in every line. Each leads there once in a card.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.report.render.html import escape_html

_ROW: Final = re.compile(
    r"^\| (?P<anchors>(?:<a id=\"[\w-]+\"></a>)+)(?P<words>.*?) \| (?P<meaning>.*) \|$", re.MULTILINE
)
_ANCHOR: Final = re.compile(r"<a id=\"([\w-]+)\"></a>")
_CODE: Final = re.compile(r"`([^`]+)`")
_STRESSED: Final = re.compile(r"\*([^*]+)\*")
_OF_ONE: Final = {"waited for rank": "waited-for-a-rank", "queued behind": "queued"}
"""How a cause begins that names a rank or a collective."""


_PHRASES: Final = {str(cause).replace("_", "-"): phrase for cause, phrase in CAUSE_PHRASES.items()}
"""What a cause is called where it is shown, by its anchor."""


@dataclass(frozen=True)
class Entry:
    """A row of the glossary: its words, in the order of their anchors, and what they mean, as Markdown."""

    anchors: tuple[str, ...]
    words: tuple[str, ...]
    meaning: str


@cache
def read_glossary() -> tuple[Entry, ...]:
    """Read the glossary: of the installed package, or of the checkout; where neither is there, it has no entry."""
    package = resources.files("dtbench.report.render.html_page") / "glossary.md"
    checkout = Path(__file__).parents[4] / "docs" / "glossary.md"
    source = package if package.is_file() else checkout
    return tuple(_parse(source.read_text(encoding="utf-8"))) if source.is_file() else ()


def _parse(text: str) -> Iterator[Entry]:
    for row in _ROW.finditer(text):
        words = row["words"].removeprefix("· ").replace("`", "").split(", ")
        anchors = tuple(_ANCHOR.findall(row["anchors"]))
        yield Entry(anchors, tuple(words), row["meaning"])


@dataclass
class Links:
    """Turns words into HTML with links to the glossary, and remembers to which of its entries."""

    entries: tuple[Entry, ...]
    _used: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _anchors: dict[str, str] = field(init=False)
    _pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        """Know every term by its words, and by what a cause is called."""
        named = {word: anchor for one in self.entries for anchor, word in zip(one.anchors, one.words, strict=False)}
        there = set(named.values())
        causes = {phrase: anchor for anchor, phrase in _PHRASES.items()}
        self._anchors = {
            words.lower(): anchor for words, anchor in {**named, **causes, **_OF_ONE}.items() if anchor in there
        }
        several = sorted((words for words in self._anchors if re.search(r"[ _]", words)), key=len, reverse=True)
        spelled = "|".join(map(re.escape, several))
        self._pattern = re.compile(rf"(?<![\w-])(?:{spelled})(?![\w-])", re.IGNORECASE)

    def begin_card(self) -> None:
        """Link again what was linked before."""
        self._seen.clear()

    def label(self, words: str) -> str:
        """Return a label, as a link where it is a term."""
        anchor = self._anchors.get(words.lower())
        return self.sentence(words) if anchor is None else self._link(anchor, words)

    def sentence(self, words: str) -> str:
        """Return sentences, their terms of several words as links."""
        parts, at = [], 0
        for found in self._pattern.finditer(words):
            anchor = self._anchors[found[0].lower()]
            parts += [escape_html(words[at : found.start()]), self._link(anchor, found[0])]
            at = found.end()
        return "".join([*parts, escape_html(words[at:])])

    def aside(self, title: str) -> str:
        """Return a small link behind the title of a column, which is itself there to sort by; empty: it is no term."""
        anchor = self._anchors.get(title.lower())
        found = None if anchor else self._pattern.search(title)
        anchor = anchor or (found and self._anchors.get(found[0].lower()))
        if not anchor or anchor in self._seen:
            return ""
        self._mark(anchor)
        return f'<a class="why" href="#word-{anchor}" aria-label="what is {escape_html(title)}?">?</a>'

    def _link(self, anchor: str, words: str) -> str:
        if anchor in self._seen or not any(anchor in one.anchors for one in self.entries):
            return escape_html(words)
        self._mark(anchor)
        return f'<a class="word" href="#word-{anchor}">{escape_html(words)}</a>'

    def _mark(self, anchor: str) -> None:
        self._seen.add(anchor)
        self._used.add(anchor)

    def used_entries(self) -> list[Entry]:
        """Return the entries that a link leads to, in the glossary's order."""
        return [one for one in self.entries if self._used.intersection(one.anchors)]


def entry_html(entry: Entry) -> str:
    """Return an entry as a term and its meaning; of a cause the words that tables have come first."""
    words = [
        f'<span id="word-{anchor}">{escape_html(_spell_term(anchor, word))}</span>'
        for anchor, word in zip(entry.anchors, entry.words, strict=False)
    ]
    return f"<dt>{', '.join(words)}</dt><dd>{_inline(entry.meaning)}</dd>"


def _spell_term(anchor: str, word: str) -> str:
    phrase = _PHRASES.get(anchor, word)
    return word if phrase == word else f"{phrase} ({word})"


def _inline(markdown: str) -> str:
    """Return the little Markdown that the glossary has as HTML."""
    parts = _CODE.split(markdown)
    shown = [
        f"<code>{escape_html(part)}</code>" if at % 2 else _STRESSED.sub(r"<em>\1</em>", escape_html(part))
        for at, part in enumerate(parts)
    ]
    return "".join(shown)
