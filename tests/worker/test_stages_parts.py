"""What a stage compares, and that one which compares nothing does not say that bits are equal; without ranks."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import torch.distributed.checkpoint as dcp
from torch import nn

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.state import LEAST_SAMPLES
from dtbench.worker.extras.state_dict.async_save import AsyncSaveCost
from dtbench.worker.extras.state_dict.memory import MemoryWatch
from dtbench.worker.extras.state_dict.stages import TrainingState, make_setting, make_work
from dtbench.worker.machine import process_facts
from tests.known import known


def forget(_model: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """Leave a parameter out of the state dict, as a model's own hook may."""
    state.pop("bias", None)


@pytest.fixture
def make_training() -> Callable[..., TrainingState]:
    def make(*, forgets: bool) -> TrainingState:
        model = nn.Linear(4, 3)
        if forgets:
            model.register_state_dict_post_hook(forget)
        parameters = tuple(model.parameters())
        return TrainingState(model, parameters, torch.optim.SGD(parameters, lr=0.1), strict=False)

    return make


@pytest.mark.parametrize(("forgets", "wrong"), [(False, []), (True, ["bias"])])
def test_a_parameter_that_the_loaded_state_leaves_out_is_named(
    make_training: Callable[..., TrainingState], tmp_path: Path, forgets: bool, wrong: list[str]
) -> None:
    work = make_work(Stage.LOAD, make_setting(make_training(forgets=forgets), StatePart.MODEL, tmp_path))
    for _ in range(2):
        found = work.check(work.call(work.prepare()))
        assert found is not None
        assert [one.key for one in found] == wrong


def test_a_parameter_that_was_nothing_but_nan_is_not_said_to_be_left_out(
    make_training: Callable[..., TrainingState], tmp_path: Path
) -> None:
    training = make_training(forgets=True)
    with torch.no_grad():
        training.parameters[1].fill_(float("nan"))
    work = make_work(Stage.LOAD, make_setting(training, StatePart.MODEL, tmp_path))
    assert work.check(work.call(work.prepare())) == []


def test_a_save_and_a_state_without_tensors_compare_nothing(
    make_training: Callable[..., TrainingState], tmp_path: Path
) -> None:
    training = make_training(forgets=False)
    assert make_work(Stage.SAVE, make_setting(training, StatePart.MODEL, tmp_path)).check(None) is None
    flatten = make_work(Stage.FLATTEN, make_setting(training, StatePart.OPTIMIZER, tmp_path))
    assert flatten.check(flatten.call(flatten.prepare())) is None


class Late(Future[Any]):
    """A save that copies nothing at its call, and writes what is there when somebody waits for it."""

    def __init__(self, state: dict[str, Any], checkpoint_id: Path, **_: Any) -> None:
        super().__init__()
        self._write: Callable[[], Any] = lambda: dcp.save(state, checkpoint_id=checkpoint_id)

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._write())
        return super().result(timeout)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("parts", [(StatePart.MODEL,), (StatePart.MODEL, StatePart.OPTIMIZER)])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_save_that_copies_after_its_call_shows_in_weights_that_no_step_changes(
    lone_group: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: Callable[..., Any],
    parts: tuple[StatePart, ...],
    *,
    is_late: bool,
) -> None:
    model = nn.Linear(8, 8).to(torch.bfloat16)
    optimizer = kind(model.parameters(), lr=0.0)  # as beside a save

    def train() -> None:
        model(torch.ones(4, 8, dtype=torch.bfloat16)).square().mean().backward()
        optimizer.step()

    train()
    weights = model.weight.detach().clone()
    if is_late:
        monkeypatch.setattr(dcp, "async_save", Late)
    asked = StateDict(stages=(), parts=parts, rounds=1, steps=2)
    training = TrainingState(model, tuple(model.parameters()), optimizer, strict=True)
    found = AsyncSaveCost(asked, training, train, tmp_path, torch.device("cpu")).run()
    assert (found.mismatched >= 2) is is_late  # weight and bias
    assert found.mismatched == 0 or is_late
    assert torch.equal(model.weight, weights)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the kernel's peak can be set back on Linux alone"
)
def test_memory_that_is_gone_before_the_first_sample_shows_in_the_peak() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    with watch.watching():
        held = torch.ones(64 << 20, dtype=torch.uint8)  # more than the C library keeps for later
        del held
    seen = watch.read()
    assert seen.is_host_peak_kept
    assert known(seen.host_growth_bytes) > 32 << 20


def test_where_the_system_keeps_no_peak_the_samples_are_all_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_facts, "_FORGET", Path("/nowhere/clear_refs"))
    watch = MemoryWatch(torch.device("cpu"))
    with watch.watching():
        pass
    seen = watch.read()
    assert not seen.is_host_peak_kept
    assert (seen.host_growth_bytes is None) is (seen.samples <= LEAST_SAMPLES)
