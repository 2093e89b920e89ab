"""How a schedule's words are read and written."""

import pytest
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _get_profiler_function_name

from dtbench.base.stage_ranges import StageAction, name_stages, parse_stage_range, stage_range
from dtbench.base.vocabulary import Operation

BATCH = [StageAction(0, "SEND_F", 2), StageAction(0, "RECV_B", 1)]


@pytest.mark.parametrize("kind", [one for one in _ComputationType if one is not _ComputationType.OVERLAP_F_B])
@pytest.mark.parametrize("batch", [None, 0, 17])
def test_every_action_of_torchs_schedules_is_read(kind: _ComputationType, batch: int | None) -> None:
    written = _get_profiler_function_name(_Action(12, kind, batch))
    assert parse_stage_range(written) == (StageAction(12, kind.value, batch),)
    assert stage_range(StageAction(12, kind.value, batch)) == written


def test_actions_at_once_are_read_one_by_one() -> None:
    both = (_Action(0, _ComputationType.FORWARD, 1), _Action(3, _ComputationType.FULL_BACKWARD, 2))
    written = _get_profiler_function_name(_Action(-1, _ComputationType.OVERLAP_F_B, None, both))
    assert parse_stage_range(written) == (StageAction(0, "F", 1), StageAction(3, "B", 2))
    assert list(parse_stage_range(stage_range(*BATCH, *BATCH))) == BATCH


@pytest.mark.parametrize(
    "name", ["", "PP:", "PP:F0", "PP:x", "PP:()P2P", "Forward", "forward 0", "Forward 0 1", "PP:0F1 "]
)
def test_other_names_say_nothing(name: str) -> None:
    assert parse_stage_range(name) == ()


def test_a_send_among_others_is_of_the_micro_batch_that_is_sent() -> None:
    assert name_stages(BATCH, Operation.SEND) == "stage 0, micro-batch 2"
    assert name_stages(BATCH, Operation.RECV) == "stage 0, micro-batch 1"
    assert name_stages(BATCH, None) == "stage 0, micro-batches 2 and 1"  # one kernel of NCCL for both
    assert (
        name_stages([*BATCH, StageAction(3, "F", 0)], None) == "stage 0, micro-batches 2 and 1; stage 3, micro-batch 0"
    )
    assert name_stages([StageAction(None, "F", 2)], Operation.SEND) == "micro-batch 2"
    assert name_stages([StageAction(1, "UNSHARD", None)], Operation.RECV) == "stage 1"
