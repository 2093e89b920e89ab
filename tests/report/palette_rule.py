"""The rule that every figure keeps: a colour is of the palette of its meaning, a hatch only on what was exposed."""

from collections.abc import Iterator
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch
from matplotlib.text import Text

from dtbench.report.page import looks
from dtbench.report.plots import drawing

PALETTES: Final = {
    "steps": {
        look.colour for look in (*looks.STEP_LOOKS.values(), looks.COPY) if look not in (looks.UNTOLD, looks.REST)
    },
    "purposes": {look.colour for look in looks.PURPOSE_LOOKS.values()},
    "causes": {look.colour for look in looks.CAUSE_LOOKS.values()} - {looks.UNTOLD.colour},
    "actions": {look.colour for look in looks.ACTION_LOOKS.values()},
    "lines": set(looks.LINE_COLOURS) - {drawing.INK},
    "tones": {looks.GOOD, looks.BAD},
}
INKS: Final = {drawing.INK, drawing.EDGE, drawing.QUIET, drawing.UNSURE, drawing.FAINT, drawing.BAND, "#FFFFFF"}
GROUNDS: Final = {looks.REST.colour, *looks.PHASE_COLOURS.values()}
MEANT: Final = {
    **{field: look.colour for field, look in looks.STEP_LOOKS.items()},
    **{purpose.value: look.colour for purpose, look in looks.PURPOSE_LOOKS.items()},
    **{cause.value: look.colour for cause, look in looks.CAUSE_LOOKS.items()},
    **{action.replace(" ", "_"): look.colour for action, look in looks.ACTION_LOOKS.items()},
    "compute": looks.COMPUTE.colour,
    "comm": looks.HIDDEN_COMM.colour,
    "copy": looks.COPY.colour,
    "exposed": looks.EXPOSED_COMM.colour,
    "doubtful": looks.BAD,
}
"""What the artists of a field are drawn in."""

EXPOSED: Final = {
    look.colour
    for look in (
        looks.EXPOSED_COMM,
        looks.EXPOSED_COPY,
        *looks.PURPOSE_LOOKS.values(),
        *looks.CAUSE_LOOKS.values(),
    )
    if look.hatch
}

_NOTHING: Final = ("None", "none", "", " ", None)
"""Neither a line nor a marker."""


def find_breaches(figure: Figure) -> list[str]:
    """Return a sentence for each artist that breaks the rule."""
    known = {colour.upper() for colours in (*PALETTES.values(), INKS, GROUNDS) for colour in colours}
    breaches = []
    for artist in _artists(figure):
        used = {colour for colour, _ in _colours(artist)}
        faces = {colour for colour, is_face in _colours(artist) if is_face}
        gid = str(artist.get_gid())
        breaches += [f"{artist}: {colour} is in no palette" for colour in sorted(used - known)]
        if gid in MEANT and MEANT[gid].upper() not in used:
            breaches.append(f"{artist}: `{gid}` is {sorted(used)}, not {MEANT[gid]}")
        hatch = artist.get_hatch() if isinstance(artist, Patch | Collection) else None
        if hatch and not faces <= {colour.upper() for colour in EXPOSED}:
            breaches.append(f"{artist}: a hatch on {sorted(faces)}, which does not mean exposed")
    return breaches


def _artists(figure: Figure) -> Iterator[Artist]:
    for axes in figure.axes:
        if axes.get_label() != "<colorbar>":
            yield from (*axes.patches, *axes.collections, *axes.lines, *axes.texts)
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        if legend is not None:
            yield from (one for one in legend.legend_handles if one is not None)
            yield from legend.get_texts()
    yield from figure.texts


def _colours(artist: Artist) -> Iterator[tuple[str, bool]]:
    """Yield ``#RRGGBB`` of all that is drawn of an artist, and whether it fills; what is not seen has none."""
    for colours, is_face in _told(artist):
        for one in to_rgba_array(colours):
            if one[3] > 0:
                yield to_hex(one).upper(), is_face


def _told(artist: Artist) -> Iterator[tuple[Any, bool]]:
    match artist:
        case Text():
            yield artist.get_color(), False
        case Line2D():
            if artist.get_linestyle() not in _NOTHING:
                yield artist.get_color(), False
            if artist.get_marker() not in _NOTHING:
                yield artist.get_markeredgecolor(), False
                if MarkerStyle(artist.get_marker()).is_filled():
                    yield artist.get_markerfacecolor(), False
        case Patch() | Collection():
            yield artist.get_facecolor(), True
            yield artist.get_edgecolor(), False
