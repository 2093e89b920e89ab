"""What ranks leave of their steps, for launches in which no rank starts."""

from dtbench.store.journal import JournalWriter, StepTiming
from dtbench.store.layout import LaunchFolder
from dtbench.vocabulary import Phase


def write_journals(folder: LaunchFolder, *, ranks: int) -> None:
    """Leave the journal of one MEASURED step of 10 ms of every rank."""
    folder.journal(0).parent.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        with JournalWriter(folder.journal(rank), rank=rank, pid=1, capacity=1) as journal:
            journal.begin(0)
            journal.finish_step(
                StepTiming(step=0, phase=Phase.MEASURED, start_ns=0, duration_ns=10_000_000, cpu_ns=5_000_000)
            )
