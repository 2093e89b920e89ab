"""FSDP1's program on gloo: every collective blocks, so that prefetching only moves it.

The states of each unit are those of torch 2.13's ``_runtime_utils.py``: ``_pre_forward_unshard``,
``_post_forward_reshard``, ``_pre_backward_hook``, ``_post_backward_hook``, ``_prefetch_handle``.
"""

from dataclasses import dataclass
from math import ceil

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.fsdp1 import flat_unit_elements
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.prediction.program import ProgramWriter, Request
from dtbench.prediction.step import Hooks
from dtbench.scenario.schema.scenario import Fsdp1, Scenario


def make_fsdp1(scenario: Scenario, parallel: Fsdp1, parameters: tuple[Parameter, ...], writer: ProgramWriter) -> Hooks:
    """Return what FSDP1 issues in a step."""
    gathered_bytes, reduced_bytes = DTYPE_BYTES[scenario.gather_dtype], DTYPE_BYTES[scenario.reduce_dtype]
    units = {}
    for name, numel in flat_unit_elements(parameters, parallel, gathered_bytes).items():
        padded = numel if parallel.is_whole else ceil(numel / parallel.shards) * parallel.shards
        units[name] = _Handle(name, padded * gathered_bytes, padded * reduced_bytes, is_gathered=parallel.is_whole)
    return _Handles(parallel, units, writer, reduces_always=scenario.accumulation.sync != "last")


@dataclass
class _Handle:
    """One unit's flat parameter."""

    name: str
    gathered_bytes: int
    reduced_bytes: int
    is_gathered: bool
    is_prefetched: bool = False
    needs_forward: bool = False
    needs_backward: bool = False


class _Handles:
    """FSDP1's hooks over all units."""

    def __init__(
        self, parallel: Fsdp1, units: dict[str, _Handle], writer: ProgramWriter, *, reduces_always: bool
    ) -> None:
        self._parallel = parallel
        self._root = units.get("")
        self._blocks = [unit for name, unit in units.items() if name]
        self._forward_order = [*([self._root] if self._root else []), *self._blocks]
        self._backward_order: list[_Handle] = []
        self._writer = writer
        self._frees_after_forward = parallel.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
        self._reduces_always = reduces_always
        self._reduces = True

    def enter_forward(self) -> None:
        self._backward_order = []
        for unit in self._forward_order:
            unit.needs_forward, unit.is_prefetched = True, False
        if self._root is not None:
            self._pre_forward(self._root)

    def before_forward(self, place: int) -> None:
        self._pre_forward(self._blocks[place])

    def after_forward(self, place: int) -> None:
        self._post_forward(self._blocks[place], frees=self._frees_after_forward)

    def leave_forward(self) -> None:
        if self._root is not None:
            self._post_forward(self._root, frees=False)

    def enter_backward(self, *, is_last: bool) -> None:
        self._reduces = is_last or self._reduces_always
        if self._root is not None:
            self._pre_backward(self._root)

    def reach_blocks(self) -> None:
        pass

    def before_backward(self, place: int) -> None:
        self._pre_backward(self._blocks[place])

    def within_backward(self, place: int, share: float) -> None:
        pass

    def after_backward(self, place: int) -> None:
        self._post_backward(self._blocks[place])

    def leave_backward(self) -> None:
        if self._root is not None:
            self._post_backward(self._root)

    def _pre_forward(self, unit: _Handle) -> None:
        if not unit.is_prefetched:
            self._unshard(unit)
        unit.needs_forward = False
        place = self._forward_order.index(unit) + 1
        if self._parallel.forward_prefetch and place < len(self._forward_order):
            following = self._forward_order[place]
            if following.needs_forward and not following.is_prefetched:
                self._unshard(following)
                following.is_prefetched = True

    def _post_forward(self, unit: _Handle, *, frees: bool) -> None:
        self._backward_order.append(unit)
        self._reshard(unit, frees=frees)
        unit.needs_backward = True

    def _pre_backward(self, unit: _Handle) -> None:
        if unit.needs_backward and not unit.is_prefetched:
            self._unshard(unit)
        unit.needs_backward = False
        if self._parallel.backward_prefetch == "BACKWARD_PRE":
            self._prefetch_backward(unit)

    def _post_backward(self, unit: _Handle) -> None:
        self._reshard(unit, frees=self._reduces or self._frees_after_forward)
        if self._parallel.backward_prefetch == "BACKWARD_POST":
            self._prefetch_backward(unit)
        if self._reduces:
            self._reduce(unit)

    def _prefetch_backward(self, unit: _Handle) -> None:
        place = self._backward_order.index(unit) - 1
        if place < 0:
            return
        following = self._backward_order[place]
        if following.needs_backward and not following.is_prefetched:
            self._unshard(following)
            following.is_prefetched = True

    def _unshard(self, unit: _Handle) -> None:
        if not unit.is_gathered:
            self._block(unit, Axis.SHARD, Operation.ALL_GATHER, Purpose.UNSHARD, unit.gathered_bytes)
            unit.is_gathered = True

    def _reshard(self, unit: _Handle, *, frees: bool) -> None:
        unit.is_gathered = unit.is_gathered and (self._parallel.is_whole or not frees)
        unit.is_prefetched = False

    def _reduce(self, unit: _Handle) -> None:
        reduces, size_bytes = Purpose.GRAD_REDUCE, unit.reduced_bytes
        if self._parallel.is_whole:
            self._block(unit, Axis.SHARD, Operation.ALL_REDUCE, reduces, size_bytes)
            return
        self._block(unit, Axis.SHARD, Operation.REDUCE_SCATTER, reduces, size_bytes)
        if "HYBRID" in self._parallel.sharding_strategy:
            shard_bytes = size_bytes // self._parallel.shards
            self._block(unit, Axis.REPLICATE, Operation.ALL_REDUCE, reduces, shard_bytes)

    def _block(self, unit: _Handle, axis: Axis, operation: Operation, purpose: Purpose, size_bytes: int) -> None:
        self._writer.block(Request(axis, operation, purpose, size_bytes, unit.name or ROOT))
