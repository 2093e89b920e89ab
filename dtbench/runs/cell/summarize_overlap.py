"""Where the time of a cell's PROFILED steps went: by rank and by purpose, beside what the plan expects."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from dtbench.base.columns import Unit
from dtbench.base.vocabulary import PURPOSE_TIMES, Purpose
from dtbench.plan.plan import Plan
from dtbench.runs.summary import PurposeSummary, RankBreakdown
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import OwnLoop
from dtbench.store.records.traffic import ExpectedTraffic, OverlapPossible
from dtbench.traces.known_part import KnownPart
from dtbench.traces.rows.tables import OVERLAP
from dtbench.traces.time.intervals import Bools

_ALWAYS_PLANNED: Final = (Purpose.UNSHARD, Purpose.GRAD_REDUCE, Purpose.TENSOR)
"""Purposes of which a plan says "none" by leaving them out; of the others it then says nothing."""

_ACCOUNT: Final = [column.name for column in OVERLAP.columns if column.unit is Unit.NS]
_LEFT_OVER: Final = ("exposed_copy_ns", "idle_ns")
"""What alone is not known of a step of which copies are lost."""
_ASKED: Final = [name for name in _ACCOUNT if name not in _LEFT_OVER]
_TIMES: Final = [*PURPOSE_TIMES, "wait_ns"]
STEP: Final = ["launch", "rank", "step"]


@dataclass(frozen=True)
class StepMean:
    """A mean step, ns, columns as in the table ``overlap``; None: not known."""

    step_ns: int
    compute_ns: int
    comm_ns: int
    hidden_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int | None
    idle_ns: int | None


def fraction(table: pd.DataFrame, part: str, whole: str) -> float:
    """Return the ratio of two columns' sums where both are known; NaN when there is nothing of the whole."""
    is_known = (table[part].notna() & table[whole].notna()).to_numpy()
    total = int(table[whole][is_known].sum())
    return int(table[part][is_known].sum()) / total if total else math.nan


def keep_known(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of which it is known what was exposed: in the others something was not seen, or nothing ran.

    Copies and idle time may not be: copies that are lost are no communication.
    """
    lacking = [name for name in _ASKED if name in overlap and overlap[name].hasnans]
    return overlap.dropna(subset=lacking) if lacking else overlap


def keep_of_steps(table: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table that belong to some steps: what is divided by their number must be of them alone.

    Args:
        table: columns ``rank`` and ``step``, NA for what no step issued, and ``launch`` where it is of several.
        steps: rows of the table ``overlap``, with ``launch`` likewise.
    """
    key = [name for name in STEP if name in table and name in steps]
    issued = table[table["step"].notna()]
    return issued[are_among(issued[key], steps[key])]


def are_among(rows: pd.DataFrame, those: pd.DataFrame) -> Bools:
    """Tell of each row, shape ``(n,)``, whether another table with the same columns, of whole numbers, has it."""
    there = set(give_keys(those))
    return np.fromiter((key in there for key in give_keys(rows)), np.bool_, len(rows))


def give_keys(rows: pd.DataFrame) -> Iterator[tuple[int, ...]]:
    """Give each row of a table of whole numbers."""
    return zip(*(rows[name].astype("int64").tolist() for name in rows), strict=True)


def mean_step(steps: pd.DataFrame) -> StepMean:
    """Average steps, at least one, columns as in the table ``overlap``; what rounding loses is put to ``idle_ns``.

    So the parts add up. Steps are as from ``keep_known``; copies and idle time: None where not known of all of them.
    """
    step_ns, compute_ns, hidden_ns, exposed_ns = (
        int(steps[name].sum()) // len(steps) for name in ("step_ns", "compute_ns", "hidden_comm_ns", "exposed_comm_ns")
    )
    copies_ns = steps["exposed_copy_ns"]
    copy_ns = None if copies_ns.hasnans else int(copies_ns.sum()) // len(steps)
    return StepMean(
        step_ns=step_ns,
        compute_ns=compute_ns,
        comm_ns=hidden_ns + exposed_ns,
        hidden_comm_ns=hidden_ns,
        exposed_comm_ns=exposed_ns,
        exposed_copy_ns=copy_ns,
        idle_ns=None if copy_ns is None or steps["idle_ns"].hasnans else step_ns - compute_ns - exposed_ns - copy_ns,
    )


def summarize_ranks(overlap: pd.DataFrame) -> tuple[RankBreakdown, ...]:
    """Return the mean profiled step of each rank, over steps whose account is known; a rank without has no row."""
    of_ranks = ((int(str(rank)), keep_known(steps), steps) for rank, steps in overlap.groupby("rank"))
    return tuple(
        RankBreakdown(rank=rank, steps=len(known), **asdict(mean_step(known)), part=find_part(known, steps))
        for rank, known, steps in of_ranks
        if len(known)
    )


def mean_known(column: "pd.Series[int]") -> int | None:
    """Average what is known of a nullable column, rounded down; None: nothing is."""
    known = int(column.count())
    return int(column.sum()) // known if known else None


def fill_waits(purposes: pd.DataFrame) -> "pd.Series[int]":
    """Return the least that one purpose waited in each row of the table ``purposes``; NA: nothing is known.

    A row in which none was seen, as not every consumer can be, is 0: without it a mean would be of the long waits
    alone. Where no row has any, that is nothing known.
    """
    waits, is_least = (
        purposes["wait_ns"],
        purposes["is_wait_least"].astype("boolean").fillna(value=False).astype("bool"),
    )
    return waits.where(waits > 0) if is_least.any() and not waits.sum() else waits.mask(is_least & waits.isna(), 0)


def complete(overlap: pd.DataFrame, launches: Collection[int], ranks: int) -> pd.DataFrame:
    """Add a row of which nothing is known for each step that a rank lacks; a launch without any lacks the others'.

    No rows stay none: then nothing was traced.

    Args:
        overlap: the table ``overlap`` of all launches, with a column ``launch``.
        launches: all of the cell.
        ranks: that each has.
    """
    steps = {launch: mine["step"].unique() for launch, mine in overlap.groupby("launch")}
    longest = max(steps.values(), key=len, default=())
    every = [(one, rank, step) for one in launches for rank in range(ranks) for step in steps.get(one, longest)]
    listed = pd.MultiIndex.from_frame(overlap[STEP])
    lost = [key for key in every if key not in listed]
    return pd.concat([overlap, pd.DataFrame(lost, columns=STEP)], ignore_index=True) if lost else overlap


def find_part(known: pd.DataFrame, every: pd.DataFrame) -> KnownPart | None:
    """Return of what a number is known; None where that is all, or nothing.

    Args:
        known: the steps that have part in it: columns ``launch``, where there are several, ``rank`` and ``step``.
        every: those that should have, with these columns.
    """
    key = [name for name in STEP if name in known and name in every]
    mine = every[are_among(every[key], known[key])]
    if not 0 < len(mine) < len(every):
        return None
    all_of, have_part = ({name: sorted({int(one) for one in table[name]}) for name in key} for table in (every, mine))
    some = {name: tuple(have_part[name]) for name in key if len(have_part[name]) < len(all_of[name])}
    among = every[np.logical_and.reduce([every[name].isin(have_part[name]) for name in key if name != "step"])]
    pairs = [len(table[key].drop(columns="step").drop_duplicates()) for table in (mine, every)]
    return KnownPart(
        ranks=some.get("rank", ()),
        of_ranks=len(all_of["rank"]),
        launches=some.get("launch", ()),
        of_launches=len(all_of.get("launch", (0,))),
        steps=len(mine),
        of_steps=len(among),
        has_every_rank=pairs[0] == pairs[1],
    )


def find_part_of_records(told: Sequence[tuple[int, int]], every: Sequence[tuple[int, int]]) -> KnownPart | None:
    """Return of which ranks' records a number is known, each a launch and a rank; None where that is all, or nothing.

    Args:
        told: those that have part in it.
        every: those that should have.
    """
    tables = (pd.DataFrame(pairs, columns=["launch", "rank"]).assign(step=0) for pairs in (told, every))
    part = find_part(*tables)
    return None if part is None else replace(part, counted="rank records")


def find_launches_part(told: Sequence[int], every: Sequence[int]) -> KnownPart | None:
    """Return of which launches a number is known; None where that is all, or nothing."""
    return find_part_of_records(*([(launch, 0) for launch in launches] for launches in (told, every)))


def summarize_purposes(
    purposes: pd.DataFrame,
    overlap: pd.DataFrame,
    plan: Plan | OwnLoop,
    ranks: Sequence[RankRecord],
    unplanned: Collection[Purpose] = (),
    *,
    is_whole: bool = True,
) -> tuple[tuple[PurposeSummary, ...], list[str]]:
    """Return one row per purpose that occurs or is planned, and notes on what differs between ranks or steps.

    Args:
        purposes: the table ``purposes`` of all launches, with a column ``launch``.
        overlap: the table ``overlap`` likewise; says which steps there are. Times of steps of which it tells nothing
            are in no mean.
        plan: what is expected; a person's own loop expects nothing.
        ranks: records of the ranks; say whether overlap is possible.
        unplanned: purposes that the plan cannot be held against, whatever it says.
        is_whole: no collective was launched that the traces lack, so that one too few is one too few.
    """
    told = _find_told(purposes, overlap)
    untold = [f"purposes of communication are not known in {len(overlap) - len(told)} of {len(overlap)} rank steps"]
    notes = untold if len(told) < len(overlap) else []
    if not len(told):
        return (), notes
    possible = {one.purpose: one for record in ranks[:1] for one in record.overlap_possible}
    keys = list(give_keys(told[STEP]))
    places = {key: place for place, key in enumerate(keys)}
    steps = [places[key] for key in keys]
    has_account = told[_ACCOUNT].notna().any(axis=1).to_numpy()
    rows = []
    for purpose in Purpose:
        mine = purposes[purposes["purpose"] == purpose]
        expected = None if isinstance(plan, OwnLoop) or purpose in unplanned else _expect(purpose, plan, ranks)
        if not len(mine) and (expected is None or not expected.size_bytes):
            continue
        # A step in which a purpose did not occur has no row: it counts as zero, so that means are over all steps.
        known = mine.set_axis([places.get(key, ~row) for row, key in enumerate(give_keys(mine[STEP]))])
        table = known[["count", "size_bytes", *_TIMES]].reindex(steps, fill_value=0)
        table["rank"] = told["rank"].to_numpy()
        table["is_wait_least"] = known["is_wait_least"].astype("boolean").reindex(steps, fill_value=False)
        if not has_account.all():  # what is set against a step is of the same steps
            table.loc[~has_account, "is_wait_least"] = False
            table.loc[~has_account, _TIMES] = pd.NA
        table["wait_ns"] = fill_waits(table)
        issued = table[["count", "size_bytes"]].drop_duplicates()  # one row where all ranks' steps issued the same
        row = _summarize(purpose, table, issued, expected, possible.get(purpose), is_whole=is_whole)
        if row.matches_plan and expected is not None and not _is_as_recorded(expected, ranks):
            row = row.model_copy(update={"matches_plan": False})
            notes.append(f"{purpose}: ranks recorded other collectives in MEASURED steps than were planned")
        rows.append(row.model_copy(update=_find_parts(table, told, overlap)))
        notes += _say_parts(rows[-1])
        if len(issued) > 1:
            notes.append(f"{purpose}: ranks or steps issued different collectives: {_spell(issued)}")
    return tuple(rows), [*notes, *_say_least(rows)]


def _find_parts(table: pd.DataFrame, told: pd.DataFrame, overlap: pd.DataFrame) -> dict[str, KnownPart | None]:
    """Return of what a purpose's times are known, where that is not all; ``told``: the steps of ``table``."""
    known = {"part": table[["hidden_ns", "exposed_ns"]].notna().all(axis=1), "wait_part": table["wait_ns"].notna()}
    return {
        name: None
        if is_known.all() and len(told) == len(overlap)  # as nearly always
        else find_part(told[is_known.to_numpy()], overlap)
        for name, is_known in known.items()
    }


def _say_parts(row: PurposeSummary) -> Iterator[str]:
    for what, part in (("what is hidden and exposed", row.part), ("the wait", row.wait_part)):
        if part is not None:
            yield f"{row.purpose}: {what} is of {part}: not known of the others"


def _say_least(rows: Sequence[PurposeSummary]) -> Iterator[str]:
    """Say of which purposes the wait is only a bound, and why."""
    whys = {row.purpose: why for row in rows if (why := row.why_wait_least)}
    for why in dict.fromkeys(whys.values()):
        named = join_words([purpose for purpose, said in whys.items() if said == why], last="and")
        yield f"the wait for {named} is a lower bound: {why}"


def _find_told(purposes: pd.DataFrame, overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the steps whose purposes are known: some row tells of them, or they were seen to communicate nothing."""
    return overlap[are_among(overlap[STEP], purposes[STEP]) | overlap["comm_ns"].eq(0).fillna(value=False)]


def _spell(issued: pd.DataFrame) -> str:
    return ", ".join(
        f"{count} of {'n/a' if pd.isna(size_bytes) else size_bytes} bytes"
        for count, size_bytes in issued.itertuples(index=False)
    )


def _expect(purpose: Purpose, plan: Plan, ranks: Sequence[RankRecord]) -> ExpectedTraffic | None:
    """Return what a rank that built the model, or else the plan, says of a purpose; None: nothing."""
    computed = next((record.planned for record in ranks), None) or ()
    found = next((one for one in computed if one.purpose is purpose), None)
    if found is not None or plan.traffic is None:
        return found
    traffic = [one for one in plan.traffic if one.purpose is purpose]
    if not traffic and purpose not in _ALWAYS_PLANNED:
        return None
    count, size_bytes = sum(one.count for one in traffic), sum(one.size_bytes for one in traffic)
    return ExpectedTraffic(purpose=purpose, count=count, size_bytes=size_bytes)


def _is_as_recorded(expected: ExpectedTraffic, ranks: Sequence[RankRecord]) -> bool:
    """Tell whether ranks that recorded what they issued in every MEASURED step issued what is expected there, too."""
    for record in ranks:
        if not record.traffic or not record.traffic_is_stable:
            continue
        mine = [one for one in record.traffic if one.purpose is expected.purpose]
        count, size_bytes = sum(one.count for one in mine), sum(one.size_bytes for one in mine)
        if size_bytes != expected.size_bytes or expected.count not in (None, count):
            return False
    return True


def _summarize(
    purpose: Purpose,
    table: pd.DataFrame,
    issued: pd.DataFrame,
    expected: ExpectedTraffic | None,
    possible: OverlapPossible | None,
    *,
    is_whole: bool,
) -> PurposeSummary:
    is_alike = len(issued) == 1
    if not is_alike:
        issued = table.loc[table["rank"] == table["rank"].min(), ["count", "size_bytes"]]
        issued = issued.value_counts(dropna=False).index.to_frame()  # of most steps first
    count, size_bytes = next(issued.itertuples(index=False))
    size_bytes = None if pd.isna(size_bytes) else int(size_bytes)
    is_missed = expected is not None and not table["count"].any()  # planned, and none was seen: no zero
    times_ns = {name: None if is_missed else mean_known(table[name]) for name in _TIMES}
    if times_ns["hidden_ns"] is not None and times_ns["exposed_ns"] is not None:
        times_ns["comm_ns"] = times_ns["hidden_ns"] + times_ns["exposed_ns"]
    fits = expected and expected.size_bytes == size_bytes and expected.count in (None, count)
    is_known = is_whole or (expected is not None and count > (expected.count or 0))
    return PurposeSummary(
        purpose=purpose,
        count=int(count),
        size_bytes=size_bytes,
        planned_count=expected.count if expected else None,
        planned_size_bytes=expected.size_bytes if expected else None,
        matches_plan=bool(is_alike and fits) if expected and size_bytes is not None and is_known else None,
        is_wait_least=False if times_ns["wait_ns"] is None else _are_any(table["is_wait_least"]),
        hidden_fraction=fraction(table, "hidden_ns", "comm_ns") if is_whole else math.nan,
        overlap_possible=possible.possible if possible else None,
        overlap_reason=possible.reason if possible else "",
        part=None,
        wait_part=None,
        **times_ns,
    )


def _are_any(flags: "pd.Series[bool]") -> bool | None:
    """Tell whether any flag is set; None: none that is known is, and some are not known."""
    return bool(flags.any()) or (None if flags.isna().any() else False)
