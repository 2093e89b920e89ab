"""Traces without a run: any Kineto traces, from one file, several, or folders of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dtbench.analyze.launch_tables import describe_gaps, sum_counts
from dtbench.analyze.reader import read_trace
from dtbench.analyze.reader.find import find_traces
from dtbench.analyze.reader.source import TraceSource
from dtbench.analyze.trace import Trace
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace, tabulate_overlap, tabulate_purposes
from dtbench.errors import TraceError


@dataclass(frozen=True)
class TraceSet:
    """What several ranks' traces say.

    Attributes:
        analyses: in order of rank.
        overlap, purposes: columns as in ``tables.py``.
        notes: what a reader of the numbers must know.
    """

    analyses: tuple[TraceAnalysis, ...]
    overlap: pd.DataFrame
    purposes: pd.DataFrame
    unread_events: int
    unknown_names: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


def analyze_traces(paths: Iterable[Path]) -> TraceSet:
    """Analyse traces of one job.

    The rank is the trace's own; where a trace says none, or one comes twice, all are numbered by their place.

    Raises:
        TraceError: there is none, or one cannot be read.
    """
    found = [find_traces(path) for path in paths]
    traces, notes = _read_all([source for one in found for source in one.sources])
    said = [trace.rank for trace in traces]
    numbered = None in said or len(set(said)) < len(said)
    analyses = [analyze_trace(trace, rank=place if numbered else None) for place, trace in enumerate(traces)]
    analyses.sort(key=lambda one: one.rank)
    if numbered and len(traces) > 1:
        notes.append("ranks are numbered by file name: the traces do not tell them apart")
    return TraceSet(
        analyses=tuple(analyses),
        overlap=tabulate_overlap(analyses),
        purposes=tabulate_purposes(analyses),
        unread_events=sum(one.unread for one in analyses),
        unknown_names=sum_counts(one.unknown_names for one in analyses),
        notes=(*(note for one in found for note in one.notes), *notes, *describe_gaps(analyses)),
    )


def _read_all(sources: Sequence[TraceSource]) -> tuple[list[Trace], list[str]]:
    """Read what can be read of several traces; a note says what is left out, or incomplete."""
    traces: list[Trace] = []
    notes: list[str] = []
    for source in sources:
        try:
            trace = read_trace(source)
        except TraceError as error:
            if len(sources) == 1:
                raise
            notes.append(f"left out: {error}")
            continue
        traces.append(trace)
        if trace.unread.is_truncated:
            notes.append(f"{trace.path}: cut short; what came before the cut was read")
    if not traces:
        raise TraceError("; ".join(notes))
    return traces, notes
