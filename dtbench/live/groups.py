"""What hooks need to know of process groups, and how many collectives each has issued past all hooks.

A group counts what it issues, whoever asks: Python, DDP's reducer, functional collectives. What it counts and no hook
saw is *untold*, until somebody says what it was or the step ends. Groups that a wrapper in Python stands before
(``dtbench.named_gloo``) do not count, and need not: hooks see all that they issue.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from dtbench.base.vocabulary import Axis
from dtbench.worker.network.named_gloo import find_recorder
from dtbench.worker.user_loop.axes import find_names, known_axes
from dtbench.worker.user_loop.peers import list_groups


@dataclass(slots=True)
class GroupCount:
    """A group of several ranks.

    Attributes:
        group: that counts; None: hooks see all that it issues.
        axis: of a mesh; None: not known.
        told: how many of its collectives hooks saw, or were explained otherwise.
    """

    group: Any
    axis: Axis | None
    told: int = 0

    def count(self) -> int:
        """Return how many collectives it has issued; 0 where it does not count."""
        return 0 if self.group is None else int(self.group._get_sequence_number_for_group())

    def tell(self, before: int) -> None:
        """All that it has issued since it had issued ``before`` was seen."""
        self.told += self.count() - before

    def take_untold(self) -> int:
        """Return how many it issued that were not told; from then on they are."""
        untold, self.told = self.count() - self.told, self.count()
        return max(untold, 0)


class Groups:
    """The process groups of this rank, by torch's names; only those of several ranks.

    Args:
        ignored: torch's name of a group that is not the loop's.

    Attributes:
        has_new: there are groups of which nobody has asked yet what they are for.
        uncounted: groups whose backend does not count, so that what C++ issues there is neither seen nor counted.
    """

    def __init__(self, ignored: str | None = None) -> None:
        self._ignored = ignored
        self._known: dict[str, GroupCount | None] = {}
        self._listed = 0
        self.has_new = False
        self.uncounted = 0

    def find(self, group: Any) -> GroupCount | None:
        """Return what is known of a group; None: it is alone, or none of the loop's."""
        name = group.group_name
        if name not in self._known:
            is_shared = name != self._ignored and group.size() > 1
            self._known[name] = GroupCount(None, None) if is_shared else None
        return self._known[name]

    def look(self) -> None:
        """Find groups that were made meanwhile; what they had issued before is told."""
        if self._listed == (listed := len(dist.distributed_c10d._world.pg_map)):
            return
        self.has_new, self.uncounted = True, 0
        self._listed = listed
        live = [group for _, group in list_groups()]
        names = {group.group_name for group in live}
        self._known = {name: known for name, known in self._known.items() if name in names}
        for group in live:
            known = self.find(group)
            if known is not None and known.group is None and find_recorder(group) is None:
                try:
                    known.told = int(group._get_sequence_number_for_group())
                except RuntimeError:
                    self.uncounted += 1
                else:
                    known.group = group

    def find_axes(self) -> None:
        """Learn from meshes and wrapped models of this process which axis each group is; a tenth of a second."""
        self.look()
        self.has_new = False
        axes = known_axes(find_names({}))
        for name, known in self._known.items():
            if known is not None:
                known.axis = axes.get(name)

    def take_untold(self, axes: Collection[Axis] | None = None) -> int:
        """Return how many collectives no hook saw, of groups of some axes, or of all; from then on they are told."""
        return sum(known.take_untold() for known in self._counting() if axes is None or known.axis in axes)

    def take_awaited(self, others: Collection[Axis]) -> tuple[bool, Axis | None]:
        """Somebody waits for a collective that no hook saw: say whether there is one, and over which axis.

        Args:
            others: axes whose collectives are waited for elsewhere.
        """
        asking = [known for known in self._counting() if known.axis not in others and known.count() > known.told]
        if not asking:
            return False, None
        asking[0].told += 1
        return True, asking[0].axis if len({known.axis for known in asking}) == 1 else None

    def _counting(self) -> Iterator[GroupCount]:
        return (known for known in self._known.values() if known is not None and known.group is not None)
