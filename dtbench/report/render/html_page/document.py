"""The whole file: the answer first, then parts that fold, plots, the timeline, notes, and the glossary's words.

No script runs and no style applies but those that the page was written with (their hashes stand in its policy), and
nothing is fetched: markup that came in by a name would still be text, and if not, it could do nothing.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from dtbench.report.page.looks import palette_style
from dtbench.report.page.page import Block, Chart, Facts, Line, Page, Part, Picture, Table, Tone
from dtbench.report.render.html import escape_html
from dtbench.report.render.html_page.blocks import Writer
from dtbench.report.render.html_page.chart import patterns_svg
from dtbench.report.render.html_page.glossary import Links, entry_html, read_glossary

PLOTS: Final = "plots"
"""Key of the part that plots have to themselves; of any other key, they stand in the part of that name."""

_DARK: Final = re.compile(r":root\.dark \{([^}]*)\}")


@dataclass(frozen=True)
class Inset:
    """What comes ready to be put into the page: HTML, modules that run in it, styles that these bring, data apart."""

    html: str
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()


def page_document(page: Page, pictures: Sequence[Picture] = (), timeline: Inset | None = None) -> str:
    """Return the HTML file of an answer.

    Args:
        page: the answer.
        pictures: each stands in the part that its key names, or with others of the key ``PLOTS``.
        timeline: the canvas, or a sentence in its place.
    """
    style, script = _read_style(), _read("page.js")
    scripts = (script, *(() if timeline is None else timeline.scripts))
    styles = (style, *(() if timeline is None else timeline.styles))
    cards = list(_cards(page, pictures, timeline))
    title = escape_html(" ".join(word for word in (page.title, page.aside) if word))
    links = "".join(f'<a href="#{card.anchor}">{escape_html(card.short)}</a>' for card in cards)
    body = "\n".join(card.html for card in cards)
    run = "\n".join(f'<script type="module">{one}</script>' for one in scripts)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, styles)}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<meta name="generator" content="dtbench"><title>{title} · dtbench</title>
<link rel="icon" href="data:,">
<style>{style}</style></head>
<body>{patterns_svg()}
<header class="top"><nav aria-label="Parts of this page">{links}</nav><div class="tools"></div></header>
<main>
{body}
</main>
{run}
</body>
</html>
"""


@dataclass(frozen=True)
class _Card:
    anchor: str
    short: str
    html: str


def _cards(page: Page, pictures: Sequence[Picture], timeline: Inset | None) -> Iterator[_Card]:
    links = Links(read_glossary())
    told = frozenset(line.words for line in page.answer)
    writer = Writer(links, told)
    keys = {part.key for part in page.parts}
    yield _Card("answer", "Answer", _head(page, Writer(links)))
    for at, part in enumerate(page.parts):
        drawn = [one for one in pictures if one.key == part.key]
        card = _part(part, f"part-{at}", drawn, writer)
        if card is not None:
            yield card
    rest = [one for one in pictures if one.key not in keys]
    if rest:
        links.begin_card()
        inside = "".join(writer.block(picture) for picture in rest)
        yield _Card(PLOTS, "Plots", _fold(PLOTS, "Plots", inside))
    if timeline is not None:
        yield _Card("timeline", "Timeline", _fold("timeline", "Timeline", timeline.html))
    if page.notes:
        links.begin_card()
        inside = "".join(f"<li>{writer.line(note)}</li>" for note in page.notes)
        yield _Card("notes", "Notes", _fold("notes", "Notes", f'<ul class="notes">{inside}</ul>'))
    entries = links.used_entries()
    if entries:
        inside = f'<dl class="glossary">{"".join(map(entry_html, entries))}</dl>'
        yield _Card("glossary", "Words", _fold("glossary", "Words on this page", inside))


def _head(page: Page, writer: Writer) -> str:
    """Return the title, how it ended, and the answer."""
    aside = f'<span class="run-id">{escape_html(page.aside)}</span>' if page.aside else ""
    problem = page.problem
    lines = [line for line in page.answer if problem is None or line.words != problem.words]
    first = next((at for at, line in enumerate(lines) if line.tone is Tone.STRONG), 0)
    parts = [
        f"<h1>{escape_html(page.title)} {aside}</h1>",
        f'<p class="question">{escape_html(page.question)}</p>' if page.question else "",
        f'<p class="problem">{escape_html(problem.words)}</p>' if problem else "",
        *(writer.line(line, "answer" if at == first else "sentence") for at, line in enumerate(lines)),
        writer.facts(page.facts) if page.facts else "",
        f'<p class="place">{escape_html(page.place)}</p>' if page.place else "",
    ]
    return f'<section class="card head" id="answer">{"".join(parts)}</section>'


def _part(part: Part, anchor: str, pictures: Sequence[Picture], writer: Writer) -> _Card | None:
    """Return a part that folds; None: all that it says was said before."""
    writer.links.begin_card()
    blocks = [writer.block(block, titled=_says_more(block, part)) for block in part.blocks]
    inside = "".join([*blocks, *(writer.block(picture, titled=False) for picture in pictures)])
    if not inside:
        return None
    check = part.check
    checked = (
        "" if check is None else writer.line(Line(f"{check.label}: {check.words}", check.tone), "check", tag="span")
    )
    aside = f'<span class="subtitle">{escape_html(part.aside)}</span>' if part.aside else ""
    html = _fold(
        anchor, part.heading or part.key, inside, f"{aside}{checked}", key=part.key, is_open=not part.is_folded
    )
    return _Card(anchor, _name(part), html)


def _says_more(block: Block, part: Part) -> bool:
    """Tell whether the title of a block is not that of its card."""
    return not isinstance(block, Table | Chart | Facts) or block.title != part.heading


def _name(part: Part) -> str:
    """Name a part in few letters."""
    _, _, name = part.key.partition(":")
    return name or part.key.replace("_", " ").capitalize()


def _fold(anchor: str, title: str, inside: str, aside: str = "", *, key: str = "", is_open: bool = True) -> str:
    """Return a card that a person can fold."""
    of = f' data-part-of-page="{escape_html(key)}"' if key else ""
    opened = " open" if is_open else ""
    head = f"<summary><h2>{escape_html(title)}</h2>{aside}</summary>"
    return f'<details class="card" id="{anchor}"{of}{opened}>{head}<div class="inside">{inside}</div></details>'


def _read_style() -> str:
    """Return the look that TensorBoard's tab has, dark where the reader's system is, and what only a file needs."""
    look = _DARK.sub(r"@media screen and (prefers-color-scheme: dark) { :root {\1} }", read_look())
    return f"{look}{_read('page.css')}"


def read_look() -> str:
    """Return the style that pages and TensorBoard's tab share: ``look.css`` and the palette of the parts of a step."""
    return f"{palette_style()}{_read('look.css')}"


def _read(name: str) -> str:
    return (resources.files("dtbench.report.render.html_page") / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Allow what the page was written with, and pictures that stand in it; no request, no form, no other base."""
    allowed = " ".join(map(_hash, scripts)), " ".join(map(_hash, styles))
    return (
        f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    """Name a script or style as a policy does: by the hash of what stands between its tags."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
