"""Starts what ranks are forked from, and ends it."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dtbench.base.errors import LaunchError

_GIVEN = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
"""As every launch gives its ranks."""
_WRITTEN_BY_IMPORTS = ("TORCHINDUCTOR_CACHE_DIR",)
"""This process may have imported what sets it, as a server will."""


def can_fork() -> bool:
    """Say whether ranks can be forked here: pidfd is Linux's, and elsewhere a fork of torch is nobody's promise."""
    return sys.platform == "linux"


def make_environment() -> dict[str, str]:
    """Return the variables that the servers import with, and so every rank that is forked."""
    environment = {**_GIVEN, **os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return {name: value for name, value in environment.items() if name not in _WRITTEN_BY_IMPORTS}


@contextmanager
def serve_forks() -> Iterator[tuple[str, ...]]:
    """Return what goes before a rank's command for it to be forked from a process that has imported the worker.

    See ``server.py``. There are two, so that neighbouring ranks differ in the seed of Python's hashes.

    Raises:
        LaunchError: the servers do not start; what they said is on standard error.
    """
    environment = make_environment()
    with contextlib.ExitStack() as open_servers:
        servers = [open_servers.enter_context(_serve(environment)) for _ in range(2)]
        names = [_await(name, server) for name, server in servers]
        start = Path(__file__).with_name("start.py")
        yield (sys.executable, "-I", "-S", str(start), ":".join(names))


@contextmanager
def _serve(environment: Mapping[str, str]) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Start a server; gives the name of its socket, which is no file that could be left, and its process."""
    name = f"dtbench-forks-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "dtbench.launch.forked.server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=(listener.fileno(),),
            start_new_session=True,  # Ctrl-C is for the launcher, which ends the ranks itself
        )
    with server:  # leaving it closes the server's standard input, which ends it
        yield name, server


def _await(name: str, server: "subprocess.Popen[bytes]") -> str:
    """Wait for a server's first line, which says that it has imported everything; gives its name."""
    if server.stdout is None or not server.stdout.readline():
        raise LaunchError("the process that ranks would be forked from did not start")
    return name
