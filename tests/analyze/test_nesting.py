"""Enclosing spans, against a brute-force oracle."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.analyze.nesting import find_nesting, innermost_time
from dtbench.analyze.reader import read_trace

Span = tuple[int, int, str]


def nest(start: int, end: int, depth: int) -> st.SearchStrategy[list[Span]]:
    """Draw properly nested spans inside a window, as a thread makes them."""
    if depth == 0 or end - start < 1:
        return st.just([])

    @st.composite
    def build(drawn: st.DrawFn) -> list[Span]:
        cuts = sorted(set(drawn(st.lists(st.integers(start, end), max_size=6))))
        found: list[Span] = []
        for left, right in zip(cuts[::2], cuts[1::2], strict=False):
            found.append((left, right, drawn(st.sampled_from(["aten::mm", "dtbench::wait group=0 seq=1"]))))
            found += drawn(nest(left, right, depth - 1))
        return found

    return build()


@given(spans=nest(0, 24, 3))
def test_the_innermost_span_at_every_tick_is_found(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> None:
    path = tmp_path_factory.mktemp("nested") / "trace.json"
    rows = [{"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": s, "dur": e - s} for s, e, n in spans]
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = read_trace(path)
    counting = frozenset(i for i, name in enumerate(trace.names) if name == "aten::mm")
    found = innermost_time(trace, find_nesting(trace), frozenset(trace.lane.tolist()), counting)
    expected = 0
    for tick in range(24):
        inside = [(end - start, -order, name) for order, (start, end, name) in enumerate(spans) if start <= tick < end]
        expected += bool(inside) and min(inside)[2] == "aten::mm"
    assert found.length_ns == expected * 1000
