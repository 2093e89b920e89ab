"""Put everything that is derived for people into a run's folder: the plots and TensorBoard's event files."""

from pathlib import Path

from dtbench.base.commands import spell_word
from dtbench.base.errors import StoreError
from dtbench.report.event_files.dashboards import write_cell, write_tensorboard
from dtbench.report.plots.names import save_picture
from dtbench.report.plots.pictures import draw_pictures
from dtbench.report.words.settings import find_settings
from dtbench.runs.reading.cell_data import STEPS_NAME, RunData, stack, stack_all
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_only_cell
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import CellRecord
from dtbench.store.write import write_record


def publish(data: RunData, summary: RunSummary) -> None:
    """Write plots, event files and checks of a run anew; one without steps gets only the last.

    Args:
        data: what was read of it.
        summary: its answer.

    Raises:
        StoreError: the disk is full.
    """
    folder = RunFolder(data.path)
    publish_checks(summary)
    if not _has_steps(data):
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
            steps=stack_all(data.launches, STEPS_NAME),
            purposes=stack(data.launches, "purposes"),
            environment=data.environment,
        )
    except (OSError, StoreError) as error:
        why = error.__cause__ if isinstance(error, StoreError) else error
        again = f"free some space, then `dtbench analyze {spell_word(folder.path)}` makes them"
        raise StoreError(
            f"{folder.path}: plot and TensorBoard files cannot be written ({getattr(why, 'strerror', why)}); {again}"
        ) from error


def publish_checks(summary: RunSummary) -> None:
    """Write what became of a run's checks, where it has any.

    Raises:
        StoreError: the disk is full.
    """
    if summary.checks is not None:
        write_record(RunFolder(Path(summary.path)).checks, summary.checks)


def _plots(folder: RunFolder) -> dict[str, Path]:
    """Return where each picture of a run goes, by its tag in TensorBoard."""
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
    folder, data = RunFolder(path), read_run_data(path, cell=name)
    planned = [cell for cell in data.record.cells if isinstance(cell, CellRecord)]
    cell = summarize_only_cell(data)
    if not _has_steps(data):
        return
    settings = find_settings(planned) if len(planned) > 1 else {}
    steps, purposes = stack_all(data.launches, STEPS_NAME), stack(data.launches, "purposes")
    try:
        write_cell(cell, folder.tensorboard, steps=steps, purposes=purposes, settings=settings)
    except OSError as error:
        raise StoreError(f"{folder.path}: TensorBoard files cannot be written ({error.strerror})") from error


def _has_steps(data: RunData) -> bool:
    return any(len(launch.steps) or launch.left_out for launch in data.launches)
