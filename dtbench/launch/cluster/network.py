"""By which address and interface a node reaches node 0."""

import ipaddress
import socket
import time
from contextlib import suppress
from typing import Final

import psutil

from dtbench.base.errors import NodesError

_RETRY_S: Final = 0.2


def await_head(head: str, port: int, timeout_s: float) -> tuple[str, str]:
    """Wait until something listens at node 0; gives node 0's address, and this node's on the way there.

    Raises:
        NodesError: nothing does within the time.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((head, port), timeout=max(1.0, _RETRY_S)) as connection:
                return str(connection.getpeername()[0]), str(connection.getsockname()[0])
        except OSError as error:  # a name that is not known yet, too
            if time.monotonic() > end_s:
                why = error.strerror or str(error)
                raise NodesError(
                    f"node 0 was not there at {head}:{port} within {timeout_s:g} s ({why}): start the same command on "
                    "it, or say where it is with --rdzv-endpoint HOST:PORT"
                ) from error
        time.sleep(_RETRY_S)


def find_interface(address: str) -> str | None:
    """Return the name of the interface that has this address; None: none of this machine has it."""
    for name, found in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in found):
            return name
    return None


def find_bind_address(head: str) -> str:
    """Return the address at which node 0 listens: the one that its name stands for, "" for all interfaces.

    A name may stand for another address on its own node than elsewhere (127.0.1.1 in Debian's ``/etc/hosts``).
    """
    if is_loopback(head):
        return head
    with suppress(OSError):
        found = {str(one[4][0]) for one in socket.getaddrinfo(head, None, type=socket.SOCK_STREAM)}
        for address in sorted(found):
            if not is_loopback(address) and find_interface(address) is not None:
                return address
    return ""


def is_loopback(address: str) -> bool:
    """Tell whether an address never leaves its machine; a name does not say it."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"
