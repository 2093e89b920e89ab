"""What dtbench itself costs in a MEASURED step: CPU time of its loop around an empty train step.

With a CUDA device the loop's clock is the device's: two events a step.

``python tests/benchmarks/harness_cost.py [STEP_MS]`` prints microseconds per step, and the share of a step of STEP_MS
(the quickstart's, if left out, from its latest run in ./results). A benchmark, not a test: identical loops differ by 9
%.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import dtbench
from dtbench.base.vocabulary import Phase, Region
from dtbench.store.journal import JournalWriter
from dtbench.worker.loop.clock import make_clock
from dtbench.worker.loop.steps import PhaseResult, StepLoop
from dtbench.worker.recording.recorder import Recorder

STEPS, ROUNDS = 5_000, 9
LIMIT_US = 50


def measure_loop(folder: Path) -> float:
    """Return CPU ns per step of the whole loop: clock, journal, recorder, region marks, keeping the loss."""
    module = torch.cuda if torch.cuda.is_available() else None
    loss, clock = torch.zeros(()), make_clock(module, capacity=STEPS)
    with JournalWriter(folder / "journal", rank=0, pid=0, capacity=STEPS) as journal:
        recorder = Recorder(on_region=lambda region: journal.beat(region, time.time_ns()), on_issue=journal.count_issue)

        def train(_step: int) -> torch.Tensor:
            for region in (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER, None):
                recorder.enter(region)
            return loss

        loop = StepLoop(recorder, journal, clock, lambda _steps: None, train)
        start_ns = time.process_time_ns()
        loop.run(Phase.MEASURED, range(STEPS), PhaseResult())
        return (time.process_time_ns() - start_ns) / STEPS


def measure_own_loop(folder: Path) -> float:
    """Return CPU ns per MEASURED step of a person's own empty loop, ``with step(): pass``, between two of its steps."""
    first, count = 8, 0  # warm-up ends there at the latest
    start_ns = end_ns = 0
    with dtbench.capture(folder, name="cost", max_warmup_steps=8, measured_steps=STEPS, profiled_steps=1) as step:
        while not step.is_done:
            if count == first:
                start_ns = time.process_time_ns()
            if count == first + STEPS - 1:  # the last one also ends the phase
                end_ns = time.process_time_ns()
            with step():
                pass
            count += 1
    return (end_ns - start_ns) / (STEPS - 1)


def measure_bare() -> float:
    """Return CPU ns per iteration of a loop that does nothing."""
    start_ns = time.process_time_ns()
    for _ in range(STEPS):
        pass
    return (time.process_time_ns() - start_ns) / STEPS


def read_quickstart_step_ms() -> float | None:
    """Return the median step of the latest quickstart run in ./results; None where there is none."""
    import pandas as pd

    tables = sorted(Path("results/quickstart").glob("*/cells/ddp/launch0/steps.parquet"))
    if not tables:
        return None
    steps = pd.read_parquet(tables[-1])
    return float(steps[steps["phase"] == "MEASURED"]["duration_ns"].median()) / 1e6


def main() -> None:
    """Interleave all loops and print the medians of differences."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        rounds = [(measure_loop(path), measure_bare(), measure_own_loop(path)) for _ in range(ROUNDS)]
    cost_us = statistics.median(loop - bare for loop, bare, _ in rounds) / 1e3
    print(f"harness: {cost_us:.1f} us of CPU per MEASURED step (limit {LIMIT_US} us)")
    own_us = statistics.median(own - bare for _, bare, own in rounds) / 1e3
    print(f"dtbench.capture around an own loop: {own_us:.1f} us (limit {LIMIT_US} us)")
    step_ms = float(sys.argv[1]) if len(sys.argv) > 1 else read_quickstart_step_ms()
    if step_ms is None:
        print("no quickstart run in ./results to compare with; give a step time in ms")
    else:
        print(f"share of a step of {step_ms:.0f} ms: {cost_us / (10 * step_ms):.4f} %")
    sys.exit(max(cost_us, own_us) > LIMIT_US)


if __name__ == "__main__":
    main()
