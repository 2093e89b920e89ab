"""Where the time of a cell's PROFILED steps went: by rank and by purpose, beside what the plan expects."""

import math
from collections.abc import Sequence
from typing import Final

import pandas as pd

from dtbench.analyze.summary import PurposeSummary, RankBreakdown
from dtbench.plan import Plan
from dtbench.store.records import OverlapPossible, RankRecord
from dtbench.vocabulary import Purpose

_PLANNED: Final = (
    Purpose.UNSHARD,
    Purpose.GRAD_REDUCE,
    Purpose.TENSOR,
)  # purposes about which a plan makes a statement
_TIMES: Final = ["comm_ns", "hidden_ns", "exposed_ns", "wait_ns"]
_STEP: Final = ["launch", "rank", "step"]


def fraction(table: pd.DataFrame, part: str, whole: str) -> float:
    """Give the ratio of two columns' sums; NaN when there is nothing of the whole."""
    total = int(table[whole].sum())
    return int(table[part].sum()) / total if total else math.nan


def summarize_ranks(overlap: pd.DataFrame) -> tuple[RankBreakdown, ...]:
    """Give the median step of each rank (the shorter of the middle two): the parts of one step add up."""
    rows = []
    for rank, steps in overlap.groupby("rank"):
        ordered = steps.sort_values(["step_ns", "launch", "step"])
        median = ordered.iloc[(len(ordered) - 1) // 2]
        names = [name for name in RankBreakdown.model_fields if name != "rank"]
        rows.append(RankBreakdown(rank=int(str(rank)), **{name: int(median[name]) for name in names}))
    return tuple(rows)


def summarize_purposes(
    purposes: pd.DataFrame, overlap: pd.DataFrame, plan: Plan, ranks: Sequence[RankRecord]
) -> tuple[tuple[PurposeSummary, ...], list[str]]:
    """Give one row per purpose that occurs or is planned, and notes on what differs between ranks or steps.

    Args:
        purposes: ``tables.PURPOSES`` of all launches, with a column ``launch``.
        overlap: ``tables.OVERLAP`` likewise; says which steps there are.
        plan: what is expected.
        ranks: records of the ranks; say whether overlap is possible.
    """
    if not len(overlap):
        return (), []
    possible = {one.purpose: one for record in ranks[:1] for one in record.overlap_possible}
    steps = pd.MultiIndex.from_frame(overlap[_STEP])
    rows, notes = [], []
    for purpose in Purpose:
        mine = purposes[purposes["purpose"] == purpose]
        is_planned = any(traffic.purpose is purpose for traffic in plan.traffic)
        if not len(mine) and not is_planned:
            continue
        # A step in which a purpose did not occur has no row: it counts as zero, so that medians are over all steps.
        table = mine.set_index(_STEP)[["count", "size_bytes", *_TIMES]].reindex(steps, fill_value=0)
        rows.append(_summarize(purpose, table, plan, possible.get(purpose)))
        issued = table[["count", "size_bytes"]].drop_duplicates()
        if len(issued) > 1:
            notes.append(f"{purpose}: ranks or steps issued different collectives: {_spell(issued)}")
    return tuple(rows), notes


def _spell(issued: pd.DataFrame) -> str:
    return ", ".join(f"{count} of {size_bytes} bytes" for count, size_bytes in issued.itertuples(index=False))


def _summarize(purpose: Purpose, table: pd.DataFrame, plan: Plan, possible: OverlapPossible | None) -> PurposeSummary:
    first_rank = table.xs(min(table.index.get_level_values("rank")), level="rank")[["count", "size_bytes"]]
    count, size_bytes = (int(value) for value in first_rank.value_counts().index[0])  # of most steps
    medians = table[_TIMES].groupby(level="rank").median().median()
    traffic = [one for one in plan.traffic if one.purpose is purpose]
    planned = (
        (sum(one.count for one in traffic), sum(one.size_bytes for one in traffic)) if purpose in _PLANNED else None
    )
    return PurposeSummary(
        purpose=purpose,
        count=count,
        size_bytes=size_bytes,
        planned_count=planned[0] if planned else None,
        planned_size_bytes=planned[1] if planned else None,
        matches_plan=(count, size_bytes) == planned if planned else None,
        comm_ns=int(medians["comm_ns"]),
        hidden_ns=int(medians["hidden_ns"]),
        exposed_ns=int(medians["exposed_ns"]),
        wait_ns=int(medians["wait_ns"]),
        hidden_fraction=fraction(table, "hidden_ns", "comm_ns"),
        overlap_possible=possible.possible if possible else None,
        overlap_reason=possible.reason if possible else "",
    )
