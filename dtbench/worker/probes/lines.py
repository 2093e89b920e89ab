"""Which lines of the files under study a rank runs: the witness that does not take a probe's word.

Kept on disk while steps run: a rank that ends in ``os._exit``, or by a signal, has told what it ran before.
"""

import platform
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

import torch

from dtbench.seeds.functions import FILES
from dtbench.store.records.probes import LineRecord, TracedFunction
from dtbench.store.write import write_record
from dtbench.worker.probes.sources import SourceFunction, import_file, path_of, read_functions
from dtbench.worker.probes.tracers import Tracer, make_tracer


class LineWitness:
    """Watches the files under study for as long as the context lasts.

    Args:
        path: where the lines are kept.
        rank: whose they are.
        files: below the folder of packages; those that the installed torch does not have are left out.
    """

    def __init__(self, path: Path, rank: int, files: Sequence[str] = FILES) -> None:
        self._path, self._rank = path, rank
        self._modules = {file: module for file in files if (module := _import(file)) is not None}
        self._functions: dict[str, tuple[SourceFunction, ...]] = {
            file: read_functions(path_of(module)) for file, module in self._modules.items()
        }
        self._tracer: Tracer = make_tracer(list(self._modules.values()))
        self._kept = -1
        self._context = ExitStack()

    def __enter__(self) -> Self:
        if not self._tracer.sees_all_threads:  # backward on a device has threads of its own, unless told otherwise
            self._context.enter_context(torch.autograd.set_multithreading_enabled(False))
        self._tracer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tracer.stop()
        self._context.close()
        self._keep()

    def save(self) -> None:
        """Keep what ran so far, if anything is new: after warm-up nothing is, and this costs nothing."""
        if sum(map(len, self._tracer.lines.values())) > self._kept:
            self._keep()

    def read(self) -> LineRecord:
        """Return what ran so far."""
        return LineRecord(
            rank=self._rank,
            python=platform.python_version(),
            torch=torch.__version__,
            tracer=self._tracer.name,
            functions=tuple(self._read(file, one) for file in self._modules for one in self._functions[file]),
        )

    def _keep(self) -> None:
        self._kept = sum(map(len, self._tracer.lines.values()))
        write_record(self._path, self.read())

    def _read(self, file: str, function: SourceFunction) -> TracedFunction:
        path = str(path_of(self._modules[file]))
        return TracedFunction(
            file=file,
            name=function.name,
            calls=self._tracer.calls[path, function.first_line],
            lines=tuple(sorted(function.lines & self._tracer.lines[path])),
            executable_lines=len(function.lines),
        )


def _import(file: str) -> ModuleType | None:
    try:
        return import_file(file)
    except ImportError:
        return None
