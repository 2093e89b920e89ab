"""How long a parameter's hook waits for its gradient, on a link of 40 ms: the closed form, on real ranks.

::

    fsdp1     issue │ backward of the unit │ hook         waits max(0, 40 - backward)
    ddp       issue 1 │ backward │ issue 0 │ hooks        waits max(0, issue + 40 - end of backward)
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.scenario.schema.scenario import Scenario

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = [pytest.mark.ranks, pytest.mark.timed]

QUIET = "DTBENCH_QUIET_MACHINE"
LINK_MS = 40
LINK = {
    "kind": "emulated",
    "latency_us": 1000.0 * LINK_MS,
    "bandwidth_gb_per_s": 10.0,
    "between_nodes": {"ranks_per_node": 2, "latency_us": 1000.0, "bandwidth_gb_per_s": 10.0},
}
DDP = {"kind": "ddp", "replicas": 2, "tensor": 2, "bucket_cap_mb": 0.001, "gather_weights": "async"}
FSDP1 = {"kind": "fsdp1", "shards": 2, "tensor": 2, "gather_weights": "async"}


def waits_ms(launched: Any) -> dict[str, float]:
    """Return the median wait of each parameter's gradient over ranks and PROFILED steps."""
    from dtbench.traces.rows.launch_tables import read_tables

    collectives = read_tables(launched.folder).collectives
    awaited = collectives[(collectives["awaited_by"] != "") & collectives["step"].notna()]
    return {str(owner): float(rows["wait_ns"].median()) / NS_PER_MS for owner, rows in awaited.groupby("owner")}


def run(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], parallel: dict[str, Any], backward_ms: int
) -> dict[str, float]:
    at = "entry" if parallel["kind"] == "fsdp1" else "exit"
    model = {"kind": "timed", "layers": 2, "dim": 32, "hidden_dim": None, "forward_ms": 0}
    wanted = scenario(
        model={**model, "backward_ms": backward_ms, "backward_at": at},
        data={"global_batch": 4, "sequence_length": 4},
        optimizer={"kind": "sgd"},
        correctness={"enabled": False},
        network=LINK,
        parallel=parallel,
        measure={"probes": ["_data_parallel_utils"], "profiled_steps": 6},
    )
    return waits_ms(launch(wanted))


def expected_ms(parallel: dict[str, Any], backward_ms: int) -> dict[str, float]:
    """Return what each parameter waits; layer 0's gradient under DDP is issued when backward ends."""
    left = float(max(0, LINK_MS - backward_ms))
    first = left if parallel is FSDP1 else float(LINK_MS)
    return {"layers.0.up.weight": first, "layers.1.up.weight": left}


@pytest.mark.quick("0-20-fsdp1", "100-10-ddp")
@pytest.mark.parametrize("parallel", [FSDP1, DDP], ids=["fsdp1", "ddp"])
@pytest.mark.parametrize(("backward_ms", "within_ms"), [(0, 20), (100, 10)])
def test_backward_between_issue_and_hook_hides_the_wait(
    launch: Callable[..., Any],
    scenario: Callable[..., Scenario],
    parallel: dict[str, Any],
    backward_ms: int,
    within_ms: float,
) -> None:
    waited = run(launch, scenario, parallel, backward_ms)
    expected = expected_ms(parallel, backward_ms)
    assert sorted(waited) == sorted(expected)
    for name, wait_ms in expected.items():
        assert waited[name] == pytest.approx(wait_ms, abs=within_ms if wait_ms < LINK_MS else 20), waited


@pytest.mark.skipif(not os.environ.get(QUIET), reason=f"times ranks to 2 ms: set {QUIET}=1 if nothing else runs")
@pytest.mark.parametrize("parallel", [FSDP1, DDP], ids=["fsdp1", "ddp"])
@pytest.mark.parametrize("backward_ms", [0, 30, 60])
def test_a_wait_is_what_of_the_link_backward_has_not_hidden(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], parallel: dict[str, Any], backward_ms: int
) -> None:
    waited = run(launch, scenario, parallel, backward_ms)
    for name, wait_ms in expected_ms(parallel, backward_ms).items():
        assert waited[name] == pytest.approx(wait_ms, abs=4 if wait_ms == LINK_MS else 2), waited
