"""Close a launch: gather the journals of all ranks into ``steps.parquet`` and say how it ended."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dtbench.store.journal import JournalView, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.place import tell_place
from dtbench.store.records.run import LaunchRecord
from dtbench.store.use_file import add_use, name_held_back, name_takers, read_use
from dtbench.store.write import write_record, write_table

if TYPE_CHECKING:
    import pandas as pd

STEP_TYPES: Final = {
    "rank": "int64",
    "step": "int64",
    "phase": "string",
    "start_ns": "int64",
    "duration_ns": "int64",
    "cpu_ns": "int64",
    "stolen_fraction": "float64",
}
"""Columns of ``steps.parquet``, as ``STEPS`` in ``dtbench.traces.tables``."""

USE_TYPES: Final = {"others_cpu_ns": "float64", "taken_fraction": "float64"}
"""Further columns where somebody looked at the whole machine, as ``OTHERS`` in ``dtbench.traces.tables``."""


def finish_launch(folder: LaunchFolder, record: LaunchRecord, *, ranks: int) -> None:
    """Write the step table, whatever there is of it, then the launch's record, which marks the launch as ended."""
    steps = gather_steps(folder, ranks=range(ranks))
    steps.attrs = tell_place(folder)
    write_table(folder.steps, steps)
    uses = read_use(folder)
    throttled = [one.throttled_fraction for one in uses if one.throttled_fraction is not None]
    told = {
        "takers": name_takers(steps, uses),
        "throttled_fraction": max(throttled, default=None),
        "held_back": name_held_back(steps, uses),
        "gpus_unseen": tuple(dict.fromkeys(why for one in uses for why in one.gpus_unseen)),
    }
    write_record(folder.launch, record.model_copy(update=told))


def gather_steps(folder: LaunchFolder, *, ranks: Iterable[int]) -> "pd.DataFrame":
    """Give the finished steps of ranks, columns as ``STEPS`` in ``dtbench.traces.tables``."""
    import pandas as pd

    journals = [view for rank in ranks if (view := read_journal(folder.journal(rank))) is not None]
    rows = [row for view in journals for row in _rows(view)]
    steps = pd.DataFrame(rows, columns=list(STEP_TYPES)).astype(STEP_TYPES)
    uses = read_use(folder)
    return add_use(steps, uses).astype(USE_TYPES) if uses else steps


def _rows(view: JournalView) -> list[tuple[int, int, str, int, int, int, float]]:
    return [
        (view.rank, t.step, str(t.phase), t.start_ns, t.duration_ns, t.cpu_ns, t.stolen_fraction) for t in view.timings
    ]
