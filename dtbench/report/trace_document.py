"""What traces say as one JSON document: integer nanoseconds, ratios as fractions, "NaN" where a number is not known."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from dtbench.analyze.overlap import Overlap
from dtbench.analyze.purpose_times import PurposeTime
from dtbench.analyze.tables import COLLECTIVES, Row
from dtbench.analyze.tabulate import collective_rows
from dtbench.analyze.trace import Unread
from dtbench.analyze.trace_analysis import TraceAnalysis
from dtbench.analyze.trace_set import TraceSet

FORMAT_VERSION = 1


def traces_document(traces: TraceSet) -> dict[str, object]:
    """Give the document without its collectives, which are many: see ``collective_documents``."""
    ranks = zip(traces.analyses, traces.unread, strict=True)
    return {
        "format_version": FORMAT_VERSION,
        "world_size": "NaN" if traces.world_size is None else traces.world_size,
        "ranks": [_rank_document(one, unread) for one, unread in ranks],
        "unread": traces.unread_events,
        "uncorrelated": dict(traces.uncorrelated),
        "unknown_names": [{"name": name, "count": count} for name, count in traces.unknown_names],
        "notes": list(traces.notes),
    }


def collective_documents(traces: TraceSet) -> Iterator[Row]:
    """Give every collective of every rank, with the columns of ``tables.COLLECTIVES``."""
    words = {name for name, dtype in COLLECTIVES.items() if dtype == "string"}
    for row in collective_rows(traces.analyses):
        yield {name: "NaN" if value is None and name not in words else value for name, value in row.items()}


def _rank_document(one: TraceAnalysis, unread: Unread) -> Mapping[str, object]:
    whole = overlap_document(one.whole)
    return {
        "rank": one.rank,
        "path": one.path,
        "whole": {"window_ns": whole.pop("step_ns"), **whole, "purposes": _purpose_documents(one.whole_purposes)},
        "steps": [
            {"step": step.step, **overlap_document(step.overlap), "purposes": _purpose_documents(step.purposes)}
            for step in one.steps
        ],
        "unread": {"count": unread.count, "reasons": dict(unread.events), "is_truncated": unread.is_truncated},
    }


def overlap_document(overlap: Overlap) -> dict[str, object]:
    """Give an account with its two shares."""
    fractions = {"hidden_fraction": overlap.hidden_fraction, "exposed_step_fraction": overlap.exposed_step_fraction}
    return {**asdict(overlap), **{name: _number(value) for name, value in fractions.items()}}


def _purpose_documents(purposes: Iterable[PurposeTime]) -> list[dict[str, object]]:
    return [
        {
            **asdict(row),
            "purpose": str(row.purpose),
            "size_bytes": "NaN" if row.count and not row.size_bytes else row.size_bytes,
        }
        for row in purposes
    ]


def _number(value: float) -> float | str:
    """Give a float as it is, and NaN as a word: JSON has none."""
    return "NaN" if math.isnan(value) else value
