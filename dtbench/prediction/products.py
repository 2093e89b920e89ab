"""How many products each part of a real model has, and when in backward gradients are there: its shares of compute.

::

    forward     block 0 | block 1 | ... | head              parameters of matrices, and attention, for each token
    backward    head | ... | block 1 | block 0              twice as many: gradients of weights and of inputs
                           w2, w3, w1, wo, attention, wv, wk, wq       each gradient as soon as its product is done

Multiply-adds for one token, from the same shapes as ``count_flops``: what else a block computes (norms, activations) is
taken to go with them. Embedding and loss have no products.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from dtbench.plan.traffic.parameters import Parameter, list_parameters
from dtbench.scenario.schema.model import Mlp, Transformer

_IN_BACKWARD: Final = 2
"""Products of backward for one of forward: gradients of the weight, and of what was multiplied with it."""


@dataclass(frozen=True)
class Products:
    """Multiply-adds for one token.

    Attributes:
        forward: of each block, in the order of forward.
        head: of forward after the last block.
        backward: of each block, in the order of forward.
        backward_head: of backward before the last block's.
        ready: of each block, for each of its parameters in their order, the share of the block's backward after which
            its gradient is there.
    """

    forward: tuple[int, ...]
    head: int
    backward: tuple[int, ...]
    backward_head: int
    ready: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class _Part:
    """Part of a block: a module by its FQN, or what has no parameters, whose name is empty."""

    name: str
    forward: int
    backward: int


def count_products(model: Transformer | Mlp, sequence_length: int) -> Products:
    """Count the products of a model.

    Args:
        model: all of whose blocks are used.
        sequence_length: tokens that attend to each other.
    """
    blocks = [list(of) for unit, of in groupby(list_parameters(model), key=lambda one: one.unit) if unit]
    match model:
        case Transformer():
            head = model.vocab_size * model.dim
            parts = [list(_cut_attending(block, model.dim, sequence_length)) for block in blocks]
        case Mlp():
            head = 0
            parts = [list(_cut_block(block)) for block in blocks]
            first = parts[0][0]  # nobody asks for the gradient of the batch
            parts[0][0] = _Part(first.name, first.forward, first.forward)
    return Products(
        forward=tuple(sum(part.forward for part in of) for of in parts),
        head=head,
        backward=tuple(sum(part.backward for part in of) for of in parts),
        backward_head=_IN_BACKWARD * head,
        ready=tuple(_find_ready(block, of) for block, of in zip(blocks, parts, strict=True)),
    )


def _cut_block(block: Sequence[Parameter]) -> Iterator[_Part]:
    """Yield a block's modules in the order of their use; vectors have no products."""
    for module, of in groupby(block, key=_name_module):
        elements = sum(one.numel for one in of if len(one.shape) > 1)
        yield _Part(module, elements, _IN_BACKWARD * elements)


def _cut_attending(block: Sequence[Parameter], dim: int, sequence_length: int) -> Iterator[_Part]:
    """Yield the same with attention before its output projection: ``12 H Q T`` operations, as ``count_flops`` has it.

    Two products with all tokens in forward, and twice as many in backward; causality is not credited.
    """
    attending = 2 * dim * sequence_length
    for part in _cut_block(block):
        if part.name.endswith("attention.wo"):
            yield _Part("", attending, _IN_BACKWARD * attending)
        yield part


def _find_ready(block: Sequence[Parameter], parts: Sequence[_Part]) -> tuple[float, ...]:
    """Return at which share of a block's backward, which goes through its parts from the last, each gradient is there.

    A bias has its gradient with its weight: one node of autograd gives both.
    """
    whole = sum(part.backward for part in parts)
    done, shares = 0, dict[str, float]()
    for part in reversed(parts):
        done += part.backward
        shares[part.name] = done / whole
    return tuple(shares[_name_module(one)] for one in block)


def _name_module(parameter: Parameter) -> str:
    return parameter.name.rpartition(".")[0]
