"""Without stragglers, real traces by the simulator and by the machine of single ticks, which knows ten microseconds."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.prediction.program import Host, Instruction, Issue, Launch, Program, Wait
from dtbench.replay.changes.straggler import NoStraggler
from dtbench.replay.compose import compose
from dtbench.replay.graph import JobGraph
from dtbench.replay.read import read_graph
from dtbench.replay.run import replay
from dtbench.traces.job.foreign import analyze_traces
from tests.prediction.tick_oracle import run_ticks
from tests.unpack import unpack

SKEW = Path(__file__).parents[1] / "traces" / "recorded" / "two_ranks_one_gpu" / "skew"
V100 = Path(__file__).parents[3] / "shared" / "traces" / "v100x8_dlrm_all_ranks.tar.gz"
TICK_NS = 10_000


def in_ticks(one: Any) -> Any:
    """Return a part of a program with its times in ticks."""
    times = {field.name: getattr(one, field.name) for field in fields(one) if field.name.endswith("_ns")}
    return replace(one, **{name: None if ns is None else round(ns / TICK_NS) for name, ns in times.items()})


def instruct(one: Instruction) -> Instruction:
    match one:
        case Issue():
            return replace(one, collective=in_ticks(one.collective))
        case Launch():
            return replace(one, work=in_ticks(one.work))
        case Host() | Wait():
            return in_ticks(one)  # type: ignore[no-any-return]
    return one


def take_ticks(graph: JobGraph) -> int:
    """Return how long everything takes, in ns, by ticks."""
    programs: dict[int, Program] = {rank: tuple(map(instruct, compose(one).program)) for rank, one in graph.items()}
    ends = run_ticks(programs, most_ticks=50_000)
    return TICK_NS * max(max(done, *given) for done, given in ends.values())


def take(graph: JobGraph) -> int:
    """Return the same by the simulator."""
    return max(max(one.step_ns, *one.ends_ns) for one in replay(graph).executions.values())


@pytest.mark.parametrize("name", ["two ranks", "eight ranks"])
def test_ticks_say_the_same(name: str, tmp_path: Path) -> None:
    folder = SKEW
    if name == "eight ranks":
        if not V100.exists():
            pytest.skip("the trace set is not here")
        unpack(V100, tmp_path)
        folder = tmp_path
    graph = read_graph(analyze_traces([folder], workers=1)).graph
    changed = NoStraggler().apply(graph)
    assert take(changed) < take(graph)
    for one in (graph, changed):
        assert take_ticks(one) == pytest.approx(take(one), rel=0.01)
