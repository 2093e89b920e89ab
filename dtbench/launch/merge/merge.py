"""Join what nodes without a common file system have of one run into a folder of its own; originals stay.

::

    node 0:  run.json  cells/ddp/launch0/ order.json launch.json steps.parquet  ranks/rank0.json  traces/rank0...
    node 1:  run.json  cells/ddp/launch0/ order.json                            ranks/rank1.json  traces/rank1...
    joined:  the files of every rank as they are, and made anew: launch.json, steps.parquet, run.json

What belongs to a rank is in one folder, or alike in several: anything else is a conflict, found before anything is
written. Tables of traces are left to be made again. Merged once more, or with one more node, only what is new is added.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dtbench.base.errors import StoreError
from dtbench.base.units import name_ranks
from dtbench.launch.merge.files import FoundFile, Whose, are_alike, find_conflicts, find_files
from dtbench.launch.resume import close_left
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.lock import hold_run, is_held
from dtbench.store.read import read_launch, read_order, read_run, read_steps
from dtbench.store.records.outline import find_unlisted, say_unlisted
from dtbench.store.records.place import tell_place
from dtbench.store.records.run import (
    CellRecord,
    LaunchRecord,
    OwnLoopCell,
    RankFailure,
    RunRecord,
    RunStatus,
    WorkerOrder,
)
from dtbench.store.write import replace_file, write_record, write_table

_MOST_CONFLICTS: Final = 5
_OF_ALL: Final = ("name", "dtbench_version", "question", "overrides", "only", "checklist", "cells")
"""What the records of one run say alike on every node."""

LaunchKey = tuple[str, int]


@dataclass(frozen=True)
class Merged:
    """What was joined.

    Attributes:
        path: of the folder that holds it all.
        ranks: how many records of ranks there are, over all launches.
        absent: of each launch that has begun, by cell and index, the ranks of which no folder has a record.
        unbegun: launches of which no folder has anything.
        added: files that were not there before.
        notes: what a reader must know, a sentence each.
    """

    path: Path
    ranks: int
    absent: Mapping[LaunchKey, Sequence[int]]
    unbegun: Sequence[LaunchKey]
    added: int
    notes: tuple[str, ...]


def merge_runs(paths: Sequence[Path], target: Path) -> Merged:
    """Join folders of one run; what ``target`` has already is one of them.

    Raises:
        StoreError: they are not one run, a folder is still written to, ranks are there twice with other contents, or a
            launch had other orders: nothing has changed then. Or the target cannot be written.
    """
    joined = RunFolder(target.resolve())
    given = [RunFolder(path) for path in dict.fromkeys(path.resolve() for path in paths)]
    folders = [*_find_earlier(joined, given), *given]
    records = [read_run(folder.path) for folder in folders]
    _refuse_held(given)
    _refuse_other_runs(folders, records)
    files = find_files(folders)
    _refuse_conflicts([*_find_other_orders(folders, records[0]), *find_conflicts(files)])
    with hold_run(joined):
        return _join(folders, files, joined, _merge_records(records))


def _find_earlier(joined: RunFolder, given: Sequence[RunFolder]) -> list[RunFolder]:
    """Return the folder to join into where it has something already, as it then is one of those to join.

    Raises:
        StoreError: it is one that is to stay as it is, or something else than a run.
    """
    if joined in given:
        raise StoreError(f"{joined.path}: is one of the folders to merge, which stay as they are; name another --into")
    if joined.run.exists():
        return [joined]
    if joined.path.exists() and any(joined.path.iterdir()):
        raise StoreError(f"{joined.path}: is there and is no run; name another --into")
    return []


def _refuse_held(folders: Sequence[RunFolder]) -> None:
    held = next(filter(is_held, folders), None)
    if held is not None:
        raise StoreError(f"{held.path}: is still written to; merge when its ranks have ended")


def _refuse_other_runs(folders: Sequence[RunFolder], records: Sequence[RunRecord]) -> None:
    """Refuse folders that are not of one run.

    Raises:
        StoreError: says which two, and in what they differ.
    """
    first = records[0]
    for folder, record in zip(folders, records, strict=True):
        pair = f"{folders[0].path} and {folder.path}"
        if record.run_id != first.run_id:
            which = f"{first.run_id} and {record.run_id}"
            raise StoreError(f"{pair} are two runs, {which}; merge joins what several nodes have of one")
        differing = [name for name in _OF_ALL if getattr(record, name) != getattr(first, name)]
        if differing:
            which = f"{first.run_id}, and differ in {', '.join(differing)}"
            raise StoreError(f"{pair} are both called {which}; was one of them edited, or planned on its own?")


def _refuse_conflicts(conflicts: Sequence[str]) -> None:
    if conflicts:
        more = len(conflicts) - _MOST_CONFLICTS
        told = [*conflicts[:_MOST_CONFLICTS], *([f"and {more} more"] if more > 0 else [])]
        raise StoreError("\n".join(["these folders contradict each other, and nothing was written:", *told]))


def _find_other_orders(folders: Sequence[RunFolder], record: RunRecord) -> Iterator[str]:
    """Say which launches were told other things in one folder than in another."""
    for cell, index in _list_launches(record):
        launches = [folder.launch(cell, index) for folder in folders]
        orders = {launch.order: read_order(launch).digest for launch in launches if launch.order.exists()}
        for path, digest in orders.items():
            first = next(iter(orders))
            if digest != orders[first]:
                yield f"launch {index} of cell {cell} had other orders: {first} and {path}"


def _list_launches(record: RunRecord) -> list[LaunchKey]:
    return [(cell.name, index) for cell in record.cells for index in cell.launches]


def _join(folders: Sequence[RunFolder], files: Sequence[FoundFile], joined: RunFolder, record: RunRecord) -> Merged:
    if not joined.run.exists() or read_run(joined.path) != record:
        write_record(joined.run, record)  # first: a joining that is cut short goes on when it is asked for again
    added = {name for file in files for name in _copy(file, joined)}
    added |= {name for cell in record.cells for name in _copy_reference(cell.name, folders, files, joined)}
    absent, unbegun = dict[LaunchKey, list[int]](), list[LaunchKey]()
    for cell in record.cells:
        _place_order([folder.reference(cell.name) for folder in folders], joined.reference(cell.name))
        for index in cell.launches:
            of_launch, launch = [folder.launch(cell.name, index) for folder in folders], joined.launch(cell.name, index)
            _place_order(of_launch, launch)
            own = launch.path.relative_to(joined.path).as_posix()
            if _close(of_launch, launch, cell, index, is_new=any(name.startswith(f"{own}/") for name in added)):
                absent[cell.name, index] = _find_absent(launch, cell)
            else:
                unbegun.append((cell.name, index))
    ranks = sum(cell.plan.ranks - len(absent[key]) for cell in record.cells for key in absent if key[0] == cell.name)
    notes = tuple(_find_notes(folders, joined, record))
    return Merged(joined.path, ranks, absent, unbegun, len(added), notes)


def _find_absent(launch: LaunchFolder, cell: CellRecord | OwnLoopCell) -> list[int]:
    return [rank for rank in range(cell.plan.ranks) if not launch.rank_record(rank).exists()]


def _copy(file: FoundFile, joined: RunFolder) -> Iterator[str]:
    """Copy a file that the joined folder has not; gives the names of what was copied."""
    if file.whose not in (Whose.RANK, Whose.RUN, Whose.NODE):
        return
    for path in file.places.values():
        place = joined.path / file.name
        if place.exists() and file.whose is Whose.NODE and not are_alike(place, path):
            digest = blake2b(path.read_bytes(), digest_size=4).hexdigest()
            place = place.with_name(f"{place.stem}.{digest}{place.suffix}")
        if not place.exists():
            _copy_one(path, place)
            yield place.relative_to(joined.path).as_posix()


def _copy_reference(
    cell: str, folders: Sequence[RunFolder], files: Sequence[FoundFile], joined: RunFolder
) -> Iterator[str]:
    """Copy what the single process of a cell left on one node, where several may have run it."""
    if joined.reference(cell).reference_data.exists():
        return
    chosen = next((folder for folder in folders if folder.reference(cell).reference_data.exists()), None)
    for file in files:
        is_of_cell = file.whose is Whose.REFERENCE and file.name.startswith(f"cells/{cell}/")
        if chosen is not None and is_of_cell and chosen in file.places:
            _copy_one(file.places[chosen], joined.path / file.name)
            yield file.name


def _copy_one(path: Path, place: Path) -> None:
    """Copy a file with its times, whole or not at all."""
    replace_file(place, lambda temporary: shutil.copy2(path, temporary))


def _place_order(launches: Sequence[LaunchFolder], place: LaunchFolder) -> None:
    """Write an order as it is, but for where it lies: what is left can be run in the joined folder."""
    given = next((launch for launch in launches if launch.order.exists()), None)
    if given is None or place.order.exists():
        return
    order = WorkerOrder.model_validate_json(given.order.read_bytes())
    run, moved = RunFolder(place.path.parents[2]), {"folder": str(place.path)}
    if order.reference is not None:
        moved["reference"] = str(run.reference(Path(order.reference).parts[-3]).reference_data)
    write_record(place.order, order.model_copy(update=moved))


def _close(
    of_launch: Sequence[LaunchFolder],
    launch: LaunchFolder,
    cell: CellRecord | OwnLoopCell,
    index: int,
    *,
    is_new: bool,
) -> bool:
    """Write how a launch ended and the table of its steps; False: no folder has anything of it."""
    told = [read_launch(one) for one in of_launch if one.launch.exists()]
    absent = _find_absent(launch, cell)
    if told:
        end = _merge_ends(told, all_there=not absent)
        if is_new or not launch.steps.exists() or not _is_told(end, launch):
            _finish(of_launch, launch, end, cell.plan.ranks)
    elif isinstance(cell, CellRecord):
        close_left(launch, cell, index)
    return bool(told) or len(absent) < cell.plan.ranks or bool(launch.find_journals())


def _is_told(end: LaunchRecord, launch: LaunchFolder) -> bool:
    there = read_launch(launch) if launch.launch.exists() else None
    return there is not None and (end.status, end.reason, end.failures) == (there.status, there.reason, there.failures)


def _finish(of_launch: Sequence[LaunchFolder], launch: LaunchFolder, end: LaunchRecord, ranks: int) -> None:
    """Write the step table from all journals; where some are gone, from what each folder has of its ranks' steps."""
    import pandas as pd

    tables = [read_steps(one) for one in of_launch if one.steps.exists() or one.find_journals()]
    timed = {int(rank) for table in tables for rank in table["rank"].unique()}
    if timed <= set(launch.find_journals()):
        finish_launch(launch, end, ranks=ranks)
        return
    steps = pd.concat(tables, ignore_index=True).drop_duplicates(["rank", "step"]).sort_values(["rank", "step"])
    steps.attrs = tell_place(launch)
    write_table(launch.steps, steps)
    write_record(launch.launch, end)


def _merge_ends(told: Sequence[LaunchRecord], *, all_there: bool) -> LaunchRecord:
    """Return how a launch ended, as several nodes tell it.

    Complete where one says so, and none says that it failed, or every rank's results are there all the same.
    """
    complete = [one for one in told if one.status is RunStatus.COMPLETE]
    failed = [one for one in told if one.status is RunStatus.FAILED]
    first = (complete if complete and (all_there or not failed) else failed or told)[0]
    reasons = dict.fromkeys(one.reason for one in told if one.reason is not None)
    failures: dict[int, RankFailure] = {}
    for failure in (failure for one in told for failure in one.failures):
        failures.setdefault(failure.rank, failure)
    in_order = tuple(failures[rank] for rank in sorted(failures))
    return first.model_copy(update={"reason": _join_reasons(reasons), "failures": in_order})


def _join_reasons(reasons: Mapping[str, None]) -> str | None:
    return "\n".join(reasons) or None


def _merge_records(records: Sequence[RunRecord]) -> RunRecord:
    """Return the record of the run: begun when the first node began, ended when the last one had."""
    statuses = {one.status for one in records}
    reasons = dict.fromkeys(one.reason for one in records if one.reason is not None)
    ends_ns = [one.ended_unix_ns for one in records if one.ended_unix_ns is not None]
    order = (RunStatus.FAILED, RunStatus.COMPLETE, RunStatus.RUNNING)
    return records[0].model_copy(
        update={
            "status": next(status for status in order if status in statuses),
            "reason": _join_reasons(reasons),
            "started_unix_ns": min(one.started_unix_ns for one in records),
            "ended_unix_ns": max(ends_ns, default=None),
            "prepared": all(one.prepared for one in records),
            "resumed_unix_ns": tuple(sorted({moment for one in records for moment in one.resumed_unix_ns})),
            "neighbours": tuple(dict.fromkeys(other for one in records for other in one.neighbours)),
        }
    )


def _find_notes(folders: Sequence[RunFolder], joined: RunFolder, record: RunRecord) -> Iterator[str]:
    """Say what of the folders is not taken over, as nothing is there to make it again from."""
    listed = {cell.name: cell.launches for cell in record.cells}
    for folder in folders:
        yield from say_unlisted(folder.path, find_unlisted(folder.path, listed))
    untraced = [
        f"launch {index} of cell {cell}"
        for cell, index in _list_launches(record)
        if not joined.launch(cell, index).find_traces()
        and any(folder.launch(cell, index).overlap.exists() for folder in folders)
    ]
    if untraced:
        yield f"the traces of {_name_some(untraced)} are gone: where its time went is told in no joined table"


def describe_absent(merged: Merged) -> Iterator[str]:
    """Say which ranks and launches are in none of the folders."""
    of_ranks: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for (cell, index), ranks in merged.absent.items():
        if ranks:
            of_ranks[tuple(ranks)].append(f"launch {index} of cell {cell}")
    for absent, launches in of_ranks.items():
        yield f"no folder has a record of {name_ranks(absent)} of {_name_some(launches)}"
    if merged.unbegun:
        unbegun = [f"launch {index} of cell {cell}" for cell, index in merged.unbegun]
        yield f"no folder has anything of {_name_some(unbegun)}"


def _name_some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
