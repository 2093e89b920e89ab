"""In what the machines and their software differ, and whether that is what the scenario varies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from dtbench.comparison.comparison import EnvironmentChange, SettingChange
from dtbench.comparison.settings import ABSENT
from dtbench.store.records import Environment

_OF_INTERPRETER: Final = ("python", "torch", "cuda", "nccl", "package ")
"""What another interpreter brings with it: declared where the scenario's ``python`` differs."""


def find_environment_changes(
    baseline: Environment | None, candidate: Environment | None, treatment: Sequence[SettingChange] = ()
) -> tuple[EnvironmentChange, ...]:
    """Give what differs between two environments, in the order in which people ask; none where one is not told.

    Args:
        baseline: of one side.
        candidate: of the other.
        treatment: in what their settings differ: a variable or an interpreter among them is declared.
    """
    if baseline is None or candidate is None:
        return ()
    before, after = _describe(baseline), _describe(candidate)
    declared = {change.field for change in treatment}
    names = dict.fromkeys((*before, *after))
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return tuple(
        EnvironmentChange(what=name, baseline=old, candidate=new, is_declared=_is_declared(name, declared))
        for name, old, new in pairs
        if old != new
    )


def _describe(environment: Environment) -> Mapping[str, str]:
    return {
        "host": environment.host,
        "processor": environment.processor,
        "cores": str(environment.cores),
        "devices": _spell_devices(environment),
        "system": environment.system,
        "python": environment.python,
        "torch": environment.torch,
        "cuda": environment.cuda or ABSENT,
        "nccl": environment.nccl or ABSENT,
        **{f"package {name}": version for name, version in environment.packages.items() if name != "torch"},
        **{f"variable {name}": value for name, value in environment.variables.items()},
    }


def _spell_devices(environment: Environment) -> str:
    names = Counter(device.name for device in environment.devices)
    return ", ".join(f"{count} x {name}" for name, count in names.items()) or ABSENT


def _is_declared(name: str, declared: set[str]) -> bool:
    if name.startswith("variable "):
        return f"env.{name.removeprefix('variable ')}" in declared
    return "python" in declared and name.startswith(_OF_INTERPRETER)
