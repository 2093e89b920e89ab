"""Where the ranks of a launch find each other: a store in the launcher, which nobody outside this machine can reach."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from dtbench.base.errors import MissingError
from dtbench.launch.machine import NO_TORCH

_LOOPBACK: Final = "127.0.0.1"
_ONE_NODE: Final = {
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_NAME": "default",
    "MASTER_ADDR": _LOOPBACK,
    "TORCHELASTIC_USE_AGENT_STORE": "True",  # no rank makes a store: the launcher has
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
"""As torchrun sets them ("Environment Variables" of its documentation)."""


@contextmanager
def meet(ranks: int) -> Iterator[Mapping[str, str]]:
    """Hold the store of one launch; gives the variables by which all of its ranks find it.

    The store is torch's, on a socket of ours: torch's own would listen on every interface of the machine.

    Raises:
        MissingError: torch is not installed.
    """
    try:
        from torch.distributed import TCPStore
    except ModuleNotFoundError as error:
        raise MissingError(NO_TORCH) from error
    listener = socket.socket(socket.AF_INET)
    listener.bind((_LOOPBACK, 0))
    listener.listen(max(128, 2 * ranks))
    port = listener.getsockname()[1]
    store = TCPStore(_LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    try:
        yield {**_ONE_NODE, "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": f"dtbench-{port}"}
    finally:
        del store


def variables_of(rank: int, ranks: int) -> Mapping[str, str]:
    """Give the variables that say which rank a process is, on one node."""
    numbers = {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
    sizes = {name: str(ranks) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")}
    return numbers | sizes
