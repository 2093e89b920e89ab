"""What the process groups of a person's own loop carry: mesh axes as given, or as meshes and models tell."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.errors import CaptureError
from dtbench.base.vocabulary import Axis, Purpose, axis_described, axis_named
from dtbench.store.records.run import OwnAxis
from dtbench.store.records.traffic import OverlapPossible, Traffic
from dtbench.worker.user_loop.peers import list_groups


def read_axes(mesh: Any) -> dict[str, str]:
    """Return the name of the mesh axis of each group, by torch's name of the group, as a person gave them.

    Raises:
        CaptureError: it is no mesh, or one without names.
    """
    if mesh is None:
        return {}
    if isinstance(mesh, Mapping):
        return {group.group_name: str(name) for name, group in mesh.items()}
    if not isinstance(mesh, DeviceMesh):
        raise CaptureError("dtbench.capture: mesh must be a DeviceMesh or a mapping of names to process groups")
    names = mesh.mesh_dim_names
    if not names:
        raise CaptureError(
            "dtbench.capture: the mesh has no names; "
            "make it with init_device_mesh(..., mesh_dim_names=('replicate', ...))"
        )
    return {mesh.get_group(name).group_name: name for name in names}


def find_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the mesh axis of each group that has one: as given, else as a mesh or a wrapped model says.

    A mesh that is gone has left its names to its groups; the others are looked for among all live objects (a tenth of a
    second): whoever made them need not pass them on. A name that dtbench knows goes before one that it does not, a mesh
    before a model. What they say of a group that was destroyed is not taken for a later one, to which torch gives the
    same name.
    """
    groups = {group.group_name: group for _, group in list_groups()}
    names = {group.group_name: name for name, group in list_groups() if axis_described(name) is not None}
    live = [thing for thing in gc.get_objects() if issubclass(type(thing), _TELLING)]
    for kind in _TELLING:
        for thing in live:
            if issubclass(type(thing), kind):
                for name, group in _say(thing):
                    is_live = groups.get(group.group_name) is group
                    if is_live and axis_named(names.get(group.group_name, "")) is None:
                        names[group.group_name] = name
    return {**names, **given}


_TELLING: Final = (DeviceMesh, FSDPModule, FullyShardedDataParallel, DistributedDataParallel)


def _say(thing: Any) -> Iterator[tuple[str, dist.ProcessGroup]]:
    """Yield the axes that a mesh or a model tells, and the group of each."""
    match thing:
        case DeviceMesh():
            with suppress(RuntimeError):  # a mesh without process groups
                yield from [(name, _made_with(thing, thing.get_group(name))) for name in thing.mesh_dim_names or ()]
        case FSDPModule():
            state = thing._get_fsdp_state()
            for parameters in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:  # 2.13, before
                info = getattr(parameters, "mesh_info", None)
                yield from _present(info, shard="shard_process_group", replicate="replicate_process_group")
        case FullyShardedDataParallel():
            yield from _present(thing, shard="process_group", replicate="_inter_node_pg")
        case DistributedDataParallel():
            yield from _present(thing, replicate="process_group")
            for _, state in thing._comm_hooks:  # a hook may reduce over others: PostLocalSGDState over a subgroup
                said = (state, *(getattr(state, name, None) for name in ("process_group", "subgroup")))
                yield from (("replicate", group) for group in said if isinstance(group, dist.ProcessGroup))


def _made_with(mesh: DeviceMesh, group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Return the group that a mesh was made with, where it keeps that: its ``get_group`` looks for one of the name."""
    root: Any = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
    return getattr(root, "_pg_registry", {}).get(group.group_name, group)


def _present(thing: Any, **attributes: str) -> Iterator[tuple[str, dist.ProcessGroup]]:
    for axis, attribute in attributes.items():
        group = getattr(thing, attribute, None)
        if group is not None:
            yield axis, group


def known_axes(names: Mapping[str, str]) -> dict[str, Axis]:
    """Return the axis of each group whose name tells one."""
    return {group: axis for group, name in names.items() if (axis := axis_described(name)) is not None}


def name_mesh(names: Mapping[str, str]) -> tuple[OwnAxis, ...]:
    """Return the axes of this rank's groups; of several that have one name the largest."""
    sizes = {group.group_name: group.size() for _, group in list_groups()}
    found = {
        name: OwnAxis(name=name, axis=axis_described(name), size=sizes[group])
        for group, name in sorted(names.items(), key=lambda item: sizes.get(item[0], 0))
        if group in sizes
    }
    return tuple(found.values())


def read_overlap(traffic: Iterable[Traffic]) -> Iterator[OverlapPossible]:
    """Say for each purpose whether it was issued so that it can run overlapped with compute, where that can be told.

    What is issued synchronously cannot. What is not can only where nobody needs it at once: gradients and parameters.
    """
    by_purpose: dict[Purpose, list[Traffic]] = {}
    for item in traffic:
        by_purpose.setdefault(item.purpose, []).append(item)
    for purpose, items in by_purpose.items():
        count, asynchronous = sum(item.count for item in items), sum(item.count_async for item in items)
        if asynchronous == 0:
            reason = "issued synchronously, the rank is blocked until it is over"
            yield OverlapPossible(purpose=purpose, possible=False, reason=reason)
        elif purpose in (Purpose.GRAD_REDUCE, Purpose.UNSHARD):
            reason = f"{asynchronous} of {count} issued asynchronously"
            yield OverlapPossible(purpose=purpose, possible=True, reason=reason)
