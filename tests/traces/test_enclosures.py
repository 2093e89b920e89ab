"""What lies around a moment, against a stack that is walked event by event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.time.enclosures import NOTHING, Enclosures, find_enclosures

Span = tuple[int, int, int]  # lane, start, end

spans_of_threads = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)).map(lambda s: (s[0], s[1], s[1] + s[2])),
    max_size=30,
)
moments = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 40)), max_size=10)
YEARS_NS = 2**61


def enclosures_of(spans: list[Span], stretch: int = 1) -> Enclosures:
    lanes, starts, ends = (np.array(column, dtype=np.int64) for column in np.array(spans).reshape(-1, 3).T)
    return find_enclosures(np.arange(len(spans)), lanes, starts * stretch, ends * stretch)


def in_order(spans: list[Span]) -> list[int]:
    return sorted(range(len(spans)), key=lambda i: (spans[i][0], spans[i][1], -spans[i][2], i))


def walk_stack(spans: list[Span]) -> dict[int, int]:
    """Push every span in order, after popping what has ended; what is left below is around it."""
    above = {}
    stack: list[int] = []
    for event in in_order(spans):
        lane, start, _ = spans[event]
        while stack and (spans[stack[-1]][0] != lane or spans[stack[-1]][2] <= start):
            stack.pop()
        above[event] = stack[-1] if stack else NOTHING
        stack.append(event)
    return above


@pytest.mark.parametrize("stretch", [1, YEARS_NS // 64], ids=["microseconds", "years"])
@given(spans=spans_of_threads)
def test_what_lies_around_each_span_is_what_a_stack_finds_also_where_spans_overlap(
    stretch: int, spans: list[Span]
) -> None:
    found = enclosures_of(spans, stretch)
    assert found.events.tolist() == in_order(spans)
    above = found.events_at(found.above.astype(np.int64))
    assert dict(zip(found.events.tolist(), above.tolist(), strict=True)) == walk_stack(spans)


@pytest.mark.parametrize("stretch", [1, YEARS_NS // 64], ids=["microseconds", "years"])
@given(spans=spans_of_threads, asked=moments)
def test_around_a_moment_is_the_last_span_that_began_and_has_not_ended(
    stretch: int, spans: list[Span], asked: list[tuple[int, int]]
) -> None:
    lanes, times = (np.array(column, dtype=np.int64) for column in np.array(asked).reshape(-1, 2).T)
    found = enclosures_of(spans, stretch).around(lanes, times * stretch).tolist()
    for event, (lane, time) in zip(found, asked, strict=True):
        is_open = [i for i in in_order(spans) if spans[i][0] == lane and spans[i][1] <= time < spans[i][2]]
        assert event == (is_open[-1] if is_open else NOTHING)


def test_a_hundred_thousand_siblings_are_no_quadratic_walk() -> None:
    siblings = [(0, 0, 300_000), *((0, 2 * i, 2 * i + 1) for i in range(1, 100_000))]
    found = enclosures_of(siblings)
    assert set(found.above[1:].tolist()) == {0}
