"""A stage of the training state in which torch killed a rank, hung, or raised and left others waiting, is a row.

The launch does not fail.

Every rank leaves what it had found out when it goes into a stage; the launcher, who knows how it ended, adds that.
"""

import shutil
import signal
from typing import Final

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_ranks_in_stage
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import RankFailure
from dtbench.store.records.state import ENDED_IN_STAGE
from dtbench.store.write import write_record

HUNG: Final = "hung"
STOPPED: Final = "was stopped by a signal or a debugger"
RAISED: Final = "raised"


def describe_signal(number: int) -> str:
    """Say which signal ended a rank."""
    known = {one.value: one.name for one in signal.Signals}
    return f"killed by {known.get(number, f'signal {number}')}"


_OWN_SIGNALS: Final = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
"""What a process's own mistake ends it with; SIGKILL and SIGTERM come from outside: no memory left, or a person."""
OWN_MISTAKES: Final = tuple(describe_signal(signal.Signals[name]) for name in _OWN_SIGNALS if hasattr(signal, name))


def salvage_stage_failure(folder: LaunchFolder, failures: tuple[RankFailure, ...], *, ranks: int) -> bool:
    """Make the records of ranks that all ended in one stage, because one died, hung or raised there; else give False.

    ``failures`` name the culprit first. One that raised has left torch's words: no other exception is a stage's.
    """
    found = read_ranks_in_stage(folder, ranks=ranks)
    if len({_find_stage(record) for record in found}) != 1:
        return False
    culprit = failures[0]
    has_said = culprit.what == RAISED and any(_has_said(record) for record in found if record.rank == culprit.rank)
    if culprit.what not in (HUNG, *OWN_MISTAKES) and not has_said:
        return False
    ends = {failure.rank: failure.what for failure in failures}
    for record in found:
        *earlier, last = record.extras.stages
        raised = f"{ends.get(record.rank, 'ended')}: {last.raised}"
        stages = (*earlier, last.model_copy(update={"raised": raised}))
        write_record(folder.rank_record(record.rank), record.with_stages(stages))
        folder.rank_in_stage(record.rank).unlink()
    for used in (folder.link, folder.checkpoints):
        shutil.rmtree(used, ignore_errors=True)
    return True


def _has_said(record: RankRecord) -> bool:
    return not (record.extras.stages[-1].raised or "").startswith(ENDED_IN_STAGE)


def _find_stage(record: RankRecord) -> tuple[StatePart, Stage]:
    last = record.extras.stages[-1]
    return last.part, last.stage
