"""Folders of runs, found by their names, which begin with the time: of thousands few are looked into.

Nothing heavy is imported: ``dtbench analyze`` asks whether a folder holds runs before it reads traces.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dtbench.store.layout import RunFolder


def find_runs(results: Path) -> list[Path]:
    """Return the folders of all runs, oldest first: their names begin with the time."""
    return [*walk_runs(results)][::-1]


def walk_runs(results: Path) -> Iterator[Path]:
    """Yield the folders of all runs, newest first; into each is looked when it is asked for, of thousands into few."""
    yield from _keep_runs((folder, name) for folder in _find_scenarios(results) for name in _list_folders(folder))


def find_runs_called(results: Path, name: str) -> Iterator[Path]:
    """Yield the runs whose folder has a name, mostly one."""
    yield from (path for folder in _find_scenarios(results) if _holds_run(path := folder / name))


def _find_scenarios(results: Path) -> list[Path]:
    """Return the folders in which runs may lie, by name."""
    return [results / name for name in sorted(_list_folders(results))]


def walk_runs_in(folder: Path) -> Iterator[Path]:
    """Yield the runs that lie in one folder, as those of a scenario do, newest first."""
    yield from _keep_runs((folder, name) for name in _list_folders(folder))


def _keep_runs(named: Iterable[tuple[Path, str]]) -> Iterator[Path]:
    """Yield the runs among names in folders, the last name first."""
    in_order = sorted(named, key=lambda one: (one[1], str(one[0])), reverse=True)
    yield from (path for folder, name in in_order if _holds_run(path := folder / name))


def _list_folders(folder: Path) -> list[str]:
    """Return the names of what is a folder in a folder, or leads to one; in no order."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:  # no folder, or one of somebody else, which must not hide all others
        return []


def _holds_run(path: Path) -> bool:
    folder = RunFolder(path)
    try:
        return folder.run.exists() or folder.scenario.exists()
    except OSError:  # a folder of somebody else
        return False
