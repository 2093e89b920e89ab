"""Options that say which nodes a run is planned for, where they are not this machine."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dtbench.launch.submit.shape import NodeShape

CoresPerNode = Annotated[
    int | None,
    typer.Option(
        "--cores-per-node",
        metavar="CORES",
        min=1,
        help="That a run may use on each node. Left out: as Slurm says, else as is found there.",
    ),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option("--gpus-per-node", metavar="GPUS", min=0, help="That a run may use on each node."),
]
MemoryPerNode = Annotated[
    str | None,
    typer.Option("--memory-per-node", metavar="SIZE", help="That a run may use on each node, such as 512G."),
]


@dataclass(frozen=True)
class NodeRequest:
    """The nodes that a person asks for.

    Attributes:
        count: how many; None: not said, and a run is planned for this machine.
        said: what each has, as far as a person said it.
    """

    count: int | None
    said: "NodeShape"

    def read_shape(self) -> "NodeShape":
        """Return what each node has: as a person said, else as Slurm gives to the allocation that this is in."""
        from dtbench.launch.submit.shape import first_known, read_allocation

        return first_known(self.said, read_allocation(os.environ))


def read_node_request(count: int | None, *, cores: int | None, gpus: int | None, memory: str | None) -> NodeRequest:
    """Return what these options say.

    Raises:
        BadParameter: they say what a node has, and not how many there are; or a size is none.
    """
    from dtbench.launch.submit.shape import NodeShape, read_memory

    given = {"--cores-per-node": cores, "--gpus-per-node": gpus, "--memory-per-node": memory}
    first = next((name for name, value in given.items() if value is not None), None)
    if count is None and first is not None:
        raise typer.BadParameter(f"{first} is about the nodes of --nodes; give their number, too")
    size = None if memory is None else read_memory(memory)
    if memory is not None and size is None:
        raise typer.BadParameter(f"`{memory}` is no size of memory; 512G is, or 64000M")
    return NodeRequest(count, NodeShape(cores=cores, gpus=gpus, memory_bytes=size))
