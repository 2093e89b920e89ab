"""Go on with a run that did not end: which run, whether it is still the same experiment, and what of it can stay.

A finished launch stays as it is, also as a sample of its own time: launches are independent, so it does not matter that
hours lie between them. What differs in words, plan or versions would make them samples of two experiments.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from dtbench import __version__
from dtbench.base.commands import spell_word
from dtbench.base.errors import StoreError
from dtbench.base.units import NS_PER_S, count_things, format_ns, name_ranks
from dtbench.base.vocabulary import Phase
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.mistakes import split_lines
from dtbench.store.finish import finish_launch
from dtbench.store.head import CellHead, read_head
from dtbench.store.journal import JournalView, RankState, read_journal
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_launch, read_launch_environment, read_order, read_rank_records, read_run, read_steps
from dtbench.store.records.run import CellRecord, LaunchRecord, RunRecord, RunStatus
from dtbench.store.walk import walk_runs_in

_MOST_DIFFERENCES = 3


def find_unfinished(results: Path, name: str, *, prepared: bool = False) -> Path | None:
    """Return the newest run of a scenario that lacks a launch; None when there is none.

    Args:
        results: folder of all runs.
        name: of the scenario.
        prepared: of those whose ranks someone else starts, in place of those that dtbench began.
    """
    for path in walk_runs_in(results / name):
        with suppress(StoreError):  # a run that cannot be read cannot be gone on with
            head = read_head(path)
            has_ended = RunStatus(head.status) is RunStatus.COMPLETE
            lacks = _lacks_launch(path, head.cells)
            if has_ended and not lacks:  # as nearly all of thousands
                continue
            run = read_run(path)
            is_planned = any(isinstance(cell, CellRecord) for cell in run.cells)
            may_go_on = lacks if prepared else is_planned or not has_ended  # of prepared ones nobody says that they did
            if run.prepared is prepared and may_go_on:
                return path
    return None


def _lacks_launch(path: Path, cells: Iterable[CellHead]) -> bool:
    """Tell whether a launch has not ended, or is gone, as one that could not be read."""
    folder = RunFolder(path)
    return any(not folder.launch(cell.name, index).launch.exists() for cell in cells for index in cell.launches)


def is_same_experiment(path: Path, file: ScenarioFile) -> bool:
    """Tell whether a run has the words and overrides of a scenario."""
    with suppress(StoreError, OSError, UnicodeDecodeError):
        return not list(_compare_words(path, read_run(path), file))
    return False


def refuse_other(
    path: Path, file: ScenarioFile, cells: tuple[CellRecord, ...], torch_versions: Mapping[str | None, str]
) -> None:
    """Refuse to go on with a run that has all its launches, or that would become two experiments in one folder.

    Args:
        path: folder of the run.
        file: the scenario as it is now.
        cells: the scenario as planned on this machine now.
        torch_versions: of each interpreter that cells name; None: of this one.

    Raises:
        StoreError: says what differs, why nothing is left to do, or which launch of a complete run cannot be read.
    """
    run = read_run(path)
    if run.name != file.name:
        raise StoreError(f"{path}: is a run of `{run.name}`, not of `{file.name}`")
    planned = tuple(cell for cell in run.cells if isinstance(cell, CellRecord))
    folder = RunFolder(path)
    launches = [folder.launch(cell.name, index) for cell in planned for index in cell.launches]
    if (run.status is RunStatus.COMPLETE or run.prepared) and all(map(is_finished, launches)):
        _refuse_complete(path, run, planned, file)
    if len(planned) < len(run.cells):
        raise StoreError(f"{path}: is a run of your own training loop; start the loop again, it makes a new run")
    differences = [*_compare_words(path, run, file), *_compare_versions(path, run, torch_versions)]
    differences = differences or list(_compare_cells(planned, cells))
    if differences:
        told = "; ".join(differences[:_MOST_DIFFERENCES])
        more = len(differences) - _MOST_DIFFERENCES
        told += f"; and {more} more differences" if more > 0 else ""
        instead = "start a new one without --resume"
        if run.prepared:
            instead += f", or `dtbench execute {spell_word(path)}` on its nodes runs what is left (--prepare names it)"
        raise StoreError(f"{path}: this run cannot go on: {told}; {instead}")


def _refuse_complete(path: Path, run: RunRecord, cells: tuple[CellRecord, ...], file: ScenarioFile) -> NoReturn:
    """Say why nothing of a run is left to do: it is another choice of cells, or is there, or what it told is lost."""
    if run.only != file.only:
        asked = "; ".join(_compare_only(run, file))
        raise StoreError(f"{path}: this run is complete: {asked}; start a new one without --resume")
    for cell in cells:
        for launch in (RunFolder(path).launch(cell.name, index) for index in cell.launches):
            lost = _find_lost(launch, cell)
            if lost is not None:
                raise StoreError(
                    f"{path}: every launch of this run ended, but of {launch.path.name} of cell {cell.name} {lost}; "
                    f"without the folder {launch.path}, --resume runs this launch again"
                )
    raise StoreError(
        f"{path}: this run is complete, nothing is left to do; `dtbench report {spell_word(path)}` shows it"
    )


def _find_lost(launch: LaunchFolder, cell: CellRecord) -> str | None:
    """Say what a launch that ended has lost of its ranks' records and MEASURED steps; None: nothing."""
    absent = sorted(set(range(cell.plan.ranks)) - {record.rank for record in read_rank_records(launch)})
    if absent:
        return f"the record of {name_ranks(absent)} is lost"
    steps = read_steps(launch)
    there = steps["step"][steps["phase"] == Phase.MEASURED].nunique()
    planned = cell.plan.measured_steps
    return f"{planned - there} of {planned} MEASURED steps are lost" if there < planned else None


def _compare_words(path: Path, run: RunRecord, file: ScenarioFile) -> Iterator[str]:
    before = split_lines(RunFolder(path).scenario.read_text(encoding="utf-8"))
    now = split_lines(file.text)
    if before != now:
        pairs = enumerate(zip(before, now, strict=False), start=1)
        line = next((number for number, (old, new) in pairs if old != new), min(len(before), len(now)) + 1)
        yield f"the words of the scenario changed (first in line {line})"
    if run.overrides != file.overrides:
        again = ", which has to be given again to go on," if run.overrides else ","
        ran, asked = _show_overrides(run.overrides), _show_overrides(file.overrides)
        yield f"it ran with {ran}{again} and now there is {asked}"
    yield from _compare_only(run, file)


def _compare_only(run: RunRecord, file: ScenarioFile) -> Iterator[str]:
    if run.only != file.only:
        ran, asked = (_show_cells(cells) for cells in (run.only, file.only))
        yield f"it ran {ran}, and now {asked} is asked for"


def _show_cells(only: tuple[str, ...]) -> str:
    return " ".join(f"--cell {name}" for name in only) or "every cell"


def _show_overrides(overrides: tuple[str, ...]) -> str:
    return " ".join(f"--set {override}" for override in overrides) or "no --set"


def _compare_versions(path: Path, run: RunRecord, torch_versions: Mapping[str | None, str]) -> Iterator[str]:
    if run.dtbench_version != __version__:
        yield f"dtbench {run.dtbench_version} began it, and this is {__version__}"
    seen: dict[str, str] = {}
    for cell in run.cells:
        now = torch_versions.get(cell.scenario.python if cell.scenario else None)
        for index in cell.launches:
            launch = RunFolder(path).launch(cell.name, index)
            is_known = is_finished(launch) and launch.environment.exists()
            before = read_launch_environment(launch.environment).torch if is_known else None
            if now is not None and before is not None and before != now:
                seen.setdefault(before, now)
    for before, now in seen.items():
        yield f"it ran with torch {before}, and now there is {now}"


def _compare_cells(before: tuple[CellRecord, ...], now: tuple[CellRecord, ...]) -> Iterator[str]:
    """Say where the same words give another plan: the machine has changed."""
    for old, new in zip(before, now, strict=False):
        if old == new or (old.plan.torch is None and old == _without_torch(new)):  # a prepared run knows no torch
            continue
        fields = [name for name in type(old.plan).model_fields if getattr(old.plan, name) != getattr(new.plan, name)]
        what = ", ".join(
            f"{name} was {getattr(old.plan, name)} and is {getattr(new.plan, name)}" for name in fields[:2]
        )
        yield f"this machine gives another plan for cell {old.name}: {what or 'its scenario differs'}"
        return
    if len(before) != len(now):
        yield f"it has {count_things(len(before), 'cell')}, and now there are {len(now)}"


def _without_torch(cell: CellRecord) -> CellRecord:
    return cell.model_copy(update={"plan": cell.plan.model_copy(update={"torch": None})})


_QUIET_NS: Final = 60 * NS_PER_S
"""A rank that gave no sign of life for so long, and did not end, is taken to be gone."""
_LOOK_S: Final = 0.5


def refuse_running(folder: RunFolder, run: RunRecord) -> None:
    """Refuse to go on with a prepared run while ranks of it run, which hold no lock of it.

    Raises:
        StoreError: says which rank of which launch gave a sign of life, and when.
    """
    for launch, view in _find_alive(folder, run):
        raise StoreError(
            f"{_say_alive(launch, view)}; wait until its ranks have ended, or for {format_ns(_QUIET_NS)} if they were "
            "killed"
        )


def await_silence(folder: RunFolder, run: RunRecord, say: Callable[[str], None]) -> None:
    """Wait until ranks that were killed a moment ago are taken to be gone, as where a job is requeued at once.

    Args:
        folder: of a prepared run.
        run: its record.
        say: told of what it waits for.

    Raises:
        StoreError: a rank runs: it gave another sign of life meanwhile.
    """
    seen: dict[tuple[Path, int], int] = {}
    while alive := [*_find_alive(folder, run)]:
        if not seen:
            say(f"{_say_alive(*alive[0])}: waiting until it has been silent for {format_ns(_QUIET_NS)}")
        for launch, view in alive:
            if seen.setdefault((launch.path, view.rank), view.beat_unix_ns) != view.beat_unix_ns:
                raise StoreError(f"{_say_alive(launch, view)}, and goes on; wait until its ranks have ended")
        time.sleep(_LOOK_S)


def _find_alive(folder: RunFolder, run: RunRecord) -> Iterator[tuple[LaunchFolder, JournalView]]:
    """Yield the ranks of a prepared run that may run, with their launches: they gave a sign of life not long ago."""
    launches = (folder.launch(cell.name, index) for cell in run.cells for index in cell.launches)
    for launch in launches if run.prepared else ():
        journals = [] if launch.launch.exists() else map(read_journal, map(launch.journal, launch.find_journals()))
        for view in journals:
            if view is not None and view.state is not RankState.DONE and _quiet_ns(view) < _QUIET_NS:
                yield launch, view


def _quiet_ns(view: JournalView) -> int:
    return time.time_ns() - view.beat_unix_ns


def _say_alive(launch: LaunchFolder, view: JournalView) -> str:
    return f"{launch.path}: rank {view.rank} gave a sign of life {format_ns(max(0, _quiet_ns(view)))} ago"


def is_finished(launch: LaunchFolder) -> bool:
    """Tell whether a launch ended well.

    Raises:
        StoreError: a file of it is broken or of another version: whether it is finished is for a person to say.
    """
    if not launch.launch.exists():
        return False
    try:
        if read_launch(launch).status is not RunStatus.COMPLETE:
            return False
        read_rank_records(launch)
        read_steps(launch)
    except StoreError as error:
        raise StoreError(f"{error}; without the folder {launch.path}, --resume runs this launch again") from error
    return True


def keep_finished(folder: RunFolder, cells: tuple[CellRecord, ...]) -> frozenset[tuple[str, int]]:
    """Return the launches that ended well, by cell and index; what the others and broken references left is removed.

    Raises:
        StoreError: it cannot be removed.
    """
    finished: set[tuple[str, int]] = set()
    for cell in cells:
        of_cell = {index: folder.launch(cell.name, index) for index in cell.launches}
        for index, launch in of_cell.items():
            close_left(launch, cell, index)
        unfinished = [launch for launch in of_cell.values() if not is_finished(launch)]
        finished.update((cell.name, index) for index, launch in of_cell.items() if launch not in unfinished)
        for launch in unfinished:
            remove_launch(launch)
        if unfinished and not folder.reference(cell.name).reference_data.exists():
            remove_launch(folder.reference(cell.name))
    return frozenset(finished)


def close_left(launch: LaunchFolder, cell: CellRecord, index: int) -> None:
    """Write how a launch ended whose ranks all left their results, but whose launcher was gone before it could."""
    records = [launch.rank_record(rank) for rank in range(cell.plan.ranks)]
    if launch.launch.exists() or not all(record.exists() for record in records):
        return
    with suppress(StoreError):  # broken results are run anew
        read_rank_records(launch)
        ended_unix_ns = max(record.stat().st_mtime_ns for record in records)
        started_unix_ns = read_order(launch).launched_unix_ns or ended_unix_ns
        record = LaunchRecord(
            cell=cell.name,
            index=index,
            status=RunStatus.COMPLETE,
            started_unix_ns=started_unix_ns,
            duration_ns=max(0, ended_unix_ns - started_unix_ns),
            reason="its launcher was gone before it could close the launch; every rank's results were there",
            failures=(),
        )
        finish_launch(launch, record, ranks=cell.plan.ranks)


def remove_launch(launch: LaunchFolder) -> None:
    """Remove all that a launch left.

    Raises:
        StoreError: it cannot be removed.
    """
    try:
        if launch.path.exists():
            shutil.rmtree(launch.path)
    except OSError as error:
        raise StoreError(f"{launch.path}: cannot be removed ({error.strerror}), and it must be run anew") from error
