"""An emulated link on CPUs is that of one machine, however its ranks were started."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.errors import PlanError
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import WorkerOrder
from dtbench.worker.__main__ import make_carrier


@pytest.mark.parametrize("local", ["1", "2", None], ids=["two nodes", "one node", "not told"])
def test_ranks_on_several_machines_refuse_a_link_whose_clock_they_do_not_share(
    scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: str | None
) -> None:
    wanted = scenario(network={"kind": "emulated", "bandwidth_gb_per_s": 1.0})
    order = WorkerOrder(
        cell="ddp",
        index=0,
        scenario=wanted,
        plan=make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0)),
        folder=str(tmp_path),
        reference=None,
        is_reference=False,
        launched_unix_ns=None,
    )
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    if local == "1":
        with pytest.raises(PlanError, match=r"the emulated link is not there: .* on the clock of its machine"):
            make_carrier(order, LaunchFolder(tmp_path))
    else:
        assert make_carrier(order, LaunchFolder(tmp_path)).link is not None
