"""A rank that trains nothing: it tells its log what it was started with, keeps a journal, and ends as it is asked to.

``MADE_RANK`` says how: ``{"1": "kill"}`` is for rank 1.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from dtbench.base.vocabulary import Phase
from dtbench.store.journal import JournalWriter, RankState, StepTiming
from dtbench.store.layout import LaunchFolder

TOLD = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "TORCHELASTIC_RUN_ID", "GLOO_SOCKET_IFNAME"),
)


def main() -> None:
    order = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    rank, folder = os.environ["RANK"], LaunchFolder(Path(order["folder"]))
    end = json.loads(os.environ.get("MADE_RANK", "{}")).get(rank, "well")
    sys.stdout.write(json.dumps({name: os.environ.get(name) for name in TOLD}) + "\n")
    sys.stdout.flush()
    if order["is_reference"]:
        folder.reference_data.write_text("reference", encoding="utf-8")
    with JournalWriter(folder.journal(int(rank)), rank=int(rank), pid=os.getpid(), capacity=4) as journal:
        journal.begin(time.time_ns())
        journal.enter_step(Phase.MEASURED, 0, time.time_ns())
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "wait":
            time.sleep(60)
        journal.finish_step(StepTiming(0, Phase.MEASURED, 1, 1000, 10))
        journal.set_state(RankState.DONE, time.time_ns())


if __name__ == "__main__":
    main()
