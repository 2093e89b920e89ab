"""What a state dict holds, read without torch's own functions for state dicts: they are what is being measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from dtbench.store.records.state import StageMismatch

MOST_MISMATCHES: Final = 20
"""Recorded with their keys; all are counted."""


@dataclass(frozen=True)
class Leaf:
    """One value of a state dict.

    Attributes:
        parts: what this rank holds of a tensor: one, of a ``ShardedTensor`` its shards, maybe none; empty for others.
        other: a value that is no tensor.
    """

    parts: tuple[Tensor, ...]
    other: object = None


def walk(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every value that is no container, by the dotted path to it."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from walk(value, (*path, str(key)))
    elif isinstance(state, Sequence) and not isinstance(state, str | bytes):
        for place, value in enumerate(state):
            yield from walk(value, (*path, str(place)))
    else:
        yield ".".join(path), state


def read_leaf(value: Any) -> Leaf:
    """Return what this rank holds of a value, in its own memory."""
    if isinstance(value, ShardedTensor):
        return Leaf(tuple(_read_shards(value)))
    if isinstance(value, DTensor):
        return Leaf((value.detach().to_local(),))
    if isinstance(value, Tensor):
        return Leaf((value.detach(),))
    return Leaf((), value)


def _read_shards(tensor: ShardedTensor) -> Iterator[Tensor]:
    """Yield the local shards; over a tensor axis each is a ``ShardedTensor`` of its own."""
    for shard in tensor.local_shards():
        if isinstance(shard.tensor, ShardedTensor):
            yield from _read_shards(shard.tensor)
        else:
            yield shard.tensor.detach()


def count_bytes(state: Any) -> int:
    """Return the bytes of all tensors that this rank holds of a state."""
    return sum(part.nbytes for _, value in walk(state) for part in read_leaf(value).parts)


Kept = dict[str, Leaf]
"""A copy of what a rank holds, by key."""


def keep(state: Any) -> Kept:
    """Copy what this rank holds of a state, to host memory."""
    return {key: _copy(read_leaf(value)) for key, value in walk(state)}


def _copy(leaf: Leaf) -> Leaf:
    return Leaf(tuple(part.to("cpu", copy=True) for part in leaf.parts), leaf.other)


def find_mismatches(kept: Kept, state: Any) -> list[StageMismatch]:
    """Name every key of which this rank holds other bits than it kept, or that is on one side only."""
    found = {key: read_leaf(value) for key, value in walk(state)}
    mismatches = [StageMismatch(key=key, words="missing") for key in kept if key not in found]
    mismatches += [StageMismatch(key=key, words="not expected") for key in found if key not in kept]
    for key, leaf in found.items():
        if key in kept and (words := _differ(kept[key], leaf)) is not None:
            mismatches.append(StageMismatch(key=key, words=words))
    return mismatches


def find_mismatches_in_whole(sharded: Any, whole: Any) -> list[StageMismatch]:
    """Name every key of whose whole value this rank's own part is not where it belongs.

    Ranks that each find their own parts have found all of it.

    Args:
        sharded: what the model holds: ``DTensor``, ``ShardedTensor`` or whole tensors.
        whole: whole tensors of the same keys.
    """
    values = dict(walk(whole))
    mismatches = [StageMismatch(key=key, words="not expected") for key in values.keys() - dict(walk(sharded)).keys()]
    for key, value in walk(sharded):
        words = "missing" if key not in values else _differ(_copy(read_leaf(value)), _own_part(value, values[key]))
        if words is not None:
            mismatches.append(StageMismatch(key=key, words=words))
    return mismatches


def _own_part(sharded: Any, whole: Any) -> Leaf:
    if isinstance(sharded, ShardedTensor) and isinstance(whole, Tensor):
        return Leaf(tuple(_cut(whole.detach(), shard.metadata) for shard in sharded.local_shards()))
    if not isinstance(sharded, DTensor) or not isinstance(whole, Tensor):
        return read_leaf(whole)
    part = whole.detach()
    for mesh_dim in _order_cuts(sharded):
        placement, coordinate = sharded.placements[mesh_dim], sharded.device_mesh.get_local_rank(mesh_dim)
        assert isinstance(placement, Shard | _StridedShard)
        chunks = part.chunk(sharded.device_mesh.size(mesh_dim), dim=placement.dim)
        part = chunks[coordinate] if coordinate < len(chunks) else part.narrow(placement.dim, 0, 0)
    return Leaf((part,))


def _cut(whole: Tensor, shard: ShardMetadata) -> Tensor:
    for dim, (offset, size) in enumerate(zip(shard.shard_offsets, shard.shard_sizes, strict=True)):
        whole = whole.narrow(dim, offset, size)
    return whole


def _order_cuts(tensor: DTensor) -> list[int]:
    """Return the mesh dims that cut a tensor, in the order of the cuts.

    A strided shard cuts what the mesh dims to its right have cut before: FSDP what is left of tensor parallelism.
    """
    plain = [dim for dim, one in enumerate(tensor.placements) if isinstance(one, Shard) and not _is_strided(one)]
    strided = [dim for dim, one in enumerate(tensor.placements) if _is_strided(one)]
    return plain + strided


def _is_strided(placement: Any) -> bool:
    return isinstance(placement, _StridedShard)


def _differ(kept: Leaf, found: Leaf) -> str | None:
    """Say in what two values differ; None: in no bit."""
    if len(kept.parts) != len(found.parts):
        return f"{len(found.parts)} tensors for {len(kept.parts)}"
    if not kept.parts:
        return None if kept.other == found.other else f"{found.other!r} for {kept.other!r}"
    return next(
        (words for pair in zip(kept.parts, found.parts, strict=True) if (words := _differ_tensors(*pair))), None
    )


def _differ_tensors(kept: Tensor, found: Tensor) -> str | None:
    if kept.shape != found.shape or kept.dtype != found.dtype:
        return f"{found.dtype} {tuple(found.shape)} for {kept.dtype} {tuple(kept.shape)}"
    ours, theirs = (one.to("cpu").contiguous().reshape(-1).view(torch.uint8) for one in (kept, found))
    if torch.equal(ours, theirs):
        return None
    size = kept.element_size()
    wrong = int((ours.view(-1, size) != theirs.view(-1, size)).any(dim=1).sum())
    return f"{wrong} of {kept.numel()} elements differ"
