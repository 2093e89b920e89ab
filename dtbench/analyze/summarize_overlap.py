"""Where the time of a cell's PROFILED steps went: by rank and by purpose, beside what the plan expects."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from dtbench.analyze.intervals import Bools
from dtbench.analyze.summary import PurposeSummary, RankBreakdown
from dtbench.analyze.tables import OVERLAP
from dtbench.plan import Plan
from dtbench.store.rank_records import RankRecord
from dtbench.store.records import OwnLoop
from dtbench.store.traffic_records import ExpectedTraffic, OverlapPossible
from dtbench.units import name_ranks
from dtbench.vocabulary import Purpose

_ALWAYS_PLANNED: Final = (Purpose.UNSHARD, Purpose.GRAD_REDUCE, Purpose.TENSOR)
"""Purposes of which a plan says "none" by leaving them out; of the others it then says nothing."""

_TIMES: Final = ["comm_ns", "hidden_ns", "exposed_ns", "wait_ns"]
_STEP: Final = ["launch", "rank", "step"]


def fraction(table: pd.DataFrame, part: str, whole: str) -> float:
    """Give the ratio of two columns' sums where both are known; NaN when there is nothing of the whole."""
    known = table[[part, whole]].dropna()
    total = int(known[whole].sum())
    return int(known[part].sum()) / total if total else math.nan


def keep_known(overlap: pd.DataFrame) -> pd.DataFrame:
    """Give the steps whose whole account is known: in the others something ran that was not seen, or nothing did."""
    return overlap.dropna(subset=[name for name in OVERLAP if name.endswith("_ns") and name in overlap])


def keep_of_steps(table: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Give the rows of a table that belong to some steps: what is divided by their number must be of them alone.

    Args:
        table: columns ``rank`` and ``step``, NA for what no step issued, and ``launch`` where it is of several.
        steps: rows of ``tables.OVERLAP``, with ``launch`` likewise.
    """
    key = [name for name in _STEP if name in table and name in steps]
    issued = table[table["step"].notna()]
    return issued[are_among(issued[key], steps[key])]


def are_among(rows: pd.DataFrame, those: pd.DataFrame) -> Bools:
    """Tell of each row, shape ``(n,)``, whether another table with the same columns, of whole numbers, has it."""
    there = pd.MultiIndex.from_frame(those.astype("int64"))
    return np.asarray(pd.MultiIndex.from_frame(rows.astype("int64")).isin(there), dtype=np.bool_)


def mean_step(steps: pd.DataFrame) -> dict[str, int]:
    """Average steps, at least one, columns as in ``tables.OVERLAP``; what rounding loses is put to ``idle_ns``.

    So the parts add up; all must be known, see ``keep_known``.
    """
    mean = {name: int(steps[name].sum()) // len(steps) for name in OVERLAP if name.endswith("_ns")}
    mean["comm_ns"] = mean["hidden_comm_ns"] + mean["exposed_comm_ns"]
    mean["idle_ns"] = mean["step_ns"] - mean["compute_ns"] - mean["exposed_comm_ns"] - mean["exposed_copy_ns"]
    return mean


def summarize_ranks(overlap: pd.DataFrame) -> tuple[RankBreakdown, ...]:
    """Give the mean profiled step of each rank, over steps whose account is known; a rank without has no row."""
    return tuple(
        RankBreakdown(rank=int(str(rank)), steps=len(steps), **mean_step(steps))
        for rank, steps in keep_known(overlap).groupby("rank")
    )


def mean_known(column: "pd.Series[int]") -> int | None:
    """Average what is known of a nullable column, rounded down; None: nothing is."""
    known = column.dropna()
    return int(known.sum()) // len(known) if len(known) else None


def name_part(known: "pd.Series[int]", ranks: Collection[int]) -> tuple[int, ...]:
    """Return the ranks of which a number is known; empty where none is, or these are all."""
    found = {int(rank) for rank in known}
    return () if found >= set(ranks) else tuple(sorted(found))


def summarize_purposes(
    purposes: pd.DataFrame,
    overlap: pd.DataFrame,
    plan: Plan | OwnLoop,
    ranks: Sequence[RankRecord],
    unseen: Collection[Purpose] = (),
    *,
    is_whole: bool = True,
) -> tuple[tuple[PurposeSummary, ...], list[str]]:
    """Give one row per purpose that occurs or is planned, and notes on what differs between ranks or steps.

    Args:
        purposes: ``tables.PURPOSES`` of all launches, with a column ``launch``.
        overlap: ``tables.OVERLAP`` likewise; says which steps there are.
        plan: what is expected; a person's own loop expects nothing.
        ranks: records of the ranks; say whether overlap is possible.
        unseen: purposes whose collectives the traces do not show.
        is_whole: no collective was launched that the traces lack, so that one too few is one too few.
    """
    told = _find_told(purposes, overlap)
    untold = [f"purposes of communication are not known in {len(overlap) - len(told)} of {len(overlap)} rank steps"]
    notes = untold if len(told) < len(overlap) else []
    if not len(told):
        return (), notes
    possible = {one.purpose: one for record in ranks[:1] for one in record.overlap_possible}
    steps = pd.MultiIndex.from_frame(told[_STEP])
    rows = []
    for purpose in Purpose:
        mine = purposes[purposes["purpose"] == purpose]
        expected = None if isinstance(plan, OwnLoop) or purpose in unseen else _expect(purpose, plan, ranks)
        if not len(mine) and (expected is None or not expected.size_bytes):
            continue
        # A step in which a purpose did not occur has no row: it counts as zero, so that means are over all steps.
        table = mine.set_index(_STEP)[["count", "size_bytes", *_TIMES]].reindex(steps, fill_value=0)
        row = _summarize(purpose, table, expected, possible.get(purpose), is_whole=is_whole)
        rows.append(row.model_copy(update=_find_part(table, range(plan.ranks))))
        notes += _say_part(rows[-1], plan.ranks)
        issued = table[["count", "size_bytes"]].drop_duplicates()
        if len(issued) > 1:
            notes.append(f"{purpose}: ranks or steps issued different collectives: {_spell(issued)}")
    return tuple(rows), notes


def _find_part(table: pd.DataFrame, ranks: Collection[int]) -> dict[str, tuple[int, ...]]:
    """Return of which ranks a purpose's times are known, where that is not all of them."""
    rank = table.index.get_level_values("rank").to_series(index=table.index)
    known = {"ranks": table[["hidden_ns", "exposed_ns"]].notna().all(axis=1), "wait_ranks": table["wait_ns"].notna()}
    return {name: name_part(rank[is_known], ranks) for name, is_known in known.items()}


def _say_part(row: PurposeSummary, ranks: int) -> Iterator[str]:
    for what, known in (("what is hidden and exposed", row.ranks), ("the wait", row.wait_ranks)):
        if known:
            yield f"{row.purpose}: {what} is of {name_ranks(known)} alone, of {ranks}: not known of the others"


def _find_told(purposes: pd.DataFrame, overlap: pd.DataFrame) -> pd.DataFrame:
    """Give the steps whose purposes are known: some row tells of them, or they were seen to communicate nothing."""
    rows = pd.MultiIndex.from_frame(purposes[_STEP])
    return overlap[pd.MultiIndex.from_frame(overlap[_STEP]).isin(rows) | overlap["comm_ns"].eq(0).fillna(value=False)]


def _spell(issued: pd.DataFrame) -> str:
    return ", ".join(
        f"{count} of {'n/a' if pd.isna(size_bytes) else size_bytes} bytes"
        for count, size_bytes in issued.itertuples(index=False)
    )


def _expect(purpose: Purpose, plan: Plan, ranks: Sequence[RankRecord]) -> ExpectedTraffic | None:
    """Give what a rank that built the model, or else the plan, says of a purpose; None: nothing."""
    computed = next((record.planned for record in ranks), None) or ()
    found = next((one for one in computed if one.purpose is purpose), None)
    if found is not None or plan.traffic is None:
        return found
    traffic = [one for one in plan.traffic if one.purpose is purpose]
    if not traffic and purpose not in _ALWAYS_PLANNED:
        return None
    count, size_bytes = sum(one.count for one in traffic), sum(one.size_bytes for one in traffic)
    return ExpectedTraffic(purpose=purpose, count=count, size_bytes=size_bytes)


def _summarize(
    purpose: Purpose,
    table: pd.DataFrame,
    expected: ExpectedTraffic | None,
    possible: OverlapPossible | None,
    *,
    is_whole: bool,
) -> PurposeSummary:
    first_rank = table.xs(min(table.index.get_level_values("rank")), level="rank")[["count", "size_bytes"]]
    count, size_bytes = first_rank.value_counts(dropna=False).index[0]  # of most steps
    size_bytes = None if pd.isna(size_bytes) else int(size_bytes)
    is_alike = len(table[["count", "size_bytes"]].drop_duplicates()) == 1  # every rank, every step
    is_missed = expected is not None and not table["count"].any()  # planned, and none was seen: no zero
    comm_ns, hidden_ns, exposed_ns, wait_ns = (None if is_missed else mean_known(table[name]) for name in _TIMES)
    fits = expected and expected.size_bytes == size_bytes and expected.count in (None, count)
    is_known = is_whole or (expected is not None and count > (expected.count or 0))
    return PurposeSummary(
        purpose=purpose,
        count=int(count),
        size_bytes=size_bytes,
        planned_count=expected.count if expected else None,
        planned_size_bytes=expected.size_bytes if expected else None,
        matches_plan=bool(is_alike and fits) if expected and size_bytes is not None and is_known else None,
        comm_ns=comm_ns if hidden_ns is None or exposed_ns is None else hidden_ns + exposed_ns,
        hidden_ns=hidden_ns,
        exposed_ns=exposed_ns,
        wait_ns=wait_ns,
        hidden_fraction=fraction(table, "hidden_ns", "comm_ns"),
        overlap_possible=possible.possible if possible else None,
        overlap_reason=possible.reason if possible else "",
    )
