"""One step as a picture: what ran on each lane of each rank, and where communication ran alone.

::

    rank 0   stage 0                ▐0▌ ▐1▌      ▐0▌ ▐1▌          of a pipeline, by micro-batch
             stream 7 · compute     ██████████████   ███████████
             stream 20 · shard           ▨▨▨▨▨▨▨▨▨▨▨▨▨
             exposed                                ▄▄▄
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, count_things, format_ns, name_ranks
from dtbench.base.vocabulary import Kind, Operation
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    EDGE,
    FAINT,
    Part,
    add_axes,
    legend_patch,
    literal,
    new_figure,
    say,
    set_finding,
    shorten_middle,
)
from dtbench.report.words.causes import name_collective, spell_owner
from dtbench.scenario.sweeps.sweep import name_some

MOST_RANKS = 8
MOST_LANES = 6
"""Lanes of one rank, those that did most."""

_PARTS: Final = {
    Kind.COMPUTE: Part("compute", "compute", looks.COMPUTE),
    Kind.COMM: Part("communication", "comm", looks.HIDDEN_COMM),
    Kind.COPY: Part("copy", "copy", looks.COPY),
}
_EXPOSED: Final = Part("exposed communication", "exposed", looks.EXPOSED_COMM)
_STAGE_PARTS: Final = {
    action: Part(name, action.replace(" ", "_"), looks.ACTION_LOOKS[action])
    for action, name in {
        "forward": "forward of a micro-batch",
        "backward": "backward of one",
        "input gradients": "its input gradients",
        "weight gradients": "its weight gradients",
    }.items()
}
_FINEST = 1 / 2000
"""Pauses shorter than this share of the step are not to be seen, and spans on both sides are drawn as one."""

_LABEL_FITS = 0.06
_NUMBER_FITS = 0.006


@dataclass(frozen=True)
class Limits:
    """What the tables of a step do not tell of it.

    Attributes:
        apart: ranks that are drawn from their own start, because their clocks cannot be compared with the others'.
        every: ranks that there are, of some of which nothing may be drawn; empty: those that are.
        unseen: collectives that may have run in the step, and were launched and not seen to run.
        is_one_job: the traces are surely of one; else nothing is said over ranks.
        of: which launch of a run it is of; empty: of traces alone.
        untold: launches before that one which are not drawn, as their traces are gone.
    """

    apart: Collection[int] = ()
    every: Collection[int] = ()
    unseen: int = 0
    is_one_job: bool = True
    of: str = ""
    untold: Sequence[str] = ()


def plot_timeline(
    spans: pd.DataFrame,
    exposed: pd.DataFrame,
    step: int,
    stage_work: pd.DataFrame | None = None,
    limits: Limits | None = None,
) -> Figure:
    """Draw one step: lanes from above as ranks name them, communication that ran alone marked below each rank.

    Args:
        spans: columns as in the table ``spans``.
        exposed: columns as in the table ``exposed``, of the same ranks.
        step: the step that is drawn; spans that start in another are left out.
        stage_work: columns as in the table ``stage_work``, of the same ranks: each stage of a pipeline
            has a row above the lanes of its rank; None: no pipeline.
        limits: what the tables do not tell of it; None: nothing limits what they show.
    """
    limits = limits or Limits()
    apart = limits.apart
    mine, alone = spans[spans["step"] == step], exposed[exposed["step"] == step]
    stages = stage_work[stage_work["step"] == step] if stage_work is not None else None
    if mine.empty:
        figure = new_figure(2.0)
        where = f"step {step}{f' of {limits.of}' if limits.of else ''}"
        return say(figure, add_axes(figure), literal(f"Nothing is known to have run in {where}."))
    ranks = sorted(mine["rank"].unique())
    rows = [row for rank in ranks[:MOST_RANKS] for row in _rows_of(rank, mine, stages)]
    figure = new_figure(1.5 + 0.36 * max(3, len(rows)), width_in=11.0)
    axes = add_axes(figure)
    window = int(mine["start_ns"].min()), int(mine["end_ns"].max() - mine["start_ns"].min())
    for position, row in enumerate(rows):
        if row.stage_work is not None:
            _draw_stage(axes, row.stage_work, position, window)
        elif row.spans is not None:
            _draw_lane(axes, row.spans, position, window)
        else:
            _draw_exposed(axes, alone[alone["rank"] == row.rank], position, window[0])
            axes.axhline(position + 0.5, color=FAINT, linewidth=0.8)
    own = {rank: " (own clock)" if rank in apart else "" for rank in ranks}
    names = [literal(f"rank {row.rank}{own[row.rank]}  {shorten_middle(row.name, most=46)}") for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, window[1] / NS_PER_MS)
    axes.set_xlabel(_describe_clock(ranks[:MOST_RANKS], apart), fontsize=8)
    more = f"; ranks {ranks[0]} to {ranks[MOST_RANKS - 1]} of {len(ranks)}" if len(ranks) > MOST_RANKS else ""
    lacking = sorted(set(limits.every) - set(ranks))
    more += f"; of {name_ranks(lacking)} nothing is known to be of it" if lacking else ""
    more += f"; no traces are left of {name_some(limits.untold).replace('`', '')}" if limits.untold else ""
    head = f"{limits.of}, step {step}" if limits.of else f"Step {step}"
    set_finding(axes, f"{head}: {_finding(mine, alone, limits)}{more}")
    done = set() if stages is None else set(stages["action"])
    parts = (*_PARTS.values(), _EXPOSED, *(part for action, part in _STAGE_PARTS.items() if action in done))
    handles = [legend_patch(part, part.name) for part in parts]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
    return figure


def _describe_clock(ranks: Sequence[int], apart: Collection[int]) -> str:
    """Say on which clock times of the picture are."""
    own, shared = [rank for rank in ranks if rank in apart], [rank for rank in ranks if rank not in apart]
    if len(ranks) == 1:
        return "ms"
    if not own:
        return "ms, on the clock that the ranks share"
    nothing = "where it lies beside the others" if len(own) == 1 else "where they lie beside the others"
    from_own = f"{name_ranks(own)} from {'its' if len(own) == 1 else 'their'} own start: {nothing} says nothing"
    return f"ms, on the clock that {name_ranks(shared)} share; {from_own}" if len(shared) > 1 else f"ms, {from_own}"


def _main_lanes(of_rank: pd.DataFrame) -> list[str]:
    """Return the lanes that did most, in the order in which they come."""
    busy = (of_rank["end_ns"] - of_rank["start_ns"]).groupby(of_rank["lane"]).sum().nlargest(MOST_LANES)
    return [lane for lane in dict.fromkeys(of_rank["lane"]) if lane in busy.index]


@dataclass(frozen=True)
class _Row:
    """One row of the picture: a stage's work, a lane's spans, or with neither what was exposed."""

    rank: int
    name: str
    spans: pd.DataFrame | None = None
    stage_work: pd.DataFrame | None = None


def _rows_of(rank: int, spans: pd.DataFrame, stage_work: pd.DataFrame | None) -> Iterator[_Row]:
    if stage_work is not None:
        of_rank = stage_work[stage_work["rank"] == rank]
        for stage in sorted(of_rank["stage"].dropna().unique().tolist()):
            yield _Row(rank, f"stage {stage}", stage_work=of_rank[of_rank["stage"] == stage])
        if of_rank["stage"].isna().any():
            yield _Row(rank, "micro-batches", stage_work=of_rank[of_rank["stage"].isna()])
    mine = spans[spans["rank"] == rank]
    for lane in _main_lanes(mine):
        of_lane = mine[mine["lane"] == lane]
        yield _Row(rank, str(of_lane["lane_name"].iloc[0]), spans=of_lane)
    yield _Row(rank, "exposed")


def _draw_stage(axes: Axes, done: pd.DataFrame, position: int, window: tuple[int, int]) -> None:
    """Draw what a stage computed, each micro-batch with its number where it fits."""
    origin_ns, length_ns = window
    for action, part in _STAGE_PARTS.items():
        pieces = done.loc[done["action"] == action, ["start_ns", "end_ns"]].to_numpy(dtype=np.int64) - origin_ns
        _draw_pieces(axes, part, pieces, (position - 0.34, 0.68), edge=EDGE)
    for row in done.dropna(subset="micro_batch").itertuples():
        start_ns, end_ns = int(str(row.start_ns)), int(str(row.end_ns))
        if end_ns - start_ns >= _NUMBER_FITS * length_ns:
            middle_ms = ((start_ns + end_ns) / 2 - origin_ns) / NS_PER_MS
            axes.text(middle_ms, position, str(row.micro_batch), ha="center", va="center", fontsize=6.5, clip_on=True)


def _draw_lane(axes: Axes, spans: pd.DataFrame, position: int, window: tuple[int, int]) -> None:
    origin_ns, length_ns = window
    for kind, part in _PARTS.items():
        of_kind = spans[spans["kind"] == kind.value]
        pieces = merge_spans(of_kind["start_ns"].to_numpy(), of_kind["end_ns"].to_numpy(), length_ns * _FINEST)
        _draw_pieces(axes, part, pieces - origin_ns, (position - 0.34, 0.68))
    for row in spans[spans["kind"] == Kind.COMM.value].itertuples():
        start_ns, end_ns = int(str(row.start_ns)), int(str(row.end_ns))
        if end_ns - start_ns >= _LABEL_FITS * length_ns and row.owner:
            most = max(6, round(90 * (end_ns - start_ns) / length_ns))
            words = literal(shorten_middle(spell_owner(str(row.owner)), most=most))
            middle_ms = ((start_ns + end_ns) / 2 - origin_ns) / NS_PER_MS
            box = {"facecolor": _PARTS[Kind.COMM].look.colour, "edgecolor": "none", "pad": 0.8}
            axes.text(middle_ms, position, words, ha="center", va="center", fontsize=6.5, bbox=box, clip_on=True)


def _draw_exposed(axes: Axes, exposed: pd.DataFrame, position: int, origin_ns: int) -> None:
    pieces = exposed[["start_ns", "end_ns"]].to_numpy(dtype=np.int64) - origin_ns
    _draw_pieces(axes, _EXPOSED, pieces, (position - 0.2, 0.4))


def _draw_pieces(axes: Axes, part: Part, pieces_ns: np.ndarray, place: tuple[float, float], edge: str = "none") -> None:
    if not len(pieces_ns):
        return
    spans = [(start / NS_PER_MS, (end - start) / NS_PER_MS) for start, end in pieces_ns]
    look = part.look
    edge = EDGE if look.hatch else edge
    drawn = axes.broken_barh(spans, place, facecolors=look.colour, hatch=look.hatch, edgecolor=edge, linewidth=0.4)
    drawn.set_gid(part.field)


def merge_spans(starts_ns: np.ndarray, ends_ns: np.ndarray, finest_ns: float) -> np.ndarray:
    """Return what spans cover, shape ``(pieces, 2)``, in order; pauses shorter than ``finest_ns`` are covered, too."""
    pieces: list[list[int]] = []
    for at in np.argsort(starts_ns, kind="stable"):
        start, end = int(starts_ns[at]), int(ends_ns[at])
        if pieces and start - pieces[-1][1] <= finest_ns:
            pieces[-1][1] = max(pieces[-1][1], end)
        else:
            pieces.append([start, end])
    return np.array(pieces, dtype=np.int64).reshape(-1, 2)


def _finding(spans: pd.DataFrame, exposed: pd.DataFrame, limits: Limits) -> str:
    total_ns = int((exposed["end_ns"] - exposed["start_ns"]).sum())
    comm = spans[spans["kind"] == Kind.COMM.value]
    why = f": {_unseen_words(limits.unseen)}" if limits.unseen else ""
    if comm.empty:
        return f"no communication was seen{why}"
    unknown = sorted(set(comm.loc[comm["exposed_ns"].isna(), "rank"]))
    is_whole = not limits.unseen and not unknown
    if not total_ns:
        return (
            "all communication overlapped with compute"
            if is_whole
            else f"how much of the communication was exposed is not known{why}"
        )
    ranks = spans["rank"].nunique()
    per_rank = " per rank" if ranks > 1 else ""
    least = "" if is_whole else "at least "
    words = f"{least}{format_ns(total_ns / ranks)} of communication exposed{per_rank}"
    if limits.unseen or not limits.is_one_job:
        return f"{words}{why}{'' if limits.is_one_job else '; the traces are not all, or not surely, of one job'}"
    if unknown:  # whose most of it is may be among what is not known
        return f"{words}; of {name_ranks(unknown)} not all is known"
    by_owner = comm.groupby(["owner", "operation"])["exposed_ns"].sum()
    owner, operation = _words(by_owner.idxmax())
    return f"{words}, most of it {name_collective(owner or None, Operation(operation) if operation else None)}"


def _unseen_words(unseen: int) -> str:
    return f"{count_things(unseen, 'collective')} {'was' if unseen == 1 else 'were'} launched and not seen to run"


def _words(key: object) -> Sequence[str]:
    return [str(one) for one in key] if isinstance(key, tuple) else [str(key)]
