"""How far a run in progress has come, from its launches' records and its ranks' journals: cheap enough to ask often."""

import time
from dataclasses import dataclass

from dtbench.base.errors import StoreError
from dtbench.base.units import NS_PER_S, count_things, format_ns
from dtbench.base.vocabulary import Phase
from dtbench.report.tb_plugin.refusal import BROKEN, Refusal
from dtbench.report.tb_plugin.runs import FoundRun
from dtbench.store.journal import JournalView, RankState, name_unphased, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import is_incomplete, read_run
from dtbench.store.records.run import CellRecord, OwnLoopCell, RunRecord

_SILENT_NS = 60 * NS_PER_S
"""After so long without a sign of life a run is taken to have been stopped."""


@dataclass(frozen=True)
class RankProgress:
    """Where one rank is, in words."""

    rank: int
    words: str


@dataclass(frozen=True)
class ProgressDocument:
    """Where a run is.

    Attributes:
        is_over: it has said how it ended; nothing more will change.
        launches_ended, launches: over all cells.
        sentence: where it is; empty when it is over.
    """

    is_over: bool
    launches_ended: int
    launches: int
    sentence: str
    ranks: tuple[RankProgress, ...] = ()


def make_progress(run: FoundRun) -> ProgressDocument:
    """Say how far a run has come.

    Raises:
        Refusal: its record or a journal is broken.
    """
    try:
        return _make_progress(run, read_run(run.folder.path))
    except StoreError as error:
        raise Refusal(BROKEN, f"This run cannot be read. {error}") from error


def _make_progress(run: FoundRun, record: RunRecord) -> ProgressDocument:
    launches = [(cell, index) for cell in record.cells for index in cell.launches]
    ended = sum(run.folder.launch(cell.name, index).launch.exists() for cell, index in launches)
    if not is_incomplete(record) or (ended == len(launches) and record.prepared):
        return ProgressDocument(is_over=True, launches_ended=ended, launches=len(launches), sentence="")
    begun = [(cell, index) for cell, index in launches if _has_begun(run.folder.launch(cell.name, index))]
    have = "launch has" if len(launches) == 1 else "launches have"
    done = f"{ended} of {len(launches)} {have} ended"
    if not begun:
        nobody = f"{done}; no rank is at work in another."
        return ProgressDocument(is_over=False, launches_ended=ended, launches=len(launches), sentence=nobody)
    cell, index = begun[-1]
    views = _read_views(run.folder.launch(cell.name, index), cell.plan.ranks)
    ranks = tuple(RankProgress(rank, _describe(view, cell)) for rank, view in enumerate(views))
    return ProgressDocument(
        is_over=False,
        launches_ended=ended,
        launches=len(launches),
        sentence=f"{done}; {cell.name}, launch {index}: {_age_words(views)}.",
        ranks=ranks,
    )


def is_alive(folder: LaunchFolder, ranks: int) -> bool:
    """Tell whether a rank of a launch has given a sign of life lately.

    Raises:
        StoreError: a journal is broken.
    """
    beats = [view.beat_unix_ns for view in _read_views(folder, ranks) if view is not None]
    return bool(beats) and time.time_ns() - max(beats) < _SILENT_NS


def _has_begun(folder: LaunchFolder) -> bool:
    return not folder.launch.exists() and folder.journal(0).parent.is_dir()


def _read_views(folder: LaunchFolder, ranks: int) -> list[JournalView | None]:
    return [read_journal(folder.journal(rank)) for rank in range(ranks)]


def _age_words(views: list[JournalView | None]) -> str:
    beats = [view.beat_unix_ns for view in views if view is not None]
    if not beats:
        return "its ranks are starting"
    age_ns = max(0, time.time_ns() - max(beats))
    if age_ns > _SILENT_NS:
        return f"no sign of life for {format_ns(age_ns)}, it was probably stopped"
    return "its ranks are at work"


def _describe(view: JournalView | None, cell: CellRecord | OwnLoopCell) -> str:
    if view is None or view.step is None:
        return "starting"
    if view.state in (RankState.FINISHING, RankState.DONE):
        return f"{view.state.name.lower()}, {count_things(len(view.timings), 'step')}"
    if view.phase is None:
        return name_unphased(view.region)
    done = sum(timing.phase is view.phase for timing in view.timings)
    most = {Phase.MEASURED: cell.plan.measured_steps, Phase.PROFILED: cell.plan.profiled_steps}
    of = most.get(view.phase, cell.plan.max_warmup_steps)
    at_most = "at most " if view.phase is Phase.WARMUP else ""
    last = f", last {format_ns(view.timings[-1].duration_ns)}" if view.timings else ""
    return f"{view.phase} {done} of {at_most}{of} steps{last}"
