"""A timeline as HTML that needs nothing else: for a notebook, for a page of its own, and for the page of an answer.

The module and the document are written into the page. Neither can end its element: in JSON every ``<`` is spelled as
its number, and a test holds that the module has no ``</``. Names come to the screen as text, see ``timeline.js``.
"""

import json
import re
from importlib import resources
from typing import Final
from uuid import uuid4

from dtbench.report.page.looks import timeline_palette
from dtbench.report.render.html import escape_html
from dtbench.report.render.html_page import Inset
from dtbench.report.timeline.document import TimelineDocument

_SNIPPET: Final = """<div id="{name}" style="width:100%"></div>
<script type="application/json" id="{name}-document">{document}</script>
<script type="module">{script}
const place = document.getElementById("{name}");
const source = document.getElementById("{name}-document");
{call}
</script>
"""

_CALL: Final = "openInPage(place, {document: JSON.parse(source.textContent)});"
_START: Final = f"""
const place = document.getElementById("dtbench-timeline");
const source = document.getElementById("dtbench-timeline-document");
{_CALL}
"""
MODULES: Final = (
    "timeline_times.js",
    "timeline_words.js",
    "timeline_host.js",
    "timeline_model.js",
    "timeline_find.js",
    "timeline_address.js",
    "timeline.js",
)
"""Each after those that it imports; a name is exported by one of them."""
_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_STYLE: Final = re.compile(r"^const STYLE = `([^`]*)`;$", re.MULTILINE)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark }}
body {{ margin: 12px; background: Canvas }}
</style></head>
<body>
{snippet}</body>
</html>
"""


def script_text() -> str:
    """Return the timeline with its palette as one module that imports nothing and exports ``createTimeline``."""
    folder = resources.files("dtbench.report.timeline")
    modules = (_IMPORT.sub("", folder.joinpath(name).read_text(encoding="utf-8")) for name in MODULES)
    return f"const PALETTE = {json.dumps(timeline_palette())};\n{''.join(modules)}"


def timeline_html(document: TimelineDocument) -> str:
    """Return what draws the timeline in a notebook's output; several may stand in one page."""
    return _snippet(document, "createTimeline(place, {document: JSON.parse(source.textContent), embedded: true});")


def _snippet(document: TimelineDocument, call: str) -> str:
    name, encoded = f"dtbench-timeline-{uuid4().hex}", _embed(document.to_json())
    return _SNIPPET.format(name=name, document=encoded, script=script_text(), call=call)


def timeline_inset(encoded: bytes) -> Inset:
    """Return what draws a timeline's document, as JSON, in a page that allows only what it was written with."""
    script = script_text()
    (style,) = _STYLE.findall(script)
    data = f'<script type="application/json" id="dtbench-timeline-document">{_embed(encoded)}</script>'
    return Inset(f'<div id="dtbench-timeline"></div>{data}', (f"{script}{_START}",), (style,))


def timeline_page(document: TimelineDocument) -> str:
    """Return a whole page that shows the timeline."""
    title = escape_html(document.title or "Timeline")
    return _PAGE.format(title=title, snippet=_snippet(document, _CALL))


def _embed(json_text: bytes) -> str:
    """Spell JSON so that it cannot end the element that holds it, and that any JavaScript reads it."""
    text = json_text.decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
