"""Which launches of a cell are replayed, and how long a step of each was MEASURED."""

import math
from collections.abc import Iterable

from dtbench.base.errors import PredictionError, TraceError
from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import Phase
from dtbench.replay.read import DisturbedError, Recorded, read_graph
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.settings.base import why_not_measured
from dtbench.runs.summary import CellSummary
from dtbench.store.cleaned import say_no_trace
from dtbench.traces.rows.launch_tables import read_launch_traces


def find_measured(cell: CellSummary | None, launches: Iterable[int]) -> list[float]:
    """Return the MEASURED step of each of some launches of a cell; empty: not all may be gone by."""
    if cell is None or why_not_measured(cell) is not None:
        return []
    known_ns = dict(zip(cell.launches, cell.launch_medians_ns, strict=True))
    found_ns = [known_ns.get(launch, math.nan) for launch in launches]
    return [] if any(map(math.isnan, found_ns)) else found_ns


def read_launches(launches: Iterable[LaunchData]) -> tuple[dict[int, Recorded], dict[int, str]]:
    """Return the graphs of launches of a cell, without steps that others disturbed; by launch why there is none.

    One launch whose traces are gone, or cannot be read, keeps no other from being replayed.

    Raises:
        PredictionError: none has, or of none there is a graph.
    """
    found, left_out, has_traces = dict[int, Recorded](), dict[int, str](), False
    for launch in launches:
        number = launch.place.launch
        if not launch.folder.find_traces():
            left_out[number] = say_no_trace(launch.folder)
            continue
        has_traces = True
        disturbed = launch.left_out.get(Phase.PROFILED, ())
        try:
            found[number] = read_graph(read_launch_traces(launch.folder), disturbed)
        except (DisturbedError, TraceError) as error:
            left_out[number] = str(error)
    if not has_traces:
        raise PredictionError(f"{'; '.join(dict.fromkeys(left_out.values()))}; run its scenario again")
    if not found:
        raise PredictionError("; ".join(dict.fromkeys(left_out.values())))
    return _keep_alike(found, left_out)


def _keep_alike(found: dict[int, Recorded], left_out: dict[int, str]) -> tuple[dict[int, Recorded], dict[int, str]]:
    """Leave out launches that lack ranks that others have.

    Raises:
        PredictionError: each does.
    """
    every = {rank for one in found.values() for rank in one.graph}
    lacking = {number: sorted(every.difference(one.graph)) for number, one in found.items()}
    said = {number: f"{name_ranks(ranks)} left no trace there" for number, ranks in lacking.items() if ranks}
    kept = {number: one for number, one in found.items() if number not in said}
    if not kept:
        raise PredictionError("; ".join(f"launch {number}: {why}" for number, why in said.items()))
    return kept, left_out | said
