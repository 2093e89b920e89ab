"""A recorded trace in the launch of another run, whose rank then was the process that wrote it."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Final

from dtbench.store.layout import LaunchFolder

RECORDED: Final = Path(__file__).parent / "traces" / "recorded"


def put_trace(name: str, launch: LaunchFolder, rank: int = 0) -> Path:
    """Copy a recorded trace to where a rank leaves its own, and give the rank's record the trace's process."""
    launch.traces.mkdir(exist_ok=True)
    there = launch.trace(rank, 1)
    shutil.copy(RECORDED / name, there)
    record = launch.rank_record(rank)  # of any format that can be read
    written = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**written, "pid": read_pid(name)}), encoding="utf-8")
    return there


def read_pid(name: str) -> int:
    """Return the number of the process whose operators a recorded trace has."""
    content = gzip.decompress((RECORDED / name).read_bytes())
    found = re.search(rb'"cat":\s*"cpu_op".{0,200}?"pid":\s*(\d+)', content, re.DOTALL)
    assert found is not None
    return int(found.group(1))
