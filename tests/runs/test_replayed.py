"""Which launches of a cell are replayed: those that lack traces, or ranks, are left out and named."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dtbench.base.errors import DtbenchError, PredictionError, TraceError
from dtbench.replay.read import DisturbedError, Recorded
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.replayed import read_launches
from dtbench.traces.job.trace_set import gather_ranks
from tests.replay.hand_made import Written


def made(*ranks: int) -> Recorded:
    graph = {rank: Written(rank, ranks).begin().issue("a", 10, "one").sit(0).end().finish() for rank in ranks}
    return Recorded(graph, (1,), dict.fromkeys(ranks, (10,)), gather_ranks([]))


def launch(number: int, *, traces: bool = True) -> LaunchData:
    folder = SimpleNamespace(number=number, find_traces=lambda: [Path("trace")] * traces, cleaned=Path("none"))
    return cast("LaunchData", SimpleNamespace(place=SimpleNamespace(launch=number), folder=folder, left_out={}))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> dict[int, Recorded | DtbenchError]:
    """By launch, what reading its graph comes to."""
    of_launch = dict[int, Recorded | DtbenchError]()

    def read(number: int, _without: object) -> Recorded:
        found = of_launch[number]
        if isinstance(found, DtbenchError):
            raise found
        return found

    monkeypatch.setattr("dtbench.runs.replayed.read_launch_traces", lambda folder: folder.number)
    monkeypatch.setattr("dtbench.runs.replayed.read_graph", read)
    return of_launch


def test_launches_that_lack_traces_or_ranks_are_left_out_and_named(
    graphs: dict[int, Recorded | DtbenchError],
) -> None:
    graphs |= {1: made(0, 1), 2: made(0), 3: DisturbedError("others disturbed it"), 4: made(0, 1)}
    graphs[5] = TraceError("it ends within an event")
    launches = [launch(0, traces=False), *map(launch, (1, 2, 3, 4, 5))]
    found, left_out = read_launches(launches)
    assert list(found) == [1, 4]
    assert left_out == {
        0: "no trace is there (deleted, or none was written)",
        2: "rank 1 left no trace there",
        3: "others disturbed it",
        5: "it ends within an event",
    }


def test_where_nothing_is_left_it_is_said_of_every_launch(graphs: dict[int, Recorded | DtbenchError]) -> None:
    graphs |= {0: made(0), 1: made(1)}
    with pytest.raises(PredictionError, match="launch 0: rank 1 left no trace there; launch 1: rank 0 left no"):
        read_launches(map(launch, (0, 1)))
    with pytest.raises(PredictionError, match="run its scenario again"):
        read_launches([launch(0, traces=False)])
