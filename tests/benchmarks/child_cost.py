"""What a whole child process costs: CPU time, peak memory, wall time.

[Note: peak memory of a child] Linux hands a parent's peak on to a process that it forks, through exec too: a child of a
large process can never look small. So the process that measures imports nothing large and holds no trace.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage(2): ru_maxrss is in bytes there, in KiB on Linux
_SHOWN_LINES = 6


@dataclass(frozen=True)
class Cost:
    """One process, with those that it started and waited for.

    Attributes:
        cpu_s: user and system time.
        peak_bytes: resident set at its largest; of several processes the largest one's, not their sum.
        wall_s: from start to end.
        output: what it printed.
    """

    cpu_s: float
    peak_bytes: int
    wall_s: float
    output: str


class ChildError(Exception):
    """A child process failed; the message is the end of what it said."""


def run_child(command: Sequence[str]) -> Cost:
    """Run a command to its end, with one BLAS thread.

    Raises:
        ChildError: it failed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start_s = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start_s
        child.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
        output.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise ChildError("\n".join([f"{shlex.join(command)}: exit code {child.returncode}", *said[-_SHOWN_LINES:]]))
        return Cost(
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_bytes=usage.ru_maxrss * _PEAK_UNIT,
            wall_s=wall_s,
            output=output.read().decode(),
        )


@contextmanager
def limited_cores(count: int) -> Iterator[None]:
    """Let children started inside run on so many cores.

    Raises:
        ChildError: this system cannot do that, or has fewer.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise ChildError("this system cannot tie a process to cores; measure ranks on Linux")
    before = os.sched_getaffinity(0)
    if len(before) < count:
        raise ChildError(f"{len(before)} cores are free for this process, {count} are needed")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
