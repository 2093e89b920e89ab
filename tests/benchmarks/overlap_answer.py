"""dtbench's part of the comparison with HTA: load one trace, overlap and breakdown of each step and of the whole.

``python -m tests.benchmarks.overlap_answer TRACE`` answers what ``hta_answer.py`` answers, and by steps too. What
``dtbench analyze`` says beside (collectives, owners, causes, gaps, ranks) is not asked for. Prints whole and steps as
one JSON document, in nanoseconds.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from dtbench.traces.device.time import find_device_time
from dtbench.traces.reader import read_trace
from dtbench.traces.time.overlap import measure_overlaps


def main() -> None:
    """Answer and print."""
    trace = read_trace(Path(sys.argv[1]))
    time = find_device_time(trace)
    *steps, whole = measure_overlaps([*(step.window for step in time.steps), time.whole], time.kinds)
    by_step = {step.number: asdict(overlap) for step, overlap in zip(time.steps, steps, strict=True)}
    print(json.dumps({"whole": asdict(whole), "steps": by_step}))


if __name__ == "__main__":
    main()
