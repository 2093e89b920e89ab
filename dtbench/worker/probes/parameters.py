"""For which parameter a call of the gradient hooks' functions is, so that each one's wait can be told apart.

``_unflatten_tensor`` is given the layout that ``_flatten_tensor`` gave when the model was wrapped, and every parameter
has its own. The hook that it registers is given a gradient and nothing else. But autograd says before which node it
runs, and that node belongs to the parameter's local part: so the name is left on the node.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.autograd.graph import get_gradient_edge

from dtbench.probe_catalogue.functions import FSDP_EXTENSIONS, GRADIENT_HOOKS

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
Namer = Callable[[Arguments, Mapping[int, str]], str | None]
"""Names the parameter of a call, given its arguments and FQNs by ``id`` of the layout; None: nobody knows."""

_NAME: Final = "dtbench parameter"


def leave_name(arguments: Arguments, names: Mapping[int, str]) -> None:
    """Write a parameter's name on the node of autograd before which its gradient's hook runs.

    To be called when the local part has its users: until then nothing may hold the node of a leaf.
    """
    tensor = _argument(arguments, 0, "tensor")
    name = _name_by_layout(arguments, names)
    if name is not None and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        get_gradient_edge(tensor).node.metadata[_NAME] = name


def _name_by_layout(arguments: Arguments, names: Mapping[int, str]) -> str | None:
    """Name the parameter of ``_unflatten_tensor(tensor, spec, ...)``."""
    return names.get(id(_argument(arguments, 1, "spec")))


def _name_by_extension(arguments: Arguments, names: Mapping[int, str]) -> str | None:
    """Name the parameter of ``DTensorExtensions.post_unflatten_transform(self, tensor, param_extension)``."""
    return names.get(id(_argument(arguments, 2, "param_extension")))


def _name_by_node(_arguments: Arguments, _names: Mapping[int, str]) -> str | None:
    """Name the parameter of ``sync_grad_hook(grad, ...)``."""
    node = torch._C._current_autograd_node()
    name = None if node is None else node.metadata.get(_NAME)
    return None if name is None else str(name)


def _argument(arguments: Arguments, place: int, name: str) -> Any:
    positional, named = arguments
    return positional[place] if place < len(positional) else named.get(name)


NAMERS: Final[Mapping[tuple[str, str], Namer]] = {
    (GRADIENT_HOOKS, "_unflatten_tensor"): _name_by_layout,
    (GRADIENT_HOOKS, "sync_grad_hook"): _name_by_node,
    (FSDP_EXTENSIONS, "DTensorExtensions.post_unflatten_transform"): _name_by_extension,
}
"""By file and name of the function."""

LEAVES_NAME: Final = (GRADIENT_HOOKS, "_unflatten_tensor")
"""The function after which ``leave_name`` is to be called."""
