"""Backwards of one step that have nothing between them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.traces.causes.regions import infer_regions
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.reader import read_trace
from dtbench.traces.time.coverage import Window

NODE = "op autograd::engine::evaluate_function:"
MADE = '{{"Sequence number": {}, "Fwd thread id": 1}}'


def find(path: Path) -> list[tuple[str, int, int]]:
    trace = read_trace(path)
    found = infer_regions(trace, find_nesting(trace), [Window(0, 60_000)])
    spans = zip(found.regions, (found.starts_ns // 1000).tolist(), (found.ends_ns // 1000).tolist(), strict=True)
    return [(str(region), start, end) for region, start, end in spans if end > start]


@pytest.mark.parametrize(
    ("numbers", "thread", "backwards"),
    [
        ((5, 4, 8, 7), "2", [("backward", 20, 29), ("backward", 32, 39)]),
        ((5, 4, 5, 4), "2", [("backward", 20, 29), ("backward", 32, 39)]),
        ((8, 7, 5, 4), "2", [("backward", 20, 39)]),
        ((5, 4, 8, 7), "3", [("backward", 20, 39)]),
    ],
    ids=["a later micro-batch", "the same graph again", "an earlier one looks like more of it", "two threads"],
)
def test_a_backward_that_follows_another_begins_where_autograds_numbers_rise(
    draw: Callable[..., Path], numbers: tuple[int, int, int, int], thread: str, backwards: list[tuple[str, int, int]]
) -> None:
    """``pipelined.backward(gradient=...)`` for each micro-batch, when all their forwards are over."""
    first, second, third, fourth = (MADE.format(number) for number in numbers)
    path = draw(f"""
        op aten::mm @1                                       |==                                                          | {{"Sequence number": 4}}
        op aten::mm @1                                       |   ==                                                       | {{"Sequence number": 5}}
        op aten::mm @1                                       |      ==                                                    | {{"Sequence number": 7}}
        op aten::mm @1                                       |         ==                                                 | {{"Sequence number": 8}}
        {NODE} MmBackward0 @2                                |                    ==                                      | {first}
        {NODE} MmBackward0 @2                                |                       ==                                   | {second}
        {NODE} torch::autograd::AccumulateGrad @2            |                          ===                               |
        {NODE} MmBackward0 @{thread}                         |                                ==                          | {third}
        {NODE} MmBackward0 @{thread}                         |                                   ==                       | {fourth}
        {NODE} torch::autograd::AccumulateGrad @2            |                                      =                     |
        """)  # fmt: skip  # noqa: E501
    found = find(path)
    assert [one for one in found if one[0] == "backward"] == backwards


def test_what_a_node_lets_run_inside_it_is_no_further_backward(draw: Callable[..., Path]) -> None:
    """Activation checkpointing: the recomputed graph is younger than all that was there."""
    path = draw(f"""
        op aten::mm @1                                       |==                                                          | {{"Sequence number": 4}}
        op aten::mm @1                                       |   ==                                                       | {{"Sequence number": 5}}
        {NODE} CheckpointFunctionBackward @2                 |                    ==========                              | {MADE.format(5)}
        {NODE} MmBackward0 @2                                |                         ==                                 | {MADE.format(9)}
        {NODE} MmBackward0 @2                                |                               ==                           | {MADE.format(4)}
        """)  # fmt: skip  # noqa: E501
    assert [one for one in find(path) if one[0] == "backward"] == [("backward", 20, 33)]
