"""What a person calls a lane: its stream or thread, and what it is for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from dtbench.base.vocabulary import Kind, Purpose
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.who.collectives import Collective

_WORTH_SAYING: Final = 0.02  # part of a lane's time below which a kind is not in its name
_MOST_WORDS: Final = 3
BESIDE: Final = " beside"
"""Behind the lane of a thread that computes: what it sends meanwhile, which is drawn below it."""


def name_lanes(
    times_ns: Mapping[str, Mapping[Kind, int]], collectives: Mapping[str, Sequence[Collective]], analysis: TraceAnalysis
) -> dict[str, str]:
    """Name the lanes of one rank, those that compute first, then those that communicate.

    Args:
        times_ns: by lane, how long each kind ran on it.
        collectives: by lane, those that lie on it.
        analysis: of the rank.

    Returns:
        ``"stream 7 · compute"``, ``"stream 20 · shard: unshard, grad_reduce"`` by lane, in the order in which lanes are
        drawn.
    """
    axes = axis_words(analysis)
    carried: dict[str, Counter[tuple[str, str]]] = {lane: Counter() for lane in times_ns}
    for lane, of_lane in collectives.items():
        for one in of_lane:
            carried[lane][axes.get(one.group, ""), _name_use(one)] += one.span.length_ns
    processes = {_process(lane) for lane in times_ns}
    order = sorted(times_ns, key=lambda lane: _rank_lane(lane, times_ns[lane], _name_comm(carried[lane])))
    noun = "stream" if analysis.timeline.is_device else "thread"
    return {
        lane: " · ".join(
            [
                *([f"process {_process(lane)}"] if len(processes) > 1 and analysis.timeline.is_device else []),
                f"{noun} {lane.rpartition('/')[2].removeprefix('stream ').removesuffix(BESIDE)}",
                ", ".join(_name_uses(times_ns[lane], carried[lane])),
            ]
        )
        for lane in order
    }


def axis_words(analysis: TraceAnalysis) -> dict[str, str]:
    """Return what people call the axis of each process group; empty where nobody says."""
    return {group.group: group.axis for group in analysis.accounts.whole.groups}


def _process(lane: str) -> str:
    return lane.rpartition("/")[0]


def _rank_lane(lane: str, times_ns: Mapping[Kind, int], uses: str) -> tuple[int, bool, str, int, str]:
    """Sort lanes that compute by their time; the others by use, so that they are in one order on all ranks."""
    comm_ns = times_ns.get(Kind.COMM, 0)
    return -times_ns.get(Kind.COMPUTE, 0), not comm_ns, uses, -comm_ns, lane


def _name_uses(times_ns: Mapping[Kind, int], carried: Mapping[tuple[str, str], int]) -> list[str]:
    total_ns = sum(times_ns.values())
    used = [kind for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY) if times_ns.get(kind, 0) > _WORTH_SAYING * total_ns]
    return [_name_comm(carried) if kind is Kind.COMM else str(kind) for kind in used]


def _name_comm(carried: Mapping[tuple[str, str], int]) -> str:
    """Return ``shard: unshard, grad_reduce``; ``comm`` where neither axis nor use is known."""
    longest = sorted(carried, key=lambda use: -carried[use])
    axes = list(dict.fromkeys(axis for axis, _ in longest if axis))[:_MOST_WORDS]
    uses = list(dict.fromkeys(use for _, use in longest if use and use not in axes))[:_MOST_WORDS]
    if axes and uses:
        return f"{' '.join(axes)}: {', '.join(uses)}"
    return ", ".join(axes or uses) or str(Kind.COMM)


def _name_use(one: Collective) -> str:
    """Return what a collective is for, where nobody knows its operation, where nobody knows that empty text."""
    return str(one.operation or "") if one.purpose is Purpose.OTHER else str(one.purpose)
