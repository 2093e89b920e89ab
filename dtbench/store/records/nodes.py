"""Where the results of a run on several nodes lie."""

from typing import Literal

from dtbench.base.record import Record


class NodePlace(Record):
    """What one node of a run left, and where.

    Attributes:
        node: its number, from 0.
        host: its name.
        folder: of the run, on that node.
        is_apart: node 0 does not see it: what ranks of this node left is in this folder alone.
    """

    node: int
    host: str
    folder: str
    is_apart: bool


class NodesRecord(Record):
    """The nodes of a run, as its latest start had them.

    Attributes:
        node: whose folder this file lies in; 0, too, where all share it.
        nodes: all, in order.
    """

    format_version: Literal[1] = 1
    node: int
    nodes: tuple[NodePlace, ...]

    @property
    def apart(self) -> tuple[NodePlace, ...]:
        """Nodes whose results are not in node 0's folder."""
        return tuple(one for one in self.nodes if one.is_apart)

    @property
    def elsewhere(self) -> tuple[NodePlace, ...]:
        """Nodes whose results are not in the folder that this file lies in."""
        return self.apart if self.node == 0 else tuple(one for one in self.nodes if one.node != self.node)
