"""A stage of the training state in which torch killed a rank, or hung, is a row of the table, not a failed launch.

Every rank leaves what it had found out when it goes into a stage; the launcher, who knows how it ended, adds that.
"""

import shutil
import signal
from typing import Final

from dtbench.store.layout import LaunchFolder
from dtbench.store.rank_records import RankRecord
from dtbench.store.read import read_ranks_in_stage
from dtbench.store.records import RankFailure
from dtbench.store.write import write_record
from dtbench.vocabulary import Stage, StatePart

HUNG: Final = "hung"


def describe_signal(number: int) -> str:
    """Say which signal ended a rank."""
    return f"killed by {signal.Signals(number).name}"


_OWN_SIGNALS: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""What a process's own mistake ends it with; SIGKILL and SIGTERM come from outside: no memory left, or a person."""
_CAUSES: Final = (HUNG, *map(describe_signal, _OWN_SIGNALS))


def keep_killed(folder: LaunchFolder, failures: tuple[RankFailure, ...], *, ranks: int) -> bool:
    """Make the records of ranks that all ended in one stage, because one died or hung there; False: they did not.

    ``failures`` name the culprit first.
    """
    found = read_ranks_in_stage(folder, ranks=ranks)
    if failures[0].what not in _CAUSES or len({_find_stage(record) for record in found}) != 1:
        return False
    ends = {failure.rank: failure.what for failure in failures}
    for record in found:
        *earlier, last = record.stages
        raised = f"{ends.get(record.rank, 'ended')}: {last.raised}"
        stages = (*earlier, last.model_copy(update={"raised": raised}))
        write_record(folder.rank_record(record.rank), record.model_copy(update={"stages": stages}))
        folder.rank_in_stage(record.rank).unlink()
    for used in (folder.link, folder.checkpoints):
        shutil.rmtree(used, ignore_errors=True)
    return True


def _find_stage(record: RankRecord) -> tuple[StatePart, Stage]:
    last = record.stages[-1]
    return last.part, last.stage
