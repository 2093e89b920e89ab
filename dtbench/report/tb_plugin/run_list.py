"""The list of runs: of each only what its ``run.json`` says at the top, so that a thousand are listed at once."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.errors import StoreError
from dtbench.report.tb_plugin.runs import WHOLE, FoundRun, LogDirectory
from dtbench.store.head import read_head

MOST_LISTED: Final = 500
"""Runs that a page takes at once: of ten thousand the list had 3.8 MB, at each look."""


@dataclass(frozen=True)
class ListedCell:
    """One cell and its launches."""

    name: str
    launches: tuple[int, ...]


@dataclass(frozen=True)
class ListedRun:
    """One line of the list.

    Attributes:
        run: its name in requests.
        started_unix_ns: of one that cannot be read, when its folder changed last.
        error: why nothing more can be said of it; None: it can be read.
    """

    run: str
    scenario: str
    run_id: str
    question: str = ""
    status: str = ""
    started_unix_ns: int = 0
    cells: tuple[ListedCell, ...] = ()
    error: str | None = None

    @property
    def words(self) -> str:
        """In which a person finds it."""
        return f"{self.scenario} {self.run_id} {self.question} {self.status}"


@dataclass(frozen=True)
class RunListDocument:
    """Runs, newest first, and what to do where there are none.

    Attributes:
        runs: those that are listed: the newest of those asked for, and the one that is shown.
        count: how many are asked for.
        latest: the run to open where nobody chose one: the newest that can be read, else the newest; None: no run.
    """

    logdir: str
    runs: tuple[ListedRun, ...]
    count: int
    latest: str | None
    hint: str | None


@dataclass
class RunList:
    """Lists the runs, and reads again only what has changed."""

    directory: LogDirectory
    _known: dict[str, tuple[tuple[int, int], ListedRun]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make_document(self, find: str = "", shown: str | None = None) -> RunListDocument:
        """Return the newest runs; one that is broken is listed with its error.

        Args:
            find: words that a person looks for in what is said of a run; empty: any run is asked for.
            shown: name of the run that the page shows, which is listed in any case; None: none.
        """
        with self._lock:
            runs = sorted((self._list(run) for run in self.directory.find_runs()), key=_order, reverse=True)
            self._known = {run.run: self._known[run.run] for run in runs}
        if not runs and self.directory.holds_traces():
            runs = [_list_traces(self.directory.root)]
        latest = next((run.run for run in runs if run.error is None), runs[0].run if runs else None)
        hint = None if runs else self._hint()
        asked = [run for run in runs if find.lower() in run.words.lower()]
        newest = {run.run for run in asked[:MOST_LISTED]} | {shown}
        listed = tuple(run for run in runs if run.run in newest)
        return RunListDocument(str(self.directory.root), listed, len(asked), latest, hint)

    def _list(self, run: FoundRun) -> ListedRun:
        state = _file_state(run)
        known = self._known.get(run.name)
        if known is None or known[0] != state:
            self._known[run.name] = known = (state, _read_line(run))
        return known[1]

    def _hint(self) -> str:
        around = self.directory.find_run_around()
        if around is not None:
            return f"This log directory is inside a run; `dtbench tensorboard {spell_word(around)}` shows the run."
        return f"There is no run below {self.directory.root}; `dtbench run quickstart` makes one."


def _list_traces(path: Path) -> ListedRun:
    """List plain traces as a run of one cell with one launch."""
    cells = (ListedCell("traces", (0,)),)
    return ListedRun(run=WHOLE, scenario=path.name, run_id="traces", status="complete", cells=cells)


def _order(run: ListedRun) -> tuple[int, str, str]:
    """Return what newer runs have more of: a folder may be called otherwise than by its time, as a copy is."""
    return run.started_unix_ns, run.run_id, run.run


def _file_state(run: FoundRun) -> tuple[int, int]:
    try:
        status = run.folder.run.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _read_line(run: FoundRun) -> ListedRun:
    path = run.folder.path
    try:
        head = read_head(path)
    except StoreError as error:
        return ListedRun(
            run=run.name,
            scenario=path.parent.name,
            run_id=path.name,
            started_unix_ns=_changed_unix_ns(path),
            error=_explain(run, error),
        )
    return ListedRun(
        run=run.name,
        scenario=head.name,
        run_id=head.run_id,
        question=head.question,
        status=head.status,
        started_unix_ns=head.started_unix_ns,
        cells=tuple(ListedCell(cell.name, cell.launches) for cell in head.cells),
    )


def _changed_unix_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # deleted meanwhile
        return 0


def _explain(run: FoundRun, error: Exception) -> str:
    """Return the sentence that every other reader gives for this file."""
    from dtbench.store.read import read_run

    try:
        read_run(run.folder.path)
    except StoreError as refusal:
        return str(refusal)
    return str(error)
