"""The closed form of a timed model comes out of the replay of its own trace, unchanged and with another link.

Neither knows the other: the replay has lengths and edges of a trace, the closed form has what the scenario says.
"""

from pathlib import Path

import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.prediction.costs import known_costs
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.changes.link import Link
from dtbench.replay.read import read_graph
from dtbench.replay.run import replay
from dtbench.scenario.load import load_scenario_file
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import change_field
from dtbench.traces.job.foreign import analyze_traces

RECORDED = Path(__file__).parent / "recorded"


def time_closed(scenario: Scenario) -> int:
    plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
    return time_step(scenario, plan, known_costs(scenario, plan), jitter_share=MEAN_JITTER)


def speed_up(scenario: Scenario, times: float) -> Scenario:
    network = scenario.network.model_dump()
    faster = change_field(scenario, f"network.bandwidth_gb_per_s={network['bandwidth_gb_per_s'] * times:.9f}")
    return change_field(faster, f"network.latency_us={network['latency_us'] / times:.6f}")


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
def test_a_timed_model_is_replayed_as_its_closed_form_says(name: str) -> None:
    (cell,) = load_scenario_file(RECORDED / name / "scenario.yaml").cells
    graph = read_graph(analyze_traces([RECORDED / name], workers=1)).graph
    step_ns, closed_ns = replay(graph).steps_ns[0], time_closed(cell.scenario)
    assert 0 <= step_ns / closed_ns - 1 < 0.15  # the closed form's host takes no time, and no profiler looks on
    for change, times in ((Link(0.5), 0.5), (Link(2.0), 2.0), (Link(4.0), 4.0), (Hidden(), 1e6)):
        saved_ns = step_ns - replay(change.apply(graph)).steps_ns[0]
        said_ns = closed_ns - time_closed(speed_up(cell.scenario, times))
        assert saved_ns == pytest.approx(said_ns, abs=0.03 * step_ns), change.name
