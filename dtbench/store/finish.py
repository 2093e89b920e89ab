"""Close a launch: gather the journals of all ranks into ``steps.parquet`` and say how it ended."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dtbench.base.columns import Column, Table, Unit
from dtbench.store.journal import JournalView, StepTiming, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.place import tell_place
from dtbench.store.records.run import LaunchRecord
from dtbench.store.use_file import add_use, name_held_back, name_takers, read_use
from dtbench.store.write import write_record, write_table

if TYPE_CHECKING:
    import pandas as pd

_OWN_CLOCK: Final = "the rank's monotonic one"

STEPS: Final = Table[Iterable[JournalView], None, tuple[int, StepTiming]](
    name="steps",
    doc="Every timed step of every rank of a launch, WARMUP steps included.",
    find=lambda journals: ((None, (view.rank, timing)) for view in journals for timing in view.timings),
    unique=("rank", "step"),
    keys=(),
    columns=(
        Column("rank", "int64", None, "which rank", lambda row: row[0], least=0),
        Column("step", "int64", None, "counts from 0 over all phases", lambda row: row[1].step, least=0),
        Column("phase", "string", None, "WARMUP, MEASURED or PROFILED", lambda row: str(row[1].phase)),
        Column("start_ns", "int64", Unit.NS, "when it began", lambda row: row[1].start_ns, clock=_OWN_CLOCK),
        Column("duration_ns", "int64", Unit.NS, "how long it took", lambda row: row[1].duration_ns, least=1),
        Column(
            "cpu_ns",
            "int64",
            Unit.NS,
            "CPU time of the whole process, all threads, in the step",
            lambda row: row[1].cpu_ns,
        ),
        Column(
            "stolen_fraction",
            "float64",
            Unit.FRACTION,
            "of its machine's cores, what other VMs had in the step; NaN: not known",
            lambda row: row[1].stolen_fraction,
        ),
    ),
)


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
    """Return the finished steps of ranks: the table ``steps``, with its further columns where somebody looked."""
    journals = [view for rank in ranks if (view := read_journal(folder.journal(rank))) is not None]
    steps, uses = STEPS.tabulate(journals), read_use(folder)
    return add_use(steps, uses) if uses else steps
