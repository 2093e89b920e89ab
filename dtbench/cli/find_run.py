"""Which run a person means: a path, a scenario's name, a run's id, or nothing for the latest."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dtbench.store.layout import LaunchFolder


TRACE_ENDINGS = (".json", ".json.gz", ".tar", ".tar.gz", ".tgz", ".zip")


def find_run(named: str | None, results: Path) -> Path:
    """Give the folder of a run; where several match, the latest.

    Args:
        named: path of a run or of a folder of runs, name of a scenario, or id of a run; None: the latest of all.
        results: folder of all runs.

    Raises:
        StoreError: nothing matches.
    """
    from dtbench.errors import StoreError
    from dtbench.store.read import find_runs, latest_run

    if named is None:
        return latest_run(results)
    for candidate in (Path(named), results / named):
        if is_run(candidate):
            return candidate
        if inside := _runs_inside(candidate):
            return inside[-1]
    for run in find_runs(results):
        if run.name == named:
            return run
    raise StoreError(_say_missing(named, results))


def _say_missing(named: str, results: Path) -> str:
    from dtbench.store.read import find_runs

    if Path(named).exists():
        return f"`{named}` is there, but it holds neither a run (run.json) nor traces (*.json, *.json.gz)."
    runs = find_runs(results)
    if not runs:
        return (
            f"No file or folder is called `{named}`, and {results}: no runs here; start one with "
            "`dtbench run <scenario>`, or name another folder with --results"
        )
    return f"No run is called `{named}` in {results}; the latest is {runs[-1]}; a path works, too."


def is_run(folder: Path) -> bool:
    """Tell whether a folder is a run, finished or not."""
    from dtbench.store.layout import RunFolder

    run = RunFolder(folder)
    return run.run.is_file() or run.scenario.is_file()


def holds_runs(folder: Path) -> bool:
    """Tell whether a folder is one of a scenario's runs, or of all results."""
    return bool(_runs_inside(folder))


def _runs_inside(folder: Path) -> list[Path]:
    """Give the runs of one scenario's folder, else those of a folder of all results, oldest first."""
    from dtbench.store.read import find_runs

    of_scenario = [run for run in find_runs(folder.parent) if run.parent == folder]
    return of_scenario or find_runs(folder)


def is_traces(path: Path) -> bool:
    """Tell whether a path is a trace, or a folder or archive of traces; a run, or a folder of runs, is none."""
    from dtbench.analyze.reader.find import holds_trace_files

    if not path.is_dir():
        return path.is_file() or path.name.endswith(TRACE_ENDINGS)  # a trace that is missing is refused as a trace
    return not is_run(path) and not holds_runs(path) and holds_trace_files(path)


def find_launch(run: Path, *, cell: str | None, launch: int | None) -> "LaunchFolder":
    """Give the one launch of a run that a person means and that has traces.

    Args:
        run: folder of the run.
        cell: its name; None: there is only one.
        launch: its number; None: there is only one.

    Raises:
        BadParameter: none or several fit.
        TraceError: no launch of the run has a trace.
    """
    from dtbench.errors import TraceError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    folders = {
        (one.name, index): RunFolder(run).launch(one.name, index)
        for one in read_run(run).cells
        for index in one.launches
    }
    traced = {key: folder for key, folder in folders.items() if folder.find_traces()}
    if not traced:
        raise TraceError(f"{run}: no launch of this run has a trace; did it run with profiled_steps above 0?")
    cell = _choose("cell", cell, dict.fromkeys(name for name, _ in traced))
    index = _choose("launch", None if launch is None else str(launch), [str(at) for name, at in traced if name == cell])
    return traced[cell, int(index)]


def _choose(what: str, wished: str | None, there_are: "Iterable[str]") -> str:
    """Give the wished one, or the only one."""
    from dtbench.scenario.mistakes import find_nearest
    from dtbench.scenario.sweep import name_some

    names = list(there_are)
    if wished is None and len(names) == 1:
        return names[0]
    if wished is None:
        raise typer.BadParameter(f"there are several to choose from, {name_some(names)}; name one: --{what} {names[0]}")
    if wished in names:
        return wished
    near = find_nearest(wished, names)
    meant = f"did you mean `{near}`?" if near else f"there is {name_some(names)}"
    raise typer.BadParameter(f"no {what} `{wished}` with traces is in the run; {meant}")
