"""The torch profiler around PROFILED steps: what it records on each device, where the trace goes, what it holds."""

import gzip
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import profile

from dtbench.base.errors import MissingError
from dtbench.base.vocabulary import DeviceKind
from dtbench.scenario.schema.scenario import Profiler
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.loop.trace_handler import export_trace
from dtbench.worker.machine.accelerator import find_activities, find_module
from dtbench.worker.receipts import compare, without_effect
from dtbench.worker.recording.recorder import Recorder

_CHUNK_BYTES: Final = 1 << 20

# What only the knob puts into a trace.
_EVIDENCE: Final[Mapping[str, re.Pattern[bytes]]] = {
    "record_shapes": re.compile(rb'"Input Dims"'),
    "with_stack": re.compile(rb'"cat": "python_function"'),
    "profile_memory": re.compile(rb'"name": "\[memory\]"'),
    "record_python_gc_info": re.compile(rb'"name": "Python GC"'),
    "capture_overload_names": re.compile(rb'"name": "aten::\w+\.\w'),
    "enable_cuda_sync_events": re.compile(rb'"cat": "cuda_sync"'),
}
_LONGEST_EVIDENCE_BYTES: Final = 200

_CLOSING_S: Final = 0.05
"""gloo's threads close a span after the collective's consumer was told: stopped at once, the last ones stay open."""


@contextmanager
def capture(device: DeviceKind, recorder: Recorder, trace: Path, settings: Profiler) -> Iterator[None]:
    """Profile what runs inside and write one trace; collectives and regions get their named ranges meanwhile.

    Raises:
        MissingError: the installed torch lacks an option that was asked for.
        StoreError: the trace cannot be written.
    """
    profiler = make_profiler(device, settings)
    recorder.is_naming = True
    try:
        with profiler:
            yield
            if (module := find_module(device)) is None:
                time.sleep(_CLOSING_S)
            else:
                module.synchronize()
    finally:
        recorder.is_naming = False
    export_trace(profiler, trace)


def make_profiler(device: DeviceKind, settings: Profiler) -> profile:
    """Build the profiler; on CPU it sees all threads, since gloo's own threads carry the transfers.

    Raises:
        MissingError: the installed torch lacks an option that was asked for.
    """
    experimental = {name: True for name in _EXPERIMENTAL if getattr(settings, name)}
    if device is DeviceKind.CPU:
        experimental["profile_all_threads"] = True
    return profile(
        activities=find_activities(device),
        record_shapes=records_shapes(device, settings),
        with_stack=settings.with_stack,
        profile_memory=settings.profile_memory,
        experimental_config=_experimental_config(experimental) if experimental else None,
    )


_EXPERIMENTAL: Final = ("record_python_gc_info", "capture_overload_names", "enable_cuda_sync_events")


def records_shapes(device: DeviceKind, settings: Profiler) -> bool:
    """Tell whether shapes are recorded: on CPU always, since a gloo span says its size in no other way."""
    return device is DeviceKind.CPU or bool(settings.record_shapes)


def _experimental_config(options: Mapping[str, bool]) -> Any:
    try:
        return torch._C._profiler._ExperimentalConfig(**options)
    except TypeError as error:
        lacking = [name for name in options if not _has_option(name)]
        names = ", ".join(f"measure.profiler.{name}" for name in lacking)
        raise MissingError(
            f"torch {torch.__version__} has no profiler option for {names}; leave it out, or use a newer torch"
        ) from error


def _has_option(name: str) -> bool:
    try:
        torch._C._profiler._ExperimentalConfig(**{name: True})
    except TypeError:
        return False
    return True


def read_profiler_receipts(trace: Path, device: DeviceKind, settings: Profiler) -> tuple[Receipt, ...]:
    """Say for every profiler option whether the trace holds what only that option puts there."""
    found = _search(trace)
    return tuple(_receipt(name, device, settings, is_there=name in found) for name in _EVIDENCE)


def _receipt(name: str, device: DeviceKind, settings: Profiler, *, is_there: bool) -> Receipt:
    knob, asked = f"measure.profiler.{name}", getattr(settings, name)
    if name == "record_shapes":
        receipt = compare(knob, asked, is_there, expected=records_shapes(device, settings))
        always = "on CPU shapes are always recorded: a gloo span says its size in no other way"
        return without_effect(receipt, always) if device is DeviceKind.CPU and asked is False else receipt
    receipt = compare(knob, asked, is_there)
    reason = _why_absent(name, device) if asked and not is_there else None
    if reason is None:
        return receipt
    return receipt.model_copy(update={"outcome": ReceiptOutcome.NO_EFFECT, "note": reason})


def _why_absent(name: str, device: DeviceKind) -> str | None:
    """Say why an option leaves nothing in the trace here; None: it should have."""
    match name, device:
        case "profile_memory", DeviceKind.CPU:
            return "torch notes no allocations while it profiles all threads, and gloo's spans are on its own threads"
        case "enable_cuda_sync_events", DeviceKind.CPU:
            return "there is no CUDA here to synchronise with"
        case "record_python_gc_info", _:
            return "Python collected no garbage in the PROFILED steps"
        case _:
            return None


def _search(trace: Path) -> set[str]:
    """Return the options whose evidence stands in a trace, read in pieces: a trace may be larger than memory."""
    found: set[str] = set()
    tail = b""
    with gzip.open(trace, "rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            text = tail + piece
            found |= {name for name, mark in _EVIDENCE.items() if name not in found and mark.search(text)}
            tail = text[-_LONGEST_EVIDENCE_BYTES:]
    return found
