"""The derived tables of a launch: made from its traces, kept beside it as Parquet, read back when they are there.

What a table cannot hold travels in ``overlap``'s ``attrs``: events that could not be read, unknown names, notes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dtbench.analyze.facts import RankFacts
from dtbench.analyze.read_trace import read_trace
from dtbench.analyze.trace_analysis import (
    TraceAnalysis,
    analyze_trace,
    tabulate_collectives,
    tabulate_overlap,
    tabulate_purposes,
)
from dtbench.errors import StoreError, TraceError
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_order, read_rank_records, read_table
from dtbench.store.write import write_table
from dtbench.vocabulary import Axis


@dataclass(frozen=True)
class LaunchTables:
    """What the traces of one launch say, over all ranks and PROFILED steps.

    Attributes:
        overlap, purposes, collectives: columns as in ``tables.py``.
        unread_events: summed over ranks.
        unknown_names: kernels counted as compute that may be communication, summed over ranks.
        notes: what a reader of the numbers must know.
    """

    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame
    unread_events: int
    unknown_names: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


def analyze_launch(
    folder: LaunchFolder, process_groups: Mapping[int, Mapping[str, Axis | None]] | None = None
) -> LaunchTables:
    """Make the derived tables of a launch from its traces and write them; without a trace nothing is written.

    Args:
        folder: the launch.
        process_groups: mesh axis by name of the group, for each rank; left out: as the ranks' records say.

    Raises:
        StoreError: they cannot be written.
    """
    tables = derive_tables(folder, process_groups)
    if len(tables.overlap):
        tables.overlap.attrs = {
            "unread_events": tables.unread_events,
            "unknown_names": [list(one) for one in tables.unknown_names],
            "notes": list(tables.notes),
        }
        write_table(folder.purposes, tables.purposes)
        write_table(folder.collectives, tables.collectives)
        write_table(folder.overlap, tables.overlap)  # last: where it is, the others are
    return tables


def read_tables(folder: LaunchFolder) -> LaunchTables:
    """Read the derived tables of a launch, or make them where one is missing or older than a trace.

    A folder that cannot be written is no reason not to answer: the tables are then made and not kept, and a note says
    so.
    """
    if not _are_current(folder):
        try:
            return analyze_launch(folder)
        except StoreError as error:
            tables = derive_tables(folder)
            return replace(tables, notes=(*tables.notes, f"derived tables were not kept: {error}"))
    overlap = read_table(folder.overlap)
    return LaunchTables(
        overlap=overlap,
        purposes=read_table(folder.purposes),
        collectives=read_table(folder.collectives),
        unread_events=int(overlap.attrs.get("unread_events", 0)),
        unknown_names=tuple((str(name), int(count)) for name, count in overlap.attrs.get("unknown_names", ())),
        notes=tuple(str(note) for note in overlap.attrs.get("notes", ())),
    )


def _are_current(folder: LaunchFolder) -> bool:
    if not all(path.exists() for path in folder.derived):
        return False
    made = min(path.stat().st_mtime_ns for path in folder.derived)
    return all(path.stat().st_mtime_ns <= made for path in folder.find_traces().values() if path.stat().st_size)


def derive_tables(
    folder: LaunchFolder, process_groups: Mapping[int, Mapping[str, Axis | None]] | None = None
) -> LaunchTables:
    """Make the tables without writing them; a trace that cannot be read is left out, and a note says so."""
    groups = _recorded_groups(folder) if process_groups is None else process_groups
    analyses: list[TraceAnalysis] = []
    facts = {record.rank: RankFacts.of(record) for record in read_rank_records(folder)}
    traces = folder.find_traces()
    absent = sorted(_expected_ranks(folder) - set(traces))
    notes = [f"rank {rank} is left out: it has no trace" for rank in absent]
    for rank, path in traces.items():
        try:
            one = analyze_trace(
                read_trace(path), rank=rank, process_groups=groups.get(rank), facts=facts.get(rank, RankFacts())
            )
        except TraceError as error:
            notes.append(f"rank {rank} is left out: {error}")
            continue
        analyses.append(one)
        if rank in facts and (gap := facts[rank].check_owners(one.collectives)) is not None:
            notes.append(f"rank {rank}: {gap}")
    return LaunchTables(
        overlap=tabulate_overlap(analyses),
        purposes=tabulate_purposes(analyses),
        collectives=tabulate_collectives(analyses),
        unread_events=sum(one.unread for one in analyses),
        unknown_names=sum_counts(one.unknown_names for one in analyses),
        notes=(*notes, *describe_gaps(analyses)),
    )


def sum_counts(tables: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    """Sum the counts of equal names, most frequent first."""
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(dict(table))
    return tuple(counts.most_common())


def describe_gaps(analyses: Sequence[TraceAnalysis]) -> list[str]:
    """Say what the traces lack."""
    gaps = [
        f"rank {one.rank}: {one.unmatched} of {len(one.collectives)} collectives have no span; their time is missing"
        for one in analyses
        if one.unmatched
    ]
    return gaps + [
        f"rank {one.rank}: the trace has no ProfilerStep range; only the whole trace is known"
        for one in analyses
        if not one.steps
    ]


def _expected_ranks(folder: LaunchFolder) -> set[int]:
    """Give the ranks that a launch had: as its order says, else as their records do."""
    if folder.order.exists():
        return set(range(read_order(folder).plan.ranks))
    return {record.rank for record in read_rank_records(folder)}


def _recorded_groups(folder: LaunchFolder) -> dict[int, dict[str, Axis | None]]:
    return {
        record.rank: {group.name: group.axis for group in record.process_groups} for record in read_rank_records(folder)
    }
