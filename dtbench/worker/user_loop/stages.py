"""Which stage and micro-batch of a pipeline computes, sends and receives: put into the trace of PROFILED steps.

torch names what its schedules of several stages a rank do; of those of one stage a rank it names a part (ScheduleGPipe)
or nothing (Schedule1F1B). The stages say it all: what they compute has a range here, and so has what is issued of the
sends and receives that they give.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock
from weakref import WeakKeyDictionary

from dtbench.base.stage_ranges import StageAction, stage_range
from dtbench.worker.uncompiled import begin_range, end_range

_HOME: Final = "torch.distributed.pipelining"
_STAGE: Final = "_PipelineStageBase"
_GIVE: Final = {
    "get_fwd_recv_ops": "RECV_F",
    "get_fwd_send_ops": "SEND_F",
    "get_bwd_recv_ops": "RECV_B",
    "get_bwd_send_ops": "SEND_B",
}
"""Methods of a stage that give what is to be sent or received of the micro-batch that is their argument."""
_COMPUTE: Final = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
_ISSUE: Final = "_batch_p2p"
"""What issues, in the schedules' module, the sends and receives that it is given."""

_Call = Callable[..., Any]


@contextmanager
def name_stages() -> Iterator[None]:
    """Put a named range around what pipeline stages do inside; nothing where no pipeline was imported."""
    stages, schedules = (sys.modules.get(f"{_HOME}.{name}") for name in ("stage", "schedules"))
    home = getattr(stages, _STAGE, None)
    given: WeakKeyDictionary[Any, StageAction] = WeakKeyDictionary()
    with ExitStack() as patches:
        for names, wrap in ((_GIVE, lambda call, action: _giving(call, action, given)), (_COMPUTE, _computing)):
            for name, action in names.items():
                if (call := getattr(home, name, None)) is not None:
                    patches.enter_context(mock.patch.object(home, name, wrap(call, action)))
        if (issue := getattr(schedules, _ISSUE, None)) is not None:
            patches.enter_context(mock.patch.object(schedules, _ISSUE, _issuing(issue, given)))
        yield


def _giving(call: _Call, action: str, given: "WeakKeyDictionary[Any, StageAction]") -> _Call:
    """Wrap what gives sends and receives: they are remembered with the stage and micro-batch that they are of."""

    def give(stage: Any, batch: int, *args: Any, **kwargs: Any) -> Any:
        operations = call(stage, batch, *args, **kwargs)
        given.update((one, StageAction(stage.stage_index, action, batch)) for one in operations)
        return operations

    return give


def _computing(call: _Call, action: str) -> _Call:
    """Wrap what computes. A backward that leaves the weights' gradients for later computes those of the input."""

    def compute(stage: Any, batch: int, *args: Any, **kwargs: Any) -> Any:
        done = "I" if action == "B" and kwargs.get("full_backward") is False else action
        opened = begin_range(stage_range(StageAction(stage.stage_index, done, batch)))
        try:
            return call(stage, batch, *args, **kwargs)
        finally:
            end_range(opened)

    return compute


def _issuing(call: _Call, given: "WeakKeyDictionary[Any, StageAction]") -> _Call:
    """Wrap what issues sends and receives, one or several at once."""

    def issue(operations: Any, *args: Any, **kwargs: Any) -> Any:
        actions = [given[one] for one in operations if one in given]
        opened = begin_range(stage_range(*actions) if actions else None)
        try:
            return call(operations, *args, **kwargs)
        finally:
            end_range(opened)

    return issue
