"""How the canary compares steps, puts them back, and narrows down what failed."""

import itertools
import math
import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from torch import nn

from dtbench.base.vocabulary import DeviceKind, Operation, Purpose, Region
from dtbench.store.records.canary import CanaryResult
from dtbench.worker.extras.canary.canary import look_for_missing_waits
from dtbench.worker.extras.canary.narrow import MOST_TRIED, Group, describe_group, find_smallest
from dtbench.worker.extras.canary.trial import Trial, compare_trials, read_gradients, worst_of
from dtbench.worker.extras.still_steps import StillState
from dtbench.worker.network.deferred import CollectiveKey

TOLERANCES = (1e-5, 1e-5)


def make_trial(loss: float = 2.0, gradients: tuple[Any, ...] = ((1.0, 2.0),)) -> Trial:
    tensors = tuple(None if values is None else torch.tensor(values) for values in gradients)
    return Trial(loss=loss, gradients=tensors, duration_ns=1)


def test_equal_steps_are_equal() -> None:
    difference = compare_trials(make_trial(), make_trial())
    assert (difference.loss, difference.gradient, difference.is_equal) == (0, 0, True)
    assert difference.is_within(TOLERANCES)


@pytest.mark.parametrize(
    ("found", "loss", "gradient"),
    [
        (make_trial(loss=3.0), 0.5, 0),
        (make_trial(loss=math.nan), math.inf, 0),
        (make_trial(gradients=((1.0, math.nan),)), 0, math.inf),
        (make_trial(gradients=((1.0, math.inf),)), 0, math.inf),
        (make_trial(gradients=(None,)), 0, math.inf),
        (make_trial(gradients=((1.0, 2.0 + 5**0.5 / 2),)), 0, 0.5),
    ],
)
def test_a_step_that_differs_does_so_by_the_largest_relative_difference(
    found: Trial, loss: float, gradient: float
) -> None:
    difference = compare_trials(found, make_trial())
    assert difference.loss == pytest.approx(loss)
    assert difference.gradient == pytest.approx(gradient)
    assert not difference.is_equal
    assert not difference.is_within(TOLERANCES)


def test_rounding_is_told_from_poison() -> None:
    difference = compare_trials(make_trial(loss=2.0 + 1e-7, gradients=((1.0, 2.0 + 1e-6),)), make_trial())
    assert difference.is_within(TOLERANCES)
    assert not difference.is_equal
    assert not worst_of([difference, compare_trials(make_trial(), make_trial())]).is_equal


@pytest.mark.parametrize(
    ("trial", "is_finite"),
    [
        (make_trial(), True),
        (make_trial(gradients=(None, (1.0, 1.0))), True),
        (make_trial(loss=math.nan), False),
        (make_trial(gradients=((math.inf, 1.0),)), False),
    ],
)
def test_a_step_with_numbers_that_are_none_is_not_finite(trial: Trial, is_finite: bool) -> None:
    assert trial.is_finite is is_finite


def test_gradients_are_copied_also_where_there_is_none_or_few() -> None:
    dense, sparse, unused = (nn.Parameter(torch.ones(2)) for _ in range(3))
    dense.grad = torch.ones(2)
    sparse.grad = torch.sparse_coo_tensor([[1]], [3.0], (2,), check_invariants=True)
    first, second, third = read_gradients([dense, sparse, unused])
    dense.grad.zero_()
    assert first is not None
    assert first.tolist() == [1, 1]
    assert second is not None
    assert second.tolist() == [0, 3]
    assert third is None


class Scaled(nn.Module):
    """One weight, one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))


@dataclass
class FakeParallel:
    model: nn.Module
    parameters: tuple[nn.Parameter, ...]


def test_everything_that_a_step_changes_is_put_back_as_often_as_wished() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

    model = Scaled()
    hook = PowerSGDState(None, start_powerSGD_iter=2)
    hook.error_dict[0] = torch.ones(3)
    model._comm_hooks = [(None, hook)]
    step: Any = SimpleNamespace(parallel=FakeParallel(model, (model.weight,)))
    state = StillState(step)
    drawn = (torch.rand(1).item(), random.random())
    for _ in range(2):
        with torch.no_grad():
            model.weight.fill_(math.nan)
            model.mean.add_(1)
        hook.error_dict[0].fill_(math.nan)
        hook.iter += 1
        hook.rng.random_sample()
        state.restore()
        assert model.weight.tolist() == [1, 1]
        assert model.mean.tolist() == [0, 0]
        assert hook.error_dict[0].tolist() == [1, 1, 1]
        assert hook.iter == 0
        assert (torch.rand(1).item(), random.random()) == drawn


def make_key(number: int) -> CollectiveKey:
    purpose = (Purpose.UNSHARD, Purpose.GRAD_REDUCE)[number % 2]
    operation = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)[number % 2]
    return CollectiveKey(purpose, operation, Region.BACKWARD, f"layers.{number // 4}", place=number // 2 % 2)


KEYS = tuple(make_key(number) for number in range(8))


@pytest.mark.parametrize("guilty", [*itertools.combinations(KEYS, 1), *itertools.combinations(KEYS, 3)])
def test_the_guilty_are_found_one_by_one_and_nobody_else(guilty: Group) -> None:
    found = find_smallest(KEYS, lambda group: not set(group).isdisjoint(guilty))
    assert sorted(found, key=str) == sorted(((one,) for one in guilty), key=str)


def test_what_fails_only_together_is_named_together() -> None:
    pair = {KEYS[0], KEYS[1]}
    assert find_smallest(KEYS, pair.issubset) == [KEYS]
    within = {KEYS[0], KEYS[4]}
    gathers = tuple(one for one in KEYS if one.purpose is Purpose.UNSHARD)
    assert find_smallest(KEYS, within.issubset) == [gathers]


def test_the_search_ends_where_it_would_take_too_many_steps() -> None:
    tried = list[Group]()

    def fails(group: Group) -> bool:
        tried.append(group)
        return True

    many = tuple(
        CollectiveKey(Purpose.TENSOR, Operation.ALL_REDUCE, Region.FORWARD, "", place)
        for place in range(MOST_TRIED + 1)
    )
    assert find_smallest(many, fails) == [many]
    assert tried == [], "one purpose, one kind: that it fails is known"
    assert len(find_smallest(many[1:], fails)) == len(tried) == MOST_TRIED


def test_a_group_is_described_by_what_all_of_it_share() -> None:
    alone = describe_group((KEYS[5],), frozenset(KEYS[:6]))
    assert (alone.purpose, alone.operation, alone.region) == (
        Purpose.GRAD_REDUCE,
        Operation.REDUCE_SCATTER,
        Region.BACKWARD,
    )
    assert (alone.owner, alone.place, alone.count, alone.was_awaited) == ("layers.1", None, 1, False)
    all_of_them = describe_group(KEYS, frozenset())
    assert (all_of_them.purpose, all_of_them.operation, all_of_them.owner) == (None, None, None)
    assert (all_of_them.region, all_of_them.count, all_of_them.was_awaited) == (Region.BACKWARD, 8, True)
    nobodys = CollectiveKey(Purpose.TENSOR, Operation.ALL_REDUCE, Region.FORWARD, "", 3)
    assert (describe_group((nobodys,), frozenset()).owner, describe_group((nobodys,), frozenset()).place) == (None, 3)


def test_of_steps_that_nobody_could_try_no_number_is_told() -> None:
    scenario, plan = SimpleNamespace(wants_canary=True), SimpleNamespace(device=DeviceKind.CUDA)
    trained: Any = SimpleNamespace(at=SimpleNamespace(scenario=scenario, plan=plan), step=None)
    finding = look_for_missing_waits(trained)
    assert finding is not None
    found = finding.record
    assert isinstance(found, CanaryResult)
    assert (found.passed, found.is_equal) == (None, None)
    assert '"loss_error":"NaN","gradient_error":"NaN"' in found.model_dump_json()
