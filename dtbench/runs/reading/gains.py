"""What a replay of a launch's PROFILED steps says that no remedy can gain more than: made once, kept, read back.

It is made while traces are at hand to make the other derived tables of a launch, and never to read a run: one whose
tables another version made has none. Only owners are asked for that may get an advice to send less or to hide more.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pandas as pd

from dtbench.base.columns import Column, Table, Unit
from dtbench.base.errors import PredictionError, StoreError, TraceError
from dtbench.base.vocabulary import OF_TRANSFER, Operation, Phase, Purpose
from dtbench.replay.changes.change import Owner
from dtbench.replay.gains import Gain, Gains, measure_gains
from dtbench.replay.read import DisturbedError, read_graph
from dtbench.runs.reading.undisturbed import find_left_out, job_step_times, leave_out
from dtbench.store.finish import STEPS
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_steps, read_table
from dtbench.store.records.place import check_place, find_place, tell_place
from dtbench.store.write import write_table
from dtbench.traces.garbage import without_collection
from dtbench.traces.job.trace_set import TraceSet

MOST_OWNERS: Final = 6
"""Owners that are asked for one by one; each is a replay of all steps."""
_WORTH_ASKING: Final = 0.01
"""Of all exposed time: an owner with less of it gets no advice worth a replay."""
_REFUSED: Final = "refused"
_LEFT_OUT: Final = "is_left_out"

_OF_LAUNCH: Final = "the same in every row"

GAINS: Final = Table[Gains | None, None, tuple[Gains, Gain]](
    name="gains",
    doc="What a step would be shorter without the time that some communication takes, by a replay of the PROFILED "
    "steps that others did not disturb (`hidden: OWNER` of `dtbench whatif`): no remedy for its size gains more. One "
    f"row for all communication, one for each purpose and one for each of up to {MOST_OWNERS} owners, of those that "
    "were exposed as a tail, needed at once, or longer than what hides them. No rows: nothing was, or the replay was "
    "refused.",
    find=lambda gains: () if gains is None else ((None, (gains, row)) for row in gains.rows),
    unique=("owner", "purpose", "operation"),
    keys=(),
    columns=(
        Column(
            "owner",
            "string",
            None,
            "whose; empty: unattributed; NA: of all owners",
            lambda row: None if (one := row[1].owner) is None else one.name or "",
            may_be_na=True,
        ),
        Column(
            "purpose",
            "string",
            None,
            "of these collectives; NA: of all",
            lambda row: None if row[1].purpose is None else str(row[1].purpose),
            may_be_na=True,
        ),
        Column(
            "operation",
            "string",
            None,
            "of its owner's; empty: not told, or of all owners",
            lambda row: "" if row[1].owner is None else str(row[1].owner.operation or ""),
        ),
        Column(
            "own_ns",
            "float64",
            Unit.NS,
            "what they take in a step, without waiting for other ranks",
            lambda row: row[1].own_ns,
        ),
        Column(
            "saving_ns",
            "float64",
            Unit.NS,
            "by how much all steps together would be shorter, divided by their number; at most `own_ns`",
            lambda row: row[1].saving_ns,
        ),
        Column(
            "step_ns",
            "float64",
            Unit.NS,
            f"mean of the replayed steps, each the slowest rank's; {_OF_LAUNCH}",
            lambda row: row[0].step_ns,
        ),
        Column(
            "host_times",
            "Float64",
            None,
            "how many times as long hosts take in these steps as in the PROFILED ones, so that they are as MEASURED; "
            f"NA: no such time was found, and they are as PROFILED; {_OF_LAUNCH}",
            lambda row: row[0].host_times,
            least=0,
        ),
    ),
)


@dataclass(frozen=True)
class LaunchGains:
    """What the table ``gains`` of a launch says.

    Attributes:
        rows: columns as in ``GAINS``.
        refused: why there are none, a clause; empty: there are, or nothing was exposed that could be asked for.
        is_left_out: for that, others disturbed every step, so that no number of the cell has anything of this launch.
    """

    rows: pd.DataFrame
    refused: str = ""
    is_left_out: bool = False


def write_gains(folder: LaunchFolder, traces: TraceSet) -> None:
    """Replay the steps of a launch without what may get an advice, and keep what comes of it, or why nothing does.

    Args:
        folder: of the launch.
        traces: what its traces say.

    Raises:
        StoreError: the table cannot be written.
    """
    gains, refused, is_left_out = None, "", False
    try:
        with without_collection():
            gains = _replay(folder, traces)
    except (PredictionError, TraceError) as error:
        refused, is_left_out = str(error), isinstance(error, DisturbedError)
    frame = GAINS.tabulate(gains)
    said: dict[Hashable | None, Any] = {_REFUSED: refused, _LEFT_OUT: is_left_out}
    frame.attrs = {**tell_place(folder), **said}
    write_table(folder.derived_table(GAINS.name), frame)


def _replay(folder: LaunchFolder, traces: TraceSet) -> Gains | None:
    """Return what steps of a launch could gain; None: nothing is asked.

    Raises:
        PredictionError: nothing can be said.
        TraceError: a trace is gone.
    """
    owners = list(_choose_owners(traces))
    if not owners:
        return None
    try:
        steps = read_steps(folder)
    except StoreError:  # whoever reads the launch says so
        steps = STEPS.tabulate(())
    left_out = find_left_out(steps)
    measured_ns = job_step_times(leave_out(steps, left_out), Phase.MEASURED, steps["rank"].nunique())
    recorded = read_graph(traces, left_out.get(Phase.PROFILED, ()))
    return measure_gains(recorded, owners, median(measured_ns) if measured_ns else None)


def _choose_owners(traces: TraceSet) -> Iterator[Owner]:
    """Yield the owners that may get an advice which their transfer bounds, the most exposed first."""
    least_ns = _WORTH_ASKING * sum(row.exposed_ns for row in traces.owners)
    rows = [row for row in traces.owners if row.cause in OF_TRANSFER and row.exposed_ns >= least_ns]
    rows.sort(key=lambda row: -row.exposed_ns)
    found = dict.fromkeys(Owner(row.owner, row.purpose, row.operation) for row in rows)
    yield from list(found)[:MOST_OWNERS]


def read_gains(folder: LaunchFolder) -> LaunchGains | None:
    """Read what the replay of a launch said; None: nobody asked, or its traces are newer.

    A table that is broken, or another launch's, is a replay that says nothing, with the reason.
    """
    path = folder.derived_table(GAINS.name)
    if not path.exists():
        return None
    made_ns = path.stat().st_mtime_ns
    if any(trace.stat().st_mtime_ns > made_ns for trace in folder.find_traces().values() if trace.stat().st_size):
        return None
    try:
        rows = GAINS.fit(read_table(path))
        check_place(path, rows.attrs, find_place(folder))
        _refuse_impossible(rows)
    except (StoreError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, StoreError) else f"{path}: does not hold what it should ({error})"
        return LaunchGains(GAINS.tabulate(None), why)
    said = rows.attrs
    return LaunchGains(rows, str(said.get(_REFUSED, "")), is_left_out=bool(said.get(_LEFT_OUT, False)))


def _refuse_impossible(rows: pd.DataFrame) -> None:
    """Refuse rows that no replay says.

    Raises:
        ValueError: says which.
    """
    if not rows["saving_ns"].between(0, rows["own_ns"]).all():
        raise ValueError("`saving_ns` is less than nothing, or more than `own_ns`")
    for name, kind in (("purpose", Purpose), ("operation", Operation)):
        for word in rows[name].dropna().unique():
            if word:
                kind(word)
    if rows.duplicated(list(GAINS.unique)).any():
        raise ValueError("it has a row twice")
