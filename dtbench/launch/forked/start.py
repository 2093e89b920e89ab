"""Stands for a rank before its launcher: ``python -I -S start.py SOCKETS COMMAND...``.

The rank itself is a copy of a server (``server.py``) that has imported what COMMAND imports. Neighbours are copies of
different servers, the names of whose sockets colons join, so that no two of them share the seed of Python's hashes.
Signals go to the rank, its end becomes this process's end. A request that the server refuses is run as it is.
"""

import json
import os
import resource
import signal
import socket
import sys

REFUSED, ENDED = b"R", b"E"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def main() -> None:
    """Ask for the rank, then wait for its end."""
    sockets, command = sys.argv[1].split(":"), sys.argv[2:]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect("\0" + sockets[int(os.environ.get("RANK", "0")) % len(sockets)])
        folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
        request = json.dumps({"command": command, "folder": folder, "environment": dict(os.environ)}).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(request)
        for number in PASSED_ON:
            signal.signal(number, lambda number, _frame: server.sendall(bytes([number])))
        answer = b"".join(iter(lambda: server.recv(4096), b""))
    if answer[:1] == REFUSED:
        os.write(2, b"not forked, since other variables are set here: " + answer[1:] + b"\n")
        os.execv(command[0], command)
    if answer[:1] != ENDED:
        raise SystemExit("the server of forked ranks is gone, and this rank with it")
    end(int.from_bytes(answer[1:], "big", signed=True))


def end(exit_code: int) -> None:
    """End as the rank did: with its code, or by its signal."""
    if exit_code >= 0:
        sys.exit(exit_code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -exit_code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-exit_code, signal.SIG_DFL)
    os.kill(os.getpid(), -exit_code)


if __name__ == "__main__":
    main()
