"""For which parameter a call of the gradient hooks' functions is, so that each one's wait can be told apart.

``_unflatten_tensor`` is given a parameter's local part: under DDP a parameter by itself, under FSDP1 a view of a flat
one, told by where it begins. The hook that it registers is given a gradient and nothing else. But autograd says before
which node it runs, and that node belongs to the local part: so the name is left on the node.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from dtbench.seeds.functions import FSDP_EXTENSIONS, GRADIENT_HOOKS

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Names = Mapping[tuple[int, int], str]
"""FQNs by ``place_of`` the local part."""
Namer = Callable[[Arguments, Names], str | None]
"""Names the parameter of a call from its arguments; None: nobody knows."""

_NAME: Final = "dtbench parameter"


def place_of(part: Tensor) -> tuple[int, int]:
    """Return what tells a local part from all others: the tensor that holds it, by ``id``, and its first element."""
    whole = part if part._base is None else part._base
    return id(whole), int(part.storage_offset())


def leave_name(arguments: Arguments, names: Names) -> None:
    """Write a parameter's name on the node of autograd before which its gradient's hook runs.

    To be called when the local part has its users: until then nothing may hold the node of a leaf.
    """
    name, part = _name_part(arguments, names), _argument(arguments, 0, "tensor")
    if name is not None and part.requires_grad:
        get_gradient_edge(part).node.metadata[_NAME] = name


def _name_part(arguments: Arguments, names: Names) -> str | None:
    """Name the parameter of ``_unflatten_tensor(tensor, spec, ...)``."""
    return _look_up(_argument(arguments, 0, "tensor"), names)


def _name_view(arguments: Arguments, names: Names) -> str | None:
    """Name the parameter of ``DTensorExtensions.post_unflatten_transform(self, tensor, param_extension)``."""
    return _look_up(_argument(arguments, 1, "tensor"), names)


def _name_gradient(_arguments: Arguments, _names: Names) -> str | None:
    """Name the parameter of ``sync_grad_hook(grad, ...)``."""
    node = torch._C._current_autograd_node()
    name = None if node is None else node.metadata.get(_NAME)
    return None if name is None else str(name)


def _look_up(part: object, names: Names) -> str | None:
    return names.get(place_of(part)) if isinstance(part, Tensor) else None


def _argument(arguments: Arguments, place: int, name: str) -> Any:
    positional, named = arguments
    return positional[place] if place < len(positional) else named.get(name)


NAMERS: Final[Mapping[tuple[str, str], Namer]] = {
    (GRADIENT_HOOKS, "_unflatten_tensor"): _name_part,
    (GRADIENT_HOOKS, "sync_grad_hook"): _name_gradient,
    (FSDP_EXTENSIONS, "DTensorExtensions.post_unflatten_transform"): _name_view,
}
"""By file and name of the function."""

LEAVES_NAME: Final = (GRADIENT_HOOKS, "_unflatten_tensor")
"""The function after which ``leave_name`` is to be called."""
