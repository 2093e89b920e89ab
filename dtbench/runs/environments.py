"""In what the machines and their software differ, what of that changes what is measured, and what a scenario varies.

[Note: runner class] Machines are alike by what matters of them (processor, cores, devices, version of the kernel),
whatever their hosts are called. Where both sides were given a runner class (``DTBENCH_RUNNER_CLASS``), a person answers
for that: machines of one class stand for each other, those of two do not. Software is held against each other anyway.

One rule for cells of a run and for sides of a comparison: times of unlike environments are not held against each other.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Final

from dtbench.base.record import Record
from dtbench.base.units import count_things, format_bytes
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.summary import CellSummary
from dtbench.scenario.flat_fields import ABSENT
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.run import Environment, shorten_revision
from dtbench.traces.reader.header import PROFILERS

NOT_KNOWN_WHERE: Final = "it is not known on which machine and software"
_MOST_NAMED: Final = 4
_MOST_CHANGES: Final = 4

_OF_INTERPRETER: Final = ("python", "torch", "cuda", "hip", "nccl", "package ")
"""What another interpreter brings with it: declared where the scenario's ``python`` differs."""

_TORCH_COMMIT: Final = "torch's commit"
_COMMIT: Final = "commit of the code"
_CLASS: Final = "runner class"
_MEMORY: Final = "memory"
_IF_BOTH_TELL: Final = (_TORCH_COMMIT, _COMMIT, _CLASS)
"""What versions that did not look for it do not tell, nor a folder in no repository, nor whom nobody gave a class."""

_OF_MACHINE: Final = ("processor", "cores", _MEMORY, "devices", "system")
"""What a runner class stands for; see [Note: runner class]."""

_ALIKE_MEMORY: Final = 1 / 8
"""Part of the memory by which machines of one kind differ: what a hypervisor and a kernel keep for themselves."""

_KERNEL_PATCH: Final = re.compile(r"^(Linux-\d+\.\d+)[.\d+]*(?:-\d[\w.~+]*)?")
"""``Linux-6.8.0-1021-azure-x86_64-with-glibc2.39``: its version, and which build of it that is."""

_PACKAGE: Final = "package "
_VARIABLE: Final = "variable "

_OF_RANKS: Final = (f"{_VARIABLE}OMP_NUM_THREADS", f"{_VARIABLE}OPENBLAS_NUM_THREADS")
"""What dtbench sets itself, unless a person has: the machine's cores over the ranks."""

WHY_UNLIKE: Final = {
    _CLASS: "says that these machines do not stand for each other",
    "processor": "computes, copies and sends at another speed",
    "cores": "ranks and gloo's threads share them",
    "devices": "compute and move data at another speed",
    "system": "another kernel schedules the ranks and carries what gloo sends otherwise",
    "python": "another minor version runs the host's part of a step at another speed",
    "torch": "has other kernels, and other FSDP, DDP and DTensor",
    _TORCH_COMMIT: "has other kernels, and other FSDP, DDP and DTensor",
    "kinds of devices": "compute and move data at another speed",
    "CUDA runtime": "has other kernels and launches",
    "HIP runtime": "has other kernels and launches",
    "hip": "has other kernels and launches",
    "cuda": "has other kernels and launches",
    "nccl": "chooses other algorithms",
    f"{_PACKAGE}dtbench": "another version may run and count otherwise",
    _PACKAGE: "is imported by what is measured",
    PROFILERS: "what the profiler records takes time of the host",
    _VARIABLE: "tunes torch, its backends or their threads",
}
"""What makes environments unlike, and why; a name that ends in a blank stands for all that begin so.

Not in it, so told and no more: the host, whose name computes nothing; memory that a run had enough of; the commit of
the user's code, which is what is compared; the driver; a patch version of Python or of Linux; and packages that nothing
of the scenario imports.
"""


class EnvironmentChange(Record):
    """One thing in which the machines or their software differ.

    Attributes:
        what: the thing.
        baseline: what it is there, as text.
        candidate: what it is there, as text.
        is_declared: it is what the scenario varies (a treatment), so nothing to warn of.
        why: it changes what is measured, so that it makes the environments unlike; empty: it does not.
        is_of_class: it is of the machine, and both sides are of one runner class, which makes them alike all the same.
    """

    what: str
    baseline: str
    candidate: str
    is_declared: bool
    why: str = ""
    is_of_class: bool = False


def find_environment_changes(
    baseline: Environment | None,
    candidate: Environment | None,
    declared: Collection[str] = (),
    settings: Sequence[Mapping[str, str] | None] = (),
) -> tuple[EnvironmentChange, ...]:
    """Return what differs between two environments, in the order in which people ask; none where one is not told.

    Args:
        baseline: of one side.
        candidate: of the other.
        declared: fields in which their settings differ: a variable or an interpreter among them is declared.
        settings: of both sides, which say what is imported.
    """
    if baseline is None or candidate is None or baseline == candidate:
        return ()
    before, after = _keep_told(_describe(baseline), _describe(candidate))
    imported = {name for one in settings if one is not None for name in _find_imports(one, {*before, *after})}
    names = dict.fromkeys((*before, *after))
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    sides = list(zip((before, after), settings, strict=False))
    is_one_class = baseline.runner_class is not None and baseline.runner_class == candidate.runner_class
    is_one_size = _is_one_size(baseline.memory_bytes, candidate.memory_bytes)
    return tuple(
        EnvironmentChange(
            what=name,
            baseline=old,
            candidate=new,
            is_declared=_is_declared(name, declared) or _follows_ranks(name, sides),
            why=find_why(name, old, new, imported),
            is_of_class=is_one_class and name in _OF_MACHINE,
        )
        for name, old, new in pairs
        if old != new and not (name == _MEMORY and is_one_size)
    )


def find_unlike(changes: Sequence[EnvironmentChange]) -> list[EnvironmentChange]:
    """Return the changes that make two environments unlike: they change what is measured, nobody answers for it."""
    return [change for change in changes if change.why and not (change.is_declared or change.is_of_class)]


def say_of_class(changes: Sequence[EnvironmentChange], runner_class: str | None) -> str | None:
    """Say in what machines of one runner class differ, though it changes what is measured; None: in nothing."""
    found = [change for change in changes if change.why and change.is_of_class]
    if not found:
        return None
    told = "; ".join(f"{change.what} {change.baseline} against {change.candidate}" for change in found)
    return f"both ran on runner class `{runner_class}`, so these count as alike, and a difference may be theirs: {told}"


def name_unlike(environments: Mapping[str, Environment], settings: Mapping[str, str]) -> Iterator[str]:
    """Say in what launches, by name, ran in another environment than the first of them."""
    first, named = next(iter(environments), ""), dict[str, list[str]]()
    for launch, environment in environments.items():
        changes = find_environment_changes(environments[first], environment, settings=(settings, settings))
        differing = spell_unlike(find_unlike(changes))
        if differing:
            named.setdefault(differing, []).append(launch)
    for differing, launches in named.items():
        yield f"{first} and {', '.join(launches)} differ: {differing}"


def spell_unlike(changes: Sequence[EnvironmentChange]) -> str:
    """Spell in what two environments differ: what each has."""
    return "; ".join(f"{change.what} {change.baseline} and {change.candidate}" for change in changes)


def find_unlike_cells(cells: Sequence[CellData]) -> dict[str, dict[str, str]]:
    """Return for each cell in what its environment is unlike that of others, by their names; its own: its launches'.

    What a scenario varies makes none unlike; a launch that did not tell its environment is like any.
    """
    written = {data.cell.name: _find_environments(data) for data in cells}
    found: dict[str, dict[str, str]] = {data.cell.name: {} for data in cells}
    every = [environment for told in written.values() for environment in told.values()]
    if all(environment == every[0] for environment in every):
        return found
    settings = {data.cell.name: data.settings for data in cells}
    for name, told in written.items():
        if words := "; ".join(name_unlike(told, settings[name])):
            found[name][name] = words
    firsts = {name: next(iter(told.values())) for name, told in written.items() if told}
    for one, other in combinations(firsts, 2):
        before, after = settings[one], settings[other]
        declared = {field for field in {*before, *after} if before.get(field) != after.get(field)}
        changes = find_environment_changes(firsts[one], firsts[other], declared, (before, after))
        unlike = find_unlike(changes)
        if words := spell_unlike(unlike[:_MOST_CHANGES]):
            words += f" and {len(unlike) - _MOST_CHANGES} more" if len(unlike) > _MOST_CHANGES else ""
            found[one][other] = found[other][one] = words
    return found


def _find_environments(data: CellData) -> dict[str, Environment]:
    return {one.folder.path.name: one.environment for one in data.launches if one.environment is not None}


def say_unlike_cells(cells: Sequence[CellSummary]) -> str | None:
    """Say in what environments of these cells are unlike, of the first two that are; None: of none, as far as known."""
    names = [cell.name for cell in cells]
    within = [f"within {cell.name}, {cell.unlike[cell.name]}" for cell in cells if cell.name in cell.unlike]
    pairs = [(one, other) for one, other in combinations(cells, 2) if other.name in one.unlike]
    between = [f"{one.name} and {other.name} differ: {one.unlike[other.name]}" for one, other in pairs]
    found = [*between, *within]
    more = f", and {len(found) - 1} more of {count_things(len(names), 'cell')}" if len(found) > 1 else ""
    return f"unlike environments ({found[0]}{more})" if found else None


def say_silent_cells(cells: Sequence[CellSummary]) -> str | None:
    """Say of which cells or launches of them it is not known on which machine and software they ran; None: of none."""
    named = [
        cell.name
        if len(cell.silent_launches) == len(cell.launches)
        else f"{join_words([f'launch{index}' for index in cell.silent_launches], 'and')} of {cell.name}"
        for cell in cells
        if cell.silent_launches
    ]
    return f"{NOT_KNOWN_WHERE} {_name_few(named)} ran" if named else None


def _name_few(named: Sequence[str]) -> str:
    """Name some of several."""
    shown = [*named[:_MOST_NAMED], *([f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else [])]
    return join_words(shown, "and")


def _describe(environment: Environment) -> Mapping[str, str]:
    return {
        "host": environment.host,
        **({} if environment.runner_class is None else {_CLASS: environment.runner_class}),
        "processor": environment.processor,
        "cores": str(environment.cores),
        _MEMORY: format_bytes(environment.memory_bytes),
        "devices": _spell_devices(environment),
        "system": environment.system,
        "python": environment.python,
        "torch": environment.torch,
        **({} if environment.torch_git is None else {_TORCH_COMMIT: shorten_revision(environment.torch_git)}),
        **({} if environment.commit is None else {_COMMIT: environment.commit.words}),
        "cuda": environment.cuda or ABSENT,
        "hip": environment.hip or ABSENT,
        "nccl": environment.nccl or ABSENT,
        **{f"{_PACKAGE}{name}": version for name, version in environment.packages.items() if name != "torch"},
        **{f"{_VARIABLE}{name}": value for name, value in environment.variables.items()},
    }


def _keep_told(*described: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield descriptions without commits that not all tell; that of torch tells nothing where its version does."""
    left_out = {name for name in _IF_BOTH_TELL if not all(name in one for one in described)}
    if len({one["torch"] for one in described}) > 1:
        left_out.add(_TORCH_COMMIT)
    for one in described:
        yield {name: words for name, words in one.items() if name not in left_out}


def _is_one_size(before: int, after: int) -> bool:
    return abs(before - after) <= _ALIKE_MEMORY * max(before, after)


def _spell_devices(environment: Environment) -> str:
    names = Counter(device.name for device in environment.devices)
    return ", ".join(f"{count} x {name}" for name, count in names.items()) or ABSENT


def _find_imports(settings: Mapping[str, str], named: Collection[str]) -> list[str]:
    """Return the packages of an environment that a scenario imports: code of a person's own may import any."""
    packages = [name for name in named if name.startswith(_PACKAGE)]
    is_own_loop = "model.kind" not in settings
    if is_own_loop or any(field.endswith((".factory", ".function")) for field in settings):
        return packages
    is_compiled = any(field.startswith("model.compile.") for field in settings)
    return [name for name in packages if is_compiled and name == f"{_PACKAGE}triton"]


def find_why(name: str, before: str, after: str, imported: Collection[str] = ()) -> str:
    """Return why a difference makes environments unlike; empty: it does not, as a patch version of Python or Linux."""
    if name == "python" and before.split(".")[:2] == after.split(".")[:2]:
        return ""
    if name == "system" and _KERNEL_PATCH.sub(r"\1", before) == _KERNEL_PATCH.sub(r"\1", after):
        return ""
    if name in WHY_UNLIKE:
        return WHY_UNLIKE[name]
    if name.startswith(_PACKAGE):
        return WHY_UNLIKE[_PACKAGE] if name in imported else ""
    return next((WHY_UNLIKE[kind] for kind in (_VARIABLE, PROFILERS) if name.startswith(kind)), "")


def _follows_ranks(name: str, sides: Sequence[tuple[Mapping[str, str], Mapping[str, str] | None]]) -> bool:
    """Tell whether a variable is on both sides what dtbench makes of cores and ranks: it changes as these do."""
    if name not in _OF_RANKS or len(sides) < 2:
        return False
    return all(
        told is not None and environment.get(name) == _share_cores(int(environment["cores"]), told)
        for environment, told in sides
    )


def _share_cores(cores: int, settings: Mapping[str, str]) -> str:
    """Return how many threads a rank gets of a machine's cores (``plan.threads_per_rank``)."""
    sizes = (settings.get(f"parallel.{axis}", "1") for axis in ("replicas", "shards", "tensor"))
    return str(max(1, cores // max(1, prod(int(size) for size in sizes if size.isdigit()))))


def _is_declared(name: str, declared: Collection[str]) -> bool:
    if name.startswith(_VARIABLE):
        return f"env.{name.removeprefix(_VARIABLE)}" in declared
    return "python" in declared and name.startswith(_OF_INTERPRETER)
