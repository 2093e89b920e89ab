"""Starts what ranks are forked from, and ends it."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dtbench.errors import LaunchError

_GIVEN = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
"""As every launch gives its ranks."""
_WRITTEN_BY_IMPORTS = ("TORCHINDUCTOR_CACHE_DIR",)
"""This process may have imported what sets it, as a server will."""


def can_fork() -> bool:
    """Say whether ranks can be forked here: pidfd is Linux's, and elsewhere a fork of torch is nobody's promise."""
    return sys.platform == "linux"


def make_environment() -> dict[str, str]:
    """Give the variables that the servers import with, and so every rank that is forked."""
    environment = {**_GIVEN, **os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return {name: value for name, value in environment.items() if name not in _WRITTEN_BY_IMPORTS}


@contextmanager
def serve_forks() -> Iterator[tuple[str, ...]]:
    """Give what goes before a rank's command for it to be forked from a process that has imported the worker.

    See ``server.py``. There are two, so that neighbouring ranks differ in the seed of Python's hashes.

    Raises:
        LaunchError: the servers do not start; what they said is on standard error.
    """
    environment = make_environment()
    with tempfile.TemporaryDirectory(prefix="dtbench-forks-") as folder, contextlib.ExitStack() as open_servers:
        sockets = [Path(folder) / name for name in ("even", "odd")]
        servers = [open_servers.enter_context(_start(path, environment)) for path in sockets]
        for server, path in zip(servers, sockets, strict=True):
            while not path.exists():
                if server.poll() is not None:
                    raise LaunchError("the process that ranks would be forked from did not start")
                time.sleep(0.05)
        start = Path(__file__).with_name("start.py")
        yield (sys.executable, "-I", "-S", str(start), ":".join(map(str, sockets)))


def _start(path: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server; leaving the process object closes the server's standard input, which ends it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "dtbench.launch.forked.server", str(path)],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the launcher, which ends the ranks itself
    )
