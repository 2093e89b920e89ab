"""Loops that others wrote are measured as they are: right purposes, right regions, and not a bit of a loss changed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from tests.foreign.known import KNOWN
from tests.foreign.measured import check_measured

LOOPS = Path(__file__).parent / "loops.py"


def train(name: str, ranks: int, out: Path, *results: Path) -> list[list[float]]:
    """Return the losses of all ranks."""
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
    check_measured(folder, known)
