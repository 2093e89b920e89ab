"""Which branch a call of a function under study will take, read from its arguments before it runs."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch.distributed._functional_collectives import AsyncCollectiveTensor

from dtbench.seeds.functions import FSDP_EXTENSIONS, GRADIENT_HOOKS, GradientHookBranch, UnflattenBranch

Chooser = Callable[[tuple[Any, ...], Mapping[str, Any]], str]
"""Names the branch of a call with these arguments."""


def _of_gradient_hook(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Tell what ``sync_grad_hook(grad, *, device_handle, compute_stream)`` does with a gradient."""
    gradient = args[0] if args else kwargs["grad"]
    if not isinstance(gradient, AsyncCollectiveTensor):
        return GradientHookBranch.PLAIN.value
    is_on_current = kwargs.get("compute_stream") is None
    return (GradientHookBranch.AWAITED if is_on_current else GradientHookBranch.ON_COMPUTE_STREAM).value


def _of_unflattening(args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> str:
    """Tell on which stream ``DTensorExtensions.post_unflatten_transform`` runs."""
    is_current = args[0].compute_stream is None
    return (UnflattenBranch.CURRENT_STREAM if is_current else UnflattenBranch.COMPUTE_STREAM).value


CHOOSERS: Final[Mapping[tuple[str, str], Chooser]] = {
    (GRADIENT_HOOKS, "sync_grad_hook"): _of_gradient_hook,
    (FSDP_EXTENSIONS, "DTensorExtensions.post_unflatten_transform"): _of_unflattening,
}
"""By file and name, for the functions whose branches have names."""
