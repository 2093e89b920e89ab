"""How fast a link is reported to be, beside what plain gloo finds: two namespaces, a cable that lets so much through.

``python -m tests.benchmarks.link_speed [--rate 400mbit] [--rounds 5]`` trains over it by DDP whose buckets are on their
way together, then sums as many bytes by gloo alone, one collective after another, in turns, and prints by how much the
speed that ``dtbench analyze`` tells of the axis is off: in the median of the rounds 3 % are allowed. It exits with 1
where that does not hold. Namespaces and shaped traffic need root.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from dtbench.store.read import read_run
from tests.launch.namespaces import ADDRESSES, Nodes, connect_nodes, end, prepare

GOAL: Final = 0.03

_SCENARIO: Final = """\
# How fast is the cable?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 4, dim: 512, hidden_dim: 2048}
data: {global_batch: 2, sequence_length: 1}
parallel: {kind: ddp, replicas: 2, bucket_cap_mb: 8}
correctness: {enabled: false}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4}
"""
_BYTES: Final = 32 * 2**20
"""About: of all gradients, and of what is summed plainly."""
_PLAIN: Final = """\
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
data, times = torch.ones(int(sys.argv[1]) // 4), []
for _ in range(1 + int(sys.argv[2])):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(data)
    times.append(time.perf_counter() - began)
dist.barrier()
print(sorted(times[1:])[len(times[1:]) // 2], flush=True)
os._exit(0)  # gloo's threads abort a process that ends by itself
"""


@dataclass(frozen=True)
class Speeds:
    """Bytes per second over one cable, with the factors of nccl-tests (1 between two ranks).

    Attributes:
        reported: of the axis, in dtbench's answer.
        alone: that each collective is told by itself, median, in the same answer.
        at_once: part of the time of transfers in which another one ran.
        plain: that gloo reaches with one collective at a time.
    """

    reported: float
    alone: float
    at_once: float
    plain: float

    @property
    def off(self) -> float:
        """By which share the reported speed differs."""
        return self.reported / self.plain - 1


def compare_speeds(nodes: Nodes, results: Path, *, steps: int = 3, larger: int = 1) -> Speeds:
    """Train over a cable, and sum plainly over it.

    Args:
        nodes: the two ends of the cable.
        results: folder for the run.
        steps: that are profiled.
        larger: how many times 32 MiB of gradients each step has.

    Raises:
        RuntimeError: a process failed; says what it printed.
    """
    size = (f"model.hidden_dim={2048 * larger}", f"parallel.bucket_cap_mb={8 * larger}")
    folder = prepare(_SCENARIO, results, f"measure.profiled_steps={steps}", *size)
    _end_well(*(nodes.execute(node, folder) for node in range(2)))
    (cell,) = (one.name for one in read_run(folder.path).cells)
    (trace, *_) = folder.launch(cell, 0).find_traces().values()
    command = (sys.executable, "-m", "dtbench", "analyze", str(trace.parent), "--json")
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (link,) = json.loads(said)["links"]
    return Speeds(link["busbw"], link["alone"], link["at_once"], _sum_plainly(nodes, larger * _BYTES))


def _sum_plainly(nodes: Nodes, size: int) -> float:
    meeting = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29472", "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "eth0"}
    plain = (sys.executable, "-c", _PLAIN, str(size), "3")
    said = _end_well(*(nodes.start(node, *plain, RANK=str(node), **meeting) for node in range(2)))
    return size / median(float(one.split()[-1]) for one in said)


def _end_well(*processes: "subprocess.Popen[str]") -> list[str]:
    said = end(*processes)
    if any(one.returncode for one in processes):
        raise RuntimeError("\n".join(said))
    return said


def main() -> int:
    """Compare, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = []
    with connect_nodes() as nodes:
        nodes.shape(arguments.rate)
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                found.append(compare_speeds(nodes, Path(folder), larger=2))
            one = found[-1]
            print(
                f"reported {one.reported / 1e6:.2f} MB/s, plain gloo {one.plain / 1e6:.2f} MB/s ({one.off:+.2%}); each "
                f"collective by itself {one.alone / 1e6:.2f} MB/s, {one.at_once:.0%} at once",
                flush=True,
            )
    off = median(abs(one.off) for one in found)
    met = "met" if off <= GOAL else "NOT met"
    print(f"off by {off:.2%} in the median of {len(found)} rounds (goal {GOAL:.0%}: {met})")
    return 0 if off <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
