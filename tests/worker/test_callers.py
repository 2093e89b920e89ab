"""Which function asked for a collective, by the stack of the thread that issues it."""

import contextlib
import functools
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.vocabulary import Operation
from dtbench.worker.recording.callers import find_caller
from dtbench.worker.recording.recorder import Recorder

HERE = __name__


def see(module: str = "torch.distributed.distributed_c10d") -> Callable[[], str]:
    """Return a function of a module that issues something, and gives who asked for it."""
    names: dict[str, Any] = {"__name__": module, "sys": sys, "find_caller": find_caller}
    exec("def issue(): return find_caller(sys._getframe(0))", names)
    issue: Callable[[], str] = names["issue"]
    return issue


class Trainer:
    def sum_losses(self) -> str:
        return see()()

    @functools.cache  # noqa: B019 - what wraps a function does not ask
    def sum_cached(self) -> str:
        return see()()


def test_the_innermost_function_that_is_neither_torchs_nor_dtbenchs_asked() -> None:
    def sum_losses() -> str:
        return see()()

    def step() -> str:
        return sum_losses()

    test = "test_the_innermost_function_that_is_neither_torchs_nor_dtbenchs_asked"
    assert step() == f"{HERE}.{test}.<locals>.sum_losses"
    assert Trainer().sum_losses() == f"{HERE}.Trainer.sum_losses"
    assert Trainer().sum_cached() == f"{HERE}.Trainer.sum_cached"


@pytest.mark.parametrize(
    "module",
    ["contextlib", "threading", "torch", "dtbench.worker", "deepspeed.comm.torch", "lightning.pytorch.strategies.ddp"],
)
def test_what_only_carries_out_is_passed_over(module: str) -> None:
    class Log:
        def write(self) -> str:
            return see(module)()

    assert Log().write().endswith("Log.write")


@pytest.mark.parametrize("module", ["torchtitan.distributed.utils", "deepspeed.runtime.engine", "contextlib2"])
def test_what_only_begins_like_it_asks(module: str) -> None:
    assert see(module)() == f"{module}.issue"


def test_a_context_manager_asks_for_what_it_issues_and_a_part_of_a_function_is_the_function() -> None:
    found = []

    @contextlib.contextmanager
    def synchronised() -> Iterator[None]:
        found.append(see()())
        yield

    with synchronised():
        found.extend(see()() for _ in range(1))
    test = f"{HERE}.test_a_context_manager_asks_for_what_it_issues_and_a_part_of_a_function_is_the_function"
    assert found == [f"{test}.<locals>.synchronised", test]


def make_hook(found: list[str], module: str) -> Callable[..., None]:
    """Return a hook of a module that issues something and notes who asked for it."""
    names: dict[str, Any] = {"__name__": module, "found": found, "issue": see()}
    exec("def hook(*_): found.append(issue())", names)
    hook: Callable[..., None] = names["hook"]
    return hook


@pytest.mark.parametrize(
    ("module", "asked"), [("torch.distributed.fsdp", ""), ("deepspeed.runtime.zero", "deepspeed.runtime.zero.hook")]
)
def test_hooks_ask_for_themselves_and_torchs_own_were_not_asked_for_by_what_runs_around_them(
    module: str, asked: str
) -> None:
    found: list[str] = []
    hook = make_hook(found, module)

    def train(model: Any, optimizer: Any) -> None:
        loss = model(torch.ones(2)).sum()
        assert len(found) == 1, "in a module's call"
        loss.backward()
        assert len(found) == 2, "in the engine, on this thread"
        optimizer.step()

    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(hook)
    model.weight.register_hook(hook)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.register_step_pre_hook(hook)
    train(model, optimizer)
    assert found == [asked] * 3


def test_a_function_that_is_compiled_in_parts_keeps_its_name() -> None:
    found: list[str] = []
    issue = torch._dynamo.disable(make_hook(found, "torch.distributed.distributed_c10d"))

    def step(rows: Any) -> Any:
        sine = rows.sin()
        issue()
        more = sine + 1
        issue()
        return more

    torch.compile(step, backend="eager")(torch.ones(2))
    test = f"{HERE}.test_a_function_that_is_compiled_in_parts_keeps_its_name"
    assert found == [f"{test}.<locals>.step"] * 2


SCRIPT = """
import sys
from dtbench.worker.recording.callers import find_caller
def main(): return [find_caller(sys._getframe(0)) for _ in range(1)]
FOUND = [*main(), find_caller(sys._getframe(0))]
"""


@pytest.mark.parametrize("started", ["__main__", "__mp_main__"])
@pytest.mark.parametrize("name", ["my_train", "profile"])
def test_functions_of_a_script_are_called_by_its_file_whatever_that_is_called(
    tmp_path: Path, started: str, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text(SCRIPT)
    found = runpy.run_path(str(tmp_path / f"{name}.py"), run_name=started)["FOUND"]
    assert found == [f"{name}.main", f"{name}.py"]


def test_functions_of_a_program_that_is_started_as_a_module_are_called_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "train.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    found = runpy.run_module("my_package.train", run_name="__main__")["FOUND"]
    assert found == ["my_package.train.main", "train.py"]


@pytest.mark.parametrize("is_naming", [False, True])
def test_who_asked_is_looked_for_in_profiled_steps_only(*, is_naming: bool) -> None:
    recorder = Recorder(is_naming=is_naming)
    label = recorder.issue("0", Operation.ALL_REDUCE, 8, is_async=True, is_integer=False)
    asked = f"{HERE}.test_who_asked_is_looked_for_in_profiled_steps_only"
    assert label.caller == (asked if is_naming else "")
