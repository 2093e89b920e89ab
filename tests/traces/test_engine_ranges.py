"""Ranges of the library that carries a collective out, as torch 2.15's NCCL engine writes them: bare, and left open.

Its words are those of the engine in torch 2.15.0's own ``libtorch_cuda.so``: ``all_reduce``, ``allGatherSingleImpl``,
``reduceScatterSingleImpl``, ``allToAllSingleImpl``, ``batch_op_issue``; its range begins in ``recordStart``, inside
``record_param_comms``, and ends when its ``Work`` is destroyed.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.causes.awaited import Awaited, find_awaited
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.who.collectives import Collective, find_regions
from tests.unpack import unpack

FOLDER = Path(__file__).parents[3] / "shared" / "traces"
PREFIX = "nccl:"
LONG_US = 400.0
recorded = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the recorded GPU traces (../shared/traces) are not on this machine"
)


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def by_issue(path: Path) -> list[Collective]:
    return sorted(analyze(path).collectives, key=lambda one: one.issue_ns or 0)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_reduce", Operation.ALL_REDUCE),
        ("allGatherSingleImpl", Operation.ALL_GATHER),
        ("reduceScatterSingleImpl", Operation.REDUCE_SCATTER),
        ("allToAllSingleImpl", Operation.ALL_TO_ALL),
        ("all_to_all_v_single", Operation.ALL_TO_ALL),
        ("send 0->1", Operation.SEND),
        ("batch_op_issue", None),
    ],
)
def test_a_bare_range_inside_a_record_is_the_librarys_and_owns_nothing(
    draw: Callable[..., Path], name: str, operation: Operation | None
) -> None:
    (found,) = by_issue(
        draw(f"""
        range my exchange          @1  |=======     |
        op record_param_comms      @1  | =====      |
        range {name}               @1  |  ==        |
        call cudaLaunchKernel      @1  |  a         |
        kernel ncclDevKernel       @s9 |     aaaa   |
        """)
    )
    assert (found.operation, found.owner) == (operation, "my exchange")
    assert found.issue_ns == 1000


def test_a_persons_range_of_the_same_name_around_a_record_stays_theirs(draw: Callable[..., Path]) -> None:
    (found,) = by_issue(
        draw("""
        range all_reduce           @1  |=======     |
        op record_param_comms      @1  | =====      |
        range all_reduce           @1  |  ==        |
        call cudaLaunchKernel      @1  |  a         |
        kernel ncclDevKernel       @s9 |     aaaa   |
        """)
    )
    assert (found.operation, found.owner) == (Operation.ALL_REDUCE, "all_reduce")


def test_what_a_thread_does_while_a_work_is_held_is_not_inside_its_collective(draw: Callable[..., Path]) -> None:
    """The range of the first collective is open until its ``Work`` is released, long after the second was issued."""
    first, second = by_issue(
        draw("""
        range sum of losses        @1  |====                    |
        op record_param_comms      @1  | ==                     |
        range all_reduce           @1  | ===================    |
        call cudaLaunchKernel      @1  | a                      |
        range norm                 @1  |         =====          |
        op record_param_comms      @1  |          ==            |
        range all_reduce           @1  |          ============= |
        call cudaLaunchKernel      @1  |          b             |
        op aten::mm                @1  |               ===      |
        call cudaLaunchKernel      @1  |                c       |
        kernel ncclDevKernel_AllReduce_Sum_f32 @s9 |   aaaa     bbbb   |
        kernel gemm                @s7 |                 cc     |
        """)
    )
    assert (first.owner, second.owner) == ("sum of losses", "norm")
    assert [(one.issue_ns, one.issue_end_ns) for one in (first, second)] == [(1000, 3000), (10000, 12000)]


def test_a_recorded_wait_is_for_its_own_collective_alone(draw: Callable[..., Path]) -> None:
    """Number 8 is first waited for after ``mm`` was launched, which the wait for number 7 does not alter."""
    said = '{{"Process Group Name": "1", "Collective name": "{}", "Seq": {}}}'
    trace = read_trace(
        draw(f"""
        step ProfilerStep#1        @1  |===================             |
        op record_param_comms      @1  |==                              | {said.format("all_reduce", 7)}
        call cudaLaunchKernel      @1  |a                               |
        op record_param_comms      @1  |  ==                            | {said.format("all_reduce", 8)}
        call cudaLaunchKernel      @1  |  b                             |
        op record_param_comms      @1  |     ==                         | {said.format("wait", 7)}
        call cudaStreamWaitEvent   @1  |     W                          |
        op aten::mm                @1  |        ===                     |
        call cudaLaunchKernel      @1  |        c                       |
        op record_param_comms      @1  |            ==                  | {said.format("wait", 8)}
        call cudaStreamWaitEvent   @1  |            V                   |
        kernel ncclDevKernel_AllReduce_Sum_f32 @s9 | aaaaaaaa           |
        kernel ncclDevKernel_AllReduce_Sum_f32 @s8 |         bbbbbbbbbb |
        kernel gemm                @s7 |                   cc           |
        """)
    )
    collectives = analyze_trace(trace).collectives
    awaited = find_awaited(trace, find_nesting(trace), find_regions(trace), collectives)
    assert {one.seq: wait for one, wait in zip(collectives, awaited, strict=True)} == {
        7: Awaited(5_000, is_known=True),
        8: Awaited(12_000, is_known=True),
    }


def test_a_wait_for_several_tensors_is_one_for_each(draw: Callable[..., Path]) -> None:
    sized = '{{"Input Dims": [[{0}]], "Input type": ["float"]}}'
    both = '{"Input Dims": [[[8], [2]]], "Input type": ["TensorList"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                 @1 |====================|
        op _c10d_functional::all_reduce     @1 | ==                 |
        op c10d::allreduce_                 @1 | ==                 |
        op _c10d_functional::all_reduce     @1 |    ==              |
        op c10d::allreduce_                 @1 |    ==              |
        op _c10d_functional::wait_tensors   @1 |       ======       | {both}
        op gloo:all_reduce                  @g |  =========         | {sized.format(8)}
        op gloo:all_reduce                  @h |     =======        | {sized.format(2)}
        """)
    )
    waits = [(found.size_bytes, found.first_wait_ns, found.first_wait_end_ns) for found in one.collectives]
    assert waits == [(32, 7_000, 13_000), (8, 7_000, 13_000)]


def read_json(path: Path) -> Any:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def write_as_2_15(source: Path, path: Path) -> int:
    """Write a trace with ranges as torch 2.15's engine writes them; gives how many."""
    document, count = read_json(source), 0
    for event in document["traceEvents"]:
        if str(event.get("name", "")).startswith(PREFIX):
            event["name"] = event["name"].removeprefix(PREFIX)
            count += 1
            if event["cat"] == "user_annotation" and not count % 3:
                event["dur"] += LONG_US
    path.write_text(json.dumps(document))
    return count


def find_sources(tmp_path: Path) -> Iterator[Path]:
    yield from sorted(FOLDER.glob("*.json.gz"))
    unpack(FOLDER / "v100x8_dlrm_all_ranks.tar.gz", tmp_path)
    yield min(tmp_path.rglob("*.json"))


@recorded
def test_recorded_traces_say_the_same_in_the_words_of_either_engine(tmp_path: Path) -> None:
    renamed = 0
    for source in [*find_sources(tmp_path)]:
        path = tmp_path / "renamed.json"
        renamed += write_as_2_15(source, path)
        before, after = (COLLECTIVES.tabulate([analyze(one)]) for one in (source, path))
        pd.testing.assert_frame_equal(before, after)
        assert set(before["purpose"]) <= set(Purpose)
    assert renamed > 0
