"""FSDP2's program on gloo: gathers block unless they are told not to; reductions always do.

The states of each unit are those of torch 2.13's ``_fully_shard/_fsdp_param_group.py`` (``unshard``,
``wait_for_unshard``, ``pre_backward``, ``post_backward``, ``_backward_prefetch``, ``finalize_backward``) and
``_fsdp_state.py``. A gather that backward prefetches runs on the lane that the reduce-scatter needs next, unless that
has a group of its own. After several micro-batches the implicit prefetch of the first block aims at the last one again:
the order of forwards is cleared only by the last backward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.fsdp2 import gathered_unit_bytes, padded_unit_elements
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.prediction.program import ProgramWriter, Request
from dtbench.prediction.step import Hooks
from dtbench.scenario.schema.scenario import Fsdp2, Scenario


def make_fsdp2(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...], writer: ProgramWriter) -> Hooks:
    """Return what FSDP2 issues in a step."""
    gathered_bytes = gathered_unit_bytes(scenario, parallel, parameters)
    reduced_bytes = DTYPE_BYTES[scenario.reduce_dtype]
    asked = parallel.reshard_after_forward
    units = {
        name: _Unit(
            name=name,
            gathered_bytes=gathered_bytes[name],
            reduced_bytes=numel * reduced_bytes,
            reshards=bool(name) if asked is None else bool(asked),
            within=asked if type(asked) is int and 0 < asked < parallel.shards else None,
            is_needless=name in parallel.needless_in_backward,
        )
        for name, numel in padded_unit_elements(parameters, parallel).items()
    }
    return _ParamGroups(scenario, parallel, units, writer)


@dataclass
class _Unit:
    """One parameter group.

    Attributes:
        reshards: after forward.
        within: ranks among which it stays sharded after forward; None: all.
        is_needless: backward does not gather it.
        gather: number of the gather that nobody has waited for; None inside: it blocked, or nothing had to cross.
    """

    name: str
    gathered_bytes: int
    reduced_bytes: int
    reshards: bool
    within: int | None
    is_needless: bool = False
    is_whole: bool = False
    is_part: bool = False
    gather: tuple[int | None] | None = None
    places: list[int] = field(default_factory=list)


class _ParamGroups:
    """FSDP2's hooks over all units."""

    def __init__(self, scenario: Scenario, parallel: Fsdp2, units: dict[str, _Unit], writer: ProgramWriter) -> None:
        self._parallel = parallel
        self._sync = scenario.accumulation.sync
        self._root = units.get("")
        self._blocks = [unit for name, unit in units.items() if name]
        self._order: list[_Unit] = []  # of forwards since the last backward that was a step's last
        self._writer = writer
        self._is_last = True

    def enter_forward(self) -> None:
        if self._root is not None:
            self._unshard(self._root)
            self._wait(self._root)
        self._prefetch(self._blocks[: self._parallel.forward_prefetch])

    def before_forward(self, place: int) -> None:
        self._unshard(self._blocks[place])
        self._wait(self._blocks[place])
        self._prefetch(self._blocks[place + 1 : place + 1 + self._parallel.forward_prefetch])

    def after_forward(self, place: int) -> None:
        self._post_forward(self._blocks[place])

    def leave_forward(self) -> None:
        if self._root is not None:
            self._post_forward(self._root)

    def enter_backward(self, *, is_last: bool) -> None:
        self._is_last = is_last
        if self._root is not None:
            self._pre_backward(self._root, self._explicit(len(self._blocks)))

    def reach_blocks(self) -> None:
        pass

    def before_backward(self, place: int) -> None:
        self._pre_backward(self._blocks[place], self._explicit(place))

    def within_backward(self, place: int, share: float) -> None:
        pass

    def after_backward(self, place: int) -> None:
        self._post_backward(self._blocks[place])

    def leave_backward(self) -> None:
        if self._root is not None:
            self._post_backward(self._root)
        if not self._is_last:
            return
        self._order.clear()
        for unit in (*([self._root] if self._root else []), *self._blocks):
            unit.places.clear()
            if unit.gather is not None:  # prefetched for nobody: waited for and dropped
                self._writer.wait(unit.gather[0])
                unit.gather = None

    def _explicit(self, place: int) -> Sequence[_Unit]:
        """Return the blocks that ``set_modules_to_backward_prefetch`` names for a block, or the root after the last."""
        count = self._parallel.backward_prefetch or 0
        return self._blocks[max(0, place - count) : place][::-1]

    def _post_forward(self, unit: _Unit) -> None:
        if unit.reshards:
            unit.is_whole, unit.is_part = False, unit.within is not None
        unit.places.append(len(self._order))
        self._order.append(unit)

    def _pre_backward(self, unit: _Unit, explicit: Sequence[_Unit]) -> None:
        self._prefetch_backward([unit])
        self._wait(unit)
        if explicit:
            self._prefetch_backward(explicit)
        elif unit.places and (place := unit.places.pop()) > 0:
            self._prefetch_backward([self._order[place - 1]])

    def _post_backward(self, unit: _Unit) -> None:
        if self._parallel.reshard_after_backward or self._is_last:
            unit.is_whole = unit.is_part = False
        if self._sync == "last" and not self._is_last:
            return
        name, reduces = unit.name or ROOT, Purpose.GRAD_REDUCE
        apart = "reduce-scatter" if self._parallel.separate_reduce_scatter_group else ""
        self._writer.block(Request(Axis.SHARD, Operation.REDUCE_SCATTER, reduces, unit.reduced_bytes, name, apart))
        if self._sync != "reduce_scatter" or self._is_last:
            shard_bytes = unit.reduced_bytes // self._parallel.shards
            self._writer.block(Request(Axis.REPLICATE, Operation.ALL_REDUCE, reduces, shard_bytes, name))

    def _prefetch_backward(self, units: Sequence[_Unit]) -> None:
        self._prefetch([unit for unit in units if not unit.is_needless])

    def _prefetch(self, units: Sequence[_Unit]) -> None:
        for unit in units:
            self._unshard(unit)

    def _unshard(self, unit: _Unit) -> None:
        """Gather, unless it is whole or on its way."""
        if unit.is_whole or unit.gather is not None:
            return
        within = unit.within if unit.is_part else None
        request = Request(
            axis=Axis.SHARD,
            operation=Operation.ALL_GATHER,
            purpose=Purpose.UNSHARD,
            size_bytes=unit.gathered_bytes,
            owner=unit.name or ROOT,
            apart="after forward" if unit.is_part else "",
            within=within,
        )
        if self._parallel.unshard_async_op:
            unit.gather = (self._writer.issue(request),)
        else:
            unit.gather = (self._writer.block(request),)

    def _wait(self, unit: _Unit) -> None:
        """Wait for the unit's gather and copy it out; one that blocked is over."""
        if unit.gather is not None:
            self._writer.wait(unit.gather[0])
            unit.gather, unit.is_whole, unit.is_part = None, True, False
