"""A figure as SVG inside a page: its letters are text, its ink follows the page's light or dark, no style is inline.

matplotlib writes ``style`` attributes, which a strict page policy does not let apply: they become attributes of their
own. What was drawn in the ink of ``DEFAULT`` (axes, ticks, labels) or in black lines becomes the page's text colour.
"""

import base64
import io
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.figure import Figure

from dtbench.report.page import looks
from dtbench.report.plots.drawing import BAND, EDGE, INK, QUIET, UNSURE, figure_png

DEFAULT: Final = "#20212a"
"""A colour that no plot asks for: what has it was drawn in the default ink."""

MOST_BYTES: Final = 300_000
"""A larger drawing, of thousands of dots, is given as pixels."""

_SVG: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_QUIET: Final = (QUIET.lower(), UNSURE.lower())
_TONES: Final = {looks.GOOD.lower(): "good", looks.BAD.lower(): "bad"}
_GROUNDS: Final = {
    BAND.lower(): "band",
    looks.UNTOLD.colour.lower(): "paper",
    looks.REST.colour.lower(): "rest",
    looks.HIDDEN_COMM.colour.lower(): "hidden",
    looks.IDLE.colour.lower(): "idle",
}
"""Pale grounds that the page makes deep in the dark, so that ink is seen on them."""

_FONT: Final = re.compile(r"(?:(?P<style>italic|oblique) )?(?:(?P<weight>\d+|bold) )?(?P<size>[\d.]+)px")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")


def draw_svg(make: Callable[[], Figure], name: str) -> str:
    """Draw a figure as an ``<svg>`` element, or as pixels where that would be large.

    Args:
        make: draws it.
        name: begins its ids, so that figures of one page keep theirs apart.
    """
    ink = {
        "text.color": DEFAULT,
        "axes.labelcolor": DEFAULT,
        "axes.edgecolor": DEFAULT,
        "axes.titlecolor": DEFAULT,
        "xtick.color": DEFAULT,
        "ytick.color": DEFAULT,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "axes.labelsize": 8.5,
        "svg.fonttype": "none",
        "svg.hashsalt": name,
    }
    with rc_context(ink):  # type: ignore[arg-type]  # its keys are literals to the types of newer versions
        buffer = io.BytesIO()
        make().savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = _dress(buffer.getvalue(), name)
    return svg if len(svg) <= MOST_BYTES else _pixels(make)


def _pixels(make: Callable[[], Figure]) -> str:
    encoded = base64.b64encode(figure_png(make())).decode()
    return f'<img class="pixels" alt="" src="data:image/png;base64,{encoded}">'


def _dress(written: bytes, name: str) -> str:
    """Make of a file that matplotlib wrote an element of a page."""
    root = ElementTree.fromstring(written)
    for parent in list(root.iter()):
        for child in [one for one in parent if one.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style")]:
            parent.remove(child)
    used = set(_references(root))
    _dress_tree(root, is_pattern=False)
    for element in root.iter():
        _rename(element, name, used)
    for size in ("width", "height"):  # the page says how large it is
        root.attrib.pop(size, None)
    root.set("class", "plot")
    root.set("stroke-linejoin", "round")
    return ElementTree.tostring(root, encoding="unicode")


def _rename(element: ElementTree.Element, name: str, used: Collection[str]) -> None:
    """Begin ids that something refers to with the figure's name, drop the others, and leave out XML's namespaces."""
    own = element.attrib.pop("id", None)
    if own in used:
        element.set("id", f"{name}-{own}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", link if link.startswith("data:") else f"#{name}-{link.removeprefix('#')}")
    for key, value in element.attrib.items():
        element.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))
    element.tag = element.tag.removeprefix(f"{{{_SVG}}}")


def _references(root: ElementTree.Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == _LINK:
                yield value.removeprefix("#")
            yield from _REFERENCE.findall(value)


def _dress_tree(element: ElementTree.Element, *, is_pattern: bool) -> None:
    """Turn styles into attributes, and ink into classes; not inside hatches, which lie on colours of their own."""
    is_pattern = is_pattern or element.tag == f"{{{_SVG}}}pattern"
    looks = _looks(element.attrib.pop("style", ""))
    if element.tag == f"{{{_SVG}}}text":
        looks.setdefault("fill", INK)
    classes = []
    for name, value in looks.items():
        ink = None if is_pattern else _find_ink(element.tag, name, value)
        if ink is None:
            element.set(name, value)
        else:
            classes.append(f"{name}-{ink}")
    if classes:
        element.set("class", " ".join(classes))
    for child in element:
        _dress_tree(child, is_pattern=is_pattern)


def _looks(style: str) -> dict[str, str]:
    """Split a style into properties; a font becomes its size, weight and slant: its family is the page's."""
    pairs = [one.split(":", 1) for one in style.split(";") if ":" in one]
    looks = {name.strip(): value.strip() for name, value in pairs}
    font = _FONT.match(looks.pop("font", ""))
    if font is not None:
        told = {"font-size": font["size"], "font-weight": font["weight"], "font-style": font["style"]}
        looks |= {name: value for name, value in told.items() if value}
    looks.pop("font-family", None)
    return looks


def _find_ink(tag: str, name: str, value: str) -> str | None:
    """Tell in which ink of the page something is drawn; None: in a colour of its own.

    Black words lie on coloured bars and stay; black lines and dots do not.
    """
    if name not in ("fill", "stroke"):
        return None
    is_text, colour = tag == f"{{{_SVG}}}text", value.lower()
    if colour == DEFAULT or (colour == INK and not is_text):
        return "ink"
    if colour in _TONES:
        return _TONES[colour]
    if colour in _QUIET and (is_text or name == "stroke"):
        return "quiet"
    if colour == EDGE.lower() and name == "stroke":
        return "edge"
    return None if is_text or name == "stroke" else _GROUNDS.get(colour)
