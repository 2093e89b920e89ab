"""Files that people take for a trace of torch.profiler: what they are, by their content, and what to record instead.

::

    bytes that are no text    by their magic numbers and first words; by the ending of the name where those say nothing
    other JSON                by its keys
    events of other makers    by the names of their processes and events, after reading
"""

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from dtbench.base.errors import TraceError
from dtbench.traces.trace import Trace

PEEK_BYTES: Final = 1 << 16
"""So many bytes of a file, unpacked, are enough to tell."""

_RECORD: Final = (
    "dtbench reads what torch.profiler writes: record it with `torch.profiler.profile(on_trace_ready="
    'dtbench.trace_handler("traces"))`'
)
_RECORD_ASCEND: Final = (
    "dtbench reads what torch.profiler itself writes (`export_chrome_trace` of a profile with ProfilerActivity.CPU and "
    "PrivateUse1)"
)


def refuse(label: str, what: str) -> TraceError:
    """Say what a file is, and what to record instead."""
    return TraceError(f"{label}: {what}; {_RECORD_ASCEND if 'Ascend' in what else _RECORD}")


def name_binary(text: bytes, name: str) -> str | None:
    """Return what a file is that is no text (``an Nsight Systems report``) or no list of events; None: nothing tells.

    Args:
        text: its first bytes, unpacked.
        name: of the file.
    """
    if _CONTROL.search(text[:_TELLING_BYTES]):
        return next((what for fits, what in _BINARY if fits(text)), None) or _by_ending(name)
    return next((what for pattern, what in _NO_EVENTS if pattern.match(text)), None)


def name_json(text: bytes) -> str | None:
    """Return what JSON is in which no trace's events were found; None: nothing tells.

    Kineto's own header has some of the same keys.
    """
    ends = text[:PEEK_BYTES] + text[-PEEK_BYTES:]
    return next((what for pattern, what in _OTHER_JSON if pattern.search(ends)), None)


def name_other_maker(text: bytes, trace: Trace) -> str | None:
    """Return whose trace of events it is, where it is not Kineto's; None: Kineto's, or nothing tells.

    Args:
        text: its first bytes.
        trace: as read.
    """
    if not _DEVICE_CATEGORIES.isdisjoint(trace.categories):
        return None
    if b'"Ascend Hardware"' in text or "Communication(Not Overlapped)" in trace.names:
        return "Ascend's trace_view.json, as torch_npu.profiler writes it"
    if not _HOST_CATEGORIES.isdisjoint(trace.categories):
        return None
    return next((what for pattern, what in _OTHER_MAKERS if pattern.search(text)), None)


_DEVICE_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_HOST_CATEGORIES: Final = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "gpu_user_annotation"})
_TELLING_BYTES: Final = 1 << 12
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in no JSON; gzip and UTF-16 are told elsewhere


def _starts(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda text: text.startswith(magics)


def _has(start: bytes, *words: bytes) -> Callable[[bytes], bool]:
    """Tell whether a file starts so, and one of some words is near its start."""
    return lambda text: text.startswith(start) and any(word in text[:PEEK_BYTES] for word in words)


def _is_perfetto(text: bytes) -> bool:
    """Tell whether a file begins with packets of Perfetto: field 1 of ``Trace``, each with its length."""
    place = packets = 0
    while place < min(len(text), _TELLING_BYTES) and text[place] == 0x0A:
        length, place = _read_varint(text, place + 1)
        if not length or place >= len(text):
            return False
        place += length
        packets += 1
    return packets > 1 or (packets == 1 and place > _TELLING_BYTES) or (packets == 1 and place == len(text))


def _read_varint(text: bytes, place: int) -> tuple[int, int]:
    """Return a number in protobuf's coding and where it ends; 0: there is none."""
    number = shift = 0
    for byte in text[place : place + 5]:
        number |= (byte & 0x7F) << shift
        shift += 7
        place += 1
        if byte < 0x80:  # the last byte of a number has no high bit
            return number, place
    return 0, place


_SQLITE: Final = b"SQLite format 3\x00"
_PICKLE: Final = b"\x80"
_NSIGHT_SYSTEMS: Final = "an Nsight Systems report"
_BINARY: Final[tuple[tuple[Callable[[bytes], object], str], ...]] = (
    (_has(_SQLITE, b"CUPTI_ACTIVITY_KIND", b"NVTX_EVENTS", b"TARGET_INFO_"), f"{_NSIGHT_SYSTEMS} exported to SQLite"),
    (_has(_SQLITE, b"rocpd_"), "a database of rocprofv3"),
    (_has(_SQLITE, b"CANN_API", b"COMMUNICATION_OP", b"PYTORCH_API"), "a database of Ascend's profiler"),
    (_starts(_SQLITE), "an SQLite database"),
    (
        lambda text: any(word in text[:64] for word in (b"NSYS", b"QDREP", b"QDSTRM", b"Nsight Systems")),
        _NSIGHT_SYSTEMS,
    ),
    (_starts(b"NVR\x00", b"NVR"), "an Nsight Compute report"),
    (
        _has(_PICKLE, b"segments", b"device_traces"),
        "a snapshot of the CUDA memory (`torch.cuda.memory._dump_snapshot`)",
    ),
    (
        _has(_PICKLE, b"nccl_version", b"pg_config", b"pg_status", b"profiling_name", b"nccl_comm_state"),
        "a dump of c10d's flight recorder",
    ),
    (lambda text: re.match(rb"\x80[\x02-\x05]", text), "a pickle"),
    (lambda text: re.match(rb"[\x05-\x7f]\n[\x03-\x20]\d+\.\d+\.\d+", text), "a Chakra execution trace"),
    (_has(b"\n", b"/host:", b"/device:", b"Task Environment"), "a profile of XLA (JAX or TensorFlow, XPlane)"),
    (_is_perfetto, "a trace of Perfetto in its binary form"),
    (_starts(b"PAR1"), "a Parquet table"),
    (_starts(b"\x7fELF"), "a program"),
)
_BY_ENDING: Final = {
    ".nsys-rep": _NSIGHT_SYSTEMS,
    ".qdrep": _NSIGHT_SYSTEMS,
    ".qdstrm": _NSIGHT_SYSTEMS,
    ".ncu-rep": "an Nsight Compute report",
    ".pftrace": "a trace of Perfetto in its binary form",
    ".perfetto-trace": "a trace of Perfetto in its binary form",
    ".et": "a Chakra execution trace",
    ".pb": "a profile of XLA (JAX or TensorFlow, XPlane)",
}


_ENDINGS: Final = (*_BY_ENDING, ".sqlite", ".db", ".pickle", ".pkl")


def is_named_like_profile(name: str) -> bool:
    """Tell from its name whether a file may be what another tool recorded: then it is worth a look."""
    return name.removesuffix(".gz").lower().endswith(_ENDINGS)


def _by_ending(name: str) -> str | None:
    return _BY_ENDING.get(PurePosixPath(name.removesuffix(".gz")).suffix.lower())


_OTHER_JSON: Final[tuple[tuple[re.Pattern[bytes], str], ...]] = (
    (re.compile(rb"speedscope\.app/file-format-schema"), "a profile of speedscope's format (py-spy)"),
    (
        re.compile(rb'"schema"\s*:\s*"[^"]*chakra|"ctrl_deps"\s*:|"rf_id"[^}]*"value"\s*:'),
        "an execution trace (`ExecutionTraceObserver`, Chakra)",
    ),
    (re.compile(rb'"coll_perf"\s*:|"inspector_output_format_version"\s*:'), "a dump of NCCL's inspector"),
    (
        re.compile(rb'"pg_status"\s*:|"profiling_name"\s*:|"nccl_version"\s*:|"nccl_comm_state"\s*:'),
        "a dump of c10d's flight recorder",
    ),
    (re.compile(rb'"device_traces"\s*:\s*\[|"segments"\s*:\s*\[\s*\{\s*"device"'), "a snapshot of the CUDA memory"),
    (re.compile(rb'"rocprofiler-sdk-tool"\s*:'), "the JSON of rocprofv3"),
    (re.compile(rb'"Communication Time Info"\s*:'), "a summary of Ascend's profiler"),
    (re.compile(rb'"(?:TraceProcessEvent|CudaEvent|NvtxEvent)"\s*:'), f"{_NSIGHT_SYSTEMS} exported to JSON"),
    (re.compile(rb'"callFrame"\s*:'), "a CPU profile of Chrome's format"),
)
_NO_EVENTS: Final[tuple[tuple[re.Pattern[bytes], str], ...]] = (
    (re.compile(rb"\s*\[\s*\[\s*-?\d"), "a memory timeline (`export_memory_timeline`)"),
    (re.compile(rb"\s*<(?:!doctype html|html)", re.IGNORECASE), "an HTML page"),
)
_OTHER_MAKERS: Final[tuple[tuple[re.Pattern[bytes], str], ...]] = (
    (
        re.compile(rb'"highres-ticks"|"name"\s*:\s*"/(?:host|device):[^"]*"'),
        "a trace of XLA (JAX or TensorFlow), as TensorBoard's profiler writes it",
    ),
    (re.compile(rb'"cat"\s*:\s*"py-spy"'), "a trace of py-spy"),
    (re.compile(rb'"cat"\s*:\s*"(?:FEE|fee)"|"viztracer_metadata"'), "a trace of VizTracer"),
    (re.compile(rb'"BeginNs"\s*:|CPU HIP API'), "a trace of rocprof"),
    (re.compile(rb'"CrBrowserMain"|"cat"\s*:\s*"(?:toplevel|blink|v8)'), "a trace of the Chrome browser"),
)
