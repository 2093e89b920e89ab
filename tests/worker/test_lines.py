"""The interpreter's own tracing of files: which lines of which function ran, import excluded."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_line_records
from dtbench.store.records.probes import LineRecord
from dtbench.store.write import write_record
from dtbench.worker.probes import lines
from dtbench.worker.probes.lines import LineWitness
from dtbench.worker.probes.sources import read_functions
from dtbench.worker.probes.tracers import MonitoringTracer, SettraceTracer, Tracer

SOURCE = '''"""A module."""
import functools


def plain(x):
    """Say nothing."""
    if x:
        return [y for y in range(x)]
    return None


def outer():
    @functools.cache
    def inner():
        return 1

    return inner


def count():
    yield 1
    yield 2


class Thing:
    size = plain(0)

    @property
    def half(self):
        return 1

    @half.setter
    def half(self, value):
        self.value = value

    @staticmethod
    def never():
        return max(
            1,
            2,
        )
'''

TRACERS = [SettraceTracer, *([MonitoringTracer] if sys.version_info >= (3, 12) else [])]


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "some_module.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("some_module", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_ast_finds_methods_nested_functions_and_both_halves_of_a_property(module: ModuleType) -> None:
    found = {one.name: one for one in read_functions(Path(str(module.__file__)))}
    assert list(found) == ["plain", "outer", "outer.inner", "count", "Thing.half", "Thing.half.setter", "Thing.never"]
    assert {name: one.outer for name, one in found.items() if one.outer} == {"outer.inner": "outer"}
    assert found["plain"].lines == {7, 8, 9}
    assert found["outer"].lines == {13, 14, 17}
    assert found["outer.inner"].lines == {15}
    assert {38, 39} <= found["Thing.never"].lines <= {38, 39, 40, 41}


@pytest.mark.parametrize("kind", TRACERS)
def test_a_tracer_sees_the_lines_and_calls_of_functions_in_its_files_only(
    module: ModuleType, kind: type[SettraceTracer] | type[MonitoringTracer]
) -> None:
    tracer: Tracer = kind([module])
    module.plain(1)  # before: not seen
    tracer.start()
    module.plain(0)
    module.plain(0)
    assert list(module.count()) == [1, 2]
    module.outer()
    thing = module.Thing()
    thing.half = 2
    os.path.join("a", "b")  # noqa: PTH118 - a function of another file
    tracer.stop()
    module.Thing.never()  # after: not seen
    path = str(module.__file__)
    assert set(tracer.lines) == {path}
    assert tracer.lines[path] >= {7, 9, 14, 17, 21, 22, 34}
    assert not tracer.lines[path] & {8, 15, 30, 38, 39}
    functions = {one.name: tracer.calls[path, one.first_line] for one in read_functions(Path(path))}
    assert functions == {
        "plain": 2,
        "outer": 1,
        "outer.inner": 0,
        "count": 1,
        "Thing.half": 0,
        "Thing.half.setter": 1,
        "Thing.never": 0,
    }


def test_making_a_module_is_not_running_its_functions(tmp_path: Path) -> None:
    """Import under the tracer in a process of its own: only what the class body calls is seen."""
    path = tmp_path / "some_module.py"
    path.write_text(SOURCE, encoding="utf-8")
    script = f"""
import sys, types
sys.path.insert(0, {str(tmp_path)!r})
from dtbench.worker.probes.tracers import SettraceTracer
named = types.ModuleType("some_module")
named.__file__ = {str(path)!r}
tracer = SettraceTracer([named])
tracer.start()
import some_module
tracer.stop()
print(sorted(tracer.lines[{str(path)!r}]), list(tracer.calls.values()))
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.split("\n")[0] == "[7, 9] [1]"


def test_a_witness_keeps_every_function_and_writes_only_when_a_line_is_new(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "import_file", lambda _file: module)
    folder = LaunchFolder(tmp_path / "launch0")
    written: list[LineRecord] = []

    def keep(path: Path, record: LineRecord) -> None:
        written.append(record)
        write_record(path, record)

    monkeypatch.setattr(lines, "write_record", keep)
    with LineWitness(folder.lines(3), 3, files=["some_module.py"]) as witness:
        witness.save()
        module.plain(0)
        witness.save()
        module.plain(0)
        witness.save()
    (record,) = read_line_records(folder)
    assert len(written) == 3, "nothing yet, line 9, and the end"
    found = {one.name: (one.calls, one.lines, one.executable_lines) for one in record.functions}
    assert found["plain"] == (2, (7, 9), 3)
    assert found["Thing.half"] == (0, (), 1)
    assert (record.rank, len(found)) == (3, 7)


@pytest.mark.parametrize("sees_all_threads", [True, False])
def test_backward_runs_on_the_thread_that_asks_where_the_tracer_would_not_see_the_engines_own(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees_all_threads: bool
) -> None:
    monkeypatch.setattr(lines, "import_file", lambda _file: module)
    witness = LineWitness(tmp_path / "lines.json", 0, files=["some_module.py"])
    monkeypatch.setattr(witness._tracer, "sees_all_threads", sees_all_threads)
    engine = torch._C._is_multithreading_enabled
    before = engine()
    with witness:
        assert engine() is sees_all_threads
    assert (before, engine()) == (True, True)


FOREIGN = """
import ctypes, sys
sys.path.insert(0, {folder!r})
import some_module
from dtbench.worker.probes.tracers import make_tracer

library = ctypes.CDLL(None)
called = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: some_module.plain(0) and 0)
thread = ctypes.c_ulong()
tracer = make_tracer([some_module])
tracer.start()
library.pthread_create(ctypes.byref(thread), None, called, None)
library.pthread_join(thread, None)
tracer.stop()
print(sum(tracer.calls.values()) == tracer.sees_all_threads)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="makes a POSIX thread by libc's own name")
def test_a_tracer_says_rightly_whether_it_sees_threads_that_c_started(module: ModuleType) -> None:
    program = FOREIGN.format(folder=str(Path(str(module.__file__)).parent))
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.stdout == "True\n", finished.stderr
