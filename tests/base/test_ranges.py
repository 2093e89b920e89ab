"""What the worker writes into a trace is what the analyser reads."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.base.ranges import (
    AVERAGING_RANGE,
    CLIPPING_RANGE,
    CollectiveLabel,
    LinkLabel,
    WaitLabel,
    collective_range,
    find_unknown_words,
    link_range,
    module_range,
    parse_collective_range,
    parse_link_range,
    parse_probe_range,
    parse_reduces_range,
    parse_wait_range,
    probe_range,
    reduces_range,
    region_range,
    timed_range,
    unit_range,
    wait_range,
)
from dtbench.base.vocabulary import Axis, Operation, Purpose, Region, purpose_of

labels = st.builds(
    CollectiveLabel,
    group=st.from_regex(r"[\w.:-]*", fullmatch=True),
    seq=st.integers(0, 10**9),
    operation=st.sampled_from(Operation),
    size_bytes=st.integers(0, 10**15),
    axis=st.none() | st.sampled_from(Axis),
    is_async=st.booleans(),
    owner=st.text(),
    caller=st.from_regex(r"\S*", fullmatch=True),
)


@given(labels)
def test_a_label_survives_the_trace(label: CollectiveLabel) -> None:
    assert parse_collective_range(collective_range(label)) == label


def test_a_function_is_written_only_where_one_asked_and_without_blanks() -> None:
    known: dict[str, Any] = {
        "group": "0",
        "seq": 1,
        "operation": Operation.SEND,
        "size_bytes": 8,
        "axis": None,
        "is_async": True,
    }
    label = CollectiveLabel(**known, owner="mine", caller="my train.swap")
    name = "dtbench::collective group=0 seq=1 op=send bytes=8 axis= async=1 {}owner=mine"
    assert collective_range(label) == name.format("caller=my_train.swap ")
    assert collective_range(replace(label, caller="")) == name.format("")
    read = parse_collective_range(name.format(""))
    assert read == replace(label, caller=""), "as older versions wrote"
    assert find_unknown_words(name.format("")) == find_unknown_words(collective_range(label)) == ()


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
        (None, Operation.SEND, Region.FORWARD, Purpose.OTHER),
    ],
)
def test_the_purpose_follows_from_axis_operation_and_region(
    axis: Axis | None, operation: Operation, region: Region | None, purpose: Purpose
) -> None:
    assert purpose_of(axis, operation, region) is purpose


_TEXTS = st.text(max_size=20) | st.sampled_from(
    ["group=0", "seq=1", "seq=" + "9" * 5000, "axis=", "op=x", "owner=", "(", " "]
)


@given(
    st.sampled_from(["collective ", "link ", "wait ", "region ", "unit", "reduces ", "module ", "timed ", ""]),
    st.lists(_TEXTS, max_size=8),
)
def test_no_text_in_a_trace_is_an_error(kind: str, words: list[str]) -> None:
    name = f"dtbench::{kind}{' '.join(words)}"
    parse_collective_range(name)
    parse_link_range(name)
    parse_wait_range(name)
    parse_reduces_range(name)
    parse_probe_range(name)
    find_unknown_words(name)


@given(labels)
def test_nothing_that_this_version_writes_is_unknown_to_it(label: CollectiveLabel) -> None:
    names = (
        collective_range(label),
        wait_range(WaitLabel(group=label.group, seq=label.seq)),
        link_range(LinkLabel(group=label.group, seq=label.seq, begun_ns=7)),
        *map(region_range, Region),
        unit_range(label.owner),
        reduces_range(label.owner),
        module_range(label.owner),
        timed_range("layers.0", Region.BACKWARD),
        probe_range("fsdp.DTensorExtensions.chunk_tensor", label.owner),
        CLIPPING_RANGE,
        AVERAGING_RANGE,
        "aten::mm",
    )
    assert [find_unknown_words(name) for name in names] == [()] * len(names)


@pytest.mark.parametrize(
    ("said", "axis", "operation", "size_bytes", "is_async", "words"),
    [
        ("op=all_reduce bytes=8 axis=cell async=1 owner=x", None, Operation.ALL_REDUCE, 8, True, ("axis=cell",)),
        ("op=fold bytes=8 axis=shard async=0 owner=x", Axis.SHARD, None, 8, False, ("op=fold",)),
        ("op=barrier bytes=8K axis= async=2 owner=x", None, Operation.BARRIER, None, None, ("bytes=8K", "async=2")),
        ("op=send bytes=8 axis= async=1 peer=3 owner=x", None, Operation.SEND, 8, True, ("peer=3",)),
        ("bytes=8 op=send async=1 owner=x", None, Operation.SEND, 8, True, ("no axis",)),
    ],
)
def test_of_a_range_of_another_version_what_is_known_is_read(
    said: str,
    axis: Axis | None,
    operation: Operation | None,
    size_bytes: int | None,
    is_async: bool | None,
    words: tuple[str, ...],
) -> None:
    name = f"dtbench::collective group=g seq=4 {said}"
    label = parse_collective_range(name)
    assert label is not None
    assert (label.group, label.seq, label.owner) == ("g", 4, "x")
    assert (label.axis, label.operation, label.size_bytes, label.is_async) == (axis, operation, size_bytes, is_async)
    assert find_unknown_words(name) == words


@pytest.mark.parametrize("name", ["dtbench::region warmdown", "dtbench::lane 3", "dtbench::collective group=0 seq=x"])
def test_ranges_that_this_version_has_no_grammar_for_are_unknown(name: str) -> None:
    assert find_unknown_words(name)
