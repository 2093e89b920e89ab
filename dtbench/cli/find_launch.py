"""Which launch of a run a person means, of those that have traces."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dtbench.store.layout import LaunchFolder


def find_launch(run: Path, *, cell: str | None, launch: int | None) -> "LaunchFolder":
    """Return the one launch of a run that a person means and that has traces.

    Args:
        run: folder of the run.
        cell: its name; None: there is only one.
        launch: its number; None: there is only one.

    Raises:
        BadParameter: none or several fit.
        TraceError: no launch of the run has a trace.
    """
    from dtbench.base.errors import TraceError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    folders = {
        (one.name, index): RunFolder(run).launch(one.name, index)
        for one in read_run(run).cells
        for index in one.launches
    }
    traced = {key: folder for key, folder in folders.items() if folder.find_traces()}
    if not traced:
        raise TraceError(f"{run}: no launch of this run has a trace; did it run, and with profiled_steps above 0?")
    cell = _choose("cell", cell, dict.fromkeys(name for name, _ in traced))
    index = _choose("launch", None if launch is None else str(launch), [str(at) for name, at in traced if name == cell])
    return traced[cell, int(index)]


def _choose(what: str, wished: str | None, there_are: "Iterable[str]") -> str:
    """Return the wished one, or the only one."""
    from dtbench.scenario.mistakes import find_nearest
    from dtbench.scenario.sweeps.sweep import name_some

    names = list(there_are)
    if wished is None and len(names) == 1:
        return names[0]
    if wished is None:
        several = "several cells" if what == "cell" else "several launches"
        raise typer.BadParameter(f"there are {several}, {name_some(names)}; name one: --{what} {names[0]}")
    if wished in names:
        return wished
    near = find_nearest(wished, names)
    meant = f"did you mean `{near}`?" if near else f"there is {name_some(names)}"
    raise typer.BadParameter(f"no {what} `{wished}` with traces is in the run; {meant}")
