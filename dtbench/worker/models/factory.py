"""Find a person's factory function and call it; whatever goes wrong becomes a sentence.

The module is looked for beside the scenario, then in the folder in which dtbench was started, then among what is
installed. Nothing of it runs unless a scenario names it.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dtbench.base.errors import PlanError
from dtbench.scenario.schema.model import Custom
from dtbench.training_model import TrainingModel


def call_factory(settings: Custom, folders: Sequence[str]) -> TrainingModel:
    """Return what the scenario's factory returns.

    Raises:
        PlanError: no such module or function, arguments that it does not take, an error inside it, or another result.
    """
    function = find_function(settings.factory, folders, field="model.factory")
    _check_arguments(function, settings)
    try:
        made = function(**settings.arguments)
    except Exception as error:  # whatever a person's code raises
        raise PlanError(f"model.factory `{settings.factory}` raised {describe(error)}") from error
    if not isinstance(made, TrainingModel):
        kind = type(made).__name__
        raise PlanError(f"model.factory `{settings.factory}` returned a {kind}; return a dtbench.TrainingModel")
    return made


def describe(error: Exception) -> str:
    """Return the last line of a traceback and the place that raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{traceback.format_exception_only(error)[-1].strip()} ({last.filename}, line {last.lineno})"


def find_function(name: str, folders: Sequence[str], *, field: str) -> Callable[..., Any]:
    """Return the function that a field of a scenario names as ``module:function``.

    Raises:
        PlanError: there is no such module or function, or importing it raises.
    """
    module_name, _, function_name = name.partition(":")
    module = _import_module(module_name, folders, field)
    function = getattr(module, function_name, None)
    if not callable(function):
        there = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
        known = f"it has {', '.join(there)}" if there else "it has no functions"
        raise PlanError(f"{field}: there is no function `{function_name}` in {_place_of(module)}; {known}")
    return function


def _import_module(name: str, folders: Sequence[str], field: str) -> ModuleType:
    """Import with the person's folders first in the path, and leave them at its end for what is imported later."""
    top = name.partition(".")[0]
    own = [folder for folder in dict.fromkeys(folders) if _holds(Path(folder), top)]
    before = sys.path[:]
    sys.path[:0] = own
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise PlanError(f"{field}: importing `{name}` raised {describe(error)}") from error
        looked = ", ".join([*dict.fromkeys(folders), "what is installed"])
        raise PlanError(f"{field}: there is no module `{name}` in {looked}") from error
    except Exception as error:
        raise PlanError(f"{field}: importing `{name}` raised {describe(error)}") from error
    finally:
        sys.path[:] = [*before, *own]
    if own and not _place_of(module).startswith(own[0]):
        rival = f"{Path(own[0]) / top} has the name of {_place_of(module)}, which is loaded already"
        raise PlanError(f"{field}: {rival}; rename your module")
    return module


def _holds(folder: Path, top: str) -> bool:
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _place_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or f"the module `{module.__name__}`"


def _check_arguments(function: Callable[..., Any], settings: Custom) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # builtins without one
        return
    try:
        signature.bind(**settings.arguments)
    except TypeError as error:
        given = ", ".join(settings.arguments) or "none"
        raise PlanError(
            f"model.factory `{settings.factory}{signature}` does not take model.arguments ({given}): {error}"
        ) from error
