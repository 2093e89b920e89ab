"""Make the tables of launches that have ended, at the lowest priority: ranks of the next may be measured now.

``python -m dtbench.report.tb_plugin.derive LAUNCH_FOLDER ...``, a process of its own, so that the page stays quick.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run

_NICEST = 19
_ONE_AT_A_TIME = threading.Lock()


def derive_missing(folder: RunFolder) -> None:
    """Make the tables of every launch that has ended, has traces and has none; returns when they are there.

    What cannot be made is left to whoever reads the tables: it says why.

    Raises:
        StoreError: this is no run, or its record is broken.
    """
    run = read_run(folder.path)
    launches = [folder.launch(cell.name, index) for cell in run.cells for index in cell.launches]
    if not any(_is_waiting(one) for one in launches):
        return
    with _ONE_AT_A_TIME:
        waiting = [one for one in launches if _is_waiting(one)]  # another request may have waited for the same
        if waiting:
            subprocess.run(_command(waiting), env=_environment(), stdin=subprocess.DEVNULL, check=False)


def _is_waiting(folder: LaunchFolder) -> bool:
    return folder.launch.exists() and not folder.overlap.exists() and bool(folder.find_traces())


def _command(launches: Sequence[LaunchFolder]) -> list[str]:
    return [sys.executable, "-P", "-m", __name__, *(str(one.path) for one in launches)]


def _environment() -> dict[str, str]:
    """Let the process find dtbench where this one did, and numpy use one thread."""
    here, paths = str(Path(__file__).parents[3]), [path for path in sys.path if path]
    python_path = os.pathsep.join([*paths, *([] if here in paths else [here])])
    return {**os.environ, "PYTHONPATH": python_path, "OPENBLAS_NUM_THREADS": "1"}


def _yield_to_everything() -> None:
    """Run only when nothing else wants the core, where the system can do that; else as nice as possible."""
    with suppress(OSError, AttributeError):
        os.nice(_NICEST)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main(folders: Sequence[str]) -> None:
    """Make the tables of these launches, one trace at a time."""
    from dtbench.base.errors import DtbenchError
    from dtbench.runs.reading.gains import write_gains
    from dtbench.traces.rows.launch_tables import analyze_launch

    _yield_to_everything()
    for folder in folders:
        with suppress(DtbenchError):  # whoever reads the tables next gets the same refusal, with its sentence
            analyze_launch(LaunchFolder(Path(folder)), workers=1, further=write_gains)


if __name__ == "__main__":
    main(sys.argv[1:])
