"""What reaches gloo, of what torch asks of a group."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

import torch.distributed as dist

from dtbench.base.vocabulary import Operation
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.named_gloo import GlooGroup, Group, make_group_class
from dtbench.worker.recording.recorder import Recorder


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


@pytest.mark.parametrize("method", ["gather_single", "gather_into_tensor"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_gather_into_one_tensor_has_the_size_of_the_whole_on_every_rank(method: str, rank: int) -> None:
    """A rank that does not gather gives an empty tensor for its output."""
    if not hasattr(dist.ProcessGroup, method):
        pytest.skip(f"torch {torch.__version__} has no {method}")
    recorder = Recorder(on_region=lambda _region: None, on_issue=lambda *_issue: None)
    backend, recorder.is_recording = Backend(), True
    group = make_group_class(recorder, Carrier(), Group)(backend, recorder, rank, 2)
    recorder.begin_step()
    getattr(group, method)(torch.empty(0 if rank else 6), torch.empty(3), dist.GatherOptions())
    (issue,) = recorder.step_issues()
    assert (issue.operation, issue.size_bytes) == (Operation.GATHER, 6 * 4)
    assert [asked for asked, _ in backend.asked] == [method]


COMPILED = """
import sys
import torch, torch.distributed as dist
import dtbench
from dtbench.worker.network.named_gloo import find_recorder
dist.init_process_group(dtbench.named_gloo(), init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
recorder = find_recorder(dist.group.WORLD)
recorder.is_recording = True
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
compiled = torch.compile(model, backend="eager")
from torch._dynamo import convert_frame
convert, met = convert_frame.ConvertFrameAssert.__call__, []
def note(self, frame, *others, **named):
    met.append(frame.f_code.co_filename)
    return convert(self, frame, *others, **named)
convert_frame.ConvertFrameAssert.__call__ = note
for _ in range(3):
    recorder.begin_step()
    compiled(torch.ones(2, 4)).sum().backward()
    print(len(recorder.step_issues()), end=" ")
print(len(met), sum(file.startswith(dtbench.__path__[0]) for file in met))
"""


def test_a_compiled_ddp_model_trains_over_the_named_gloo(tmp_path: Path) -> None:
    """The reducer calls its group inside the compiled forward, where the compiler would trace what it meets."""
    command = [sys.executable, "-c", COMPILED, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    *issued, frames, own = map(int, finished.stdout.split())
    assert issued == [1, 3, 1], "a bucket each; the second forward broadcasts places and sizes of the new buckets"
    assert frames > 0
    assert own == 0, "nothing of dtbench is compiled"


def test_a_group_names_its_devices_once_torch_has_made_it(tmp_path: Path) -> None:
    """torch 2.15 asks while it makes one, and then wants a name that a group in Python cannot give."""
    asked: list[Any] = []

    class Asked(GlooGroup):
        def _set_group_desc(self, description: str) -> None:
            super()._set_group_desc(description)
            asked.append(self._device_types)

    group_class = make_group_class(Recorder(), Carrier(), Asked)

    def create(store: Any, rank: int, size: int, timeout: Any) -> Any:
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        inner = dist.ProcessGroup(store, rank, size)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        return group_class(inner, Recorder(), rank, size)

    wait = dist.Work.wait
    dist.Backend.register_backend("asked_gloo", create, devices=["cpu"])
    dist.init_process_group("asked_gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert asked == [[]]
        assert dist.group.WORLD._device_types == [torch.device("cpu")]
    finally:
        dist.destroy_process_group()
        dist.Work.wait = wait
