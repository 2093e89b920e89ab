"""What a device waited for: each mean is of its own column, over the steps in which the wait for the host is known."""

import pandas as pd
import pytest

from dtbench.runs.cell.summarize_waits import summarize_idle
from dtbench.traces.rows.tables import GAPS
from tests.known import known


def test_each_wait_of_a_device_is_the_mean_of_its_own_column() -> None:
    rows = [
        {"rank": 0, "step": 0, "host_wait_ns": 90, "host_sync_ns": 20, "comm_wait_ns": 300, "launch_unknown_ns": 4},
        {"rank": 0, "step": 1, "host_wait_ns": 70, "host_sync_ns": 10, "comm_wait_ns": 500, "launch_unknown_ns": 0},
        {"rank": 0, "step": 2, "host_wait_ns": None, "comm_wait_ns": 9000},
    ]
    gaps = GAPS.fit(pd.DataFrame(rows))
    idle = known(summarize_idle(gaps, gaps[["rank", "step"]]))
    assert (idle.host_wait_ns, idle.host_sync_ns, idle.comm_wait_ns) == (80, 15, 400)
    assert idle.comm_wait_at_most_ns == pytest.approx(402)
    assert known(idle.part).steps == 2
