"""What a rank said at its end: in its log, and in the milestones beside its journal."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from dtbench.base.redaction import redact_text
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import EventLine

OF_EXIT: Final = re.compile(
    r"nanobind: (leaked \d+ |this is likely caused by a reference counting issue)| - leaked (instance|type|function) "
    r"| - \.\.\. skipped remainder$|See https://nanobind\.\S+/refleaks\.html$"
)
"""What nanobind, in triton since the one of torch 2.15, writes at the exit of what is not freed.

A forked rank frees nothing that it has from its server, since the collector leaves that alone: it would take a second.
"""
_OF_PROFILER: Final = re.compile(r"USDT:.*profiler_(start|stop)$")
"""What Kineto writes where it starts and stops."""
_LAST_LINES: Final = 12
_LONGEST_BYTES: Final = 1 << 20
"""Of a log's end that is read."""
_FATAL, _CURRENT_THREAD, _TRACEBACK = "Fatal Python error", "Current thread 0x", "Traceback (most recent call last)"
"""How ``faulthandler`` begins a dump, the part of it that matters, and how Python begins what it says of an error."""

_PEER_LOST: Final = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Socket closed|Connection was likely closed"
    r"|connection to (the )?peer|remote process exited|ncclRemoteError|recvValue failed|sendBytes failed"
    r"|Timed out waiting \d+ ?ms for (recv|send)|wait timeout after \d+ ?ms"
    r"|Connection refused|failed to recv, got 0 bytes"
)
"""What gloo, NCCL and torch's store say where the other end of a connection is gone."""
_OF_BACKENDS: Final = re.compile(r"gloo|transport/|NCCL|nccl|TCPStore|\bDist[A-Z]\w+Error|\bCollectiveError")
"""What shows that it is they who say so: a data loader's server may close its connection, too."""


def read_lines(path: Path) -> list[str]:
    """Return the end of a log, line by line; empty where there is none.

    Without blank lines, what extension modules report of themselves once the interpreter is at its end, and what the
    profiler does.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LONGEST_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    lines = (line for line in text.splitlines() if line.strip())
    return [redact_text(line) for line in lines if not OF_EXIT.match(line) and not _OF_PROFILER.match(line)]


def read_last_lines(path: Path) -> tuple[str, ...]:
    """Return what a log says of the end: the innermost frames of a stack dump, else its last lines."""
    lines = read_lines(path)
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)][-1:]
    dumps = [number for number, line in enumerate(lines) if line.startswith(_CURRENT_THREAD)][-1:]
    # a thread of torch's own has no Python frames, and no part of the dump: what the others did follows the first line
    starts = dumps or [number + 1 for number in fatal]
    if not starts:
        return tuple(lines[-_LAST_LINES:])
    return tuple([*(lines[number] for number in fatal), *lines[starts[0] :]][:_LAST_LINES])


def find_failure(folder: LaunchFolder, rank: int) -> EventLine | None:
    """Return what a rank said when it raised; None: it never did."""
    with suppress(OSError, ValueError):
        lines = folder.events(rank).read_text(encoding="utf-8").splitlines()
        said = (EventLine.model_validate_json(line) for line in lines)
        return next((event for event in said if event.event == "failed"), None)
    return None


def has_traceback(path: Path) -> bool:
    """Tell whether Python said of an error in a log."""
    return any(line.startswith(_TRACEBACK) for line in read_lines(path))


def has_lost_peer(said: str) -> bool:
    """Tell whether an error is a backend's that the other end of its connection was gone."""
    return _PEER_LOST.search(said) is not None and _OF_BACKENDS.search(said) is not None
