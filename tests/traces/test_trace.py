"""Which events have one of some names or categories: by comparing where few are asked for, else by a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.trace import Trace, Unread, no_values

NAMES = tuple(f"kernel_{number}" for number in range(20))
CATEGORIES = ("cpu_op", "kernel", "gpu_memcpy")


def trace_of(names: list[int]) -> Trace:
    count = len(names)
    return Trace(
        path="drawn",
        rank=None,
        world_size=None,
        names=NAMES,
        categories=CATEGORIES,
        lanes=(("0", "7"),),
        name=np.array(names, dtype=np.int32),
        category=np.array([name % len(CATEGORIES) for name in names], dtype=np.int16),
        lane=np.zeros(count, dtype=np.int32),
        start_ns=np.arange(count, dtype=np.int64),
        end_ns=np.arange(count, dtype=np.int64) + 1,
        correlation=no_values(),
        details={},
        group_descriptions={},
        unread=Unread(),
    )


@given(st.lists(st.integers(0, len(NAMES) - 1), max_size=30), st.sets(st.sampled_from(NAMES)))
def test_events_are_told_by_name_however_many_names_are_asked_for(names: list[int], wanted: set[str]) -> None:
    trace = trace_of(names)
    found = trace.is_named(wanted.__contains__)
    assert found.dtype == np.bool_
    assert found.tolist() == [trace.name_of(event) in wanted for event in range(len(trace))]


@pytest.mark.parametrize("wanted", [(), ("kernel",), ("kernel", "gpu_memcpy", "of no trace")])
def test_events_are_told_by_category(wanted: tuple[str, ...]) -> None:
    trace = trace_of(list(range(20)))
    assert trace.is_one_of(wanted).tolist() == [trace.category_of(event) in wanted for event in range(len(trace))]
