"""Traces of a person's own loop, in the layout that ``dtbench analyze`` and TensorBoard's profiler plugin read."""

import gzip
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import torch.distributed as dist
from torch.profiler import profile

from dtbench.base.errors import StoreError
from dtbench.store.layout import trace_name
from dtbench.store.write import half_written, replace_file

_LOG: Final = logging.getLogger("dtbench")

_LEVEL: Final = 6
"""Of compression: 690 kB of 9.7 MB, where 9 makes 620 kB in four times as long."""

_ODD: Final = re.compile(r"[\x00-\x1f\x7f\"\\\\]")
_DESCRIPTORS: Final = Path("/proc/self/fd")

_CHUNK_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 64


def make_trace_handler(folder: Path) -> Callable[[profile], None]:
    """Return a function for ``on_trace_ready`` that writes ``<folder>/rank<r>.<ns>.pt.trace.json.gz`` and no more.

    It never raises: a disk that fills up is no reason to end a training, and torch 2.13 ends with a segmentation fault
    when ``on_trace_ready`` raises between two cycles of a schedule. What went wrong is logged.

    Raises:
        StoreError: the folder cannot be made; now, not after hours.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: traces cannot be written there ({error.strerror}); choose another folder"
        ) from error

    def write_trace(profiler: profile) -> None:
        try:
            export_trace(profiler, folder / trace_name(find_rank(), time.time_ns()))
        except (StoreError, RuntimeError) as error:
            _LOG.error("this trace is lost: %s", error)

    return write_trace


def find_rank() -> int:
    """Return the rank of this process: as torch.distributed says, else as the launcher's ``RANK`` does, else 0."""
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    said = os.environ.get("RANK", "")
    return int(said) if said.isdecimal() else 0


def export_trace(profiler: profile, path: Path) -> None:
    """Write what a profiler has recorded, gzipped and atomically; makes missing folders.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    replace_file(path, lambda temporary: _export(profiler, temporary))


def _export(profiler: profile, temporary: Path) -> None:
    """Let torch write the plain trace, and compress it here.

    Asked for a ``.gz``, torch compresses line by line as text and at the highest level, which takes ten times as long
    for a tenth less (10 MB of four ranks on two cores: 2 to 6 s against 0.3 to 1.3 s).
    """
    folder = temporary.with_name(temporary.name + ".d")  # whatever torch leaves when the disk is full goes with it
    try:
        folder.mkdir()
        with _spelled(folder) as spelled:
            profiler.export_chrome_trace(f"{spelled}/trace.json")
        if not (folder / "trace.json").exists():  # torch takes away what it could not finish, and logs it
            raise half_written("torch")
        with (folder / "trace.json").open("rb") as trace:
            with gzip.open(temporary, "wb", compresslevel=_LEVEL) as compressed:
                shutil.copyfileobj(trace, compressed, _CHUNK_BYTES)
            _require_end(trace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _spelled(folder: Path) -> Iterator[str]:
    """Return a name of a folder that torch can write to: it takes line breaks out of paths, and doubles backslashes."""
    if not _ODD.search(str(folder)) or not _DESCRIPTORS.is_dir():
        yield str(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield str(_DESCRIPTORS / str(descriptor))
    finally:
        os.close(descriptor)


def _require_end(trace: BinaryIO) -> None:
    """Refuse a trace that torch could not write to its end: it says nothing of a full disk."""
    trace.seek(max(0, trace.tell() - _TAIL_BYTES))
    if not trace.read().rstrip().endswith(b"}"):
        raise half_written("torch")
