"""Traces without a run: any Kineto traces, from one file, several, or folders of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from dtbench.analyze.launch_tables import describe_gaps, sum_counts
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace, tabulate_overlap, tabulate_purposes
from dtbench.errors import TraceError

_ENDINGS: Final = (".json", ".json.gz")


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
    files = [file for path in paths for file in _find_files(path)]
    traces = [read_trace(file) for file in files]
    said = [trace.rank for trace in traces]
    numbered = None in said or len(set(said)) < len(said)
    analyses = [analyze_trace(trace, rank=place if numbered else None) for place, trace in enumerate(traces)]
    analyses.sort(key=lambda one: one.rank)
    notes = (
        ["ranks are numbered by file name: the traces do not tell them apart"] if numbered and len(files) > 1 else []
    )
    return TraceSet(
        analyses=tuple(analyses),
        overlap=tabulate_overlap(analyses),
        purposes=tabulate_purposes(analyses),
        unread_events=sum(one.unread for one in analyses),
        unknown_names=sum_counts(one.unknown_names for one in analyses),
        notes=(*notes, *describe_gaps(analyses)),
    )


def _find_files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(_ENDINGS))
    if not files:
        raise TraceError(f"{path}: holds no trace; one ends in {' or '.join(_ENDINGS)}")
    return files
