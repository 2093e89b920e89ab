"""Groups of any number of ranks of which one is there: a collective is recorded, moves nothing, and is done at once.

torch's ``FakeProcessGroup`` (its own tests use it) answers for the backend, so that meshes, FSDP, DDP and DTensor run
as they would; what comes out of a collective is whatever lay in its output.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.link import flatten_tensors
from dtbench.worker.network.named_gloo import BACKEND_NAME, Group, make_group_class
from dtbench.worker.recording.recorder import Recorder

_FAKE = c10d.FakeProcessGroup
_make_fake = getattr(_FAKE, "_create_internal", _FAKE)  # some versions of torch have the class alone


class FakeGroup(Group):
    """A group that carries nothing."""

    def ask_backend(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let torch's fake look at the arguments; gives a ``Work`` that is done."""
        super().ask_backend(method, args, kwargs)
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(list(flatten_tensors(args[0])) if args else [])
        return c10d._create_work_from_future(done)  # type: ignore[attr-defined]  # torch does not declare it


def join_fake_ranks(recorder: Recorder, ranks: int) -> None:
    """Make this process rank 0 of so many, of which no other is there.

    Args:
        recorder: told about every collective.
        ranks: how many.
    """
    group_class = make_group_class(recorder, Carrier(), FakeGroup)

    def create(store: dist.Store, rank: int, size: int, _timeout: timedelta) -> dist.ProcessGroup:
        inner = dist.ProcessGroup(store, rank, size)
        inner._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        fake = _make_fake(rank, size)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, fake)
        made: dist.ProcessGroup = group_class(inner, recorder, rank, size)
        return made

    dist.Backend.register_backend(BACKEND_NAME, create, devices=["cpu"])
    dist.init_process_group(BACKEND_NAME, store=dist.HashStore(), rank=0, world_size=ranks)
