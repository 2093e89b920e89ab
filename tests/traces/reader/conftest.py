"""Reading from memory, a trace's events as plain rows, and an oracle that reads them with the standard library."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Trace

SPANNING = ("Trace", "Traces", "Spans")


class Row(NamedTuple):
    """What the columns say about one event."""

    name: str
    category: str
    lane: tuple[str, str]
    start_ns: int
    end_ns: int
    correlation: int | None
    sequence: int | None
    forward_thread: int | None
    grid: str | None
    collective: str | None
    group: str | None
    shapes: tuple[object, ...]


@dataclass(frozen=True)
class InMemory(TraceSource):
    """A trace that is in no file."""

    content: bytes = b""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        yield io.BytesIO(self.content)


@pytest.fixture(scope="session")
def read() -> Callable[..., Trace]:
    """Read a trace from memory, by default as from a file."""

    def read(content: bytes | str, window_bytes: int = 1 << 20) -> Trace:
        text = content.encode() if isinstance(content, str) else content
        return read_trace(InMemory(Path("memory.json"), content=text), window_bytes=window_bytes)

    return read


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Trace], list[Row]]:
    """Return the events of a trace as rows."""

    def rows_of(trace: Trace) -> list[Row]:
        grids = {event: trace.grids[code] for event, code in _pairs(trace.grid)}
        correlation, sequence, thread = (
            dict(_pairs(column)) for column in (trace.correlation, trace.sequence, trace.forward_thread)
        )
        rows = []
        for event in range(len(trace)):
            details = trace.details.get(event)
            rows.append(
                Row(
                    trace.name_of(event),
                    trace.category_of(event),
                    trace.lanes[int(trace.lane[event])],
                    int(trace.start_ns[event]),
                    int(trace.end_ns[event]),
                    correlation.get(event),
                    sequence.get(event),
                    thread.get(event),
                    grids.get(event),
                    details.collective if details else None,
                    details.group if details else None,
                    details.shapes if details else (),
                )
            )
        return rows

    return rows_of


def _pairs(column: Any) -> Iterator[tuple[int, int]]:
    return zip(column.events.tolist(), column.values.tolist(), strict=True)


@pytest.fixture(scope="session")
def oracle() -> Callable[[bytes | str], list[Row]]:
    """Return the complete events of valid JSON as rows, read with the standard library and decimal arithmetic."""

    def oracle(content: bytes | str) -> list[Row]:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        document, _ = json.JSONDecoder(parse_float=Decimal, strict=False).raw_decode(text.strip())
        events = document["traceEvents"] if isinstance(document, dict) else document
        return [
            _oracle_row(event) for event in events if event.get("ph") == "X" and event.get("cat", "") not in SPANNING
        ]

    return oracle


def _oracle_row(event: dict[str, Any]) -> Row:
    args = event.get("args") or {}
    start_ns, duration_ns = (round(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
    category = event.get("cat") or ""
    about_communication = (
        event.get("name", "").startswith(("gloo:", "nccl:", "c10d::", "_c10d_functional::", "record_param_comms"))
        or "Collective name" in args
        or "Process Group Name" in args
    )
    group = args.get("Process Group Name") if about_communication else None
    return Row(
        event.get("name", ""),
        category,
        (str(event.get("pid")), str(event.get("tid"))),
        start_ns,
        start_ns + duration_ns,
        args.get("correlation") or None,
        args.get("Sequence number"),
        (args.get("Fwd thread id") or None) if "Sequence number" in args else None,
        f"{_compact(args['grid'])} {_compact(args['block'])}" if category == "kernel" and "grid" in args else None,
        args.get("Collective name") if about_communication else None,
        None if group is None else str(group),
        tuple(args.get("Input Dims", ())) if about_communication else (),
    )


def _compact(numbers: Sequence[int]) -> str:
    return json.dumps(numbers, separators=(",", ":"))


@pytest.fixture(scope="session")
def events() -> list[dict[str, Any]]:
    """Return events of all sorts: operators, launches, kernels, collectives, arrows, what is skipped."""
    made: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "ts": 1000, "pid": 7, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P", "ts": 1, "dur": 99},
    ]
    for step in range(6):
        at = 1000 + 100 * step
        made += [
            {
                "ph": "X", "cat": "cpu_op", "name": f"aten::mm{step}", "pid": 7, "tid": 70, "ts": at + 0.25, "dur": 9.5,
                "args": {"External id": step, "Sequence number": step, "Fwd thread id": step % 2,
                         "Input Dims": [[8, 16], []], "Input type": ["float", ""]},
            },
            {"ph": "s", "id": step, "pid": 7, "tid": 70, "ts": at + 0.25, "cat": "fwdbwd", "name": "fwdbwd"},
            {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 70, "ts": at + 1.125,
                "dur": 3, "args": {"cbid": 211, "correlation": 50 + step},
            },
            {"ph": "f", "id": step, "pid": 7, "tid": 71, "ts": at + 50.125, "cat": "fwdbwd", "name": "fwdbwd"},
            {
                "ph": "X", "cat": "kernel", "name": "void gemm<float, 8>({lambda()#1}, int*)", "pid": 0, "tid": 7,
                "ts": at + 20.001, "dur": 5.007,
                "args": {"stream": 7, "correlation": 50 + step, "grid": [64, step, 1], "block": [128, 1, 1]},
            },
            {
                "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": at + 30,
                "dur": 40.999,
                "args": {"correlation": 900 + step, "Collective name": "allreduce", "Process Group Name": "0",
                         "Group size": 8, "Process Group Ranks": "[0, 1, 2]", "In msg nelems": 4, "dtype": "Float"},
            },
        ]  # fmt: skip
    return made
