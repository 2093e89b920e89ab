"""Which run a person means: a path, a scenario's name, a run's id, or nothing for the latest.

Its imports are late: `dtbench analyze` asks whether a path is a run, and reads traces without any record.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

_ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".zip")


def find_run(named: str | None, results: Path, tell: Callable[[str], None] = lambda _sentence: None) -> Path:
    """Return the folder of a run; where several match, the latest.

    Args:
        named: path of a run or of a folder of runs, name of a scenario, or id of a run; None: the latest of all.
        results: folder of all runs.
        tell: told where the latest cannot be read, and another one is given.

    Raises:
        StoreError: nothing matches, or it cannot be looked for.
    """
    from dtbench.base.errors import StoreError
    from dtbench.store.read import latest_run

    if named is None:
        return latest_run(results, tell)
    if not named:
        raise StoreError("The name of a run is empty; leave it out for the latest run, where a command allows it.")
    try:
        found = _find_named(named, results)
    except OSError as error:  # a name too long for the file system, a folder of somebody else
        raise StoreError(f"{error.filename or named}: cannot be read ({error.strerror or error})") from error
    if found is None:
        raise StoreError(_say_missing(named, results))
    return found


def _find_named(named: str, results: Path) -> Path | None:
    from dtbench.store.walk import find_runs_called

    for candidate in (Path(named), results / named):
        if is_run(candidate):
            return candidate
        if (latest := _find_latest_inside(candidate)) is not None:
            return latest
    return next(find_runs_called(results, named), None) if Path(named).name == named else None


def _say_missing(named: str, results: Path) -> str:
    from dtbench.scenario.mistakes import find_nearest
    from dtbench.store.walk import find_runs

    if Path(named).exists():
        archives = sorted(path for path in Path(named).glob("*") if path.name.endswith(_ARCHIVES))
        if archives:
            return f"`{named}` holds neither a run nor traces, but archives: give one of them, say {archives[0]}"
        return f"`{named}` is there, but it holds neither a run (run.json) nor traces (*.json, *.json.gz)."
    runs = find_runs(results)
    if not runs:
        return (
            f"No file or folder is called `{named}`, and {results}: no runs here; start one with "
            "`dtbench run <scenario>`, or name another folder with --results"
        )
    if Path(named).name != named or Path(named).suffix:
        return f"`{named}`: there is no such file or folder. The latest run in {results} is {runs[-1]}."
    near = find_nearest(named, [*dict.fromkeys(name for run in runs for name in (run.parent.name, run.name))])
    meant = f"did you mean `{near}`?" if near else f"the latest is {runs[-1]}; a path works, too."
    return f"No run is called `{named}` in {results}; {meant}"


def is_run(folder: Path) -> bool:
    """Tell whether a folder is a run, finished or not."""
    from dtbench.store.layout import RunFolder

    run = RunFolder(folder)
    return run.run.is_file() or run.scenario.is_file()


def holds_runs(folder: Path) -> bool:
    """Tell whether a folder is one of a scenario's runs, or of all results."""
    return _find_latest_inside(folder) is not None


def _find_latest_inside(folder: Path) -> Path | None:
    """Return the latest run of one scenario's folder, else of a folder of all results; None: there is none."""
    from dtbench.store.walk import walk_runs, walk_runs_in

    return next(walk_runs_in(folder), None) or next(walk_runs(folder), None)
