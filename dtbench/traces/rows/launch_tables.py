"""The derived tables of a launch: made from its traces, kept beside it as Parquet, read back when they are there.

What a table cannot hold travels in ``overlap``'s ``attrs``: events that could not be read, unknown names, notes.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from dtbench.base.errors import StoreError
from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import Axis
from dtbench.store.cleaned import say_no_trace
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_columns, read_order, read_rank_records, read_table
from dtbench.store.records.place import PLACE, check_place, find_place, tell_place
from dtbench.store.write import write_table
from dtbench.traces.job.many import analyze_files
from dtbench.traces.job.trace_set import TraceSet, gather_ranks
from dtbench.traces.notes.note import join_ranks, say_notes
from dtbench.traces.notes.tables import NoTrace, OtherOwners, TraceUnusable
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.rows.table_bounds import find_impossible
from dtbench.traces.rows.table_sums import find_strangers
from dtbench.traces.rows.tables import TABLES, TraceTable
from dtbench.traces.who.facts import RankFacts

_NEARLY: Final = ("rank", "start_ns", "end_ns", "name")
"""Columns in which rows are alike that may be so in everything."""


@dataclass(frozen=True)
class LaunchTables:
    """What the traces of one launch say, over all ranks and PROFILED steps.

    Attributes:
        tables: by name, all of ``rows.tables.TABLES``.
        unread_events: summed over ranks.
        unknown_names: kernels counted as compute that may be communication, summed over ranks.
        notes: what a reader of the numbers must know: sentences, as tables on disk keep them.
        rank_doubts: why no check may be judged by these tables, a sentence each; they are among the notes.
        repeated_steps: of the rank with most ranges whose step's number another has before them.
        unseen_collectives: those that were issued and not seen to run, summed over ranks.
        lacking: names of tables that are empty for want of a file, not because nothing belongs into them.
    """

    tables: Mapping[str, pd.DataFrame]
    unread_events: int
    unknown_names: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    rank_doubts: tuple[str, ...] = ()
    repeated_steps: int = 0
    unseen_collectives: int = 0
    lacking: tuple[str, ...] = ()

    @property
    def overlap(self) -> pd.DataFrame:
        """Where each profiled step's time went, columns as in the table ``overlap``."""
        return self.tables["overlap"]

    @property
    def purposes(self) -> pd.DataFrame:
        """The same by purpose of the communication, columns as in the table ``purposes``."""
        return self.tables["purposes"]

    @property
    def collectives(self) -> pd.DataFrame:
        """One row per collective and rank, columns as in the table ``collectives``."""
        return self.tables["collectives"]


def make_empty_tables() -> LaunchTables:
    """Return the tables of no launch: every column, no row."""
    return LaunchTables(
        {table.name: table.tabulate(()) for table in TABLES}, unread_events=0, unknown_names=(), notes=()
    )


Further = Callable[[LaunchFolder, TraceSet], None]
"""Writes what else is made of the traces of a launch, while they are at hand; raises StoreError where it cannot."""


def analyze_launch(
    folder: LaunchFolder,
    process_groups: Mapping[int, Mapping[str, Axis | None]] | None = None,
    *,
    workers: int | None = None,
    further: Further | None = None,
) -> LaunchTables:
    """Make the derived tables of a launch from its traces and write them; without a trace nothing is written.

    Nor are tables replaced that hold ranks whose traces are lost since: those are then given, and a note says so.

    Args:
        folder: the launch.
        process_groups: mesh axis by name of the group, for each rank; left out: as the ranks' records say.
        workers: processes to use at most; None: as ``analyze_files`` decides.
        further: called before the tables are written, so that where they are, what it writes is; None: nothing is.

    Raises:
        StoreError: they cannot be written.
    """
    made, traces = _derive(folder, process_groups, workers=workers)
    kept = _read_healthy(folder, ["overlap"]) or _read_healthy(folder, ["collectives"])
    lost = _ranks_of(kept) - _ranks_of({name: made.tables[name] for name in kept})
    if lost:
        kept |= _read_healthy(folder, [table.name for table in TABLES if table.name not in kept])
        note = f"tables of an earlier analysis are kept: they hold {name_ranks(lost)}, whose traces give nothing now"
        return _doubt_strangers(replace(made, tables={**made.tables, **kept}, notes=(*made.notes, note)))
    if len(made.overlap):
        if further is not None:
            further(folder, traces)
        _write_tables(folder, made)
    return made


def _write_tables(folder: LaunchFolder, made: LaunchTables) -> None:
    place = tell_place(folder)
    said: dict[Hashable | None, Any] = {
        "unread_events": made.unread_events,
        "unknown_names": [list(one) for one in made.unknown_names],
        "notes": list(made.notes),
        "rank_doubts": list(made.rank_doubts),
        "repeated_steps": made.repeated_steps,
        "unseen_collectives": made.unseen_collectives,
    }
    for table in TABLES:
        made.tables[table.name].attrs = {**place, **(said if table.name == "overlap" else {})}
        write_table(folder.derived_table(table.name), made.tables[table.name])
        made.tables[table.name].attrs = {}


def read_tables(folder: LaunchFolder, further: Further | None = None) -> LaunchTables:
    """Read the derived tables of a launch, or make them where one is missing or older than a trace.

    A folder that cannot be written is no reason not to answer: the tables are then made and not kept, and a note says
    so. Where the traces are gone, what another version of dtbench made of them is read as it is.

    Args:
        folder: the launch.
        further: as for ``analyze_launch``; not called where tables are read.

    Raises:
        StoreError: a table is broken, and there are no traces to make it from; or a record of the launch is.
    """
    if not are_current(folder):
        return _make_again(folder, further)
    try:
        return _read_kept(folder)
    except StoreError:
        if not folder.find_traces():
            raise
        return _make_again(folder, further)


def _read_healthy(folder: LaunchFolder, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read those of these tables of an earlier analysis that can be read, by name."""
    found = {}
    for table in TABLES:
        if table.name in names:
            with suppress(StoreError):
                found[table.name] = _read_fitting(table, folder)
    return found


def _ranks_of(tables: Mapping[str, pd.DataFrame]) -> set[int]:
    """Return the ranks of which the first of these tables knows."""
    return {int(rank) for table in list(tables.values())[:1] for rank in table["rank"].unique()}


def _make_again(folder: LaunchFolder, further: Further | None) -> LaunchTables:
    try:
        return analyze_launch(folder, further=further)
    except StoreError as error:
        made = derive_tables(folder)
        return replace(made, notes=(*made.notes, f"derived tables were not kept: {error}"))


def _read_kept(folder: LaunchFolder) -> LaunchTables:
    lacking = tuple(table.name for table in TABLES if not folder.derived_table(table.name).exists())
    tables = {
        table.name: table.tabulate(()) if table.name in lacking else _read_fitting(table, folder) for table in TABLES
    }
    said = tables["overlap"].attrs
    if said.get("unseen_collectives"):  # a table of an older version does not say in which steps: it may be any
        tables["overlap"]["is_least"] = tables["overlap"]["is_least"].fillna(value=True)
        tables["overlap"] = _mark_least(tables["overlap"], int(said["unseen_collectives"]))
    try:
        kept = LaunchTables(
            tables=tables,
            unread_events=int(said.get("unread_events", 0)),
            unknown_names=tuple((str(name), int(count)) for name, count in said.get("unknown_names", ())),
            notes=tuple(str(note) for note in said.get("notes", ())),
            rank_doubts=tuple(str(doubt) for doubt in said.get("rank_doubts", ())),
            repeated_steps=int(said.get("repeated_steps", 0)),
            unseen_collectives=int(said.get("unseen_collectives", 0)),
        )
    except (TypeError, ValueError) as error:
        raise _refuse_odd(folder.overlap, error) from error
    return _doubt_strangers(replace(kept, lacking=lacking))


def _doubt_strangers(made: LaunchTables) -> LaunchTables:
    """Add what the tables contradict each other in to the doubts and notes."""
    odd = tuple(find_strangers(made.tables, made.lacking))
    return replace(made, rank_doubts=(*made.rank_doubts, *odd), notes=(*made.notes, *odd)) if odd else made


def _read_fitting(table: TraceTable, folder: LaunchFolder) -> pd.DataFrame:
    path = folder.derived_table(table.name)
    try:
        fitted = table.fit(read_table(path))
        _check_words(table, fitted)
        _check_once(table, fitted)
        _check_bounds(table.name, fitted)
    except (TypeError, ValueError) as error:
        raise _refuse_odd(path, error) from error
    check_place(path, fitted.attrs, find_place(folder))
    fitted.attrs.pop(PLACE, None)
    return fitted


def _refuse_odd(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path}: does not hold what it should ({error}); delete it, `dtbench analyze` makes derived tables again"
    )


def _check_once(table: TraceTable, frame: pd.DataFrame) -> None:
    """Refuse a table that tells one thing twice.

    Raises:
        ValueError: says which.
    """
    key = list(table.unique) or [column for column in _NEARLY if column in frame]
    twice = frame[frame.duplicated(key, keep=False)]
    if len(twice) and not table.unique:  # few, so that a look at every column costs nothing
        twice = twice[twice.astype(str).duplicated()]
    if len(twice):
        of_step = f"of step {twice.iloc[0]['step']} " if "step" in frame else ""
        raise ValueError(f"it has a row {of_step}of rank {twice.iloc[0]['rank']} twice")


def _check_bounds(name: str, table: pd.DataFrame) -> None:
    """Refuse a table with a value that cannot be.

    Raises:
        ValueError: says which.
    """
    if (impossible := find_impossible(name, table)) is not None:
        raise ValueError(impossible)


def _check_words(table: TraceTable, frame: pd.DataFrame) -> None:
    for column in table.all_columns:
        if column.check is not None:
            for word in frame[column.name].unique():
                column.check(word)


def are_current(folder: LaunchFolder) -> bool:
    """Tell whether the tables need not be made, or cannot be: there is no trace that could give more."""
    if not _find_full_traces(folder):
        return folder.overlap.exists()
    return not have_newer_traces(folder) and all(
        set(table.dtypes) <= set(read_columns(folder.derived_table(table.name))) for table in TABLES
    )


def have_newer_traces(folder: LaunchFolder) -> bool:
    """Tell whether traces of a launch could give more than its tables: these are older, or one is missing."""
    traces = _find_full_traces(folder)
    made = [folder.derived_table(table.name) for table in TABLES] if traces else []
    if not all(path.exists() for path in made):
        return True
    oldest = min((path.stat().st_mtime_ns for path in made), default=0)
    return any(path.stat().st_mtime_ns > oldest for path in traces)


def _find_full_traces(folder: LaunchFolder) -> list[Path]:
    return [path for path in folder.find_traces().values() if path.stat().st_size]


def derive_tables(folder: LaunchFolder) -> LaunchTables:
    """Make the tables without writing them; a trace that cannot be read is left out, and a note says so."""
    return _derive(folder, None, workers=None)[0]


def _derive(
    folder: LaunchFolder, process_groups: Mapping[int, Mapping[str, Axis | None]] | None, *, workers: int | None
) -> tuple[LaunchTables, TraceSet]:
    files = find_launch_traces(folder, process_groups)
    facts = {file.rank: file.facts for file in files if file.rank is not None and file.facts is not None}
    traces = _gather_launch(files, workers=workers)
    absent, unused = find_absent_traces(folder), _find_unused(files, traces)
    unseen = sum(one.unseen for one in traces.analyses)
    tables = {table.name: table.tabulate(traces.analyses) for table in TABLES}
    made = LaunchTables(
        tables={**tables, "overlap": _mark_least(tables["overlap"], unseen)},
        unread_events=traces.unread_events,
        unknown_names=traces.unknown_names,
        notes=say_notes((*absent, *unused, *_find_other_owners(facts, traces), *traces.notes)),
        rank_doubts=say_notes((*absent, *unused, *traces.rank_doubts)) if traces.analyses else (),
        repeated_steps=max((one.repeated_steps for one in traces.analyses), default=0),
        unseen_collectives=unseen,
    )
    return made, traces


def _mark_least(overlap: pd.DataFrame, unseen: int) -> pd.DataFrame:
    """Mark every step as one that may have communicated more, if no trace says in which what is not seen ran."""
    if not unseen or overlap["is_least"].any():
        return overlap
    marked = overlap.copy()
    marked["is_least"] = marked["is_least"].fillna(value=False) | True
    return marked


def read_launch_traces(folder: LaunchFolder, *, workers: int | None = None) -> TraceSet:
    """Analyse the traces of a launch: for what its tables do not keep.

    Args:
        folder: the launch.
        workers: processes to use at most; None: as ``analyze_files`` decides.

    Raises:
        StoreError: they are gone, or none can be used.
    """
    if not folder.find_traces():
        raise StoreError(f"{folder.traces}: {say_no_trace(folder)}; the tables stay")
    traces = _gather_launch(find_launch_traces(folder), workers=workers)
    if not traces.analyses:
        raise StoreError(f"{folder.traces}: none of the traces can be used: {'; '.join(say_notes(traces.notes))}")
    return traces


def find_launch_traces(
    folder: LaunchFolder, process_groups: Mapping[int, Mapping[str, Axis | None]] | None = None
) -> list[TraceFile]:
    """Return the trace of every rank that has one, with what the rank's record knows beside it, in order of rank.

    Args:
        folder: the launch.
        process_groups: mesh axis by name of the group, for each rank; left out: as the ranks' records say.
    """
    groups = _recorded_groups(folder) if process_groups is None else process_groups
    facts = {record.rank: RankFacts.of(record) for record in read_rank_records(folder)}
    return [
        TraceFile(TraceSource(path), rank, groups.get(rank, {}), facts.get(rank))
        for rank, path in folder.find_traces().items()
    ]


def find_absent_traces(folder: LaunchFolder) -> tuple[NoTrace, ...]:
    """Return which ranks of a launch have no trace."""
    absent = sorted(_expected_ranks(folder) - set(folder.find_traces()))
    return (NoTrace(tuple(absent)),) if absent else ()


def _find_unused(files: Sequence[TraceFile], traces: TraceSet) -> tuple[TraceUnusable, ...]:
    """Return of which ranks, beside others of which it can, the trace cannot be used."""
    unused = sorted({file.rank for file in files if file.rank is not None} - {one.rank for one in traces.analyses})
    return (TraceUnusable(tuple(unused)),) if unused and traces.analyses else ()


def _gather_launch(files: list[TraceFile], *, workers: int | None) -> TraceSet:
    return gather_ranks([_refuse_cut(answer) for answer in analyze_files(files, workers=workers)])


def _find_other_owners(facts: Mapping[int, RankFacts], traces: TraceSet) -> tuple[OtherOwners, ...]:
    found = [
        (one.rank, facts[one.rank].find_other_owners(one.collectives)) for one in traces.analyses if one.rank in facts
    ]
    return join_ranks(other.of(rank) for rank, other in found if other is not None)


def _refuse_cut(answer: Answer) -> Answer:
    """Leave out a trace that ends before its time: what is missing may be anything, all kernels of the rank, say."""
    if isinstance(answer, Analyzed) and answer.unread.is_truncated:
        return Unusable(answer.file, f"{answer.file.label}: cut short; did the rank die while writing?")
    return answer


def _expected_ranks(folder: LaunchFolder) -> set[int]:
    """Return the ranks that a launch had: as its order says, else as their records do."""
    if folder.order.exists():
        return set(range(read_order(folder).plan.ranks))
    return {record.rank for record in read_rank_records(folder)}


def _recorded_groups(folder: LaunchFolder) -> dict[int, dict[str, Axis | None]]:
    return {
        record.rank: {group.name: group.axis for group in record.process_groups} for record in read_rank_records(folder)
    }
