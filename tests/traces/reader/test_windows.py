"""Windows: wherever the text is cut, the columns are the same; and they are what the standard library reads."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.reader import read_trace
from dtbench.traces.reader.windows import Buffer
from dtbench.traces.trace import Trace

RECORDED = sorted((Path(__file__).parents[1] / "recorded").glob("*.json.gz"))
GPU_FOLDER = Path(__file__).parents[4] / "shared" / "traces"
GPU = [GPU_FOLDER / f"{name}.json.gz" for name in ("h800_deepep_train", "mi300x_ddp_rank", "a100x8_ddp_rank")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_row_of_a_recorded_trace_is_what_the_standard_library_reads(
    path: Path, oracle: Callable[[bytes], Any], rows_of: Callable[[Trace], Any]
) -> None:
    trace = read_trace(path, window_bytes=10_000)
    assert rows_of(trace) == oracle(gzip.decompress(path.read_bytes()))
    assert (trace.unread.count, trace.unread.is_truncated) == (0, False)


@pytest.mark.skipif(not GPU_FOLDER.is_dir(), reason="the recorded GPU traces (../shared/traces) are not here")
@pytest.mark.parametrize("path", GPU, ids=lambda path: path.name)
def test_every_row_of_a_real_gpu_trace_is_what_the_standard_library_reads(
    path: Path, oracle: Callable[[bytes], Any], rows_of: Callable[[Trace], Any]
) -> None:
    trace = read_trace(path)
    assert rows_of(trace) == oracle(gzip.decompress(path.read_bytes()))
    assert (trace.unread.count, trace.unread.is_truncated) == (0, False)


ODD_TEXTS = ("},{", '"}, {"ph": "X"', "]}", "\\", 'a"b', "\n", "ü💥", "{" * 5, '], "x": {')
odd_text = st.sampled_from(ODD_TEXTS)
nested: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | odd_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3),
    max_leaves=8,
)
event = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(["kernel", "cpu_op"]),
        "name": odd_text,
        "ts": st.integers(0, 10**15).map(lambda ns: ns / 8),
        "dur": st.integers(0, 10**6),
        "args": st.dictionaries(odd_text, nested, max_size=3),
    }
)


@given(
    events=st.lists(event, max_size=12),
    window_bytes=st.integers(1, 600),
    indent=st.sampled_from([None, 0, 4]),
    is_bare=st.booleans(),
)
def test_windows_of_any_size_give_the_same_rows_whatever_stands_in_the_events(
    events: list[dict[str, Any]],
    window_bytes: int,
    indent: int | None,
    is_bare: bool,
    read: Callable[..., Trace],
    oracle: Callable[[str], Any],
    rows_of: Callable[[Trace], Any],
) -> None:
    after = {"distributedInfo": {"rank": 2, "pg_config": [{"pg_name": "0", "pg_desc": "x"}, {"pg_name": "1"}]}}
    document: Any = events if is_bare else {"deviceProperties": [{"id": 0}, {"id": 1}], "traceEvents": events, **after}
    text = json.dumps(document, indent=indent)
    trace = read(text, window_bytes)
    assert rows_of(trace) == oracle(text)
    assert (trace.unread.count, trace.unread.is_truncated, trace.rank) == (0, False, None if is_bare else 2)


def test_an_event_larger_than_many_windows_is_read(read: Callable[..., Trace]) -> None:
    inside = [{"ph": "no event", "name": f"}},{{ {number}"} for number in range(500)]
    big = {"ph": "X", "name": "big", "ts": 2, "dur": 1, "args": {"list": inside, "text": "},{" * 3000}}
    small = {"ph": "X", "name": "small", "ts": 1, "dur": 1}
    trace = read(json.dumps({"traceEvents": [small, big, small]}), 300)
    assert [trace.name_of(number) for number in range(len(trace))] == ["small", "big", "small"]
    assert trace.unread.count == 0


def test_text_is_cut_behind_the_last_event_but_one() -> None:
    buffer = Buffer()
    buffer.append(b'{"ph": "X", "args": {}} ,\n {"ph": "X"')
    end, following = buffer.find_last_border() or (0, 0)
    assert buffer.text(end) == b'{"ph": "X", "args": {}}'
    with buffer.as_array(end) as array:
        assert json.loads(bytes(array)) == [{"ph": "X", "args": {}}]
    buffer.drop(following)
    assert buffer.text(len(buffer)) == b'{"ph": "X"'


def test_a_defect_costs_little_in_a_trace_of_many_windows(read: Callable[..., Trace]) -> None:
    texts = [f'{{"ph": "X", "name": "a{number % 7}", "ts": {number}, "dur": 1}}' for number in range(20_000)]
    texts[5_000] = texts[5_000].replace('"dur"', "dur")
    trace = read('{"traceEvents": [' + ",".join(texts) + "]}", 10_000)
    assert dict(trace.unread.events) == {"unreadable text": 1}
    assert np.array_equal(trace.start_ns, np.delete(np.arange(20_000), 5_000) * 1000)
