"""The finer accounts as rows: one per rank, step and lane, process group, or collective that was waited for."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from dtbench.traces.tables import Row

if TYPE_CHECKING:
    from dtbench.traces.account.accounts import WindowAccount
    from dtbench.traces.rank.analysis import TraceAnalysis


def _steps(analyses: Iterable["TraceAnalysis"]) -> "Iterator[tuple[TraceAnalysis, Row, WindowAccount]]":
    for one in analyses:
        for step, account in zip(one.steps, one.accounts.steps, strict=True):
            yield one, {"rank": one.rank, "step": step.step}, account


def lane_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.LANES``."""
    for _, key, account in _steps(analyses):
        for lane in account.lanes:
            yield {**key, **asdict(lane)}


def group_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.GROUPS``."""
    for _, key, account in _steps(analyses):
        for group in account.groups:
            yield {**key, **asdict(group)}


def gap_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.GAPS``; a step of a trace without a device has a row without numbers."""
    for _, key, account in _steps(analyses):
        yield {**key, **({} if account.gaps is None else asdict(account.gaps))}


def comm_wait_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.COMM_WAITS``: which collective the main compute lane waited for, and whose it is."""
    for one, key, account in _steps(analyses):
        for wait in account.gaps.waits if account.gaps else ():
            collective = one.collectives[wait.collective]
            yield {
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


def overlap_tax_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.OVERLAP_TAX``; print ``overlap_tax.CAVEAT`` with it."""
    for one in analyses:
        for kernel in one.accounts.overlap_tax.kernels if one.accounts.overlap_tax else ():
            yield {"rank": one.rank, **asdict(kernel), "ratio": kernel.ratio}
