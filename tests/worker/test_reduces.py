"""What DDP reduces out of its order of issue is named in the trace, whatever backend carries it."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.ranges import parse_reduces_range
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario

MLP = {"kind": "mlp", "layers": 3, "dim": 48, "hidden_dim": 64, "bias": False}
POWERSGD = {"kind": "powersgd", "start_powersgd_iter": 2, "min_compression_rate": 1}


def make_step(wanted: Scenario) -> tuple[Any, Any]:
    """Return the train step of the only rank, and its batches."""
    from dtbench.worker.loop.building import make_model, make_train_step
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.models.batches import Batches
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recording.recorder import Recorder

    plan, device, recorder = make_plan(wanted, Machine(cpu_cores=1, cuda_devices=0)), torch.device("cpu"), Recorder()
    model = make_model(wanted, device)
    parallel = parallelize(model, build_mesh(plan), wanted, plan, recorder)
    batches = Batches(wanted, model.make_batch, device, rows=slice(None))
    return make_train_step(wanted, parallel, model, recorder), batches


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("by", ["deepcopy", "pickle"])
def test_a_wrapped_model_can_be_copied_and_the_copy_trains(scenario: Callable[..., Scenario], by: str) -> None:
    step, batches = make_step(scenario(model=MLP, parallel={"kind": "ddp", "replicas": 1, "ignore": ["layers.1"]}))
    wrapped = step.parallel.model
    wrapped.process_group = torch.distributed.group.WORLD  # the only one that may be left out and found again
    other = copy.deepcopy(wrapped) if by == "deepcopy" else pickle.loads(pickle.dumps(wrapped))
    step.built.compute_output(other, batches.make(0).content).sum().backward()
    other.finish_backward()
    assert all(parameter.grad is not None for parameter in other.parameters())
    assert other.recorder is not wrapped.recorder


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("is_naming", [True, False])
@pytest.mark.parametrize(
    ("knobs", "owners"),
    [
        ({}, []),
        ({"delay_all_reduce": ["layers.1"]}, ["delayed parameters"]),
        ({"ignore": ["layers.1"]}, ["ignored parameters"]),
        ({"comm_hook": POWERSGD}, ["bucket 0"]),
    ],
    ids=["buckets", "delayed", "ignored", "powersgd"],
)
def test_a_profiled_step_names_them_and_no_other_does(
    scenario: Callable[..., Scenario], knobs: dict[str, Any], owners: list[str], is_naming: bool
) -> None:
    from torch.profiler import ProfilerActivity, profile

    step, batches = make_step(scenario(model=MLP, parallel={"kind": "ddp", "replicas": 1, **knobs}))
    for number in range(3):
        step.run(batches.make(number))
    step.recorder.is_naming = is_naming
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step.run(batches.make(3))
    found = {parse_reduces_range(event.name) for event in profiler.events()} - {None}
    assert found == (set(owners) if is_naming else set())
