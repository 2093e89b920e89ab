"""DDP's buckets: which parameters each carries, how large they are, and which one PowerSGD compresses."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from dtbench.store.records.traffic import Carried
from dtbench.worker.recording.recorder import Recorder, bucket_owner


@dataclass
class BucketAssignment:
    """What DDP's constructor gave its reducer.

    Attributes:
        parameters: all that it reduces.
        buckets: indices into ``parameters`` of each bucket before it is rebuilt, in order of issue.
    """

    parameters: list[nn.Parameter] = field(default_factory=list)
    buckets: list[list[int]] = field(default_factory=list)


@contextmanager
def keep_assignment() -> Iterator[BucketAssignment]:
    """Keep what DDP's constructor gives its reducer."""
    original = dist.Reducer
    kept = BucketAssignment()

    def make(parameters: list[nn.Parameter], buckets: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        kept.parameters, kept.buckets = list(parameters), [list(bucket) for bucket in buckets]
        return original(parameters, buckets, *args, **kwargs)

    with mock.patch.object(dist, "Reducer", make):
        yield kept


def read_buckets(
    model: DistributedDataParallel, assigned: BucketAssignment, fqns: Mapping[int, str]
) -> tuple[Carried, ...]:
    """Return the parameters of each bucket in order of issue: as rebuilt, else as first assigned.

    torch rebuilds after the first step (the second with ``static_graph``, never with ``find_unused_parameters``).

    Args:
        model: after four steps at least: torch's logger is one behind.
        assigned: as its constructor gave it to the reducer.
        fqns: of the parameters, by ``id``.
    """
    text = model._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices") or ""
    rebuilt = [[int(index) for index in bucket.split()] for bucket in text.split(",") if bucket.strip()]
    return tuple(
        carry(bucket_owner(place), [assigned.parameters[index] for index in bucket], fqns)
        for place, bucket in enumerate(rebuilt or assigned.buckets)
    )


def carry(owner: str, parameters: Sequence[nn.Parameter], fqns: Mapping[int, str]) -> Carried:
    """Say what an all-reduce carries; ``fqns`` by ``id``."""
    return Carried(
        owner=owner,
        parameters=tuple(fqns[id(parameter)] for parameter in parameters),
        size_bytes=sum(parameter.nbytes for parameter in parameters),
    )


class BucketLog:
    """Reads DDP's bucket sizes from torch's own logger."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model = model

    def read(self) -> tuple[int, ...]:
        """Return the bytes of each bucket in order of issue: as rebuilt, else as first assigned."""
        data = self._model._get_ddp_logging_data()
        text = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
        return tuple(int(size) for size in text.split(",") if size.strip())


def name_powersgd(recorder: Recorder) -> Callable[..., Any]:
    """Return PowerSGD's hook; in PROFILED steps the recorder is told which bucket each of its all-reduces is for.

    It issues three for a bucket: what it does not compress, and in callbacks, on whatever thread, the two factors.
    """

    @functools.wraps(powerSGD_hook.powerSGD_hook)
    def hook(state: powerSGD_hook.PowerSGDState, bucket: Any) -> Any:
        if not recorder.is_naming:
            return powerSGD_hook.powerSGD_hook(state, bucket)
        owner = bucket_owner(bucket.index())
        with recorder.reducing(owner), _reducing_in_callbacks(recorder, owner):
            return powerSGD_hook.powerSGD_hook(state, bucket)

    return hook


@contextmanager
def _reducing_in_callbacks(recorder: Recorder, owner: str) -> Iterator[None]:
    """Let callbacks that are attached inside tell the recorder what they reduce when they run."""
    original = torch._C.Future.then

    def then(future: Any, callback: Callable[[Any], Any]) -> Any:
        def told(result: Any) -> Any:
            with recorder.reducing(owner):
                return callback(result)

        return original(future, told)

    with mock.patch.object(torch._C.Future, "then", then):
        yield
