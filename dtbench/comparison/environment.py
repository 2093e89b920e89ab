"""In what the machines and their software differ, what of that changes what is measured, and what a scenario varies."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dtbench.comparison.comparison import EnvironmentChange, SettingChange
from dtbench.scenario.flat_fields import ABSENT
from dtbench.store.records.run import Environment
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.reader.header import PROFILERS

_OF_INTERPRETER: Final = ("python", "torch", "cuda", "hip", "nccl", "package ")
"""What another interpreter brings with it: declared where the scenario's ``python`` differs."""

_PACKAGE: Final = "package "
_VARIABLE: Final = "variable "

WHY_UNLIKE: Final = {
    "processor": "computes, copies and sends at another speed",
    "cores": "ranks and gloo's threads share them",
    "devices": "compute and move data at another speed",
    "system": "the kernel schedules the ranks and carries what gloo sends",
    "python": "another minor version runs the host's part of a step at another speed",
    "torch": "has other kernels, and other FSDP, DDP and DTensor",
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

Not in it, so told and no more: the host, whose name computes nothing; the driver; a patch version of Python; and
packages that nothing of the scenario imports.
"""


def find_environment_changes(
    baseline: Environment | None,
    candidate: Environment | None,
    treatment: Sequence[SettingChange] = (),
    settings: Sequence[Mapping[str, str] | None] = (),
) -> tuple[EnvironmentChange, ...]:
    """Return what differs between two environments, in the order in which people ask; none where one is not told.

    Args:
        baseline: of one side.
        candidate: of the other.
        treatment: in what their settings differ: a variable or an interpreter among them is declared.
        settings: of both sides, which say what is imported.
    """
    if baseline is None or candidate is None:
        return ()
    before, after = _describe(baseline), _describe(candidate)
    declared = {change.field for change in treatment}
    imported = {name for one in settings if one is not None for name in _find_imports(one, {*before, *after})}
    names = dict.fromkeys((*before, *after))
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return tuple(
        EnvironmentChange(
            what=name,
            baseline=old,
            candidate=new,
            is_declared=_is_declared(name, declared),
            why=_find_why(name, old, new, imported),
        )
        for name, old, new in pairs
        if old != new
    )


def read_machines(traces: TraceSet) -> dict[str, tuple[str, ...]]:
    """Return what traces of one job tell of how they were recorded, by name: each rank's word, empty for none."""
    told = [{"host": one.timeline.host or "", **one.machine} for one in traces.analyses]
    names = dict.fromkeys(name for one in told for name, word in one.items() if word)
    return {name: tuple(one.get(name, "") for one in told) for name in names}


def find_machine_changes(
    baseline: Mapping[str, Sequence[str]], candidate: Mapping[str, Sequence[str]]
) -> tuple[EnvironmentChange, ...]:
    """Return in what the machines of two sets of traces differ, as far as both tell.

    Ranks are alike in a name where they can be paired so that both of each pair tell the same word: which rank ran on
    which device does not matter, and a rank that tells no word may be like any, as long as some word is told on both
    sides. Where one side has more ranks than the other, each word counts once.
    """
    pairs = {name: (words, candidate[name]) for name, words in baseline.items() if name in candidate}
    changes = []
    for name, (before, after) in pairs.items():
        if _must_differ(before, after):
            old, new = _spell_words(before, after), _spell_words(after, before)
            changes.append(
                EnvironmentChange(
                    what=name, baseline=old, candidate=new, is_declared=False, why=_find_why(name, old, new)
                )
            )
    return tuple(changes)


def _must_differ(before: Sequence[str], after: Sequence[str]) -> bool:
    """Tell whether words that ranks of one side tell are more than all ranks of the other may have."""
    one, other = ([word for word in words if word] for words in (before, after))
    silent = len(before) - len(one), len(after) - len(other)
    counts = (Counter(one), Counter(other)) if len(before) == len(after) else (Counter({*one}), Counter({*other}))
    is_told_more = (counts[0] - counts[1]).total() > silent[1] or (counts[1] - counts[0]).total() > silent[0]
    return is_told_more or {*one}.isdisjoint(other)


def _spell_words(words: Sequence[str], others: Sequence[str]) -> str:
    """Spell what ranks tell, each word once; how many tell each where that is all in which sides differ."""
    counts = sorted(Counter(filter(None, words)).items())
    is_by_count = {*filter(None, words)} == {*filter(None, others)}
    return ", ".join(f"{count} x {word}" if is_by_count else word for word, count in counts)


def find_unlike(changes: Sequence[EnvironmentChange]) -> list[EnvironmentChange]:
    """Return the changes that make two environments unlike: they change what is measured, and nobody asked for them."""
    return [change for change in changes if change.why and not change.is_declared]


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
        "hip": environment.hip or ABSENT,
        "nccl": environment.nccl or ABSENT,
        **{f"{_PACKAGE}{name}": version for name, version in environment.packages.items() if name != "torch"},
        **{f"{_VARIABLE}{name}": value for name, value in environment.variables.items()},
    }


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


def _find_why(name: str, before: str, after: str, imported: Collection[str] = ()) -> str:
    """Return why a difference makes environments unlike; empty: it does not, as a patch version of Python."""
    if name == "python" and before.split(".")[:2] == after.split(".")[:2]:
        return ""
    if name in WHY_UNLIKE:
        return WHY_UNLIKE[name]
    if name.startswith(_PACKAGE):
        return WHY_UNLIKE[_PACKAGE] if name in imported else ""
    return next((WHY_UNLIKE[kind] for kind in (_VARIABLE, PROFILERS) if name.startswith(kind)), "")


def _is_declared(name: str, declared: set[str]) -> bool:
    if name.startswith(_VARIABLE):
        return f"env.{name.removeprefix(_VARIABLE)}" in declared
    return "python" in declared and name.startswith(_OF_INTERPRETER)
