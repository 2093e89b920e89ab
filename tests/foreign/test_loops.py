"""Loops that others wrote are measured as they are: right purposes, right regions, and not a bit of a loss changed."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.analyze.collectives import find_regions
from dtbench.analyze.reader import read_trace
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_rank_records, read_run, read_steps
from dtbench.store.records import OwnLoop, RunStatus
from dtbench.vocabulary import Purpose, Region

LOOPS = Path(__file__).parent / "loops.py"


@dataclass(frozen=True)
class Known:
    """What a loop does, counted by hand.

    Attributes:
        purposes: collectives of a step, or of a period of steps.
        period: steps that take turns.
        package: it needs; empty: torch alone.
        bytes_of: sizes of collectives of a purpose, in a step or a period.
        ranks: that it needs.
    """

    purposes: dict[Purpose, int]
    period: int = 1
    package: str = ""
    bytes_of: dict[Purpose, int] = field(default_factory=dict)
    ranks: int = 2


TITAN_EMBEDDING_BYTES = 4 * 2048 * 256
TITAN_LAYER_BYTES = 4 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256)
TITAN_BYTES = 2 * TITAN_EMBEDDING_BYTES + 2 * TITAN_LAYER_BYTES + 4 * 256
LAYER_BYTES = 4 * (32 * 32 + 32)
KNOWN = {
    "closure_over_fsdp2": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3},
        bytes_of={Purpose.UNSHARD: 6 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES},
    ),
    "lbfgs": Known({Purpose.GRAD_REDUCE: 2}, bytes_of={Purpose.GRAD_REDUCE: 2 * 3 * LAYER_BYTES}),
    "sam": Known({Purpose.GRAD_REDUCE: 2}, bytes_of={Purpose.GRAD_REDUCE: 2 * 3 * LAYER_BYTES}),
    "clip_as_torchtitan": Known({Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3, Purpose.OTHER: 1}),
    "compiled_ddp": Known({Purpose.GRAD_REDUCE: 1}, bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}),
    "local_sgd": Known({Purpose.OTHER: 1}, period=4, bytes_of={Purpose.OTHER: 3 * LAYER_BYTES}),
    "accumulated": Known({Purpose.GRAD_REDUCE: 1}, period=4),
    # One bucket of 7,520 numbers, and DDP's map of unused parameters: an int32 for each of 28.
    "transformers_trainer": Known(
        {Purpose.GRAD_REDUCE: 2}, package="accelerate", bytes_of={Purpose.GRAD_REDUCE: 4 * 7520 + 4 * 28}
    ),
    "lightning_ddp": Known({Purpose.GRAD_REDUCE: 1}, package="lightning"),
    # Lightning broadcasts an int64 between two batches: whether a rank was told to end.
    "lightning_accumulated": Known({Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1}, period=2, package="lightning"),
    "fabric_ddp": Known({Purpose.GRAD_REDUCE: 1}, package="lightning"),
    "accelerate_ddp": Known({Purpose.GRAD_REDUCE: 1}, period=2, package="accelerate"),
    "simple_fsdp": Known({Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 6}),
    "nano_gpt": Known({Purpose.GRAD_REDUCE: 1}),
    "fsdp1": Known({Purpose.UNSHARD: 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1}),
    # Gradients are summed and parameters gathered after the step, in one flat tensor; an overflow of gradients is asked
    # for in a number more. No range says so: they are nobody's, and none of FSDP's.
    "deepspeed_zero2": Known(
        {Purpose.OTHER: 3}, package="deepspeed", bytes_of={Purpose.OTHER: 2 * 3 * LAYER_BYTES + 4}
    ),
    "deepspeed_zero3": Known(
        {Purpose.OTHER: 3}, package="deepspeed", bytes_of={Purpose.OTHER: 2 * 3 * LAYER_BYTES + 8}
    ),
    # Others: numbers of tokens (int64) twice, a loss twice, and the norm of each of 17 parameters.
    "titan_fsdp2": Known(
        {Purpose.UNSHARD: 7, Purpose.GRAD_REDUCE: 4, Purpose.OTHER: 5},
        package="torchtitan",
        bytes_of={
            Purpose.UNSHARD: TITAN_BYTES + 2 * TITAN_LAYER_BYTES + TITAN_EMBEDDING_BYTES,
            Purpose.GRAD_REDUCE: TITAN_BYTES,
            Purpose.OTHER: 2 * 8 + 2 * 4 + 17 * 4,
        },
    ),
    # Five modules gather activations and scatter them, in forward and again in backward; the gradients of five norms
    # are summed over the tensor axis, and three numbers for each token of a loss over split logits.
    "titan_fsdp2_tp": Known(
        {Purpose.UNSHARD: 7, Purpose.GRAD_REDUCE: 4, Purpose.OTHER: 6, Purpose.TENSOR: 10 + 10 + 5 + 3},
        package="torchtitan",
        ranks=4,
        bytes_of={
            Purpose.UNSHARD: (TITAN_BYTES + 2 * TITAN_LAYER_BYTES + TITAN_EMBEDDING_BYTES + 4 * 256 * 9) // 2,
            Purpose.GRAD_REDUCE: (TITAN_BYTES + 4 * 256 * 5) // 2,
            Purpose.OTHER: 2 * 8 + 2 * 4 + 2 * 17 * 4,
            Purpose.TENSOR: 20 * 4 * (4 * 32 * 256) + 4 * 256 * 5 + 3 * 4 * (4 * 32),
        },
    ),
}


def train(name: str, ranks: int, out: Path, *results: Path) -> list[list[float]]:
    """Give the losses of all ranks."""
    out.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {
        **os.environ,
        "DTBENCH_SCRATCH": str(out),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(LOOPS.parents[2]),
    }
    finished = subprocess.run(
        [*command, str(LOOPS), name, str(out), *map(str, results)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert finished.returncode == 0, finished.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.ranks
@pytest.mark.thorough
@pytest.mark.parametrize("name", KNOWN)
def test_a_loop_that_others_wrote_is_measured_as_it_is(tmp_path: Path, name: str) -> None:
    known = KNOWN[name]
    if known.package and find_spec(known.package) is None:
        pytest.skip(f"{known.package} is not installed; the extra `nightly` has it")
    measured = train(name, known.ranks, tmp_path / "measured", tmp_path / "results")
    plain = train(name, known.ranks, tmp_path / "plain")
    assert measured == plain
    assert all(len(losses) > 0 for losses in plain)
    (folder,) = (tmp_path / "results").glob("*/*")
    run = read_run(folder)
    assert run.status is RunStatus.COMPLETE, run.reason
    launch = RunFolder(folder).launch("foreign", 0)
    for record in read_rank_records(launch):
        assert record.warmup.period == known.period, record.warmup.reason
        counts, sizes = Counter[Purpose](), Counter[Purpose]()
        for row in record.traffic:
            counts[row.purpose] += row.count
            sizes[row.purpose] += row.size_bytes
        assert counts == known.purposes
        assert {purpose: sizes[purpose] for purpose in known.bytes_of} == known.bytes_of
        assert record.traffic_is_stable
    loop = run.cells[0].plan
    assert isinstance(loop, OwnLoop)
    steps = read_steps(launch)
    assert (steps["phase"] == "PROFILED").sum() == known.ranks * loop.profiled_steps
    for trace in launch.find_traces().values():
        found = find_regions(read_trace(trace))
        assert (found.ends_ns[:-1] <= found.starts_ns[1:]).all()
        assert set(found.regions) == {Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER}
