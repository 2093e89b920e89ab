"""One trace from its file to its answer: in this process, or in one that serves another over a pair of pipes."""

import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from dtbench.base.errors import TraceError
from dtbench.base.signals import forget_signals
from dtbench.base.vocabulary import Axis
from dtbench.traces.cpu.copies import leave_copies
from dtbench.traces.garbage import without_collection
from dtbench.traces.host.named_steps import mark_steps
from dtbench.traces.notes.files import OtherParts
from dtbench.traces.notes.note import OfRanks
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.rank.parts import Part, list_processes, split_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Unread
from dtbench.traces.who.facts import RankFacts

if TYPE_CHECKING:
    from dtbench.traces.kinds.patterns import KernelPattern


@dataclass(frozen=True)
class TraceFile:
    """A trace to be analysed, and what is known of it from elsewhere.

    Attributes:
        source: the file, or a member of an archive.
        rank: where somebody knows it better than the trace.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        facts: what the rank's record knows beside; None: there is no record.
        patterns: a user's own kernels.
        part: which of the file's parts, see ``parts.py``; None: not looked at yet, or all of it.
        step_range: name of the ranges that are its steps; empty: as the profiler marks them.
    """

    source: TraceSource
    rank: int | None = None
    process_groups: Mapping[str, Axis | None] = field(default_factory=dict)
    facts: RankFacts | None = None
    patterns: tuple["KernelPattern", ...] = ()
    part: int | None = None
    step_range: str = ""

    @property
    def path(self) -> Path:
        """The file, or the archive that holds it."""
        return self.source.path

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.source.label


@dataclass(frozen=True)
class Analyzed:
    """A trace that was read; ``said_rank`` and ``world_size`` are None where it does not say.

    Attributes:
        part: what of the file it is, in words; empty: all.
        notes: what of the file is in no number; of no rank yet.
    """

    file: TraceFile
    analysis: TraceAnalysis
    said_rank: int | None
    world_size: int | None
    unread: Unread
    part: str = ""
    notes: tuple[OfRanks, ...] = ()


@dataclass(frozen=True)
class Unusable:
    """A trace that no number can come from.

    Attributes:
        reason: why, a sentence that names the file.
        bug: what dtbench raised on it where that was no fault of the trace; None also where another process met it.
    """

    file: TraceFile
    reason: str
    bug: Exception | None = field(default=None, compare=False)


Answer = Analyzed | Unusable


def analyze_file(file: TraceFile) -> tuple[Answer, ...]:
    """Read and analyse one trace in this process: one answer for each of its parts, at least one.

    What is wrong with it, or with dtbench, costs this trace alone.
    """
    try:
        with without_collection():
            parts = read_parts(file)
            return tuple(_analyze_part(_tell_apart(file, parts, index), part) for index, part in enumerate(parts))
    except TraceError as error:
        return (Unusable(file, str(error)),)
    except MemoryError:
        return (Unusable(file, f"{file.label}: this machine has not enough memory to read it; try --workers 1"),)
    except Exception as error:  # noqa: BLE001  a fault of ours in one rank's trace must not cost the other ranks
        return (Unusable(file, f"{file.label}: {_describe_bug(error)}", error),)


def read_parts(file: TraceFile) -> tuple[Part, ...]:
    """Read a file's parts, or the one that is asked for; of a file whose rank is known elsewhere, its own.

    Rows that are there twice are left out of them.

    Raises:
        TraceError: it cannot be read, or has no range that its steps are to be.
    """
    parts = tuple(map(_leave_copies, _read_parts(file)))
    return tuple(_mark_steps(part, file.step_range) if file.step_range else part for part in parts)


def _leave_copies(part: Part) -> Part:
    trace, note = leave_copies(part.trace)
    return part if note is None else replace(part, trace=trace, notes=(*part.notes, note))


def _mark_steps(part: Part, name: str) -> Part:
    trace, note = mark_steps(part.trace, name)
    return replace(part, trace=trace, notes=(*part.notes, note))


def _read_parts(file: TraceFile) -> tuple[Part, ...]:
    parts = split_trace(read_trace(file.source))
    if file.part is not None:
        return (parts[file.part],)
    if file.rank is None or len(parts) == 1:
        return parts
    note = OtherParts((), file.label, tuple(part.label for part in parts[1:]), file.rank)
    return (replace(parts[0], label="", notes=(*parts[0].notes, note)),)


def _tell_apart(file: TraceFile, parts: tuple[Part, ...], index: int) -> TraceFile:
    return file if len(parts) == 1 else replace(file, part=index)


def _analyze_part(file: TraceFile, part: Part) -> Answer:
    trace = part.trace
    other = None if file.facts is None else file.facts.find_other_process(list_processes(trace))
    if other is not None:
        return Unusable(file, f"{file.label}: {other}")
    try:
        analysis = analyze_trace(
            trace, rank=file.rank, process_groups=file.process_groups, facts=file.facts, patterns=file.patterns
        )
    except TraceError as error:
        return Unusable(file, str(error))
    return Analyzed(file, analysis, trace.rank, trace.world_size, trace.unread, part.label, part.notes)


def _describe_bug(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}; in {Path(place.filename).name}:{place.lineno}"
    return f"dtbench failed on it ({what}): this is a bug in dtbench, please report it"


def serve(questions: IO[bytes], answers: IO[bytes]) -> NoReturn:
    """Answer every ``TraceFile`` that comes, with one ``Answer`` or several, all pickled; ends the process at the last.

    It ends without cleaning up: a forked process must not run what its parent has left to do, and the pipes must not
    close before the exit code is there. Whatever a library prints goes to standard error.
    """
    exit_code = 1
    try:
        forget_signals()
        os.dup2(2, 1)
        _serve(questions, answers)
        exit_code = 0
    except Exception:  # noqa: BLE001  nobody above can show it
        traceback.print_exc()
    finally:
        os._exit(exit_code)


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            file: TraceFile = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = analyze_file(file)
            if isinstance(answer, Unusable):
                answer = replace(answer, bug=None)  # not every exception can be pickled
            pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # who asked was killed
            return


def serve_standard() -> NoReturn:
    """Serve over standard input and output."""
    serve(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
