"""Where the traces and the plots of a run lie, and the commands that show more."""

import os
from collections.abc import Iterator
from pathlib import Path

from dtbench.base.commands import spell_command
from dtbench.report.page.page import Fact
from dtbench.report.page.sweep import MOST_CELLS
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import RunFolder


def find_places(summary: RunSummary) -> Iterator[Fact]:
    """Yield places by what lies there; print them unbroken: a path that is cropped cannot be copied."""
    folder = RunFolder(Path(summary.path))
    yield Fact("run folder", str(folder.path))
    if len(summary.cells) > MOST_CELLS:
        count = sum(len(cell.trace_paths) for cell in summary.cells)
        yield Fact("traces", f"cells/<cell>/launch<k>/traces ({count})")
        yield Fact("one cell", spell_command("dtbench", "report", summary.path, "--cell", summary.cells[0].name))
    for cell in summary.cells if len(summary.cells) <= MOST_CELLS else ():
        if cell.trace_paths:
            where = _inside(folder.path, os.path.commonpath([str(Path(path).parent) for path in cell.trace_paths]))
            yield Fact("traces", f"{where} ({len(cell.trace_paths)})")
    drawn = (
        *(folder.sweep_plot, folder.breakdown_plot, folder.owners_plot),
        *(folder.stages_plot, folder.stage_memory_plot),
    )
    plots = [plot.name for plot in drawn if plot.exists()]
    if plots:
        yield Fact("plots" if len(plots) > 1 else "plot", ", ".join(plots))
    if folder.tensorboard.exists():
        yield Fact("TensorBoard", spell_command("dtbench", "tensorboard", summary.path))
    elif any(cell.scenario is None and cell.trace_paths for cell in summary.cells):  # its ranks cannot draw
        yield Fact("TensorBoard", f"{spell_command('dtbench', 'analyze', summary.path)} makes it, and the plot")
    if has_traces(summary):
        yield Fact("what would change it", spell_command("dtbench", "whatif", summary.path))
    yield Fact("all numbers", spell_command("dtbench", "report", summary.path, "--json"))


def find_commands(summary: RunSummary, *, is_named: bool) -> Iterator[str]:
    """Yield the commands that a person needs next: of a run that was not named also the one that shows it again."""
    if not is_named:
        yield spell_command("dtbench", "report", summary.path)
    if has_traces(summary):
        yield spell_command("dtbench", "whatif", summary.path)
    if RunFolder(Path(summary.path)).tensorboard.exists():
        yield spell_command("dtbench", "tensorboard", summary.path)


def has_traces(summary: RunSummary) -> bool:
    """Whether steps of any cell can be replayed."""
    return any(cell.trace_paths for cell in summary.cells)


def _inside(folder: Path, path: str) -> str:
    """Return a path relative to the run folder where it lies inside."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
