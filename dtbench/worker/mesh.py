"""The device mesh of a plan, and which process group carries which axis."""

from collections.abc import Iterable, Iterator, Mapping

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dtbench.base.vocabulary import Axis
from dtbench.plan.plan import Plan
from dtbench.store.records.traffic import ProcessGroupInfo


def build_mesh(plan: Plan) -> DeviceMesh:
    """Build the mesh over all ranks, outermost axis first, axes named as in the plan."""
    shape = tuple(axis.size for axis in plan.mesh)
    return init_device_mesh(plan.device, shape, mesh_dim_names=tuple(str(axis.name) for axis in plan.mesh))


def describe_groups(mesh: DeviceMesh, backend: str) -> tuple[ProcessGroupInfo, ...]:
    """Return name, axis and ranks of the group of each axis that this rank belongs to."""
    groups = {Axis(name): mesh.get_group(name) for name in mesh.mesh_dim_names or ()}
    return tuple(
        ProcessGroupInfo(
            name=group.group_name, axis=axis, backend=backend, ranks=tuple(dist.get_process_group_ranks(group))
        )
        for axis, group in groups.items()
    )


def describe_further(
    groups: Mapping[str, Axis], known: Iterable[ProcessGroupInfo], backend: str
) -> Iterator[ProcessGroupInfo]:
    """Yield the groups that a strategy made beside the mesh's own; NCCL's traces name them, and nothing else does."""
    names = {group.name for group in known}
    for name, axis in groups.items():
        if name not in names:
            ranks = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name))
            yield ProcessGroupInfo(name=name, axis=axis, backend=backend, ranks=tuple(ranks))
