"""How to start TensorBoard on event files that are already there; nothing heavy is imported.

TensorBoard's own server holds every event file below its folder open and keeps what it has read in memory; its pages
list each folder of them. Beside months of runs it is given the newest, by links; the tab *dtbench* has all.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from dtbench.store.layout import RunFolder
from dtbench.store.walk import walk_runs, walk_runs_in

MOST_FOLDERS: Final = 1000
"""Folders with event files that TensorBoard's own tabs are given: of a run one, one of each cell, and of each launch
where a cell has several."""


@dataclass(frozen=True)
class Served:
    """What TensorBoard's own tabs read.

    Attributes:
        folder: where that lies.
        shown: newest runs that are in it; None: all there is.
        of: all runs.
    """

    folder: Path
    shown: int | None = None
    of: int = 0


@contextmanager
def narrow(folder: Path, most: int = MOST_FOLDERS) -> Iterator[Served]:
    """Give the folder itself or, where runs in it have too many event files for TensorBoard, links to the newest."""
    runs = [*walk_runs(folder)] or [*walk_runs_in(folder)]
    kept, left = 0, most
    for run in runs:
        left -= _count_event_folders(RunFolder(run).tensorboard, left + 1)
        if left < 0:
            break
        kept += 1
    if kept == len(runs):
        yield Served(folder)
        return
    with tempfile.TemporaryDirectory(prefix="dtbench-") as links:
        for run in runs[: max(1, kept)]:
            link = Path(links) / run.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(run.resolve(), target_is_directory=True)
        yield Served(Path(links), max(1, kept), len(runs))


def _count_event_folders(folder: Path, most: int) -> int:
    """Count the folders that hold event files, as far as there are no more than so many."""
    holding = (at for at, _, names in os.walk(folder) if any("tfevents" in name for name in names))
    return sum(1 for _ in islice(holding, most))


def tensorboard_command(folder: Path, *, host: str, port: int) -> list[str]:
    """Return the command that serves every run and event file below a folder, with the TensorBoard of this interpreter.

    ``-P``: what lies in the folder that a person stands in is not imported.
    """
    return [
        sys.executable,
        "-P",
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder),
        "--host",
        host,
        "--port",
        str(port),
    ]


def has_event_files(folder: Path) -> bool:
    """Tell whether TensorBoard would find anything below a folder."""
    return next(folder.rglob("*tfevents*"), None) is not None
