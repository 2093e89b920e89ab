"""Traces without a run: any Kineto traces, from one file, several, or folders of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtbench.base.errors import TraceError
from dtbench.store.find_run import holds_runs, is_run
from dtbench.traces.job.chosen_steps import StepRange
from dtbench.traces.job.many import analyze_files
from dtbench.traces.job.trace_set import TraceSet, gather_ranks
from dtbench.traces.notes.files import NamedSteps
from dtbench.traces.notes.note import Note, pick_notes
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.reader.find import find_traces, holds_trace_files
from dtbench.traces.reader.remote import Copied

if TYPE_CHECKING:
    from dtbench.traces.kinds.patterns import KernelPattern

_ENDINGS: Final = (".json", ".json.gz", ".tar", ".tar.gz", ".tgz", ".zip")
_MOST_REASONS: Final = 3


def are_traces(path: Path) -> bool:
    """Tell whether a path is a trace, or a folder or archive of traces; a run, or a folder of runs, is none."""
    if not path.is_dir():
        return path.is_file() or path.name.endswith(_ENDINGS)  # a trace that is missing is refused as a trace
    return not is_run(path) and not holds_runs(path) and holds_trace_files(path)


def analyze_traces(
    paths: Iterable[Path] | Copied,
    *,
    workers: int | None = None,
    patterns: Sequence["KernelPattern"] = (),
    steps: StepRange | None = None,
    step_range: str = "",
) -> TraceSet:
    """Analyse traces of one job; one that cannot be read costs a note, not the answer.

    Args:
        paths: traces, folders or archives of them, perhaps copies.
        workers: processes to use at most; None: as ``analyze_files`` decides.
        patterns: a user's own kernels, asked before the table of kernels.
        steps: which steps count; None: all.
        step_range: name of the ranges that are the steps; empty: as the profiler marks them.

    Raises:
        TraceError: there is none, none can be read, there is no such step, or ranks do not agree on their ranges.
    """
    files, notes = _find_files(paths, patterns, step_range)
    return analyze_job(files, workers=workers, notes=notes, steps=steps)


def map_traces(
    folder: Path,
    paths: Iterable[Path] | Copied,
    *,
    workers: int | None = None,
    patterns: Sequence["KernelPattern"] = (),
    step_range: str = "",
) -> tuple[Answer, ...]:
    """Read traces where they lie, leave in a folder what their job's answer needs of them, and return that.

    Args:
        folder: made where it is not there; maps of other nodes may write into it, too.
        paths: traces, folders or archives of them, perhaps copies.
        workers: as for ``analyze_traces``, like what follows.
        patterns: likewise.
        step_range: likewise.

    Raises:
        TraceError: there is no trace, or the folder cannot be written.
    """
    from dtbench.traces.job.mapped import write_map

    files, notes = _find_files(paths, patterns, step_range)
    answers = analyze_files(files, workers=workers)
    write_map(folder, answers, notes)
    return tuple(answers)


def reduce_traces(folder: Path, *, steps: StepRange | None = None) -> TraceSet:
    """Put together what maps have left in a folder: the same as ``analyze_traces`` of all their traces.

    Raises:
        TraceError: there is nothing, what there is does not fit together, or there is no such step.
    """
    from dtbench.traces.job.mapped import read_map

    answers, notes = read_map(folder)
    return _answer(answers, notes, steps)


def _find_files(
    paths: Iterable[Path] | Copied, patterns: Sequence["KernelPattern"], step_range: str
) -> tuple[list[TraceFile], list[Note]]:
    copied = paths if isinstance(paths, Copied) else Copied(tuple(paths))
    found = [find_traces(path) for path in copied.paths]
    sources = dict.fromkeys(copied.name(source) for one in found for source in one.sources)
    if not sources:
        raise TraceError("no trace was given: there are none to analyse")
    files = [TraceFile(source, patterns=tuple(patterns), step_range=step_range) for source in sources]
    return files, [note for one in found for note in one.notes]


def analyze_job(
    files: Sequence[TraceFile],
    *,
    workers: int | None = None,
    notes: Sequence[Note] = (),
    steps: StepRange | None = None,
) -> TraceSet:
    """Analyse the traces of one job that were found already.

    Args:
        files: at least one.
        workers: processes to use at most; None: as ``analyze_files`` decides.
        notes: what finding them left out; they come first.
        steps: which steps count; None: all.

    Raises:
        TraceError: none can be read, or there is no such step.
        Exception: of a single trace, whatever a fault of dtbench raised on it.
    """
    answers = analyze_files(files, workers=workers)
    unusable = [answer for answer in answers if isinstance(answer, Unusable)]
    if len(answers) == 1 and unusable and unusable[0].bug is not None:
        raise unusable[0].bug
    return _answer(answers, notes, steps)


def _answer(answers: Sequence[Answer], notes: Sequence[Note], steps: StepRange | None) -> TraceSet:
    reasons = [answer.reason for answer in answers if isinstance(answer, Unusable)]
    if len(reasons) == len(answers):
        raise TraceError(_refuse(reasons))
    _refuse_unlike_ranges(answers)
    return gather_ranks(answers, notes=notes, steps=steps)


def _refuse_unlike_ranges(answers: Sequence[Answer]) -> None:
    """Refuse steps by the names of ranges, without numbers, of which ranks have unlike many: which are one step?

    Raises:
        TraceError: they have.
    """
    usable = [answer for answer in answers if isinstance(answer, Analyzed)]
    named = [(one.file.label, note) for one in usable for note in pick_notes(one.notes, NamedSteps)]
    counts = {note.counted for _, note in named if not note.is_numbered}
    if len(counts) > 1 or len({note.is_numbered for _, note in named}) > 1:
        fewest, most = (choose(named, key=lambda pair: pair[1].counted) for choose in (min, max))
        raise TraceError(
            f"ranks do not agree on the ranges named `{most[1].name}`: {most[0]} has {most[1].counted}, {fewest[0]} "
            f"{fewest[1].counted}, so which of them are one step is not known; number them: "
            f'`record_function(f"{most[1].name} {{step}}")`'
        )


def _refuse(reasons: Sequence[str]) -> str:
    if len(reasons) == 1:
        return reasons[0]
    rest = len(reasons) - _MOST_REASONS
    more = [f"and {rest} more"] if rest > 0 else []
    return f"none of the {len(reasons)} traces can be used: {'; '.join([*reasons[:_MOST_REASONS], *more])}"
