"""What pipeline stages do is named in the trace while they are watched, and done as before."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules, stage
from torch.profiler import ProfilerActivity, profile

from dtbench.worker.user_loop import stages as own_stages
from dtbench.worker.user_loop.stages import name_stages

BASE = stage._PipelineStageBase
GIVE, COMPUTE = own_stages._GIVE, own_stages._COMPUTE


@pytest.mark.parametrize("name", [*GIVE, *COMPUTE])
def test_torchs_stages_have_what_is_watched(name: str) -> None:
    assert callable(getattr(BASE, name))
    assert callable(getattr(schedules, own_stages._ISSUE))


class Operation:
    """A send or receive."""


def run_pipeline(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Any]]:
    """Run stage 3 with stand-ins for what computes and what issues; gives the ranges and what was done."""
    done: list[Any] = []
    operations = {name: Operation() for name in GIVE}
    for name in GIVE:
        monkeypatch.setattr(BASE, name, lambda _stage, _batch, name=name: [operations[name]])
    for name in COMPUTE:
        monkeypatch.setattr(BASE, name, lambda _stage, *args, name=name, **kwargs: done.append((name, args, kwargs)))
    monkeypatch.setattr(schedules, own_stages._ISSUE, lambda given, desc=None: done.append((given, desc)))
    mine: Any = SimpleNamespace(stage_index=3)
    with profile(activities=[ProfilerActivity.CPU]) as profiler, name_stages():
        schedules._batch_p2p(BASE.get_fwd_recv_ops(mine, 2), desc="fwd_recv")
        BASE.forward_one_chunk(mine, 2, "in", {}, save_forward_output=True)
        schedules._batch_p2p([*BASE.get_fwd_send_ops(mine, 2), *BASE.get_bwd_recv_ops(mine, 0)])
        BASE.backward_one_chunk(mine, 0, loss=None, last_backward=False)
        BASE.backward_one_chunk(mine, 1, loss=None, full_backward=False)
        BASE.backward_weight_one_chunk(mine, 1)
        schedules._batch_p2p([])
        schedules._batch_p2p([Operation()])
    before = len(done)
    schedules._batch_p2p(BASE.get_bwd_send_ops(mine, 0))  # nothing is watched any more
    assert done[before:] == [([operations["get_bwd_send_ops"]], None)]
    ranges: list[str] = [event.name for event in profiler.events() if event.name.startswith("PP:")]
    return ranges, done[:before]


def test_what_a_stage_computes_and_issues_has_a_range_with_stage_and_micro_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges, done = run_pipeline(monkeypatch)
    assert ranges == ["PP:3RECV_F2", "PP:3F2", "PP:(3SEND_F2;3RECV_B0)P2P", "PP:3B0", "PP:3I1", "PP:3W1"]
    assert done[1] == ("forward_one_chunk", (2, "in", {}), {"save_forward_output": True})
    assert [one[0] for one in done if isinstance(one[0], str)] == [
        "forward_one_chunk",
        "backward_one_chunk",
        "backward_one_chunk",
        "backward_weight_one_chunk",
    ]
    assert done[0][1] == "fwd_recv"
    assert len(done[2][0]) == 2


def test_without_a_pipeline_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stage", "schedules"):
        monkeypatch.delitem(sys.modules, f"torch.distributed.pipelining.{name}")
    with name_stages():
        assert "torch.distributed.pipelining.stage" not in sys.modules
