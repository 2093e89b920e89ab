"""How a model trains after a call in its life: as it should, by figures that are there and an error that is known."""

import math
from collections.abc import Mapping
from typing import cast

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.vocabulary import DeviceKind
from dtbench.scenario.schema.ddp import LifecycleCall as CallName
from dtbench.store.records.lifecycle import LifecycleCall
from dtbench.worker.extras.lifecycle import ACTS, Act, Living, Look, make_call

ONES = torch.ones(2, dtype=torch.float64)
BEFORE = Look(1.0, {"a": ONES, "b": ONES})
OTHER = Look(1.0, {"a": ONES, "b": 2 * ONES})
GONE = Look(1.0, {"a": ONES})
NAN = Look(1.0, {"a": ONES, "b": ONES * math.nan})
KNOWN = "[enforce fail] layout Sparse is not supported\nwhere it is"


class Group:
    """A process group of two ranks."""

    def size(self) -> int:
        return 2


def call(
    monkeypatch: pytest.MonkeyPatch,
    after: Look | str,
    *,
    name: CallName = "deepcopy",
    device: DeviceKind = DeviceKind.CPU,
) -> LifecycleCall:
    """Make a call that does nothing, after which the model trains so, or raises."""
    known = ACTS[name]
    nothing = Act(lambda living: living.model, trains=known.trains, raises=known.raises)
    acts: Mapping[CallName, Act] = {name: nothing}
    monkeypatch.setattr("dtbench.worker.extras.lifecycle.ACTS", acts)
    monkeypatch.setattr(dist, "get_world_size", lambda group: group.size())
    group = cast("dist.ProcessGroup", Group())
    living = Living(cast("DistributedDataParallel", None), group, group, {}, device)

    def ask(_model: DistributedDataParallel) -> Look:
        if isinstance(after, Look):
            return after
        raise RuntimeError(after)

    return make_call(name, living, BEFORE, ask, 1e-6)


@pytest.mark.parametrize(
    ("after", "passed", "apart"),
    [(BEFORE, True, False), (OTHER, False, True), (GONE, False, False), (NAN, False, False)],
)
def test_a_gradient_that_is_gone_or_nan_is_neither_as_before_nor_apart(
    monkeypatch: pytest.MonkeyPatch, after: Look, passed: bool, apart: bool
) -> None:
    assert call(monkeypatch, after).passed is passed
    assert call(monkeypatch, after, name="remove_autograd_hooks").passed is apart


@pytest.mark.parametrize(
    ("after", "device", "passed"),
    [
        (KNOWN, DeviceKind.CPU, True),
        (BEFORE, DeviceKind.CPU, False),
        ("CUDA error: something else", DeviceKind.CPU, False),
        (BEFORE, DeviceKind.CUDA, True),
        (KNOWN, DeviceKind.CUDA, False),
    ],
)
def test_what_torch_is_known_to_refuse_over_gloo_is_refused_with_that_error(
    monkeypatch: pytest.MonkeyPatch, after: Look | str, device: DeviceKind, passed: bool
) -> None:
    told = call(monkeypatch, after, name="sparse_metadata", device=device)
    assert told.passed is passed
    assert told.error == (after.partition("\n")[0] if isinstance(after, str) else None)


def test_an_error_that_nobody_expects_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="layout Sparse"):
        call(monkeypatch, KNOWN)
