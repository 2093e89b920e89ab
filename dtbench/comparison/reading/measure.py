"""One launch, or the traces of one job, as the numbers that are compared: those of ``dtbench report``, per launch."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dtbench.base.units import name_ranks, name_steps
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.comparison.metrics import (
    EXPOSED_BY_OWNER,
    METRICS,
    STEP_TIME,
    WAIT,
    OfEstimate,
    OfLaunch,
    OfPurpose,
    OfSteps,
)
from dtbench.comparison.reading.orders import find_orders
from dtbench.runs.cell.cell_notes import describe_disturbed, say_taken
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.cell.summarize_cell import summarize_cell
from dtbench.runs.cell.summarize_overlap import are_among, keep_known, keep_of_steps
from dtbench.runs.doubt_words import describe_doubt, name_doubt
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.representative import Doubt, doubt_traces
from dtbench.runs.summary import CellSummary
from dtbench.runs.wrong_results import find_wrong_results
from dtbench.store.records.baseline import KernelRuns, MeasuredLaunch, Measurement, OwnedTime, PlacedTime, RanksTraffic
from dtbench.store.records.rank import RankRecord, ReceiptOutcome
from dtbench.store.records.run import RunStatus
from dtbench.store.records.traffic import Traffic
from dtbench.traces.account.kernel_times import KernelTime
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES, WHOLE

if TYPE_CHECKING:
    from pandas.api.typing import DataFrameGroupBy

_CAUSES: Final = {f"exposed_{cause}_ns": cause for cause in Cause}


def summarize_side(data: CellData, device: str) -> CellSummary:
    """Return the summary of all launches that can be read, without owners; its notes leave out what tables are gone.

    Owners, half of whose time a summary takes, are summed here.
    """
    launches = []
    for one in data.launches:
        tables = {**one.tables.tables, "collectives": one.tables.collectives[:0]}
        launches.append(replace(one, tables=replace(one.tables, tables=tables, lacking=())))
    return summarize_cell(replace(data, launches=tuple(launches), unreadable={}), device)


def spell_doubts(doubts: Iterable[Doubt]) -> tuple[str, ...]:
    """Say why steps may not stand for others, a clause each."""
    return tuple(f"{name_doubt([doubt])}: {describe_doubt(doubt)}" for doubt in doubts)


def measure_launch(data: CellData, place: int, device: str, *, is_doubted: bool) -> tuple[MeasuredLaunch, str | None]:
    """Return the numbers of one launch of a cell, and why they must not be trusted; None: nothing speaks against them.

    Args:
        data: the cell.
        place: of the launch among ``data.launches``.
        device: name of its accelerator.
        is_doubted: its PROFILED steps may not stand for others, so causes are no findings.
    """
    launch = data.launches[place]
    index = data.cell.launches[place]
    overlap, collectives = keep_known(launch.tables.overlap), launch.tables.collectives
    purposes = keep_of_steps(launch.tables.purposes, overlap)
    counted = keep_of_steps(collectives, overlap)
    alone = replace(data, cell=data.cell.model_copy(update={"launches": (index,)}), launches=(launch,), unreadable={})
    summary = summarize_side(alone, device)
    ranks = range(data.cell.plan.ranks)
    owned = _give_causes(total_owned(counted, overlap, ranks), is_doubted=is_doubted)
    orders = find_orders(collectives[collectives["step"].notna()], launch.tables.overlap)
    name = launch.folder.path.name
    measured = MeasuredLaunch(
        name=name,
        started_unix_ns=launch.record.started_unix_ns if launch.record else None,
        round=f"{launch.place.run} {name}",
        measurements=(
            *_whole_run(summary),
            *_profiled(overlap, purposes, ranks),
            *_estimated(summary),
            *_by_owner(owned),
        ),
        owned=owned,
        placed=total_placed(counted, len(overlap)),
        traffic=launch.ranks[0].traffic if launch.ranks else (),
        other_traffic=_find_other_traffic(launch.ranks),
        order=orders.order,
        order_ranks=orders.order_ranks,
        other_orders=orders.other_orders,
        unlike_steps=orders.unlike_steps,
        receipts=summary.receipts,
        is_stable=all(record.traffic_is_stable for record in launch.ranks),
        first_start_ns=launch.first_start_ns,
    )
    absent = sorted(set(range(data.cell.plan.ranks)) - {record.rank for record in launch.ranks})
    lost = f"the record of rank {absent[0]} is missing" if absent else None
    is_open = launch.record is not None and launch.record.status is not RunStatus.COMPLETE
    doubt = _find_doubt(summary) or lost or ("it did not end" if is_open else None)
    return measured, doubt and doubt.removeprefix(f"{name}: ")


def _find_other_traffic(ranks: Sequence[RankRecord]) -> tuple[RanksTraffic, ...]:
    """Group ranks that issued other than the lowest by what they issued."""
    by_traffic: dict[tuple[Traffic, ...], list[int]] = {}
    for record in ranks:
        by_traffic.setdefault(record.traffic, []).append(record.rank)
    others = [one for one in by_traffic.items() if one[0] != ranks[0].traffic]
    return tuple(RanksTraffic(ranks=tuple(of), traffic=traffic) for traffic, of in others)


def measure_traces(traces: TraceSet, name: str) -> tuple[MeasuredLaunch, tuple[str, ...], tuple[str, ...]]:
    """Return the numbers of someone's traces, which are one launch, and why their steps may not stand for others.

    They are of the steps that all ranks have, none where these have none in common; of traces without any steps, of the
    whole traces, and no step time is told.

    Args:
        traces: of one job.
        name: of the launch.

    Returns:
        The numbers; which steps are left out, and which ranks lack them; what else speaks against the steps that count.
        Clauses both.
    """
    analyses = traces.analyses
    overlap, collectives = OVERLAP.tabulate(analyses), COLLECTIVES.tabulate(analyses)
    overlap = overlap.dropna(subset="step_ns")
    purposes = PURPOSES.tabulate(analyses)
    timed: tuple[Measurement, ...] = ()
    ranks = [one.rank for one in analyses]
    left_out: tuple[str, ...] = ()
    if len(overlap):
        whole, overlap = overlap, _keep_of_all_ranks(overlap)
        left_out = tuple(_say_left_out(whole, overlap))
        timed = tuple(_time_steps(overlap, ranks))
        purposes = purposes[purposes["step"].isin(overlap["step"])]
        collectives = collectives[collectives["step"].isin(overlap["step"])]
    else:
        overlap = WHOLE.tabulate(analyses).rename(columns={"window_ns": "step_ns"}).assign(step=0)
        collectives = collectives.assign(step=0)
        rows = [
            {"rank": one.rank, "step": 0, **PURPOSES.describe(row)} for one in analyses for row in one.whole_purposes
        ]
        purposes = PURPOSES.fit(pd.DataFrame(rows, columns=list(PURPOSES.dtypes)))
    known = keep_known(overlap)
    counted = keep_of_steps(collectives, known)
    doubts = spell_doubts(doubt_traces(analyses))
    owned = _give_causes(total_owned(counted, known, ranks), is_doubted=bool(left_out or doubts))
    orders = find_orders(collectives, overlap)
    measured = MeasuredLaunch(
        name=name,
        started_unix_ns=None,
        round=None,
        measurements=(
            *timed,
            *_profiled(known, keep_of_steps(purposes, known), ranks),
            *_by_owner(owned),
        ),
        owned=owned,
        placed=total_placed(counted, len(known)),
        traffic=(),
        receipts=(),
        order=orders.order,
        order_ranks=orders.order_ranks,
        other_orders=orders.other_orders,
        unlike_steps=orders.unlike_steps,
        kernels=_total_kernels(traces, known),
    )
    return measured, left_out, doubts


def count_steps(analyses: Sequence[TraceAnalysis]) -> tuple[int, int] | None:
    """Count the steps of traces that ``measure_traces`` takes, and all that some rank has; None: there are none."""
    overlap = OVERLAP.tabulate(analyses)
    counted = _keep_of_all_ranks(overlap.dropna(subset="step_ns"))
    return (counted["step"].nunique(), overlap["step"].nunique()) if len(overlap) else None


def _time_steps(overlap: pd.DataFrame, ranks: Collection[int]) -> Iterator[Measurement]:
    """Yield the step time, each step's of its slowest rank, with the ranks whose steps are known; none, no number.

    Args:
        overlap: columns ``rank``, ``step`` and ``step_ns``, which is known.
        ranks: all that have a trace.
    """
    slowest_ns = [float(time_ns) for time_ns in overlap.groupby("step")["step_ns"].max()]
    if slowest_ns:
        of_ranks = _name_part(overlap["rank"], ranks)
        yield Measurement(metric=STEP_TIME, subject="", value=summarize(slowest_ns).median, ranks=of_ranks)


def _total_kernels(traces: TraceSet, steps: pd.DataFrame) -> tuple[KernelRuns, ...]:
    """Return what compute kernels took in some steps of ranks, a median for each step, those with most time first.

    Args:
        traces: of one job.
        steps: columns ``rank`` and ``step``.
    """
    counted = set(zip(steps["rank"].tolist(), steps["step"].tolist(), strict=True))
    of_steps: dict[tuple[str, str], dict[int, list[KernelTime]]] = {}
    for one in traces.analyses:
        for step, account in zip(one.steps, one.accounts.steps, strict=True):
            if (one.rank, step.step) in counted:
                for row in account.kernels:
                    of_steps.setdefault((row.name, row.shape), {}).setdefault(step.step, []).append(row)
    found = []
    for (name, shape), rows_of in of_steps.items():
        medians = [median([row.median_ns for row in rows]) for _, rows in sorted(rows_of.items())]
        counts = [row.count for rows in rows_of.values() for row in rows]
        found.append(
            KernelRuns(
                name=name,
                shape=shape,
                count=sum(counts) / len(counted),
                median_ns=median(medians),
                medians_ns=tuple(medians),
                fewest=min(counts) if len(counts) == len(counted) else 0,
                most=max(counts),
            )
        )
    return tuple(sorted(found, key=lambda row: (-row.count * row.median_ns, row.name, row.shape)))


def _keep_of_all_ranks(overlap: pd.DataFrame) -> pd.DataFrame:
    """Leave out steps that not all ranks have: means and maxima over others are not like those over all.

    Args:
        overlap: columns ``rank`` and ``step``, a row for each.
    """
    is_shared = overlap.groupby("step")["rank"].transform("nunique") == overlap["rank"].nunique()
    return overlap[is_shared]


def _say_left_out(overlap: pd.DataFrame, kept: pd.DataFrame) -> Iterator[str]:
    """Say which steps are in no number, as some ranks lack them: those that are may not stand for them."""
    if not len(kept):
        yield "PERHAPS NOT REPRESENTATIVE: no step is in the traces of all ranks, so that none counts"
        return
    ranks = {*overlap["rank"]}
    steps_of: dict[tuple[int, ...], list[int]] = {}
    for step, those in overlap[~overlap["step"].isin(kept["step"])].groupby("step"):
        steps_of.setdefault(tuple(sorted(ranks - {*those["rank"]})), []).append(int(str(step)))
    for lacking, steps in steps_of.items():
        are, which = ("is", "it") if len(steps) == 1 else ("are", "them")
        have = "lacks" if len(lacking) == 1 else "lack"
        left = f"{name_steps(steps)} {are} left out on all ranks, as {name_ranks(lacking)} {have} {which}"
        yield f"PERHAPS NOT REPRESENTATIVE: {left}"


def _give_causes(owned: tuple[OwnedTime, ...], *, is_doubted: bool) -> tuple[OwnedTime, ...]:
    """Return the rows as they are; without causes, which are then no findings, where steps may not stand for others."""
    none: dict[str, object] = {"cause": None, "by_cause": {}}
    return tuple(row.model_copy(update=none) for row in owned) if is_doubted else owned


def _whole_run(summary: CellSummary) -> Iterator[Measurement]:
    """Yield what is known of MEASURED steps, and of the launch; what it has not is left out."""
    for metric in METRICS:
        if isinstance(metric.value, OfLaunch):
            value = metric.value.read(summary)
            if value is not None and not math.isnan(value):
                yield Measurement(metric=metric.name, subject="", value=float(value))


def _profiled(overlap: pd.DataFrame, purposes: pd.DataFrame, ranks: Collection[int]) -> Iterator[Measurement]:
    """Yield where PROFILED steps went, means over steps and ranks; a purpose that occurs in some steps counts in all.

    A step that communicated and of which no purpose is told is in no mean of purposes; a number of a purpose that was
    seen in no step is NaN, and so is a wait that is only known at least: two of these have no difference.
    """
    if not len(overlap):
        return
    of_ranks = _name_part(overlap["rank"], ranks)
    for metric in METRICS:
        if isinstance(metric.value, OfSteps):
            yield Measurement(metric=metric.name, subject="", value=metric.value.read(overlap), ranks=of_ranks)
    windows_of = [pd.MultiIndex.from_frame(table[["rank", "step"]]) for table in (overlap, purposes)]
    told = windows_of[0].isin(windows_of[1])
    told_windows = overlap[told | (overlap["comm_ns"] == 0).to_numpy(dtype=bool)]
    of_purposes = {metric.name: metric.value.column for metric in METRICS if isinstance(metric.value, OfPurpose)}
    for purpose, mine in purposes.groupby("purpose"):
        is_least = bool(mine["is_wait_least"].eq(other=True).any())
        for name, column in of_purposes.items():
            seen = mine[column].iloc[:0] if is_least and name == WAIT else mine[column].dropna()
            windows = len(told_windows) - len(mine) + len(seen)
            value = float(seen.sum()) / max(windows, 1) if len(seen) else math.nan
            left = _leave_out(told_windows, mine.drop(seen.index))
            yield Measurement(metric=name, subject=str(purpose), value=value, ranks=_name_part(left["rank"], ranks))


def _leave_out(windows: pd.DataFrame, unknown: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of ranks but those of which a number is not known."""
    key = ["rank", "step"]
    return windows[~are_among(windows[key], unknown[key])]


def _name_part(known: "pd.Series[int]", ranks: Collection[int]) -> tuple[int, ...]:
    """Return the ranks of which a number is known; empty where these are all."""
    found = {int(rank) for rank in known}
    return () if found >= set(ranks) else tuple(sorted(found))


def _estimated(summary: CellSummary) -> Iterator[Measurement]:
    """Yield exposed communication as estimated without a profiler, the mean over ranks; what is unknown is left out."""
    names = {metric.value.estimate: metric.name for metric in METRICS if isinstance(metric.value, OfEstimate)}
    for one in summary.exposure.rows[0].estimates if summary.exposure else ():
        if one.estimate in names and not math.isnan(one.mean_ns):
            ranks = one.part.ranks if one.part else ()
            yield Measurement(metric=names[one.estimate], subject="", value=one.mean_ns, ranks=ranks)


def _by_owner(owned: Sequence[OwnedTime]) -> Iterator[Measurement]:
    exposed_ns: Counter[str] = Counter()
    ranks: dict[str, tuple[int, ...]] = {}
    for row in owned:
        if row.owner:
            is_sum = ranks.setdefault(row.owner, row.ranks) == row.ranks  # else of other ranks
            exposed_ns[row.owner] += row.exposed_ns if is_sum else math.nan  # type: ignore[assignment]  # of floats
    for owner, value in exposed_ns.items():
        yield Measurement(metric=EXPOSED_BY_OWNER, subject=owner, value=float(value), ranks=ranks[owner])


def total_owned(collectives: pd.DataFrame, steps: pd.DataFrame, ranks: Collection[int]) -> tuple[OwnedTime, ...]:
    """Sum collectives by owner, operation and purpose, per window.

    A window in which an owner's exposed time is not known is left out of that owner's times.

    Args:
        collectives: columns as the table ``collectives``; those that count.
        steps: PROFILED steps of all ranks, over which means are taken; none give no rows.
        ranks: all of the launch.
    """
    windows = len(steps)
    if not windows or not len(collectives):
        return ()
    keys = ["owner", "operation", "purpose"]
    table = collectives.assign(duration_ns=_durations(collectives), is_unknown=collectives["exposed_ns"].isna())
    grouped = table.groupby(keys, dropna=False)
    counts = grouped.size()
    sizes = _sum_where_all_known(grouped, "size_bytes") / windows
    if table["is_unknown"].any():
        table["is_unknown"] = table.groupby([*keys, "rank", "step"], dropna=False)["is_unknown"].transform("any")
    known = table[~table["is_unknown"]]
    of_known = known.groupby(keys, dropna=False)
    sums = of_known[["exposed_ns", *_CAUSES]].sum()
    sums = sums.assign(duration_ns=_sum_where_all_known(of_known, "duration_ns")).reindex(counts.index)
    unknown = dict(iter(table[table["is_unknown"]].groupby(keys, dropna=False)))
    left = [_leave_out(steps, unknown[key]) if key in unknown else steps for key in counts.index]
    return tuple(
        _own(key, count, row, windows=windows, known_windows=len(kept)).model_copy(
            update={"ranks": _name_part(kept["rank"], ranks), "size_bytes": float(size)}
        )
        for key, count, size, row, kept in zip(counts.index, counts, sizes, sums.to_dict("records"), left, strict=True)
    )


def _own(
    key: tuple[str, str, str], count: int, row: Mapping[Hashable, Any], *, windows: int, known_windows: int
) -> OwnedTime:
    owner, operation, purpose = key
    is_known = not pd.isna(row["exposed_ns"])
    by_cause = {cause: float(row[column]) / known_windows for column, cause in _CAUSES.items() if row[column]}
    by_cause = by_cause if is_known else {}
    return OwnedTime(
        owner=str(owner),
        operation=Operation(operation) if operation else None,
        purpose=Purpose(purpose),
        count=count / windows,
        duration_ns=float(row["duration_ns"]) / known_windows if is_known else math.nan,
        exposed_ns=float(row["exposed_ns"]) / known_windows if is_known else math.nan,
        cause=max(by_cause, key=lambda cause: by_cause[cause], default=None),
        by_cause=by_cause,
    )


def total_placed(collectives: pd.DataFrame, windows: int) -> tuple[PlacedTime, ...]:
    """Sum what has no owner by its place in a step, per window; arguments as ``total_owned``."""
    table = collectives[(collectives["owner"] == "") & collectives["exposed_ns"].notna()]
    if not windows or not len(table):
        return ()
    table = table.assign(duration_ns=_durations(table), begin_ns=table["issue_ns"].fillna(table["start_ns"]))
    table = table.sort_values("begin_ns", kind="stable")
    place = ["group", "operation", "purpose"]
    table["number"] = table.groupby(["rank", "step", *place]).cumcount() + 1
    at_place = table.groupby([*place, "number"])
    found = at_place.agg({"seq": "first", "exposed_ns": "sum"})  # the first that is known
    found["duration_ns"] = _sum_where_all_known(at_place, "duration_ns")
    rows = []
    for key, row in zip(found.index, found.to_dict("records"), strict=True):
        group, operation, purpose, number = key
        rows.append(
            PlacedTime(
                group=str(group),
                operation=Operation(operation) if operation else None,
                purpose=Purpose(purpose),
                number=int(number),
                seq=None if pd.isna(row["seq"]) else int(row["seq"]),
                duration_ns=float(row["duration_ns"]) / windows,
                exposed_ns=float(row["exposed_ns"]) / windows,
            )
        )
    return tuple(rows)


def _durations(collectives: pd.DataFrame) -> "pd.Series[int]":
    """Return how long each took; NA: when it began or ended is not known."""
    return collectives["end_ns"] - collectives["start_ns"]


def _sum_where_all_known(grouped: "DataFrameGroupBy[Any, Any]", column: str) -> "pd.Series[float]":
    """Sum a column over each group; NaN where a row of the group has no value: a sum of the others is none of all."""
    values = grouped[column]
    return values.sum().where(values.count() == grouped.size()).astype("float64")


def _find_doubt(summary: CellSummary) -> str | None:
    """Say why a launch's numbers must not be trusted."""
    if summary.status is not RunStatus.COMPLETE:
        return summary.reason or "it is not complete"
    if (wrong := find_wrong_results(summary)) is not None:
        return wrong
    if summary.disturbed:
        return f"{say_taken(summary.disturbed)}: {describe_disturbed(summary.disturbed)}"
    knobs = [receipt.knob for receipt in summary.receipts if receipt.outcome is ReceiptOutcome.DISAGREES]
    differ = [f"asked and got differ for {', '.join(knobs)}"] if knobs else []
    return next(iter((*differ, *summary.rank_doubts)), None)
