"""What the process groups of a person's own loop carry: mesh axes as named, or as inferred from what was issued."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from dtbench.errors import CaptureError
from dtbench.store.records import OverlapPossible, OwnAxis, Traffic
from dtbench.vocabulary import Axis, Operation, Purpose, Region, axis_named
from dtbench.worker.own_peers import list_groups
from dtbench.worker.recorder import Issue, Recorder


def read_axes(mesh: Any) -> dict[str, str]:
    """Give the name of the mesh axis of each group, by torch's name of the group, as a person gave them.

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


def known_axes(given: Mapping[str, str]) -> dict[str, Axis]:
    """Give the axes that names tell: those given, and those of every device mesh whose groups this rank is in."""
    names = {group.group_name: name for name, group in list_groups()} | dict(given)
    return {group: axis for group, name in names.items() if (axis := axis_named(name)) is not None}


def name_mesh(given: Mapping[str, str], recorder: Recorder) -> tuple[OwnAxis, ...]:
    """Name the axes of this rank's groups: as given, else as the device mesh's groups are, else as inferred."""
    found: dict[str, OwnAxis] = {}
    for mesh_name, group in list_groups():
        name = given.get(group.group_name, "" if given else mesh_name)
        axis = axis_named(name) or recorder.axes.get(group.group_name)
        named = str(axis) if name in ("", "default") and axis else name
        if named and named != "default":
            found[named] = OwnAxis(name=named, axis=axis, size=group.size())
    return tuple(found.values())


def infer_axis(issues: Iterable[Issue]) -> Axis | None:
    """Give the mesh axis that a group without a name must be: sharded parameters gather and scatter, DDP reduces."""
    seen = {(issue.operation, issue.region) for issue in issues}
    in_step = {operation for operation, region in seen if region in (Region.FORWARD, Region.BACKWARD)}
    if in_step & {Operation.ALL_GATHER, Operation.REDUCE_SCATTER}:
        return Axis.SHARD
    return Axis.REPLICATE if (Operation.ALL_REDUCE, Region.BACKWARD) in seen else None


def read_overlap(traffic: Iterable[Traffic]) -> Iterator[OverlapPossible]:
    """Say for each purpose whether it was issued so that it can run beside compute, where that can be told.

    What is issued synchronously cannot. What is not can only where nobody needs it at once: gradients and parameters.
    """
    by_purpose: dict[Purpose, list[Traffic]] = {}
    for item in traffic:
        by_purpose.setdefault(item.purpose, []).append(item)
    for purpose, items in by_purpose.items():
        count, asynchronous = sum(item.count for item in items), sum(item.count_async for item in items)
        if asynchronous == 0:
            reason = "issued synchronously, the rank stands still until it is over"
            yield OverlapPossible(purpose=purpose, possible=False, reason=reason)
        elif purpose in (Purpose.GRAD_REDUCE, Purpose.UNSHARD):
            reason = f"{asynchronous} of {count} issued asynchronously"
            yield OverlapPossible(purpose=purpose, possible=True, reason=reason)
