"""The finer accounts of a trace: by lane, by process group, by gap of the main compute lane; and the overlap tax."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dtbench.traces.account.gaps import Gaps, GapTime, account_gaps
from dtbench.traces.account.group_times import GroupTime
from dtbench.traces.account.kernel_times import KernelSpans, KernelTime, account_kernels
from dtbench.traces.account.lanes import LaneSpans, LaneTime, account_lanes
from dtbench.traces.account.overlap_tax import OverlapTax
from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.intervals import Intervals


@dataclass(frozen=True)
class WindowAccount:
    """The finer accounts of one window; ``gaps`` is None for a trace without compute on a device.

    A window in which nothing ran has no lanes and no gaps; one in which what computes was not recorded has only lanes
    that communicate, and no gaps; one of which copies are lost has no gaps. ``kernels`` are of steps on a device alone.
    """

    lanes: tuple[LaneTime, ...]
    groups: tuple[GroupTime, ...]
    gaps: GapTime | None
    kernels: tuple[KernelTime, ...] = ()


@dataclass(frozen=True)
class Accounts:
    """The finer accounts of a trace.

    Attributes:
        steps: in order of the trace's steps.
        whole: of the whole trace; never a step.
        overlap_tax: None for a trace without a device.
    """

    steps: tuple[WindowAccount, ...]
    whole: WindowAccount
    overlap_tax: OverlapTax | None


@dataclass(frozen=True)
class Sources:
    """What accounts are made from, found once for the whole trace; see ``Accounts`` for None.

    Attributes:
        recorded: when what computes was recorded; None: always.
        lost: by step and, last, the whole trace, how many collectives were not seen to run; empty: none.
        lost_copies: likewise, whether copies are lost; then nothing is known of gaps, in which these may have run.
    """

    lanes: LaneSpans
    gaps: Gaps | None = None
    overlap_tax: OverlapTax | None = None
    kernels: KernelSpans | None = None
    recorded: Intervals | None = None
    lost: Sequence[int] = ()
    lost_copies: Sequence[bool] = ()


def make_accounts(
    sources: Sources,
    windows: Sequence[Window],
    whole: Window,
    *,
    groups: Sequence[tuple[GroupTime, ...]],
    unwatched: Sequence[int],
    doubtful: Collection[int] = (),
) -> Accounts:
    """Account for each window and the whole trace.

    Args:
        sources: of the trace.
        windows: of the steps.
        whole: the whole trace.
        groups: as from ``account_groups``, for the same windows.
        unwatched: above zero for windows in which a wait would not be seen: what they communicated was not seen to run,
            or not every consumer of it was.
        doubtful: as ``account_gaps`` has it.
    """
    every = [*windows, whole]
    lanes = account_lanes(sources.lanes, every, sources.recorded, lost=sources.lost, lost_copies=sources.lost_copies)
    gaps: list[GapTime | None] = [None] * len(every)
    if sources.gaps is not None:
        gaps = [*account_gaps(sources.gaps, every, unwatched, doubtful)]
    if sources.recorded is not None:
        known_ns = sources.recorded.covered_inside(window_borders(every))
        pairs = zip(gaps, every, known_ns, strict=True)
        gaps = [one if window.length_ns == time_ns else None for one, window, time_ns in pairs]
    if sources.lost_copies:
        gaps = [None if is_lossy else one for one, is_lossy in zip(gaps, sources.lost_copies, strict=True)]
    made = [
        WindowAccount(*of_window) if window.length_ns else WindowAccount((), of_window[1], None)
        for window, of_window in zip(every, zip(lanes, groups, gaps, strict=True), strict=True)
    ]
    steps = tuple(made[:-1])
    if sources.kernels is not None:
        kernels = [account_kernels(sources.kernels, window) for window in windows]
        steps = tuple(replace(one, kernels=rows) for one, rows in zip(steps, kernels, strict=True))
    return Accounts(steps=steps, whole=made[-1], overlap_tax=sources.overlap_tax)
