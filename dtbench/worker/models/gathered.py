"""Weights that stay in parts on the tensor axis and are gathered where they are used; the sequence is cut, too.

The weight-gathered layout of arXiv:2211.05102 in DTensor's words, and what SimpleFSDP does on the data axis. A gradient
leaves the product as a part of a sum over the ranks, each of which saw its part of the sequence::

    forward     weight, Shard(0) ── all-gather ──▶ Replicate ── product with a part of the sequence
    backward    gradient, Shard(0) ◀── reduce-scatter ── Partial ◀── its gradient
                    |
                    sync_grad_hook: with async_op=True the reduce-scatter may run still, and this waits for it
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import torch.nn.functional as F  # noqa: N812 - torch's usual name
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, PrepareModuleInput, PrepareModuleOutput

_SEQUENCE: Final = Shard(1)
_SEEN: Final = "_dtbench_gathered"
"""Attribute of a linear: how its weight came, ``async`` or ``sync``, as last seen."""


class GatheredWeights(ParallelStyle):
    """Keep a linear's parameters in parts of their first dim, and gather them in every forward."""

    def __init__(self, gather: Callable[[DTensor], Tensor]) -> None:
        super().__init__()
        self._gather = gather

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            part = distribute_tensor(parameter, device_mesh, [Shard(0)])
            module.register_parameter(name, nn.Parameter(part))
        module.forward = partial(_multiply, module, self._gather)
        return module


def _multiply(module: nn.Module, gather: Callable[[DTensor], Tensor], x: Tensor) -> Tensor:
    """Do what ``nn.Linear`` does, with gathered parameters."""
    assert isinstance(module, nn.Linear)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, DTensor), "the strategy handed its local part over"
    whole = gather(weight)
    setattr(module, _SEEN, "async" if isinstance(whole, AsyncCollectiveTensor) else "sync")
    return F.linear(x, whole, gather(bias) if isinstance(bias, DTensor) else bias)


def gather_now(parameter: DTensor) -> Tensor:
    """Return the whole parameter, and in backward wait for its gradient's reduction where that is issued."""
    return parameter.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def gather_async(parameter: DTensor) -> Tensor:
    """Return the whole parameter, waited for at its first use; backward leaves its gradient's reduction running."""
    whole = parameter.redistribute(placements=[Replicate()], async_op=True)
    return whole.to_local(grad_placements=[Partial()])


_GATHERS: Final[Mapping[str, Callable[[DTensor], Tensor]]] = MappingProxyType(
    {"sync": gather_now, "async": gather_async}
)


def gathered_styles(blocks: list[str], linears: list[str], how: str) -> dict[str, ParallelStyle]:
    """Return each module's style by FQN: the sequence is cut before the first block and put together after the last.

    Args:
        blocks: FQNs in the order of use.
        linears: FQNs of the products.
        how: ``sync`` or ``async``.
    """
    edges: dict[str, list[ParallelStyle]] = {}
    edges.setdefault(blocks[0], []).append(
        PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(_SEQUENCE,), use_local_output=True)
    )
    edges.setdefault(blocks[-1], []).append(
        PrepareModuleOutput(output_layouts=(_SEQUENCE,), desired_output_layouts=(Replicate(),))
    )
    styles: dict[str, ParallelStyle] = {name: _Together(parts) for name, parts in edges.items()}
    return styles | {name: GatheredWeights(_GATHERS[how]) for name in linears}


class _Together(ParallelStyle):
    """Several styles of one module."""

    def __init__(self, parts: list[ParallelStyle]) -> None:
        super().__init__()
        self._parts = parts

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for part in self._parts:
            module = part._apply(module, device_mesh)
        return module


def find_gathers(module: nn.Module) -> set[str]:
    """Return how the weights of a model came when they were last used: ``async``, ``sync``, or nothing at all."""
    return {getattr(part, _SEEN) for part in module.modules() if hasattr(part, _SEEN)}
