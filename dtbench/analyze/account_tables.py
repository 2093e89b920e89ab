"""The finer accounts as tables: one row per rank, step and lane, process group, or collective that was waited for."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pandas as pd

from dtbench.analyze.accounts import WindowAccount
from dtbench.analyze.tables import COMM_WAITS, GAPS, GROUPS, LANES, OVERLAP_TAX
from dtbench.analyze.trace_analysis import TraceAnalysis


def _steps(analyses: Iterable[TraceAnalysis]) -> Iterator[tuple[TraceAnalysis, dict[str, object], WindowAccount]]:
    for one in analyses:
        for step, account in zip(one.steps, one.accounts.steps, strict=True):
            yield one, {"rank": one.rank, "step": step.step}, account


def tabulate_lanes(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.LANES``."""
    rows = [{**key, **asdict(lane)} for _, key, account in _steps(analyses) for lane in account.lanes]
    return pd.DataFrame(rows, columns=list(LANES)).astype(LANES)


def tabulate_groups(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.GROUPS``."""
    rows = [{**key, **asdict(group)} for _, key, account in _steps(analyses) for group in account.groups]
    return pd.DataFrame(rows, columns=list(GROUPS)).astype(GROUPS)


def tabulate_gaps(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.GAPS``; a step of a trace without a device has a row without numbers."""
    rows = [{**key, **({} if account.gaps is None else asdict(account.gaps))} for _, key, account in _steps(analyses)]
    return pd.DataFrame(rows, columns=list(GAPS)).astype(GAPS)


def tabulate_comm_waits(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.COMM_WAITS``: which collective the main compute lane waited for, and whose it is."""
    rows = []
    for one, key, account in _steps(analyses):
        for wait in account.gaps.waits if account.gaps else ():
            collective = one.collectives[wait.collective]
            rows.append(
                {
                    **key,
                    "group": collective.group,
                    "seq": collective.seq,
                    "operation": str(collective.operation or ""),
                    "purpose": str(collective.purpose),
                    "owner": collective.owner,
                    "start_ns": collective.start_ns,
                    "end_ns": collective.end_ns,
                    "wait_ns": wait.wait_ns,
                }
            )
    return pd.DataFrame(rows, columns=list(COMM_WAITS)).astype(COMM_WAITS)


def tabulate_overlap_tax(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.OVERLAP_TAX``; print ``overlap_tax.CAVEAT`` with it."""
    rows = [
        {"rank": one.rank, **asdict(kernel), "ratio": kernel.ratio}
        for one in analyses
        for kernel in (one.accounts.overlap_tax.kernels if one.accounts.overlap_tax else ())
    ]
    return pd.DataFrame(rows, columns=list(OVERLAP_TAX)).astype(OVERLAP_TAX)
