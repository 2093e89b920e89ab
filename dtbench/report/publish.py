"""Put everything that is derived for people into a run's folder: the plots and TensorBoard's event files."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from dtbench.analyze.launch_tables import read_tables
from dtbench.analyze.run import read_run_environment, summarize_one_cell
from dtbench.analyze.summary import CellSummary, RunSummary
from dtbench.errors import StoreError
from dtbench.report.pictures import draw_pictures
from dtbench.report.plots import save_picture
from dtbench.report.settings import find_settings
from dtbench.report.tensorboard import write_cell, write_tensorboard
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run, read_steps
from dtbench.store.records import CellRecord
from dtbench.store.write import write_record


def publish(summary: RunSummary) -> None:
    """Write plots, event files and checks of a summarized run anew; a run without steps gets only the last.

    Raises:
        StoreError: a table is broken, or the disk is full.
    """
    folder = RunFolder(Path(summary.path))
    publish_checks(summary)
    steps, purposes = _gather_steps(summary.cells, folder), _gather_purposes(summary.cells, folder)
    if steps is None:
        return
    try:
        pictures = draw_pictures(summary)
        for name, path in _plots(folder).items():
            if name in pictures:
                save_picture(pictures[name], path)
        write_tensorboard(
            summary,
            folder.tensorboard,
            pictures=pictures,
            steps=steps,
            purposes=purposes,
            environment=read_run_environment(folder.path),
        )
    except OSError as error:
        raise StoreError(f"{folder.path}: plot and TensorBoard files cannot be written ({error.strerror})") from error


def publish_checks(summary: RunSummary) -> None:
    """Write what became of a run's checks, where it has any.

    Raises:
        StoreError: the disk is full.
    """
    if summary.checks is not None:
        write_record(RunFolder(Path(summary.path)).checks, summary.checks)


def _plots(folder: RunFolder) -> dict[str, Path]:
    """Give where each picture of a run goes, by its tag in TensorBoard."""
    return {
        "step_breakdown": folder.breakdown_plot,
        "exposed_owners": folder.owners_plot,
        "sweep": folder.sweep_plot,
        "stages": folder.stages_plot,
        "stage_memory": folder.stage_memory_plot,
    }


def publish_cell(path: Path, name: str) -> None:
    """Write the event files of one cell of a run that goes on: TensorBoard shows what it has measured by now.

    Args:
        path: folder of the run.
        name: of the cell; one without steps gets none.

    Raises:
        StoreError: a table is broken, or the disk is full.
    """
    folder = RunFolder(path)
    planned = [cell for cell in read_run(path).cells if isinstance(cell, CellRecord)]
    cell = summarize_one_cell(path, name)
    steps, purposes = _gather_steps([cell], folder), _gather_purposes([cell], folder)
    if steps is None:
        return
    settings = find_settings(planned) if len(planned) > 1 else {}
    try:
        write_cell(cell, folder.tensorboard, steps=steps, purposes=purposes, settings=settings)
    except OSError as error:
        raise StoreError(f"{folder.path}: TensorBoard files cannot be written ({error.strerror})") from error


def _gather_steps(cells: Sequence[CellSummary], folder: RunFolder) -> pd.DataFrame | None:
    return _gather(cells, folder, lambda launch: read_steps(launch) if launch.steps.exists() else None)


def _gather_purposes(cells: Sequence[CellSummary], folder: RunFolder) -> pd.DataFrame:
    found = _gather(cells, folder, lambda launch: read_tables(launch).purposes)
    return pd.DataFrame(columns=["cell", "launch"]) if found is None else found


def _gather(
    cells: Sequence[CellSummary], folder: RunFolder, read: Callable[[LaunchFolder], pd.DataFrame | None]
) -> pd.DataFrame | None:
    """Put one table of every launch below each other, with the columns ``cell`` and ``launch``."""
    parts = []
    for cell in cells:
        for index in cell.launches:
            table = read(folder.launch(cell.name, index))
            if table is not None:
                parts.append(table.assign(cell=cell.name, launch=index))
    return pd.concat(parts, ignore_index=True) if parts else None
