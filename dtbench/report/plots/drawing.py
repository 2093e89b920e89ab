"""What all figures share: size, ink, text that is no mathematics, a figure that a notebook shows, PNG files.

The colours of what has a meaning are in ``report/page/looks.py``; here is the ink around it.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtbench.base.units import count_things
from dtbench.base.vocabulary import Phase
from dtbench.report.page.looks import Look
from dtbench.report.words.visible import spell_controls
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.write import replace_file

WIDTH_IN = 9.0
DOTS_PER_INCH = 150
EDGE: Final = "#333333"
QUIET: Final = "#444444"
"""Small print."""

INK: Final = "#000000"
UNSURE: Final = "#666666"
"""What is not established."""

FAINT: Final = "#BBBBBB"
"""Lines that part what is drawn."""

BAND: Final = "#EEEEEE"
"""A ground behind what is drawn."""

LINE_STYLES: Final = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Part:
    """How one part of a step is drawn."""

    name: str
    field: str
    look: Look


class Picture(Figure):
    """A figure that is seen where a notebook's cell ends with it, without pyplot and its global state."""

    def _repr_png_(self) -> bytes:
        return figure_png(self)


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Picture:
    """Return an empty figure of our look."""
    return Picture(figsize=(width_in, height_in), dpi=DOTS_PER_INCH, layout="constrained")


def set_finding(axes: Axes, words: str, *, fontsize: float = 11) -> None:
    """Return axes the title that says what is to be seen; names in it are text."""
    axes.set_title(literal(words), loc="left", fontweight="bold", fontsize=fontsize, wrap=True)


def set_heading(figure: Figure, words: str) -> None:
    """Return a whole figure the title that says what is to be seen; names in it are text."""
    figure.suptitle(literal(words), x=0.01, ha="left", fontweight="bold", fontsize=11, wrap=True)


def legend_patch(part: Part, name: str) -> Patch:
    """Return the sample of a part for a legend."""
    return Patch(facecolor=part.look.colour, hatch=part.look.hatch, edgecolor=EDGE, linewidth=0.5, label=literal(name))


def draw_bar(axes: Axes, part: Part, span: tuple[float, float], middle_height: tuple[float, float]) -> None:
    """Draw one part lying down: ``span`` is (start, length) on the horizontal axis; its field is the artist's gid."""
    bars = axes.barh(
        middle_height[0],
        span[1],
        height=middle_height[1],
        left=span[0],
        color=part.look.colour,
        hatch=part.look.hatch,
        edgecolor=EDGE,
        linewidth=0.5,
    )
    bars.patches[0].set_gid(part.field)


def add_axes(figure: Figure) -> Axes:
    """Return the only axes of a figure, without a frame."""
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def say(figure: Figure, axes: Axes, words: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center")
    return figure


def literal(words: str) -> str:
    """Return text that matplotlib shows as it is: no mathematics, and no character that has no shape."""
    return spell_controls(words).replace("$", r"\$")


def absent_words(absent: Sequence[str], why: str = "nothing to draw of") -> str:
    """Name the cells of a run that a picture lacks; empty where there are none."""
    return literal(f"; {why} {name_some(absent).replace('`', '')}") if absent else ""


def left_out_words(count: int, phase: Phase) -> str:
    """Say how many steps a picture has nothing of since others disturbed them; empty: none."""
    return f"; {count_things(count, f'{phase} step')} left out, which others disturbed" if count else ""


def shorten_middle(words: str, most: int = 44) -> str:
    """Cut what is too long for a label in the middle: the ends of a module's name tell it apart.

    >>> shorten_middle("model.layers.0.self_attention.projection", most=20)
    'model.lay...ojection'
    """
    if len(words) <= most:
        return words
    end = (most - 3) // 2
    return f"{words[: most - 3 - end]}...{words[-end:]}"


_VECTORS: Final = (".svg", ".pdf")


def figure_png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG, or an SVG or PDF where the name ends so; a reader sees the old file or the whole new one."""
    if path.suffix.lower() in _VECTORS:
        form = path.suffix.lower().removeprefix(".")
        replace_file(path, lambda unfinished: figure.savefig(unfinished, format=form))
    else:
        save_picture(figure_png(figure), path)


def save_picture(png: bytes, path: Path) -> None:
    """Write the bytes of a PNG file; a reader sees the old file or the whole new one."""
    replace_file(path, lambda unfinished: unfinished.write_bytes(png))
