"""What reaches gloo, of what torch asks of a group."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.worker.network.named_gloo import GlooGroup, Group
from dtbench.worker.recorder import Recorder


class Backend:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, method: str) -> Any:
        return lambda *args: self.asked.append((method, args))


def ask(group_class: type[Group], method: str, *args: Any) -> tuple[str, tuple[Any, ...]]:
    backend = Backend()
    recorder = Recorder(on_region=lambda _region: None, on_issue=lambda *_issue: None)
    group_class(backend, recorder, 0, 2).ask_backend(method, args, {})
    (asked,) = backend.asked
    return asked


COALESCED = [
    pytest.param("allgather_into_tensor_coalesced", "_allgather_base", id="2.11"),
    pytest.param("all_gather_single_coalesced", "all_gather_single", id="2.13"),
]


@pytest.mark.parametrize(("method", "plain"), COALESCED)
def test_a_coalesced_all_gather_of_one_tensor_reaches_gloo_as_a_plain_one(method: str, plain: str) -> None:
    whole, part, options = torch.empty(4), torch.empty(2), object()
    assert ask(GlooGroup, method, [whole], [part], options) == (plain, (whole, part, options))
    assert ask(Group, method, [whole], [part], options) == (method, ([whole], [part], options))


@pytest.mark.parametrize("method", ["allgather_into_tensor_coalesced", "all_gather_single_coalesced"])
def test_one_of_several_tensors_stays_coalesced(method: str) -> None:
    wholes, parts, options = [torch.empty(4)] * 2, [torch.empty(2)] * 2, object()
    assert ask(GlooGroup, method, wholes, parts, options) == (method, (wholes, parts, options))
