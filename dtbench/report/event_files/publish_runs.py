"""Publish many finished runs: drawing takes seconds of CPU each, so they are shared out over the cores."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from dtbench.base.errors import StoreError
from dtbench.machine.processes import count_cores
from dtbench.report.event_files.publish import publish
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data

_WORTH: Final = 4
"""Runs; below it, one process is done before others have started."""


def publish_runs(runs: Sequence[Path]) -> tuple[str, ...]:
    """Put plots and event files into each run's folder; gives a sentence for each run that could not be published."""
    workers = min(count_cores(), len(runs))
    if len(runs) < _WORTH or workers < 2:
        found = [_publish(run) for run in runs]
    else:  # a fork would copy locks that this process's threads hold
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(_publish, runs))
    return tuple(sentence for sentence in found if sentence is not None)


def _publish(run: Path) -> str | None:
    try:
        data = read_run_data(run)
        publish(data, summarize_data(data))
    except StoreError as error:
        return str(error)
    return None
