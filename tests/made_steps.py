"""What ranks leave of their steps, for launches in which no rank starts."""

import time

from dtbench.base.vocabulary import Phase
from dtbench.store.journal import JournalWriter, StepTiming
from dtbench.store.layout import LaunchFolder


def write_journals(folder: LaunchFolder, *, ranks: int, measured: int = 1, profiled: int = 1) -> None:
    """Leave the journal of every rank: MEASURED and PROFILED steps of 10 ms, begun as no other launch's."""
    start_ns = time.perf_counter_ns()
    folder.journal(0).parent.mkdir(parents=True, exist_ok=True)
    phases = [Phase.MEASURED] * measured + [Phase.PROFILED] * profiled
    for rank in range(ranks):
        with JournalWriter(folder.journal(rank), rank=rank, pid=1, capacity=len(phases)) as journal:
            journal.begin(0)
            for step, phase in enumerate(phases):
                begun_ns = start_ns + 10_000_000 * step
                journal.finish_step(
                    StepTiming(step=step, phase=phase, start_ns=begun_ns, duration_ns=10_000_000, cpu_ns=5_000_000)
                )
