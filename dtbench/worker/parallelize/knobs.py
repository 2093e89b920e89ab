"""Whether the installed torch has a knob at all."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from dtbench.base.errors import MissingError


def require_arguments(function: Callable[..., Any], names: Iterable[str], section: str) -> None:
    """Refuse knobs that a torch function does not take.

    Raises:
        MissingError: names each knob and the installed version.
    """
    known = inspect.signature(function).parameters
    _refuse([name for name in names if name not in known], section)


def require_methods(kind: type, methods: Iterable[tuple[str, str]], section: str) -> None:
    """Refuse knobs that a torch class has no method, or field, for; ``methods`` are pairs of knob and its name.

    Raises:
        MissingError: names each knob and the installed version.
    """
    _refuse([knob for knob, method in methods if not hasattr(kind, method)], section)


def _refuse(missing: list[str], section: str) -> None:
    if missing:
        names = ", ".join(f"{section}.{name}" for name in missing)
        raise MissingError(f"torch {torch.__version__} has no such knob: {names}; leave it out or use a newer torch")
