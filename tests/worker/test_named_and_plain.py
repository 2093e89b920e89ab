"""What dtbench's own ranges say of a loop is nowhere less than what torch's alone say of the same loop."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import dtbench
from dtbench.base.vocabulary import Purpose

SCRIPT = Path(__file__).parent / "named_and_plain.py"
COLUMNS = ["operation", "size_bytes", "purpose", "region", "owner"]


def read_issued(folder: Path) -> pd.DataFrame:
    """Return the collectives of all steps in the order that each rank issued them in."""
    table = dtbench.read_trace(folder).collectives
    issued = table[table["step"].notna()].sort_values(["rank", "issue_ns"])
    return issued[COLUMNS].reset_index(drop=True)


@pytest.mark.ranks
@pytest.mark.thorough
def test_under_capture_a_loop_is_never_answered_worse_than_from_its_plain_trace(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    finished = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
    )
    assert finished.returncode == 0, finished.stderr
    (traces,) = (tmp_path / "named").glob("named/*/cells/*/launch0/traces")
    named, plain = read_issued(traces), read_issued(tmp_path / "plain")
    assert named[["operation", "size_bytes"]].equals(plain[["operation", "size_bytes"]])
    per_step = {Purpose.EXPERT: 2 * 2 * 2 - 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1}
    assert Counter(named["purpose"]) == {purpose: 2 * 2 * count for purpose, count in per_step.items()}
    is_worse = (named["purpose"] != plain["purpose"]) & (plain["purpose"] != Purpose.OTHER)
    is_worse |= ((named["owner"] == "") & (plain["owner"] != "")) | ((named["region"] == "") & (plain["region"] != ""))
    assert not is_worse.any(), plain.join(named, rsuffix="_named")[is_worse]
    assert set(named.loc[named["purpose"] == Purpose.OTHER, "owner"]) == {"named_and_plain.sum_losses"}
