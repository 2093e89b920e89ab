"""How long steps took: one by one, and how they are spread over launches."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, count_things, format_fraction, format_ns
from dtbench.base.vocabulary import Phase
from dtbench.machine.disturbance import DISTURBED
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    EDGE,
    LINE_STYLES,
    absent_words,
    add_axes,
    literal,
    new_figure,
    say,
    set_finding,
)
from dtbench.runs.reading.undisturbed import keep_finished, keep_steps

MOST_NAMED = 32
"""Ranks in the legend of step times; a longer one leaves no room for their lines."""


def plot_step_times(steps: pd.DataFrame) -> Figure:
    """Draw the duration of every step of every rank, with the phases shaded; disturbed steps are crossed out.

    The scale follows the steps after warm-up; slower warm-up steps leave at the top, and the title says how slow. So do
    steps that others disturbed, as guests or as processes of the machine, which no median holds.

    Args:
        steps: columns as in the table ``steps``, of one launch; ``is_left_out`` tells disturbed steps.
    """
    figure = new_figure(3.4)
    axes = add_axes(figure)
    if steps.empty:
        return say(figure, axes, "No step was recorded.")
    kept = keep_steps(steps)
    finished = keep_finished(kept, steps["rank"].nunique())
    for phase, first, last in _phase_spans(steps):
        axes.axvspan(first - 0.5, last + 0.5, color=looks.PHASE_COLOURS[phase], linewidth=0, zorder=0)
        words = f"{phase.value}\n{format_ns(_slowest_rank_ns(finished, phase))}"
        axes.text(first - 0.3, 0.97, words, transform=axes.get_xaxis_transform(), va="top", fontsize=7)
    ranks = sorted(steps["rank"].unique())
    for index, rank in enumerate(ranks):
        ordered = steps[steps["rank"] == rank].sort_values("step")
        colour, style = looks.LINE_COLOURS[index % len(looks.LINE_COLOURS)], LINE_STYLES[index % len(LINE_STYLES)]
        duration_ms = ordered["duration_ns"] / NS_PER_MS
        name = f"rank {rank}" if index < MOST_NAMED else "_more"  # matplotlib's legend leaves out what begins with `_`
        axes.plot(ordered["step"], duration_ms, color=colour, linestyle=style, linewidth=1.2, label=name)
    axes.set_ylim(*_settled_range_ms(kept))
    by_processes = (steps.get("taken_fraction", pd.Series(dtype="float64")) >= DISTURBED).any()
    whose = "others" if by_processes else "other virtual machines"
    crossed = _cross_out(axes, sorted(set(steps["step"]) - set(kept["step"])), whose)
    axes.set_xlim(steps["step"].min() - 0.5, steps["step"].max() + 0.5)
    axes.set_xlabel("step")
    axes.set_ylabel("ms")
    set_finding(axes, _times_finding(steps, kept) + crossed)
    columns = 1 + min(len(ranks), MOST_NAMED) // 17
    more = f"and {count_things(len(ranks) - MOST_NAMED, 'more rank')}" if len(ranks) > MOST_NAMED else None
    figure.legend(loc="outside right center", ncols=columns, frameon=False, fontsize=7, title=more, title_fontsize=7)
    return figure


def _settled_range_ms(steps: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the vertical axis: those of the steps after warm-up, or of all where there are no others."""
    settled = steps[steps["phase"] != Phase.WARMUP.value]
    duration_ms = (steps if settled.empty else settled)["duration_ns"] / NS_PER_MS
    low, high = float(duration_ms.min()), float(duration_ms.max())
    margin = max(high - low, 0.05 * high)
    return max(0.0, low - margin), high + margin or 1.0


def _slowest_rank_ns(steps: pd.DataFrame, phase: Phase) -> float:
    """Return the median over the steps of a phase of the slowest rank's duration; NaN when there are none."""
    return float(steps[steps["phase"] == phase.value].groupby("step")["duration_ns"].max().median())


def _cross_out(axes: Axes, disturbed: Sequence[int], whose: str) -> str:
    """Put a cross below each disturbed step; gives what the title says of them."""
    if not disturbed:
        return ""
    place = axes.get_xaxis_transform()
    (crosses,) = axes.plot(
        disturbed, [0.03] * len(disturbed), "x", color="black", markersize=4, transform=place, label="_disturbed"
    )
    crosses.set_gid("disturbed steps")
    return f"; x: {len(disturbed)} that {whose} disturbed"


def _times_finding(steps: pd.DataFrame, kept: pd.DataFrame) -> str:
    first_ns = steps.loc[steps["step"] == steps["step"].min(), "duration_ns"].max()
    finished = keep_finished(kept, steps["rank"].nunique())
    unfinished = kept["step"].nunique() - finished["step"].nunique()
    aside = f"; {count_things(unfinished, 'step')} that not every rank finished left out" if unfinished else ""
    measured_ns = _slowest_rank_ns(finished, Phase.MEASURED)
    if math.isnan(measured_ns):
        return f"No step was measured; the first took {format_ns(first_ns)}{aside}"
    words = f"A measured step takes {format_ns(measured_ns)} (median, slowest rank), the first {format_ns(first_ns)}"
    return words + aside


def _phase_spans(steps: pd.DataFrame) -> Iterator[tuple[Phase, int, int]]:
    """Yield (phase, first step, last step), both included."""
    for phase in Phase:
        found = steps.loc[steps["phase"] == phase.value, "step"]
        if not found.empty:
            yield phase, int(found.min()), int(found.max())


MOST_GROUPS = 40
"""Launches of one figure; of more, each cell is one row."""

_DOT_JITTER = 0.22
_NAMING = ("scenario", "run", "cell", "launch")


def plot_step_distribution(
    steps: pd.DataFrame, mistrusted: Mapping[str, str] | None = None, cells: Sequence[str] = ()
) -> Figure:
    """Draw how MEASURED steps are spread: for each launch a dot for each step, its box over the middle half.

    A step's time is its slowest rank's. Launches of a cell lie together; where launches are too many, each cell is one
    row. The thick line is a launch's median. Steps that others disturbed, or that not every rank finished, are left out
    and counted.

    Args:
        steps: columns as in the table ``steps``, and those that tell launches apart of ``scenario``,
            ``run``, ``cell`` and ``launch``, as from ``RunReport.steps`` or ``dtbench.load_runs``; where it has
            ``is_left_out``, without these.
        mistrusted: by cell, what speaks against its numbers.
        cells: of the run, of which some may have nothing in the table.
    """
    kept, groups = _measured_groups(steps, of_cells=len(cells))
    left_out = _count_steps(steps[steps["phase"] == Phase.MEASURED.value]) - kept
    if not groups:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "No MEASURED step is left." if left_out else "No step was measured.")
    shown = groups[:MOST_GROUPS]
    figure = new_figure(1.3 + 0.34 * max(3, len(shown)))
    axes = add_axes(figure)
    drawn = list(dict.fromkeys(group.cell for group in shown))
    for position, group in enumerate(shown):
        _draw_group(axes, group, position, looks.LINE_COLOURS[drawn.index(group.cell) % len(looks.LINE_COLOURS)])
    axes.set_yticks(range(len(shown)), [literal(group.label) for group in shown], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    more = f"; the first {MOST_GROUPS} of {len(groups)} rows" if len(groups) > MOST_GROUPS else ""
    aside = f"; {count_things(left_out, 'step')} left out" if left_out else ""
    doubts = ", ".join(f"{cell} ({why})" for cell, why in (mistrusted or {}).items())
    absent = absent_words([cell for cell in cells if cell not in {group.cell for group in groups}]) if cells else ""
    what = "ms per MEASURED step, slowest rank; box: middle half, thick line: median"
    axes.set_xlabel(f"{what}{absent}", fontsize=8)
    set_finding(axes, _spread_finding(groups) + more + aside + (f"; not to be trusted: {doubts}" if doubts else ""))
    return figure


@dataclass(frozen=True)
class _Group:
    """The MEASURED steps of one row: what it is of, and the slowest rank's time of each step, in order."""

    cell: str
    label: str
    times_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return median(self.times_ms)


def _count_steps(steps: pd.DataFrame) -> int:
    """Count steps over all launches, each once for all its ranks."""
    return len(steps[[name for name in (*_NAMING, "step") if name in steps]].drop_duplicates())


def _measured_groups(steps: pd.DataFrame, of_cells: int) -> tuple[int, list[_Group]]:
    """Return how many MEASURED steps there are to go by, and the rows that are drawn of them.

    Where there are several cells, rows are named by theirs, although only one of them has steps.
    """
    measured = keep_steps(steps[steps["phase"] == Phase.MEASURED.value])
    if measured.empty:
        return 0, []
    known = [name for name in _NAMING if name in measured]
    of_launch = list(measured.groupby(known, observed=True, sort=False)) if known else [((), measured)]
    measured = pd.concat([keep_finished(mine, mine["rank"].nunique()) for _, mine in of_launch])
    telling = [name for name in known if measured[name].nunique() > 1 or (name == "cell" and of_cells > 1)]
    if measured[known].drop_duplicates().shape[0] > MOST_GROUPS and "launch" in telling:
        telling.remove("launch")
    whole = [name for name in known if name != "launch"]
    slowest = measured.groupby([*known, "step"], observed=True, sort=False)["duration_ns"].max().reset_index()
    groups = []
    grouped = slowest.groupby(telling, observed=True, sort=False) if telling else [((), slowest)]
    for _, rows in grouped:
        first = rows.iloc[0]
        label = ", ".join(f"launch {first[name]}" if name == "launch" else str(first[name]) for name in telling)
        cell = ", ".join(str(first[name]) for name in whole if name in telling)
        groups.append(_Group(cell, label or "all steps", tuple(rows["duration_ns"] / NS_PER_MS)))
    return len(slowest), groups


def _draw_group(axes: Axes, group: _Group, position: int, colour: str) -> None:
    times = np.array(group.times_ms)
    jitter = _DOT_JITTER * np.sin(2.4 * np.arange(len(times)))  # the same picture every time, no two dots alike
    (dots,) = axes.plot(times, position + jitter, linestyle="none", marker="o", markersize=2.6, color=colour, alpha=0.5)
    dots.set_gid(f"steps {group.label}")
    low, high = np.percentile(times, (25, 75))
    (box,) = axes.barh(position, high - low, left=low, height=0.62, fill=False, edgecolor=EDGE, linewidth=0.9)
    box.set_gid(f"box {group.label}")
    line = axes.vlines(group.median_ms, position - 0.36, position + 0.36, color="black", linewidth=2.4)
    line.set_gid(f"median {group.label}")


def _spread_finding(groups: Sequence[_Group]) -> str:
    """Say each cell's median of medians where they are few, else the range; and how far launches lie apart."""
    medians: dict[str, list[float]] = {}
    for group in groups:
        medians.setdefault(group.cell, []).append(group.median_ms)
    typical = {cell: median(of_launches) * NS_PER_MS for cell, of_launches in medians.items()}
    if len(typical) > 3:
        low, high = min(typical, key=typical.__getitem__), max(typical, key=typical.__getitem__)
        words = f"A measured step takes {format_ns(typical[low])} ({low}) to {format_ns(typical[high])} ({high})"
    else:
        told = ", ".join(f"{format_ns(time_ns)}{f' in {cell}' if cell else ''}" for cell, time_ns in typical.items())
        words = f"A measured step takes {told}"
    apart = [(max(of) - min(of)) / median(of) for of in medians.values() if len(of) > 1]
    return f"{words}; launches lie up to {format_fraction(max(apart))} apart" if apart else words
