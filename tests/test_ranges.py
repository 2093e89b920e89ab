"""What the worker writes into a trace is what the analyser reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.ranges import (
    CollectiveLabel,
    LinkLabel,
    WaitLabel,
    collective_range,
    link_range,
    parse_collective_range,
    parse_link_range,
    parse_wait_range,
    timed_range,
    wait_range,
)
from dtbench.vocabulary import Axis, Operation, Purpose, Region, purpose_of

labels = st.builds(
    CollectiveLabel,
    group=st.from_regex(r"[\w.:-]*", fullmatch=True),
    seq=st.integers(0, 10**9),
    operation=st.sampled_from(Operation),
    size_bytes=st.integers(0, 10**15),
    axis=st.none() | st.sampled_from(Axis),
    is_async=st.booleans(),
    owner=st.text(),
)


@given(labels)
def test_a_label_survives_the_trace(label: CollectiveLabel) -> None:
    assert parse_collective_range(collective_range(label)) == label


@given(st.integers(0), st.from_regex(r"[\w.:-]*", fullmatch=True))
def test_a_wait_survives_the_trace(seq: int, group: str) -> None:
    assert parse_wait_range(wait_range(WaitLabel(group=group, seq=seq))) == WaitLabel(group=group, seq=seq)


@given(st.integers(0), st.from_regex(r"[\w.:-]*", fullmatch=True), st.integers(0))
def test_a_link_survives_the_trace(seq: int, group: str, begun_ns: int) -> None:
    label = LinkLabel(group=group, seq=seq, begun_ns=begun_ns)
    assert parse_link_range(link_range(label)) == label


def test_a_block_that_takes_its_time_is_named_with_its_region() -> None:
    name = timed_range("layers.3", Region.BACKWARD)
    assert name == "dtbench::timed layers.3 backward"
    assert [parse_collective_range(name), parse_link_range(name), parse_wait_range(name)] == [None] * 3


@pytest.mark.parametrize("name", ["aten::mm", "dtbench::collective", "dtbench::collective group=0 seq=x", ""])
def test_other_names_are_none_of_ours(name: str) -> None:
    assert parse_collective_range(name) is None
    assert parse_wait_range(name) is None


@pytest.mark.parametrize(
    ("axis", "operation", "region", "purpose"),
    [
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, Purpose.UNSHARD),
        (Axis.SHARD, Operation.ALL_GATHER, Region.BACKWARD, Purpose.UNSHARD),
        (Axis.SHARD, Operation.REDUCE_SCATTER, Region.BACKWARD, Purpose.GRAD_REDUCE),
        (Axis.REPLICATE, Operation.ALL_REDUCE, Region.BACKWARD, Purpose.GRAD_REDUCE),
        (Axis.TENSOR, Operation.ALL_REDUCE, Region.BACKWARD, Purpose.TENSOR),
        (Axis.SHARD, Operation.ALL_REDUCE, Region.OPTIMIZER, Purpose.OTHER),
        (Axis.REPLICATE, Operation.BROADCAST, Region.FORWARD, Purpose.OTHER),
        (None, Operation.BARRIER, None, Purpose.OTHER),
        (Axis.SHARD, Operation.ALL_GATHER, Region.STATE_DICT, Purpose.STATE),
        (None, Operation.SEND, Region.FORWARD, Purpose.PIPELINE),
    ],
)
def test_the_purpose_follows_from_axis_operation_and_region(
    axis: Axis | None, operation: Operation, region: Region | None, purpose: Purpose
) -> None:
    assert purpose_of(axis, operation, region) is purpose
