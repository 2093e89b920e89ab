"""What stood still: parameters' hooks for their gradients, devices for the host; from a cell's tables."""

import pandas as pd

from dtbench.runs.cell.summarize_overlap import find_part
from dtbench.runs.summary import DeviceIdle, GradientWait
from dtbench.traces.who.hooked_gradients import HOOK


def summarize_gradient_waits(collectives: pd.DataFrame, overlap: pd.DataFrame) -> tuple[GradientWait, ...]:
    """Return one row per parameter in the order of its name: medians over ranks, launches and PROFILED steps.

    Empty where no gradient was an unfinished one when its hook ran, or the hook had no probe.

    Args:
        collectives: the table ``collectives`` of all launches; what no step issued is left out.
        overlap: the table ``overlap`` likewise; says which steps there are: each rank has the parameter in each.
    """
    awaited = collectives[(collectives["awaited_by"] == HOOK) & collectives["step"].notna()]
    known = awaited[awaited["wait_ns"].notna()]
    return tuple(
        GradientWait(
            parameter=str(parameter),
            count=len(rows),
            wait_ns=int(rows["wait_ns"].median()),
            since_issue_ns=int((rows["first_wait_ns"] + rows["wait_ns"] - rows["issue_ns"]).median()),
            hidden_ns=_median(rows["hidden_ns"]),
            exposed_ns=_median(rows["exposed_ns"]),
            part=find_part(rows, overlap),
        )
        for parameter, rows in known.groupby("owner")
    )


def summarize_idle(gaps: pd.DataFrame, overlap: pd.DataFrame) -> DeviceIdle | None:
    """Return what devices stood still for: means over ranks, launches and PROFILED steps.

    Those in which their wait for the host is known; None where it is known of none, as on CPUs.

    Args:
        gaps: the table ``gaps`` of all launches.
        overlap: the table ``overlap`` likewise; says which steps there are.
    """
    known = gaps.dropna(subset=["host_wait_ns"])
    if not len(known):
        return None
    host_ns, sync_ns, comm_ns = (
        known[["host_wait_ns", "host_sync_ns", "comm_wait_ns"]].astype("float64").mean(skipna=False)
    )
    at_most = (known["comm_wait_ns"] + known["launch_unknown_ns"]).fillna(known["gap_ns"] - known["host_wait_ns"])
    return DeviceIdle(
        host_wait_ns=host_ns,
        host_sync_ns=sync_ns,
        comm_wait_ns=comm_ns,
        comm_wait_at_most_ns=float(at_most.astype("float64").mean()),
        part=find_part(known, overlap),
    )


def _median(times_ns: "pd.Series[int]") -> int | None:
    """Return the median, rounded down; None: one is not known."""
    return None if times_ns.isna().any() else int(times_ns.median())
