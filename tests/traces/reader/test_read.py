"""Reading: exact times, by content, and no silent loss."""

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.base.errors import TraceError
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

EVENT = '{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": %s, "dur": %s}'


def write(path: Path, *events: str) -> Path:
    path.write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    return path


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path, draw: Callable[..., Path]) -> None:
    plain = draw("kernel gemm @7 |..==..|")
    zipped = tmp_path / "zipped.json"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(zipped).start_ns.tolist() == read_trace(plain).start_ns.tolist() == [2000]
    assert read_trace(zipped).end_ns.tolist() == [4000]


def test_a_bare_array_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text("\ufeff [" + EVENT % (1, 2) + "]")
    trace = read_trace(path)
    assert trace.names == ("gemm",)
    assert trace.rank is None


@given(ns=st.integers(min_value=0, max_value=2**43 * 1000 - 1), dur=st.integers(min_value=0, max_value=10**10))
def test_microseconds_with_three_decimals_are_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, ns: int, dur: int
) -> None:
    path = write(
        tmp_path_factory.mktemp("exact") / "trace.json",
        EVENT % (f"{ns // 1000}.{ns % 1000:03}", f"{dur // 1000}.{dur % 1000:03}"),
    )
    trace = read_trace(path)
    assert trace.start_ns.tolist() == [ns]
    assert (trace.end_ns - trace.start_ns).tolist() == [dur]


def test_a_time_that_float_arithmetic_gets_wrong_is_right(tmp_path: Path) -> None:
    text = "3743411222894.405"
    trace = read_trace(write(tmp_path / "trace.json", EVENT % (text, 1)))
    assert trace.start_ns.tolist() == [int(Decimal(text) * 1000)] == [3743411222894405]


def test_absolute_times_that_no_float_holds_are_read_from_their_text(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "trace.json", EVENT % ("1711111111111111.123", "0.456")))
    assert trace.start_ns.tolist() == [1711111111111111123]
    assert trace.end_ns.tolist() == [1711111111111111579]


def test_a_time_written_as_text_is_read(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "trace.json", EVENT % ('"12.345"', '"1"')))
    assert (trace.start_ns.tolist(), trace.unread.count) == ([12345], 0)


@pytest.mark.parametrize(
    "broken", [EVENT % (1, -2), EVENT % ("null", 2), EVENT % ('"soon"', 2), '{"ph": "X", "ts": []}', "17"]
)
def test_an_event_that_cannot_be_read_is_counted_and_the_others_are_kept(tmp_path: Path, broken: str) -> None:
    trace = read_trace(write(tmp_path / "trace.json", EVENT % (1, 2), broken, EVENT % (5, 1)))
    assert (trace.start_ns.tolist(), trace.unread.count) == ([1000, 5000], 1)


def test_rows_that_span_everything_and_other_phases_are_left_out(tmp_path: Path) -> None:
    span = '{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 0, "dur": 99}'
    trace = read_trace(write(tmp_path / "trace.json", span, '{"ph": "M", "name": "thread_name"}', EVENT % (1, 2)))
    assert (trace.names, trace.unread.count) == (("gemm",), 0)


def test_rank_and_groups_are_read(draw: Callable[..., Path]) -> None:
    info = {"rank": 3, "pg_config": [{"pg_name": "1", "pg_desc": "mesh_shard"}]}
    trace = read_trace(draw("kernel gemm @7 |=|", distributedInfo=info))
    assert (trace.rank, dict(trace.group_descriptions)) == (3, {"1": "mesh_shard"})


@pytest.mark.parametrize("zipped", [False, True])
def test_of_a_trace_cut_anywhere_what_came_before_is_read_and_the_cut_is_told(
    tmp_path: Path, recorded: Path, zipped: bool
) -> None:
    content = (recorded / "ddp_2ranks_rank0.json.gz").read_bytes()
    whole = read_trace(recorded / "ddp_2ranks_rank0.json.gz")
    content = content if zipped else gzip.decompress(content)
    path = tmp_path / "cut.json"
    lengths = []
    for part in range(2, 20):
        path.write_bytes(content[: len(content) * part // 20])
        trace = read_trace(path)
        lengths.append(len(trace))
        assert (trace.unread.is_truncated, trace.unread.count) == (True, 0)
        assert trace.start_ns.tolist() == whole.start_ns[: len(trace)].tolist()
        assert [trace.name_of(event) for event in range(len(trace))] == [
            whole.name_of(event) for event in range(len(trace))
        ]
    assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("text", ['{"traceEvents": [', '{"schemaVersion": 1, "deviceProp', "[", '[{"ph": "X", "na'])
def test_a_trace_cut_before_its_first_event_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"cut\.json: cut short .* did the rank die while writing\?"):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ('{"cells": []}', "not a trace"),
        ("17", "not a trace"),
        ("hello", "not readable as JSON"),
    ],
)
def test_what_is_no_trace_is_refused_with_a_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(TraceError, match=sentence):
        read_trace(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace(tmp_path / "none.json")


PROFILED_PLAINLY = {
    f"profiler's {option}": "off"
    for option in ("with_stack", "record_shapes", "profile_memory", "with_modules", "with_flops")
}
"""torch writes only options that are on, into a header that it makes."""


@pytest.mark.parametrize(
    ("top", "told", "devices"),
    [
        (
            {
                "deviceProperties": [{"id": 0, "name": "NVIDIA H800"}, {"id": 1, "name": "NVIDIA H800"}],
                "cuda_runtime_version": 12040,
                "cuda_driver_version": 12080,
                "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "nccl_version": "2.26.2"},
            },
            {"CUDA runtime": "12.4", "CUDA driver": "12.8", "nccl": "2.26.2", **PROFILED_PLAINLY},
            {"0": "NVIDIA H800", "1": "NVIDIA H800"},
        ),
        (
            {
                "deviceProperties": [{"name": "B"}, {"name": "A"}, {"id": 2}, 7],
                "hip_runtime_version": 60443483,
                "hip_driver_version": "soon",
            },
            {"HIP runtime": "6.4.43483"},
            {"0": "B", "1": "A"},
        ),
        ({"deviceProperties": [], "cuda_runtime_version": None}, {}, {}),
        ({"deviceProperties": "H800", "distributedInfo": {"nccl_version": ""}}, PROFILED_PLAINLY, {}),
        ({}, {}, {}),
    ],
)
def test_devices_and_what_drives_them_are_read_where_the_trace_says_them(
    draw: Callable[..., Path], top: dict[str, object], told: dict[str, str], devices: dict[str, str]
) -> None:
    path = draw("kernel gemm @7 |=|")
    document = json.loads(path.read_text())
    for text in ({**top, "traceEvents": document["traceEvents"]}, {"traceEvents": document["traceEvents"], **top}):
        path.write_text(json.dumps(text))
        trace = read_trace(path)
        assert (trace.machine, trace.devices) == (told, devices)


def test_kept_events_of_a_recorded_trace_are_all_its_complete_events(recorded: Path) -> None:
    path = recorded / "fsdp2_tp_2x2_rank0.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    expected = sum(event["ph"] == "X" and event["cat"] != "Trace" for event in events)
    trace = read_trace(path)
    assert (len(trace.name), trace.unread.count) == (expected, 0)


@pytest.mark.parametrize(
    ("top", "host", "base_ns"),
    [
        ({"host_name": "node3", "baseTimeNanoseconds": 1790857026000000000}, "node3", 1790857026000000000),
        ({"host_name": 'a "b"'}, 'a "b"', None),
        ({"host_name": "  "}, None, None),
        ({"host_name": None, "baseTimeNanoseconds": "soon"}, None, None),
        ({"host_name": 7, "baseTimeNanoseconds": -5}, None, None),
        ({}, None, None),
    ],
)
def test_the_machine_and_the_base_of_its_times_are_read_where_the_trace_says_them(
    draw: Callable[..., Path], top: dict[str, object], host: str | None, base_ns: int | None
) -> None:
    trace = read_trace(draw("kernel gemm @7 |=|", **top))
    assert (trace.host, trace.base_ns) == (host, base_ns)
    behind = draw("kernel gemm @7 |=|")
    text = json.dumps({"traceEvents": json.loads(behind.read_text())["traceEvents"], **top})
    behind.write_text(text)
    trace = read_trace(behind)
    assert (trace.host, trace.base_ns) == (host, base_ns)
    assert analyze_trace(trace).timeline.host == host
