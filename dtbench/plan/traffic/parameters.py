"""The parameters of a model as far as a plan needs them: names, shapes, FSDP units, and how they are cut."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import assert_never

from dtbench.scenario.schema.model import Custom, Mlp, Model, Timed, Transformer


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model.

    Attributes:
        unit: FSDP unit that it belongs to: ``layers.<i>`` or ``""`` for the root.
        tensor_dim: dimension that tensor parallelism shards; None: replicated.
        is_norm: weight of an RMSNorm, whose gradient is partial under sequence parallelism.
        is_sparse: its gradient holds only the rows that were looked up.
        is_used: forward uses it; else it never has a gradient.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    tensor_dim: int | None
    is_norm: bool = False
    is_sparse: bool = False
    is_used: bool = True

    @property
    def numel(self) -> int:
        """Number of elements before any sharding."""
        return prod(self.shape)

    def local_shape(self, tensor: int) -> tuple[int, ...]:
        """Shape on one rank of the tensor axis; plans refuse sizes that do not divide."""
        if tensor == 1 or self.tensor_dim is None:
            return self.shape
        return tuple(size // tensor if dim == self.tensor_dim else size for dim, size in enumerate(self.shape))

    def local_numel(self, tensor: int) -> int:
        """Number of elements on one rank of the tensor axis."""
        return prod(self.local_shape(tensor))


def find_under(fqns: Iterable[str], modules: Iterable[str]) -> frozenset[str]:
    """Return the parameters that are one of these or in one: ``layers.1`` holds ``layers.1.w``, not ``layers.10.w``."""
    asked = frozenset(modules)
    return frozenset(fqn for fqn in fqns if not asked.isdisjoint(list_holders(fqn))) if asked else asked


def list_holders(fqn: str) -> Iterator[str]:
    """Return what a parameter may be named by: itself, then the modules that it is in, the innermost first."""
    yield fqn
    while "." in fqn:
        fqn = fqn.rpartition(".")[0]
        yield fqn


def known_parameters(model: Model) -> tuple[Parameter, ...] | None:
    """Return the parameters of a model of dtbench's own; None for a person's: only building it shows them."""
    return None if isinstance(model, Custom) else list_parameters(model)


@lru_cache(maxsize=8)
def list_parameters(model: Transformer | Mlp | Timed) -> tuple[Parameter, ...]:
    """Return the parameters in the order of ``named_parameters``, which is also the order of use in forward.

    Kept for some models: every cell of a file asks several times, and thousands of layers take a second each.
    """
    match model:
        case Transformer():
            return _list_transformer(model)
        case Mlp():
            return _list_mlp(model)
        case Timed():
            return _list_mlp(model.mlp)
        case _:
            assert_never(model)


def _list_transformer(model: Transformer) -> tuple[Parameter, ...]:
    dim, hidden = model.dim, model.ffn_dim
    kv_dim = dim // model.heads * (model.kv_heads or model.heads)
    parameters = [Parameter("embedding.weight", (model.vocab_size, dim), "", 0, is_sparse=model.sparse_embedding)]
    for index in range(model.layers):
        unit = f"layers.{index}"
        shapes: tuple[tuple[str, tuple[int, ...], int | None], ...] = (
            ("attention_norm", (dim,), None),
            ("attention.wq", (dim, dim), 0),
            ("attention.wk", (kv_dim, dim), 0),
            ("attention.wv", (kv_dim, dim), 0),
            ("attention.wo", (dim, dim), 1),
            ("ffn_norm", (dim,), None),
            ("ffn.w1", (hidden, dim), 0),
            ("ffn.w3", (hidden, dim), 0),
            ("ffn.w2", (dim, hidden), 1),
        )
        parameters += [
            Parameter(f"{unit}.{name}.weight", shape, unit, tensor_dim, is_norm=tensor_dim is None)
            for name, shape, tensor_dim in shapes
        ]
    parameters.append(Parameter("norm.weight", (dim,), "", None, is_norm=True))
    if not model.tied_head:
        parameters.append(Parameter("head.weight", (model.vocab_size, dim), "", 0))
    return tuple(parameters)


def _list_mlp(model: Mlp) -> tuple[Parameter, ...]:
    dim, hidden = model.dim, model.hidden_dim or model.dim
    shapes: list[tuple[str, tuple[int, ...], int | None]] = [("up.weight", (hidden, dim), 0), ("up.bias", (hidden,), 0)]
    if model.hidden_dim is not None:
        shapes += [("down.weight", (dim, hidden), 1), ("down.bias", (dim,), None)]
    return tuple(
        Parameter(f"layers.{index}.{name}", shape, f"layers.{index}", tensor_dim, is_used=index < model.layers)
        for index in range(model.layers + model.unused_layers)
        for name, shape, tensor_dim in shapes
        if model.bias or not name.endswith("bias")
    )
