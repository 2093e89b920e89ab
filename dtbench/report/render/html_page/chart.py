"""Stacked bars as SVG, as TensorBoard's tab draws them: in percent of their column, so that they follow the page."""

import math
from collections.abc import Iterator
from typing import Final

from dtbench.base.units import NS_PER_MS, three_digits
from dtbench.report.page.page import Bar, BarPart, Chart
from dtbench.report.render.html import escape_html

_HEIGHT: Final = 22
_THIN: Final = 6
_LABEL_FITS: Final = 0.085
_SLASH: Final = "M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2"
_BACK: Final = "M-1,6 l2,2 M0,0 l7,7 M6,-1 l2,2"
_SHAPES: Final = {
    "slash": (("dark", _SLASH),),
    "back": (("dark", _BACK),),
    "cross": (("light", _SLASH), ("light", _BACK)),
    "rows": (("dark", "M0,3.5 h7"),),
    "columns": (("dark", "M3.5,0 v7"),),
}


def patterns_svg() -> str:
    """Return the hatches that parts lie under; once per page."""
    drawn = {
        name: "".join(f'<path d="{path}" class="hatch-{kind}"/>' for kind, path in shapes)
        for name, shapes in _SHAPES.items()
    }
    drawn["dots"] = '<circle cx="3" cy="3" r="1" class="hatch-dot"/>'
    patterns = "".join(
        f'<pattern id="hatch-{name}" width="7" height="7" patternUnits="userSpaceOnUse">{shapes}</pattern>'
        for name, shapes in drawn.items()
    )
    return f'<svg width="0" height="0" aria-hidden="true" class="patterns"><defs>{patterns}</defs></svg>'


def chart_html(chart: Chart) -> str:
    """Return a legend, a row for each bar, and a scale."""
    ends = [bar.whole_ns for bar in chart.bars] + [bar.below_ns or 0 for bar in chart.bars]
    longest_ns = max(1, *ends)
    used = [part for at, part in enumerate(chart.parts) if any(bar.lengths_ns[at] for bar in chart.bars)]
    keys = "".join(_key(part) for part in (*used, *([chart.below] if chart.below else [])))
    rows = "".join(
        f'<div class="bar-label">{escape_html(bar.label)}</div>{_bar(chart, bar, longest_ns)}'
        f'<div class="bar-end">{escape_html(bar.end)}</div>'
        for bar in chart.bars
    )
    return (
        f'<div class="legend">{keys}</div><div class="scroller"><div class="bars">{rows}'
        f"<div></div>{_scale(longest_ns)}<div></div></div></div>"
    )


def _key(part: BarPart) -> str:
    swatch = "".join(_shapes(part, 'x="0" y="0" width="16" height="12"'))
    drawn = f'<svg width="16" height="12" aria-hidden="true">{swatch}</svg>'
    return f'<span class="key">{drawn}{escape_html(part.name)}</span>'


def _shapes(part: BarPart, box: str) -> Iterator[str]:
    fill = f' fill="{escape_html(part.colour)}"' if part.colour else ""
    yield f'<rect {box}{fill} class="part part-{escape_html(part.key)}"/>'
    if part.pattern:
        yield f'<rect {box} fill="url(#hatch-{escape_html(part.pattern)})" class="hatch"/>'


def _bar(chart: Chart, bar: Bar, longest_ns: int) -> str:
    parts, left, said = [], 0.0, []
    for part, length_ns, words in zip(chart.parts, bar.lengths_ns, bar.words, strict=True):
        if length_ns is None:
            said.append(f"{part.name} n/a")
        if not length_ns:
            continue
        share = length_ns / longest_ns
        said.append(f"{part.name} {words}")
        inside = _words(part, left + share / 2, words) if share >= _LABEL_FITS else ""
        parts.append(_group(part, length_ns, words, _box(left, share, 0, _HEIGHT), inside))
        left += share
    if chart.below and bar.below_ns:
        said.append(f"{chart.below.name} {bar.below_words}")
        box = _box(0, bar.below_ns / longest_ns, _HEIGHT + 1, _THIN)
        parts.append(_group(chart.below, bar.below_ns, bar.below_words, box, ""))
    height = _HEIGHT + (_THIN + 1 if chart.below else 0)
    label = escape_html(f"{bar.label}: {', '.join(said)}")
    return f'<svg class="bar" height="{height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _group(part: BarPart, length_ns: int, words: str, box: str, inside: str) -> str:
    title = f"<title>{escape_html(f'{part.name} {words}')}</title>"
    shapes = "".join(_shapes(part, box))
    return f'<g data-part="{escape_html(part.key)}" data-value="{length_ns}">{shapes}{title}{inside}</g>'


def _box(left: float, share: float, top: int, height: int) -> str:
    return f'x="{_percent(left)}" y="{top}" width="{_percent(share)}" height="{height}"'


def _words(part: BarPart, middle: float, words: str) -> str:
    """Write into a part, on a plain patch so that a hatch does not run through the digits."""
    at = f'x="{_percent(middle)}" y="{_HEIGHT / 2 + 4:g}" text-anchor="middle"'
    shown, colour = escape_html(words), escape_html(part.colour)
    patch = f' fill="{colour}" stroke="{colour}"' if colour else ""
    name = f"words-behind behind-{escape_html(part.key)}"
    behind = f'<text {at}{patch} class="{name}" aria-hidden="true">{shown}</text>' if part.pattern else ""
    return f'{behind}<text {at} class="words{" words-light" if part.is_dark else ""}">{shown}</text>'


def _scale(longest_ns: int) -> str:
    step_ms = _nice_step(longest_ns / NS_PER_MS / 5)
    count = math.floor(longest_ns * 0.97 / (step_ms * NS_PER_MS)) + 1
    ticks = []
    for at in range(count):
        x = _percent(at * step_ms * NS_PER_MS / longest_ns)
        words = _number(at * step_ms) if at else "0 ms"
        anchor = "middle" if at else "start"
        ticks.append(
            f'<line x1="{x}" x2="{x}" y1="0" y2="4"/><text x="{x}" y="15" text-anchor="{anchor}">{words}</text>'
        )
    return f'<svg class="scale" height="18" aria-hidden="true">{"".join(ticks)}</svg>'


def _number(value: float) -> str:
    return f"{value:g}" if value < 1000 else f"{value:.0f}" if value < 1e6 else three_digits(value)


def _nice_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return float(next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least * 0.999))


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
