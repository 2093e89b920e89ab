"""A rank whose peer is gone ends with its backend's error: it neither crashes nor computes on with what it had."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import LaunchError
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import LaunchRecord

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

MEASURE = {
    "warmup": {"min_steps": 8, "max_steps": 8},
    "measured_steps": 8,
    "profiled_steps": 1,
    "stall_timeout_s": 60,  # a busy machine is no hang
}
NETWORKS = {"link": {"kind": "emulated", "latency_us": 500.0, "bandwidth_gb_per_s": 1.0}, "real": {"kind": "real"}}
STRATEGIES = {
    "ddp": {"kind": "ddp", "replicas": 2},
    "fsdp2": {"kind": "fsdp2", "shards": 2},
    "fsdp2_tp": {"kind": "fsdp2", "shards": 1, "tensor": 2},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_survivor_says_what_its_backend_raised(
    launch_fresh: Callable[..., Any], scenario: Callable[..., Any], tmp_path: Path, strategy: str, network: str
) -> None:
    wanted = scenario(
        parallel=STRATEGIES[strategy], network=NETWORKS[network], correctness={"enabled": False}, measure=MEASURE
    )
    with pytest.raises(LaunchError, match="rank 1 killed by SIGKILL, last seen in step 10"):
        launch_fresh(wanted, "kill")
    folder = LaunchFolder(tmp_path / "launch0")
    killed, survivor = LaunchRecord.model_validate_json(folder.launch.read_bytes()).failures
    assert (killed.rank, survivor.rank) == (1, 0)
    assert survivor.what in ("raised because a peer was gone", "ended because another rank failed")
    if survivor.what.startswith("raised"):
        assert re.search("closed by peer|reset by peer|Broken pipe", "\n".join(survivor.last_lines))
    steps = pd.read_parquet(folder.steps)
    assert steps["step"].max() == 9, "no step in which a peer was gone is counted"
