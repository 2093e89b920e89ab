"""One invocation of ``dtbench run``: a run folder, a reference where one is wanted, launches interleaved.

::

    plan all cells  ->  reference of each model  ->  launch 0 of every cell  ->  launch 1 of every cell  -> ...

With ``repeat: auto`` rounds are added until a judge says that it is enough, or time is up: ``dtbench.launch.repeat``.

A failed launch ends its cell, never the run: the other cells go on, and the run ends as failed. A run that did not end
well can be gone on with: see ``dtbench.launch.resume``.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from dtbench import __version__
from dtbench.base.errors import LaunchError, NodesError, ScenarioError, StoreError
from dtbench.base.signals import describe_stop
from dtbench.launch.cells import interleave
from dtbench.launch.interpreter import probe_interpreters
from dtbench.launch.local import WORKER, launch_ranks
from dtbench.launch.machine import read_torch_version
from dtbench.launch.orders import find_references, key_of_reference, make_order, make_reference_order, say_code
from dtbench.launch.repeat import (
    Judge,
    add_launch,
    find_end,
    keep_launches,
    never_enough,
)
from dtbench.launch.resume import keep_finished, refuse_other, refuse_running, remove_launch
from dtbench.launch.watch import Progress, Views
from dtbench.plan.plan import Plan
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.repeat import AutoRepeat
from dtbench.store.layout import LaunchFolder, RunFolder, can_name_runs, new_run_folder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, Neighbour, RunRecord, RunStatus, WorkerOrder
from dtbench.store.running import announce, describe_neighbours, find_neighbours
from dtbench.store.write import write_record, write_text


@dataclass(frozen=True)
class Observer:
    """Whom a run tells what it does; every part may be left out.

    Attributes:
        on_folder: the run folder exists.
        on_launch: a launch of a cell begins; index None: the single-process reference.
        on_progress: the ranks were looked at.
        on_failure: a cell's launch failed, with its sentence; the run goes on.
        on_end: a launch of this cell has ended, well or not, and others follow.
        on_stop: the user stopped the run; a sentence about what is left.
        on_neighbours: other runs are on this machine; a sentence that names them, told once of each.
    """

    on_folder: Callable[[Path], None] = lambda _path: None
    on_launch: Callable[[str, int | None, Plan], None] = lambda _cell, _index, _plan: None
    on_progress: Callable[[Progress], None] = lambda _progress: None
    on_failure: Callable[[str, str], None] = lambda _cell, _reason: None
    on_end: Callable[[str], None] = lambda _cell: None
    on_stop: Callable[[str], None] = lambda _sentence: None
    on_neighbours: Callable[[str], None] = lambda _sentence: None


class Engine(Protocol):
    """What starts the ranks of launches."""

    def begin(self, folder: RunFolder, finished: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Make ready for a run; gives those of the finished launches that can stay."""

    def launch(
        self,
        order: WorkerOrder,
        folder: LaunchFolder,
        *,
        on_look: Callable[[Views], None],
    ) -> None:
        """Run one launch to its end, as ``launch_ranks`` does."""


@dataclass(frozen=True)
class ThisMachine:
    """Starts all ranks on this machine, each by the command ``worker``."""

    worker: tuple[str, ...] = WORKER

    def begin(self, _folder: RunFolder, finished: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Return ``finished``: all of it lies here."""
        return finished

    def launch(
        self,
        order: WorkerOrder,
        folder: LaunchFolder,
        *,
        on_look: Callable[[Views], None],
    ) -> None:
        """Run one launch to its end."""
        launch_ranks(order, folder, on_look=on_look, worker=self.worker)


@dataclass
class Run:
    """A run in the making; ``finished`` launches, by cell and index, are there already.

    One that ``goes_on`` after it had ended early is resumed by the first launch that runs anew.

    Attributes:
        head: what was known of it before anything ran.
        engine: starts ranks.
        localise: gives orders what their cells do not say: where a person's code lies.
    """

    head: RunRecord
    folder: RunFolder
    cells: tuple[CellRecord, ...]
    observer: Observer
    localise: Callable[[WorkerOrder], WorkerOrder]
    engine: Engine
    finished: frozenset[tuple[str, int]] = frozenset()
    references: dict[str, Path] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    resumed_unix_ns: tuple[int, ...] = ()
    goes_on: bool = False
    judge: Judge = never_enough
    repeat_end: str | None = None
    neighbours: tuple[Neighbour, ...] = ()


def run_scenario(
    file: ScenarioFile,
    cells: tuple[CellRecord, ...],
    results: Path,
    *,
    observer: Observer,
    judge: Judge = never_enough,
    engine: Engine | None = None,
) -> RunFolder:
    """Run every launch of every planned cell; gives the finished run folder.

    Args:
        file: the scenario.
        cells: of it, planned.
        results: folder of all runs.
        observer: told what happens.
        judge: says when cells that repeat automatically are known well enough.
        engine: starts the ranks; None: this machine does.

    Raises:
        MissingError: an interpreter that a cell names cannot run it; nothing has run.
        LaunchError: at least one cell failed; the message names each, and everything measured is kept.
        KeyboardInterrupt: the user stopped it; the run says so and keeps what is there.
    """
    probe_interpreters(cells)
    run = prepare_run(file, cells, results, observer=observer)
    run.judge, run.engine = judge, engine or ThisMachine()
    with hold_run(run.folder), announce(run.folder.path):
        return run_all(run)


def resume_scenario(
    file: ScenarioFile,
    cells: tuple[CellRecord, ...],
    path: Path,
    *,
    observer: Observer,
    judge: Judge = never_enough,
    engine: Engine | None = None,
) -> RunFolder:
    """Go on with the run in ``path``: launches that ended well stay, all others are run anew, in the usual order.

    So with one that was prepared for ranks that someone else starts, where this machine is what it was planned for.

    Raises:
        StoreError: the run has all launches, another process writes it, ranks of it run, or it is another experiment;
            nothing changes.
        LaunchError, MissingError, KeyboardInterrupt: as ``run_scenario``.
    """
    torch_versions: dict[str | None, str] = {None: read_torch_version()}
    torch_versions.update((python, found.torch) for python, found in probe_interpreters(cells).items())
    folder = RunFolder(path.resolve())
    with hold_run(folder), announce(folder.path):
        before = read_run(folder.path)
        cells = keep_launches(before, cells)
        refuse_other(folder.path, file, cells, torch_versions)
        refuse_running(folder, before)
        finished = keep_finished(folder, cells)
        head = _begin_record(file, folder, cells, before.started_unix_ns)
        localise = partial(say_code, file=file)
        run = Run(head, folder, cells, observer, localise, engine or ThisMachine(), finished=finished, judge=judge)
        run.references = find_references(folder, cells)
        run.resumed_unix_ns, run.goes_on = before.resumed_unix_ns, bool(finished) or not before.prepared
        for cell, index in sorted(finished):
            keep_environment(run, folder.launch(cell, index))
        write_run(run, RunStatus.RUNNING, None)
        observer.on_folder(folder.path)
        return run_all(run)


def run_all(run: Run) -> RunFolder:
    """Run every launch that is not finished yet.

    Raises:
        LaunchError, KeyboardInterrupt: as ``run_scenario``.
    """
    try:
        _begin(run)
        _look_for_neighbours(run)
        ended: str | None = None
        for cell, index in _list_launches(run):
            if ended is not None:
                run.observer.on_end(ended)
            ended = None if cell.name in run.failures else cell.name
            if ended is not None:
                _note_resumed(run)
                _run_launch(run, cell, index)
                _look_for_neighbours(run)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, KeyboardInterrupt):
            reason = describe_stop(error)
        if isinstance(error, NodesError):
            reason, error.folder = str(error), run.folder.path
        with suppress(StoreError):  # a full disk must not hide what ended it
            write_run(run, RunStatus.FAILED, reason)
        raise
    try:
        _close(run)
    except KeyboardInterrupt:
        _close(run)  # nothing is left to stop: all launches have ended
        raise
    return run.folder


def _begin(run: Run) -> None:
    """Make ready what starts the ranks; a launch of which it lacks a part runs anew."""
    kept = run.engine.begin(run.folder, run.finished)
    for cell, index in run.finished - kept:
        remove_launch(run.folder.launch(cell, index))
    run.finished = kept


def _note_resumed(run: Run) -> None:
    """Write that launches from now on lie apart from those before, if so."""
    if run.goes_on:
        run.goes_on, run.resumed_unix_ns = False, (*run.resumed_unix_ns, time.time_ns())
        write_run(run, RunStatus.RUNNING, None)


def _close(run: Run) -> None:
    """Write how a run ended, all launches of which have ended.

    Raises:
        LaunchError: some failed.
    """
    if run.failures:
        reason = "\n".join(f"cell {name}: {why}" for name, why in run.failures.items())
        with suppress(StoreError):  # a full disk must not hide why they failed
            write_run(run, RunStatus.FAILED, reason)
        raise LaunchError(f"{reason}\nwhat was measured before is in {run.folder.path}", folder=run.folder.path)
    for reference in run.references.values():
        reference.unlink(missing_ok=True)  # as large as the model, and of no use once everything is compared
    write_run(run, RunStatus.COMPLETE, None)


def _look_for_neighbours(run: Run) -> None:
    """Note other runs on this machine, and name them when they are first seen."""
    known = {one.run for one in run.neighbours}
    fresh = tuple(one for one in find_neighbours() if one.run not in known)
    said = describe_neighbours(fresh)
    if said is not None:
        run.neighbours += fresh
        run.observer.on_neighbours(said)


def _list_launches(run: Run) -> Iterator[tuple[CellRecord, int]]:
    """Return the planned launches that are left, then a round at a time while ``repeat: auto`` needs more."""
    first = 0
    while True:
        yield from (
            launch for launch in interleave(run.cells, first) if (launch[0].name, launch[1]) not in run.finished
        )
        if not _add_round(run):
            return
        first = len(run.cells[0].launches) - 1


def _add_round(run: Run) -> bool:
    """Add a launch to every cell, also to one that failed: resumed, it has as many as the others."""
    rule = run.cells[0].scenario.repeat
    cells = tuple(cell for cell in run.cells if cell.name not in run.failures)
    if not isinstance(rule, AutoRepeat) or not cells:
        return False
    run.repeat_end = find_end(run.folder, cells, rule, run.judge)
    if run.repeat_end is not None:
        return False
    run.cells = tuple(add_launch(cell) for cell in run.cells)
    write_run(run, RunStatus.RUNNING, None)
    return True


def prepare_run(
    file: ScenarioFile,
    cells: tuple[CellRecord, ...],
    results: Path,
    *,
    observer: Observer,
    prepared: bool = False,
) -> Run:
    """Make the run folder with what is known before anything runs; ``prepared``: someone else starts the ranks."""
    if not can_name_runs(file.name):
        raise ScenarioError(f"{file.name!r} cannot name a folder of results; rename the scenario's file")
    folder = new_run_folder(results, file.name)
    head = _begin_record(file, folder, cells, time.time_ns()).model_copy(update={"prepared": prepared})
    run = Run(head, folder, cells, observer, partial(say_code, file=file), ThisMachine())
    write_text(folder.scenario, file.text)
    write_run(run, RunStatus.RUNNING, None)
    observer.on_folder(folder.path)
    return run


def _run_launch(run: Run, cell: CellRecord, index: int) -> None:
    """Run one launch, with its reference before if there is none yet; a failure is kept, not raised."""
    try:
        reference = _run_reference(run, cell) if cell.scenario.correctness.enabled else None
        folder = run.folder.launch(cell.name, index)
        run.observer.on_launch(cell.name, index, cell.plan)
        _start(run, folder, make_order(cell, index, folder, reference))
    except NodesError:
        raise
    except LaunchError as error:
        run.failures[cell.name] = str(error)
        run.observer.on_failure(cell.name, str(error))
        return
    keep_environment(run, folder)


def keep_environment(run: Run, launch: LaunchFolder) -> None:
    """Let the run have the environment of its first launch."""
    if launch.environment.exists() and not run.folder.environment.exists():
        write_text(run.folder.environment, launch.environment.read_text(encoding="utf-8"))


def _run_reference(run: Run, cell: CellRecord) -> Path:
    """Return the single process's results for this cell.

    Cells share it that share model, data, optimizer, variables and interpreter.
    """
    folder = run.folder.reference(cell.name)
    order = make_reference_order(cell, folder)
    key = key_of_reference(order.scenario)
    if key not in run.references:
        run.observer.on_launch(cell.name, None, order.plan)
        try:
            _start(run, folder, order)
        except NodesError:
            raise
        except LaunchError as error:
            raise LaunchError(f"the single process that this cell is checked against failed: {error}") from error
        if not folder.reference_data.exists():
            raise LaunchError(
                f"the single process that cell {cell.name} is checked against left no result in {folder.path}"
            )
        run.references[key] = folder.reference_data
    return run.references[key]


def _start(run: Run, folder: LaunchFolder, order: WorkerOrder) -> None:
    def on_look(ranks: Views) -> None:
        run.observer.on_progress(Progress(order.cell, order.index, order.plan, ranks))

    try:
        run.engine.launch(run.localise(order), folder, on_look=on_look)
    except StoreError as error:
        raise LaunchError(str(error)) from error


def _begin_record(
    file: ScenarioFile, folder: RunFolder, cells: tuple[CellRecord, ...], started_unix_ns: int
) -> RunRecord:
    return RunRecord(
        dtbench_version=__version__,
        name=file.name,
        run_id=folder.path.name,
        question=file.question,
        overrides=file.overrides,
        status=RunStatus.RUNNING,
        reason=None,
        started_unix_ns=started_unix_ns,
        ended_unix_ns=None,
        cells=cells,
        checklist=file.checklist,
        only=file.only,
    )


def write_run(run: Run, status: RunStatus, reason: str | None) -> None:
    """Write how far a run has come."""
    now = {
        "status": status,
        "reason": reason,
        "ended_unix_ns": None if status is RunStatus.RUNNING else time.time_ns(),
        "cells": run.cells,
        "repeat_end": run.repeat_end,
        "resumed_unix_ns": run.resumed_unix_ns,
        "neighbours": run.neighbours,
    }
    write_record(run.folder.run, run.head.model_copy(update=now))
