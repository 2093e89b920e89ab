"""What each option of the profiler costs: PROFILED step time, CPU time, time to stop and write, and size of the trace.

``python tests/benchmarks/profiler_cost.py [DIM]`` trains a transformer of four blocks in one process (256 if left out:
mostly compute; 64: mostly operators, where the profiler costs most), all options interleaved in each round, and prints
the median over rounds of each one's ratio to the profiler without options in the same round. A benchmark, not a test:
on a shared machine equal runs differ by some percent, the line ``again`` says by how much; CPU time differs least.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Profiler, Scenario
from dtbench.worker.loop.building import make_model, make_train_step
from dtbench.worker.loop.capture import capture, records_shapes
from dtbench.worker.models.batches import Batches
from dtbench.worker.parallelize.parallelized import leave_alone
from dtbench.worker.recording.recorder import Recorder

STEPS, ROUNDS = 5, 9
OPTIONS = {
    "none": Profiler(),
    "again": Profiler(),
    "record_shapes=false": Profiler(),  # dtbench records them on CPU always: made to forget that here
    "record_shapes": Profiler(record_shapes=True),
    "with_stack": Profiler(with_stack=True),
    "record_python_gc_info": Profiler(with_stack=True, record_python_gc_info=True),
    "capture_overload_names": Profiler(capture_overload_names=True),
    "profile_memory": Profiler(profile_memory=True),
    "enable_cuda_sync_events": Profiler(enable_cuda_sync_events=True),
}


@dataclass(frozen=True)
class Cost:
    """Per step: wall and CPU ns; of the whole: ns to stop and write, bytes of the trace."""

    step_ns: float
    cpu_ns: float
    write_ns: float
    trace_bytes: float


def make_scenario(dim: int) -> Scenario:
    """Return a transformer of this width, the quickstart's if 256, in one process."""
    return Scenario.model_validate(
        {
            "schema_version": 1,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "model": {
                "kind": "transformer",
                "layers": 4,
                "dim": dim,
                "heads": 8,
                "kv_heads": 4,
                "ffn_dim": 11 * dim // 4,
                "vocab_size": 16 * dim,
            },
            "data": {"global_batch": 4, "sequence_length": 128},
            "parallel": {"kind": "ddp", "replicas": 1},
        }
    )


def measure(train: Callable[[], object], settings: Profiler, device: DeviceKind) -> Cost:
    """Train a few steps under the profiler, one untimed before."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "rank0.0.pt.trace.json.gz"
        with capture(device, Recorder(), trace, settings):
            train()
            start_ns, start_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
            for _ in range(STEPS):
                train()
            if device is DeviceKind.CUDA:
                torch.cuda.synchronize()
            step_ns = (time.perf_counter_ns() - start_ns) / STEPS
            cpu_ns = (time.process_time_ns() - start_cpu_ns) / STEPS
            stop_ns = time.perf_counter_ns()
        return Cost(step_ns, cpu_ns, time.perf_counter_ns() - stop_ns, trace.stat().st_size)


def median_ratio(costs: list[Cost], base: list[Cost], of: Callable[[Cost], float]) -> float:
    """Return the median over rounds of a figure's ratio to the base of the same round."""
    return statistics.median(of(cost) / of(without) for cost, without in zip(costs, base, strict=True))


def main() -> None:
    """Interleave all options and print what each costs."""
    torch.set_num_threads(1)
    scenario = make_scenario(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
    plan = make_plan(scenario, Machine(cpu_cores=1, cuda_devices=torch.cuda.device_count()))
    device = torch.device(plan.device)
    built = make_model(scenario, device)
    built.materialize(built.module)
    step = make_train_step(scenario, leave_alone(built.module), built, Recorder())
    batch = Batches(scenario, built.make_batch, device, rows=slice(None)).make(0)
    for _ in range(3):
        step.run(batch)
    costs: dict[str, list[Cost]] = {name: [] for name in OPTIONS}
    for number in range(ROUNDS):
        for name in OPTIONS if number % 2 == 0 else reversed(OPTIONS):
            shapes = name != "record_shapes=false" and records_shapes(plan.device, OPTIONS[name])
            with mock.patch("dtbench.worker.loop.capture.records_shapes", return_value=shapes):
                costs[name].append(measure(lambda: step.run(batch), OPTIONS[name], plan.device))
    base = costs["none"]
    print(f"torch {torch.__version__}, {plan.device}, {plan.parameters} parameters; ratios to the bare profiler")
    print(f"bare: {statistics.median(one.step_ns for one in base) / 1e6:.1f} ms a step, "
          f"{statistics.median(one.trace_bytes for one in base) / STEPS / 1e3:.0f} kB of trace a step")  # fmt: skip
    print(f"{'option':26}{'step':>8}{'CPU':>8}{'write':>8}{'trace':>8}")
    for name, mine in costs.items():
        ratios = [
            median_ratio(mine, base, lambda cost: cost.step_ns),
            median_ratio(mine, base, lambda cost: cost.cpu_ns),
            median_ratio(mine, base, lambda cost: cost.write_ns),
            median_ratio(mine, base, lambda cost: cost.trace_bytes),
        ]
        print(f"{name:26}" + "".join(f"{ratio:8.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
