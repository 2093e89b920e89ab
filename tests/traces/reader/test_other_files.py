"""Files of other tools are named for what they are, by content, wherever they lie; a trace of torch's never is one."""

import gzip
import io
import json
import pickle
import sqlite3
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.job.foreign import analyze_traces, are_traces
from dtbench.traces.notes.note import say_notes
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.find import find_traces

EVENT = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
OPERATOR = {"ph": "X", "name": "aten::mm", "pid": 5, "tid": 5, "ts": "1700000000000100.000", "dur": 30, "args": {}}
RECORD = 'record it with `torch.profiler.profile(on_trace_ready=dtbench.trace_handler("traces"))`'


def sqlite(*tables: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (start INT, end INT)")
    return connection.serialize()


def process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}


def packet(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return b"\x0a" + bytes([len(body)]) + body


ASCEND = [
    process(1002, "Ascend Hardware"),
    process(1004, "Overlap Analysis"),
    OPERATOR,
    {**OPERATOR, "name": "hcom_allReduce__503_0_1", "pid": 1003},
    {**OPERATOR, "name": "Communication(Not Overlapped)", "pid": 1004},
]
OTHERS: list[tuple[str, bytes | str, str]] = [
    ("report1.nsys-rep", b"\x00NSYS\xdf\x14}\xac" + bytes(range(256)), "an Nsight Systems report;"),
    ("old.qdrep", b"\x01\x02QDREP\x00" + bytes(64), "an Nsight Systems report;"),
    ("unknown_inside.nsys-rep", b"\x07\x00\x00\x01" + bytes(64), "an Nsight Systems report;"),
    (
        "report1.sqlite",
        sqlite("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"),
        "an Nsight Systems report exported to SQLite",
    ),
    ("renamed.json", sqlite("NVTX_EVENTS"), "an Nsight Systems report exported to SQLite"),
    ("results.db", sqlite("rocpd_kernel_dispatch"), "a database of rocprofv3"),
    ("ascend.db", sqlite("COMMUNICATION_OP"), "a database of Ascend's profiler"),
    ("something.db", sqlite("users"), "an SQLite database"),
    ("gemm.ncu-rep", b"NVR\x00\x08\x01" + bytes(32), "an Nsight Compute report"),
    ("trace.pftrace", packet(b"\x32\x03\x08\x06\x10") + packet(b"\x50\x01\x08\x07"), "a trace of Perfetto"),
    ("host.xplane.pb", packet(b"\x08\x01", b"\x12\x09/host:CPU"), "a profile of XLA"),
    ("snapshot.pickle", pickle.dumps({"segments": [{"device": 0}], "device_traces": [[]]}), "a snapshot of the CUDA"),
    ("nccl_trace_rank_0", pickle.dumps({"version": "2.4", "pg_config": {}, "entries": []}), "c10d's flight recorder"),
    ("what.pkl", pickle.dumps([1, 2]), "a pickle"),
    ("chakra.0.et", b"\x07\x0a\x050.0.4" + b"\x10\x08\x01", "a Chakra execution trace"),
    ("profile.json", json.dumps({"$schema": "https://www.speedscope.app/file-format-schema.json"}), "speedscope"),
    (
        "et.json",
        json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "ctrl_deps": 0}]}),
        "an execution trace",
    ),
    (
        "fr.json",
        json.dumps({"version": "2.5", "pg_status": {}, "entries": [{"profiling_name": "x"}]}),
        "flight recorder",
    ),
    ("nccl_inspector.log", json.dumps({"header": {"rank": 0}, "coll_perf": {"coll": "AllReduce"}}), "NCCL's inspector"),
    ("memory.json", "[[1700000000, 1700000001], [[0, 1], [2, 3]]]", "a memory timeline"),
    ("memory.html", "<html><body>memory</body></html>", "an HTML page"),
    ("rocprof.json", json.dumps({"rocprofiler-sdk-tool": [{}]}), "the JSON of rocprofv3"),
    ("trace_view.json", json.dumps(ASCEND), "Ascend's trace_view.json"),
    (
        "ascend_object.json",
        json.dumps({"traceEvents": [{**OPERATOR, "cat": "cpu_op"}, *ASCEND]}),
        "Ascend's trace_view",
    ),
    (
        "jax.trace.json",
        json.dumps({"displayTimeUnit": "ns", "traceEvents": [process(1, "/device:GPU:0"), {**OPERATOR, "pid": 1}]}),
        "a trace of XLA (JAX or TensorFlow)",
    ),
    ("spy.json", json.dumps([{**OPERATOR, "cat": "py-spy", "ts": 1}]), "a trace of py-spy"),
    ("viz.json", json.dumps({"traceEvents": [{**OPERATOR, "cat": "FEE", "ts": 1}]}), "a trace of VizTracer"),
]


def to_bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def refusal(path: Path) -> str:
    """Return why a path is refused."""
    with pytest.raises(TraceError) as caught:
        analyze_traces([path])
    return str(caught.value)


@pytest.mark.parametrize(("name", "content", "what"), OTHERS, ids=[name for name, _, _ in OTHERS])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_of_another_tool_is_named_for_what_it_is(
    tmp_path: Path, name: str, content: bytes | str, what: str, *, is_packed: bool
) -> None:
    path = tmp_path / (f"{name}.gz" if is_packed else name)
    path.write_bytes(gzip.compress(to_bytes(content)) if is_packed else to_bytes(content))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert what in str(caught.value)
    assert "dtbench reads what torch.profiler" in str(caught.value)


@pytest.mark.parametrize(("name", "content", "what"), OTHERS, ids=[name for name, _, _ in OTHERS])
def test_a_folder_or_an_archive_of_nothing_else_says_what_is_in_it(
    tmp_path: Path, name: str, content: bytes | str, what: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_bytes(to_bytes(content))
    zipped, tarred = tmp_path / "some.zip", tmp_path / "some.tar.gz"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(f"deep/{name}", to_bytes(content))
    with tarfile.open(tarred, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(to_bytes(content))
        archive.addfile(info, io.BytesIO(to_bytes(content)))
    for path in (folder, zipped, tarred):
        reason = refusal(path)
        assert reason.startswith(str(path))
        assert what.rstrip(";") in reason
        assert "dtbench reads what torch.profiler" in reason


@pytest.mark.parametrize("name", ["report1.nsys-rep", "report1.sqlite", "et.json", "memory.json", "trace_view.json"])
@pytest.mark.parametrize("archive", [None, "zip"])
def test_beside_a_trace_it_is_left_out_and_named(tmp_path: Path, name: str, archive: str | None) -> None:
    content, what = next((to_bytes(content), what) for other, content, what in OTHERS if other == name)
    files = {"rank0.json": json.dumps({"traceEvents": [EVENT]}).encode(), name: content}
    path = tmp_path / "traces"
    if archive is None:
        path.mkdir()
        for file, text in files.items():
            (path / file).write_bytes(text)
    else:
        with zipfile.ZipFile(path, "w") as zipped:
            for file, text in files.items():
                zipped.writestr(file, text)
    traces = analyze_traces([path])
    assert [one.whole.compute_ns for one in traces.analyses] == [1000]
    assert any(name in note and what.rstrip(";") in note for note in say_notes(traces.notes))


def test_what_to_record_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\x00" + bytes(8))
    assert refusal(tmp_path / "a.ncu-rep") == (
        f"{tmp_path / 'a.ncu-rep'}: an Nsight Compute report; dtbench reads what torch.profiler writes: {RECORD}"
    )
    (tmp_path / "trace_view.json").write_text(json.dumps(ASCEND))
    assert "ProfilerActivity.CPU and PrivateUse1" in refusal(tmp_path / "trace_view.json")


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": {"backend": "nccl", "nccl_version": "2.21.5", "pg_config": [], "pg_count": 0}},
        {"schemaVersion": 1, "note": "pg_status profiling_name callFrame /device:GPU:0 Ascend Hardware speedscope"},
        {"note": '"pg_status": "segments": [{"device"', "padding": "x" * 200_000},
        {"displayTimeUnit": "ms", "highres-ticks": True},
    ],
)
@pytest.mark.parametrize("start", ["", "\n", " \n\t"])
def test_a_trace_of_torchs_is_never_taken_for_another_tools(tmp_path: Path, header: dict[str, Any], start: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(start + json.dumps({**header, "traceEvents": [EVENT, process(0, "/device:GPU:0")]}))
    assert [one.whole.compute_ns for one in analyze_traces([path]).analyses] == [1000]
    assert [source.path for source in find_traces(tmp_path).sources] == [path]


def test_other_binary_files_are_refused_as_before(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(struct.pack("<8f", *range(8)) * 100)
    assert "not readable as JSON" in refusal(path)


def test_a_folder_with_nothing_but_another_tools_report_is_taken_for_traces_and_not_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "report1.nsys-rep").write_bytes(b"\x00NSYS" + bytes(8))
    assert are_traces(tmp_path)
    (tmp_path / "report1.nsys-rep").rename(tmp_path / "notes.txt")
    assert not are_traces(tmp_path)
