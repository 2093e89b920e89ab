"""Traces without a run: any Kineto traces, from one file, several, or folders of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from dtbench.analyze.many import analyze_files
from dtbench.analyze.trace_file import TraceFile, Unusable
from dtbench.analyze.trace_set import TraceSet, gather_ranks
from dtbench.errors import TraceError

_MOST_REASONS: Final = 3
_ENDINGS: Final = (".json", ".json.gz")


def analyze_traces(paths: Iterable[Path], *, workers: int | None = None) -> TraceSet:
    """Analyse traces of one job; one that cannot be read costs a note, not the answer.

    Args:
        paths: traces, or folders of them.
        workers: processes to use at most; None: as ``analyze_files`` decides.

    Raises:
        TraceError: there is none, or none can be read.
    """
    files = [file for path in paths for file in _find_files(path)]
    if not files:
        raise TraceError("no trace was given: there are none to analyse")
    answers = analyze_files([TraceFile(file) for file in dict.fromkeys(files)], workers=workers)
    reasons = [answer.reason for answer in answers if isinstance(answer, Unusable)]
    if len(reasons) == len(answers):
        raise TraceError(_refuse(reasons))
    return gather_ranks(answers)


def _refuse(reasons: Sequence[str]) -> str:
    if len(reasons) == 1:
        return reasons[0]
    rest = len(reasons) - _MOST_REASONS
    more = [f"and {rest} more"] if rest > 0 else []
    return f"none of the {len(reasons)} traces can be used: {'; '.join([*reasons[:_MOST_REASONS], *more])}"


def _find_files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(_ENDINGS))
    if not files:
        raise TraceError(f"{path}: holds no trace; one ends in {' or '.join(_ENDINGS)}")
    return files
