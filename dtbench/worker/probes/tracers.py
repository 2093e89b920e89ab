"""The interpreter's own tracing of a few files: which lines functions in them run, whoever calls them.

``sys.monitoring`` (Python 3.12) is asked only about the code of these files; before, ``sys.settrace`` sees every call
of every Python function on a thread that Python started and looks at its file: the autograd engine runs a CPU's
backward on the thread that asked for it, and is to run a device's there, too. What runs when a module or class is made
is left out.
"""

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, Protocol

_TOOL_ID: Final = 4
"""One of the two numbers that ``sys.monitoring`` leaves to whoever comes."""


class Tracer(Protocol):
    """Collects lines and calls between ``start`` and ``stop``.

    Attributes:
        name: how the interpreter is asked.
        sees_all_threads: those, too, that C++ started.
        lines: that ran, by file.
        calls: of each function, by file and first line of its code; a generator counts once, not at every value.
    """

    name: str
    sees_all_threads: bool
    lines: dict[str, set[int]]
    calls: Counter[tuple[str, int]]

    def start(self) -> None:
        """Begin to look, on this thread and on those that Python starts from now on."""

    def stop(self) -> None:
        """Look no more."""


def make_tracer(modules: Sequence[ModuleType]) -> Tracer:
    """Return the tracer that this interpreter is best at."""
    if sys.version_info >= (3, 12):
        return MonitoringTracer(modules)
    return SettraceTracer(modules)


class SettraceTracer:
    """Collects with ``sys.settrace``."""

    name = "sys.settrace"
    sees_all_threads = False

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self.lines: dict[str, set[int]] = {str(module.__file__): set() for module in modules}
        self.calls: Counter[tuple[str, int]] = Counter()
        self._watching = {path: _make_watcher(lines) for path, lines in self.lines.items()}

    def start(self) -> None:
        """Begin to look, on this thread and on those that Python starts from now on."""
        threading.settrace(self._see_call)
        sys.settrace(self._see_call)

    def stop(self) -> None:
        """Look no more."""
        sys.settrace(None)
        threading.settrace(None)  # as its documentation says

    def _see_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        watcher = self._watching.get(code.co_filename)
        if watcher is None or not code.co_flags & inspect.CO_OPTIMIZED:  # a module's or a class's body
            return None
        if not code.co_flags & inspect.CO_GENERATOR or frame.f_lineno == code.co_firstlineno:  # else it goes on
            self.calls[code.co_filename, code.co_firstlineno] += 1
        return watcher


def _make_watcher(lines: set[int]) -> Any:
    def watch(frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            lines.add(frame.f_lineno)
        return watch

    return watch


class MonitoringTracer:
    """Collects with ``sys.monitoring``; a line is told once and then costs nothing."""

    name = "sys.monitoring"
    sees_all_threads = True

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self.lines: dict[str, set[int]] = {str(module.__file__): set() for module in modules}
        self.calls: Counter[tuple[str, int]] = Counter()
        self._codes = [code for module in modules for code in find_codes(module)]
        self._monitoring: Any = vars(sys)["monitoring"]

    def start(self) -> None:
        """Begin to look, on all threads."""
        monitoring = self._monitoring
        events = monitoring.events
        monitoring.use_tool_id(_TOOL_ID, "dtbench")
        monitoring.register_callback(_TOOL_ID, events.LINE, self._see_line)
        monitoring.register_callback(_TOOL_ID, events.PY_START, self._see_call)
        for code in self._codes:
            monitoring.set_local_events(_TOOL_ID, code, events.LINE | events.PY_START)

    def stop(self) -> None:
        """Look no more."""
        for code in self._codes:
            self._monitoring.set_local_events(_TOOL_ID, code, 0)
        self._monitoring.free_tool_id(_TOOL_ID)

    def _see_line(self, code: CodeType, line: int) -> Any:
        self.lines[code.co_filename].add(line)
        return self._monitoring.DISABLE

    def _see_call(self, code: CodeType, _offset: int) -> None:
        self.calls[code.co_filename, code.co_firstlineno] += 1


def find_codes(module: ModuleType) -> list[CodeType]:
    """Return the code of every function that stands in a module's file, nested ones and what decorators hide too."""
    found: dict[int, CodeType] = {}
    for function in _find_functions(vars(module).values(), module, set()):
        for code in _unnest(function.__code__):
            if code.co_filename == module.__file__:
                found[id(code)] = code
    return list(found.values())


def _find_functions(values: Iterable[object], module: ModuleType, seen: set[int]) -> Iterator[FunctionType]:
    """Yield functions and methods; ``seen`` classes may hold each other."""
    for value in values:
        match value:
            case FunctionType():
                yield from _undecorate(value)
            case staticmethod() | classmethod():
                yield from _find_functions([value.__func__], module, seen)
            case property():
                yield from _find_functions([value.fget, value.fset, value.fdel], module, seen)
            case type() if value.__module__ == module.__name__ and id(value) not in seen:
                seen.add(id(value))
                yield from _find_functions(vars(value).values(), module, seen)


def _undecorate(function: FunctionType) -> Iterator[FunctionType]:
    inner: object = function
    while isinstance(inner, FunctionType):
        yield inner
        inner = vars(inner).get("__wrapped__")


def _unnest(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_flags & inspect.CO_OPTIMIZED:
            yield from _unnest(constant)
