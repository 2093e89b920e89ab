"""Two real ranks, of which rank 1 sleeps 30 ms in every step: it is named, and where; the other's waits are seen."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is what is watched; install the extra `run`")

SCRIPT = Path(__file__).parent / "loop.py"


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    finished = subprocess.run(
        [*command, str(folder), *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.ranks
@pytest.mark.quick("fsdp-backward")
@pytest.mark.parametrize(
    ("how", "where", "name", "told"),
    [
        pytest.param("ddp", "forward", "gradient_wait_ms", "before wait 1 of a step, all_reduce", id="ddp-forward"),
        pytest.param(
            "named", "backward", "gradient_wait_ms", "before wait 1 of a step, all_reduce", id="named-backward"
        ),
        pytest.param(
            "fsdp", "backward", "gradient_wait_ms", "reduce_scatter (grad_reduce) of first", id="fsdp-backward"
        ),
        pytest.param("fsdp", "between", "unshard_wait_ms", "between steps", id="fsdp-between"),
        pytest.param("tensor", "forward", "tensor_wait_ms", "tensor in forward", id="tensor-forward"),
    ],
)
def test_a_rank_that_sleeps_is_named_and_the_others_wait_is_of_the_right_purpose(
    tmp_path: Path, how: str, where: str, name: str, told: str
) -> None:
    first, second = run(tmp_path, how, where)
    assert str(first["numbers"]) == str(second["numbers"]), "every rank hears the same of all"
    assert first["late"] == second["late"]
    numbers = first["numbers"]
    assert numbers["slowest_rank"] == 1
    assert told in first["where"], first["where"]
    assert numbers["unseen"] == 0
    assert 10 < numbers[name] <= numbers["exposed_ms"] + 1e-9 < numbers["step_ms"] + numbers["between_ms"]
    assert math.isnan(numbers["hidden_fraction"]) == (how in ("ddp", "tensor")), "C++ issues them behind no wrapper"
    lines = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [8, 16]
    assert all(line["slowest_rank"] == 1 and "rank 1 is late by" in line["late"] for line in lines)
    assert first["owners"].keys() == ({"first", "second"} if how == "fsdp" else set())
