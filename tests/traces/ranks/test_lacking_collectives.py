"""Collectives that one rank's trace lacks, by those of the ranks that ran them with it."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import ShownElsewhere
from dtbench.traces.notes.note import pick_notes
from tests.traces.conftest import draw_events

RECORDED = Path(__file__).parents[1] / "recorded"
SAID = '{"Collective name": "%s", "Process Group Name": "0", "Group size": 2, "Process Group Ranks": "%s"}'


def draw(kernels: str, said: str = SAID % ("allreduce", "[0, 1]"), numbers: Sequence[int] = (1, 2, 3)) -> str:
    """Draw two collectives in each of two steps, of which ``kernels`` are there, from launch to kernel, and a third."""
    a, b, c, d = [letter if letter in kernels else " " for letter in "abcd"]
    records = "  ".join((f"{a + a}  {b + b}  ", f"{c + c}  {d + d}")).translate(dict.fromkeys(b"abcd", "="))
    return f"""
step ProfilerStep#{numbers[0]} @1 |==========                    |
step ProfilerStep#{numbers[1]} @1 |          ==========          |
step ProfilerStep#{numbers[2]} @1 |                    ==========|
op record_param_comms @1 | {records}                   | {said}
call cudaLaunchKernel @1 |x{a}   {b}    y{c}   {d}    zu        |
kernel gemm @7 | xx        yy        zz     uu|
kernel ncclDevKernel_AllReduce @9 |  {a}   {b}     {c}   {d}             | {said}
""".strip()


def analyze(folder: Path, drawings: Sequence[str], sizes: Sequence[int] = (2, 2)) -> TraceSet:
    for rank, (drawing, size) in enumerate(zip(drawings, sizes, strict=True)):
        content = {"distributedInfo": {"rank": rank, "world_size": size}, "traceEvents": draw_events(drawing)}
        (folder / f"rank{rank}.json").write_text(json.dumps(content))
    return analyze_traces([folder])


def lacking(traces: TraceSet) -> list[dict[int, int]]:
    return [dict(one.lacking) for one in traces.analyses]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (draw("abcd"), draw("abcd"), [{}, {}]),
        (draw("abcd"), draw("abc"), [{}, {2: 1}]),
        (draw("bcd"), draw("abc"), [{}, {}]),  # one may be in the step before
        (draw("abcd"), draw("ab"), [{}, {2: 2}]),
        (draw("abcd"), draw(""), [{}, {1: 2, 2: 2}]),
        (*[draw(k, SAID % ("broadcast", "[0, 1]")) for k in ("abcd", "abc")], [{}, {}]),
        (*[draw(k, SAID % ("allreduce", "[0, 2]")) for k in ("abcd", "abc")], [{}, {}]),
        (*[draw(k, SAID.replace("Ranks", "") % ("allreduce", "")) for k in ("abcd", "abc")], [{}, {}]),
        (draw("abcd"), draw("abc", numbers=(1, 9, 10)), [{}, {}]),
    ],
    ids=[
        "all there",
        "one of a step",
        "each lacks one",
        "all of a step",
        "all of the rank",
        "a broadcast",
        "of a group without it",
        "ranks of the group not told",
        "of a step that it does not have",
    ],
)
def test_a_rank_lacks_what_another_of_its_group_has_more(
    tmp_path: Path, first: str, second: str, found: list[dict[int, int]]
) -> None:
    assert lacking(analyze(tmp_path, [first, second])) == found


def test_a_rank_of_another_job_lacks_nothing(tmp_path: Path) -> None:
    assert lacking(analyze(tmp_path, [draw("abcd"), draw("")], sizes=(2, 4))) == [{}, {}]


def test_what_was_launched_before_a_trace_began_is_no_evidence(tmp_path: Path) -> None:
    """On the other rank its kernel may have ended before."""
    early = f"kernel ncclDevKernel_AllReduce @9 |=                             | {SAID % ('allreduce', '[0, 1]')}"
    early = "\n".join((draw("abcd"), early))
    assert lacking(analyze(tmp_path, [early, draw("abcd")])) == [{}, {}]


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"two_ranks_one_gpu/{name}"
            for name in ("at_once", "compiled", "ddp", "fsdp2", "fsdp2_tp", "graph", "host", "sendrecv", "skew")
        ),
        *(f"pipelines/{name}" for name in ("1f1b", "interleaved", "plain", "ring", "zero_bubble")),
        "zero/zero2",
        "zero/zero3",
        "one_hardware_queue/queue1",
    ],
)
def test_recorded_traces_lack_nothing_that_other_ranks_show(name: str) -> None:
    assert lacking(analyze_traces([RECORDED / name])) == [{}, {}]


@pytest.fixture
def lose(tmp_path: Path) -> Callable[[Sequence[int]], TraceSet]:
    """Analyse two ranks' DDP of which rank 1 lost all-reduces, kernels, launches and records, in order of time."""

    def analyse(lost: Sequence[int]) -> TraceSet:
        for rank in (0, 1):
            content: dict[str, Any] = json.loads(
                gzip.decompress((RECORDED / "two_ranks_one_gpu" / "ddp" / f"rank{rank}.json.gz").read_bytes())
            )
            if rank:
                content["traceEvents"] = without(content["traceEvents"], lost)
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(content))
        return analyze_traces([tmp_path])

    return analyse


def without(events: list[dict[str, Any]], lost: Sequence[int]) -> list[dict[str, Any]]:
    kernels = sorted((one for one in events if one["name"].startswith("ncclDev")), key=lambda one: one["ts"])
    ids = {kernels[place]["args"]["correlation"] for place in lost}
    launches = [one for one in events if one.get("args", {}).get("correlation") in ids and one.get("cat") != "kernel"]
    around = [
        one
        for one in events
        if one["name"].startswith(("nccl:", "c10d", "record_param")) and any(encloses(one, call) for call in launches)
    ]
    return [one for one in events if one not in around and one.get("args", {}).get("correlation") not in ids]


def encloses(one: dict[str, Any], call: dict[str, Any]) -> bool:
    is_in_time = one["ts"] <= call["ts"] and call["ts"] + call["dur"] <= one["ts"] + one["dur"]
    return bool(is_in_time and one.get("tid") == call["tid"])


def test_a_step_of_which_a_rank_lost_all_is_not_known_and_the_rank_is_named(
    lose: Callable[[Sequence[int]], TraceSet],
) -> None:
    traces = lose(range(6, 12))
    whole, lossy = traces.analyses
    assert (whole.lacking, lossy.lacking, lossy.unseen) == ({}, {3: 6}, 6)
    assert [step.overlap.exposed_comm_ns is None for step in lossy.steps] == [False, True, False]
    assert [step.overlap.is_least for step in lossy.steps] == [False, True, False]
    assert lossy.whole.is_least
    gaps = [account.gaps for account in lossy.accounts.steps]
    assert [one is not None and one.comm_wait_ns is None for one in gaps] == [False, True, False]
    (note,) = pick_notes(traces.notes, ShownElsewhere)
    assert str(note).startswith("rank 1: 6 collectives of step 3 that other ranks ran with it are not in its trace")


def test_what_is_left_of_a_step_is_a_bound(lose: Callable[[Sequence[int]], TraceSet]) -> None:
    _, lossy = lose([2, 9]).analyses
    assert lossy.lacking == {2: 1, 3: 1}
    for step in lossy.steps[:2]:
        assert step.overlap.exposed_comm_ns
        assert step.overlap.is_least
        assert all(row.is_wait_least for row in step.purposes)
