"""What tests of runs share: the traces of ``tests/traces``, and cells of known cost."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.runs.summary import CellSummary, Interval
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.run import RunStatus
from tests.traces.conftest import draw, recorded

__all__ = ["draw", "recorded"]

MS = 1_000_000
NAN = float("nan")
LINK = {"kind": "emulated", "latency_us": 12_000.0, "bandwidth_gb_per_s": 0.1048576}
TIMED = {"kind": "timed", "layers": 12, "forward_ms": 0.0, "backward_ms": 20.0}


def interval(median: float) -> Interval:
    return Interval(median=median, low=NAN, high=NAN, quartile1=NAN, quartile3=NAN, count=4)


@pytest.fixture
def cell(scenario: Callable[..., Scenario]) -> Callable[..., CellSummary]:
    """Twelve blocks of 20 ms in buckets of 1 MiB on a link of 12 ms and 10 ms for each MiB: 284 ms."""

    def make(step_ms: float, cpu_ms: float = 5.0, **sections: Any) -> CellSummary:
        parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}
        asked = scenario(**{"model": TIMED, "network": LINK, "parallel": parallel, **sections})
        return CellSummary(
            name="cell",
            status=RunStatus.COMPLETE,
            reason=None,
            scenario=asked,
            plan=make_plan(asked, Machine(cpu_cores=2, cuda_devices=0)),
            launches=(0,),
            step_time=interval(step_ms * MS),
            launch_medians_ns=(step_ms * MS,),
            profiler_cost=interval(NAN),
            time_to_first_step_ns=NAN,
            tokens_per_second=NAN,
            model_flops_utilization=NAN,
            memory=None,
            cpu_ns_per_step=cpu_ms * MS,
            hidden_fraction=NAN,
            exposed_step_fraction=NAN,
            purposes=(),
            ranks=(),
            receipts=(),
            warmup=None,
            correctness=None,
            losses=(),
            unread_events=0,
            unknown_names=(),
            trace_paths=(),
            notes=(),
        )

    return make
