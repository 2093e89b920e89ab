"""The analysing wing works on a machine that has no torch."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["torch"] = None  # any import of it now fails
from pathlib import Path
from dtbench.traces.job.foreign import analyze_traces
import dtbench.runs.run
import dtbench.cli.analyze
(one,) = analyze_traces([Path(sys.argv[1])]).analyses
print(len(one.steps))
"""


def test_a_trace_is_analysed_where_torch_cannot_be_imported(recorded: Path) -> None:
    trace = recorded / "ddp_2ranks_rank0.json.gz"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(trace)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
