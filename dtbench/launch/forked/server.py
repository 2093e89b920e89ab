"""Ranks by fork: this process has imported torch and the worker once, and each rank is a copy of it.

``python -P -m dtbench.launch.forked.server DESCRIPTOR`` serves an open socket until its standard input ends, and only
the same user's processes: a socket without a file has no permissions. ``start.py``, which the launcher starts in a
worker's place, sends what it was given: command, folder, environment, standard streams. It hears how the rank ended,
and what signals it gets go to the rank. Whoever vanishes takes along who depends on it::

    launcher  --starts-->  start.py  --streams, command-->  server  --fork-->  rank
                                     <--how it ended------

A copy is as good as a fresh process only where nothing was read or begun before that a rank would have read or begun
itself. So this process never has a second thread nor runs an operator, and a rank whose environment differs from this
process's in more than where it finds its peers is refused: ``start.py`` then becomes the real command.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch

from dtbench.store.layout import FORKED_VARIABLE, LAUNCHER_VARIABLE

WORKER = "dtbench.worker.__main__"
LATER = ("pandas", "pyarrow.parquet")
"""What is imported once: the worker, and what rank 0 imports at its end."""
NO_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Set while these are imported: pyarrow's allocator would start a thread."""
RUNTIME = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *(LAUNCHER_VARIABLE, "GLOO_SOCKET_IFNAME", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHINDUCTOR_CACHE_DIR"),
}
"""Read when a rank runs, not when something is imported; of threads the worker has torch take what the plan says."""
RUNTIME_PREFIX = "TORCHELASTIC_"
REFUSED, ENDED = b"R", b"E"


@dataclass(frozen=True)
class Request:
    """What a rank is started with."""

    command: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


@dataclass
class Server:
    """Takes requests, forks, and passes on signals and ends; what returns from ``serve`` is a rank."""

    listener: socket.socket
    given: dict[str, str]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    pids: dict[socket.socket, int] = field(default_factory=dict)
    request: Request | None = None

    def serve(self) -> Request:
        """Serve until standard input ends, which ends this process; what returns is a forked rank."""
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin, selectors.EVENT_READ, lambda: os._exit(0))  # ranks die with their parent
        while self.request is None:
            for key, _ in self.selector.select():
                key.data()
                if self.request is not None:
                    break
        return self.request

    def accept(self) -> None:
        """Take a request and fork; refuse what this process's environment has decided already."""
        starter, _ = self.listener.accept()
        if read_user(starter) != os.getuid():
            starter.close()
            return
        try:
            request = receive(starter)
        except ValueError:  # cut short: it was killed meanwhile
            starter.close()
            return
        differing = read_by_imports(request.environment) ^ read_by_imports(self.given)
        if differing:
            tell(starter, REFUSED + ", ".join(sorted({name for name, _ in differing})).encode())
            for stream in request.streams:
                os.close(stream)
            return
        pid = os.fork()
        if pid == 0:
            self.selector.close()
            self.listener.close()
            for other in (starter, *self.pids):
                other.close()
            self.request = request
            return
        for stream in request.streams:
            os.close(stream)
        self.pids[starter] = pid
        ended = os.pidfd_open(pid)
        self.selector.register(starter, selectors.EVENT_READ, partial(self.pass_on_signals, starter))
        self.selector.register(ended, selectors.EVENT_READ, partial(self.say_end, starter, ended))

    def pass_on_signals(self, starter: socket.socket) -> None:
        """Send the rank the signals that its starter got; a starter that is gone was killed, and so is the rank."""
        if starter not in self.pids:
            return  # its rank ended while the signal was under way
        numbers = b""
        with suppress(ConnectionResetError):
            numbers = starter.recv(16)
        if not numbers:
            self.selector.unregister(starter)
        for number in numbers or [signal.SIGKILL]:
            os.kill(self.pids[starter], number)  # not reaped yet: the number is still this rank's

    def say_end(self, starter: socket.socket, ended: int) -> None:
        """Tell the starter how its rank ended."""
        _, status = os.waitpid(self.pids.pop(starter), 0)
        self.selector.unregister(ended)
        os.close(ended)
        if starter in self.selector.get_map():
            self.selector.unregister(starter)
        tell(starter, ENDED + os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def read_user(starter: socket.socket) -> int:
    """Return whose process a starter is: ``SO_PEERCRED`` of ``unix(7)``."""
    _, user, _ = struct.unpack("3i", starter.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


def tell(starter: socket.socket, answer: bytes) -> None:
    """Say the last word to a starter, which may have been killed."""
    with suppress(BrokenPipeError, ConnectionResetError):
        starter.sendall(answer)
    starter.close()


def read_by_imports(environment: dict[str, str]) -> set[tuple[str, str]]:
    """Return the variables that imports may read."""
    return {
        (name, value)
        for name, value in environment.items()
        if name not in RUNTIME and not name.startswith(RUNTIME_PREFIX)
    }


def receive(starter: socket.socket) -> Request:
    """Read what ``start.py`` sends: three open files with eight bytes that say how much JSON follows."""
    length, streams, _, _ = socket.recv_fds(starter, 8, 3)
    fields: dict[str, Any] = json.loads(starter.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    return Request(**fields, streams=list(streams))


def become(request: Request, given: dict[str, str]) -> None:
    """Run the rank's command in this copy, as a fresh Python would."""
    os.setsid()
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    added = {name: value for name, value in os.environ.items() if name not in given}  # by torch, when it was imported
    os.environ.clear()
    changed = {LAUNCHER_VARIABLE: str(os.getppid()), FORKED_VARIABLE: "1"}
    os.environ.update({**added, **request.environment, **changed})
    numpy.random.seed()  # the states of the global generators were copied; Python's own sees to itself
    torch.default_generator.seed()
    _, *arguments = request.command
    match arguments:
        case ["-P", "-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *rest]:
            sys.argv = [script, *rest]
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")


def main() -> None:
    """Import, listen, and in every copy become its rank."""
    given = dict(os.environ)
    os.environ.update(NO_THREAD)
    for module in (WORKER, *LATER):
        importlib.import_module(module)
    for name in NO_THREAD:
        os.environ.pop(name)
        os.environ.update({name: given[name]} if name in given else {})
    del sys.modules[WORKER]  # a rank runs it anew, as its __main__
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise SystemExit(f"{threads} threads after the imports, and a copy would have only one: is there a new import?")
    gc.collect()
    gc.freeze()  # the collector writes into no page that copies share
    listener = socket.socket(fileno=int(sys.argv[1]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    become(Server(listener, given).serve(), given)


if __name__ == "__main__":
    main()
