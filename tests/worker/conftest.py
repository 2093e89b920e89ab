"""What tests of the worker share."""

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def lone_group() -> Iterator[None]:
    """Make this process the only rank of a group over plain gloo."""
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield
        dist.destroy_process_group()
