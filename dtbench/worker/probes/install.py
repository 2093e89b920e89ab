"""Put probes in place of the functions under study, wherever torch keeps them, and take them out again.

Modules that imported a function by value (``from ... import _flatten_tensor``) get the probe, too: found among all
modules that are loaded; a module that is loaded later imports the probe. Methods are replaced in their class, before
anything is wrapped: FSDP1 takes ``post_unflatten_transform`` of each instance when it is made. What is made anew at
every call, a nested function, has no name to replace: the interpreter's tracing sees it (``lines.py``).
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any, Final, Self

import torch

from dtbench.seeds.functions import FUNCTIONS, Reach, StudiedFunction, stem_of
from dtbench.store.records.probes import Probes, Unprobed
from dtbench.worker.probes.counting import Probe
from dtbench.worker.probes.sources import SourceFunction, import_file, path_of, read_functions
from dtbench.worker.recording.recorder import Recorder

_CALLS: Final = 200
_ROUNDS: Final = 5
_SETTER: Final = ".setter"


class InstalledProbes:
    """Probes on the chosen functions for as long as the context lasts."""

    def __init__(self, chosen: Sequence[StudiedFunction], recorder: Recorder) -> None:
        self._chosen, self._recorder = chosen, recorder
        self._patches = ExitStack()
        self._probes: list[Probe] = []
        self._unprobed: list[Unprobed] = []
        self._unlisted: list[str] = []
        self._cost_per_call_ns = measure_cost(recorder) if chosen else 0

    def __enter__(self) -> Self:
        for file in dict.fromkeys(function.file for function in self._chosen):
            self._install_file(file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()

    def read(self) -> Probes:
        """Return what the probes saw so far."""
        return Probes(
            functions=tuple(probe.read() for probe in self._probes),
            unprobed=tuple(self._unprobed),
            unlisted=tuple(self._unlisted),
            cost_per_call_ns=self._cost_per_call_ns,
        )

    def _install_file(self, file: str) -> None:
        chosen = [function for function in self._chosen if function.file == file]
        try:
            module = import_file(file)
        except ImportError as error:
            self._unprobed += [
                _unprobed(function, f"this torch does not have the file ({error})", is_absent=True)
                for function in chosen
            ]
            return
        found = {one.name: one for one in read_functions(path_of(module))}
        listed = {function.name for function in FUNCTIONS if function.file == file}
        self._unlisted += [f"{stem_of(file)}.{name}" for name in found if name not in listed]
        for function in chosen:
            source = found.get(function.name)
            if source is None:
                self._unprobed.append(_unprobed(function, function.tell_absence(torch.__version__), is_absent=True))
                continue
            reason = self._install(module, function, source)
            if reason is not None:
                self._unprobed.append(_unprobed(function, reason))

    def _install(self, module: ModuleType, function: StudiedFunction, found: SourceFunction) -> str | None:
        """Replace one function; gives why it cannot be."""
        if found.outer is not None:
            return f"{found.outer} makes it anew at every call, so that no name can be replaced"
        home = _find_home(module, function.name)
        name = function.name.removesuffix(_SETTER).rpartition(".")[2]
        if home is None or name not in vars(home):
            return "the file has it, the imported module does not"
        probe = Probe(function, self._recorder)
        original = vars(home)[name]
        self._replace(home, name, _rewrap(original, probe.wrap, function.name))
        if home is module:
            for importer in _find_importers(name, original):
                self._replace(importer, name, vars(module)[name])
        self._probes.append(probe)
        return None

    def _replace(self, home: Any, name: str, replacement: object) -> None:
        self._patches.callback(setattr, home, name, vars(home)[name])
        setattr(home, name, replacement)


def _unprobed(function: StudiedFunction, reason: str, *, is_absent: bool = False) -> Unprobed:
    return Unprobed(file=function.file, name=function.name, reason=reason, is_absent=is_absent)


def _find_home(module: ModuleType, name: str) -> Any:
    """Return the module or class that holds a function; None: it is not there."""
    home: Any = module
    for part in name.removesuffix(_SETTER).split(".")[:-1]:
        home = vars(home).get(part)
        if not isinstance(home, type):
            return None
    return home


def _rewrap(original: Any, wrap: Callable[[Any], Any], name: str) -> Any:
    """Wrap what a class or module holds under a name, whatever descriptor is around the function."""
    match original:
        case staticmethod():
            return staticmethod(wrap(original.__func__))
        case classmethod():
            return classmethod(wrap(original.__func__))
        case property() if name.endswith(_SETTER):
            return property(original.fget, wrap(original.fset), original.fdel, original.__doc__)
        case property():
            return property(wrap(original.fget), original.fset, original.fdel, original.__doc__)
        case _:
            return wrap(original)


def _find_importers(name: str, original: object) -> list[ModuleType]:
    """Return the loaded modules that hold a function under its name because they imported it."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [module for module in modules if vars(module).get(name) is original]


def measure_cost(recorder: Recorder) -> int:
    """Measure what a probe adds to a call, ns: median over rounds, of an empty function."""

    def nothing() -> None:
        pass

    probed = Probe(StudiedFunction("dtbench", "nothing", Reach.CALLED, ""), recorder).wrap(nothing)
    rounds = [_time_calls(probed) - _time_calls(nothing) for _ in range(_ROUNDS)]
    return max(0, round(statistics.median(rounds)))


def _time_calls(function: Callable[[], None]) -> float:
    start_ns = time.perf_counter_ns()
    for _ in range(_CALLS):
        function()
    return (time.perf_counter_ns() - start_ns) / _CALLS
