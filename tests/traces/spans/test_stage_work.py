"""When each stage of a pipeline computed which micro-batch: drawn traces, and torch's own order of a schedule."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from torch.distributed.pipelining.schedules import (
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    _PipelineScheduleRuntime,
)

from dtbench.base.stage_ranges import COMPUTING
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.spans import SPANS, STAGE_WORK, collect_spans

PIPELINES = Path(__file__).parents[1] / "recorded" / "pipelines"
SENT = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
MOVED = '{"Input Dims": [[4]], "Input type": ["float"]}'


def stage_work(paths: Sequence[Path]) -> pd.DataFrame:
    return STAGE_WORK.tabulate(collect_spans(analyze_traces(list(paths))))


def rows(table: pd.DataFrame) -> list[list[object]]:
    columns = ["stage", "micro_batch", "action", "start_ns", "end_ns"]
    return table[columns].astype(object).where(table[columns].notna(), None).to_numpy().tolist()


def test_on_a_thread_a_stage_works_from_its_first_operator_to_its_last(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1      @1 |==============================|
        range PP:1F0             @1 |==========                    |
        op c10d::recv_           @1 | =                            | {SENT}
        range gloo:recv          @1 |  ===                         | {MOVED}
        op aten::mm              @1 |     ==                       |
        op aten::gelu            @1 |        =                     |
        range PP:1I0             @1 |           ====               |
        op aten::mm              @1 |            ==                |
        range PP:(0F1;1W0)OVERLAP_F_B @1 |               ====      |
        op aten::mm              @1 |                ==            |
        range PP:1REDUCE_GRAD    @1 |                    ====      |
        op aten::add             @1 |                    ==        |
    """)
    assert rows(stage_work([path])) == [
        [1, 0, "forward", 5_000, 9_000],
        [1, 0, "input gradients", 12_000, 14_000],
        [0, 1, "forward", 16_000, 18_000],
        [1, 0, "weight gradients", 16_000, 18_000],
    ]


def test_a_range_inside_its_like_is_once_and_one_that_names_the_stage_counts_more(draw: Callable[..., Path]) -> None:
    path = draw(
        f"""
        step ProfilerStep#1      @1 |==============================|
        op c10d::send            @1 |=                             | {SENT}
        range gloo:send          @1 | =                            | {MOVED}
        range PP:1F0             @1 |  =======                     |
        op aten::copy_           @1 |  =                           |
        range PP:1F0 #2          @1 |    ===                       |
        op aten::mm              @1 |    ===                       |
        range Forward 1          @1 |          =====               |
        range PP:1F1             @1 |           ===                |
        op aten::mm              @1 |           ==                 |
        range Backward 1         @1 |                 ====         |
        op aten::mm              @1 |                  ==          |
    """.replace("PP:1F0 #2", "PP:1F0")
    )
    assert rows(stage_work([path])) == [
        [1, 0, "forward", 2_000, 7_000],
        [1, 1, "forward", 11_000, 13_000],
        [None, 1, "backward", 18_000, 20_000],
    ]


def test_where_nothing_is_sent_such_names_are_somebody_elses(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1      @1 |==========|
        range Forward 0          @1 |=====     |
        op aten::mm              @1 | ==       |
    """)
    assert stage_work([path]).empty


def test_on_a_device_a_stage_works_while_the_kernels_that_it_launched_run(draw: Callable[..., Path]) -> None:
    said = '{"Collective name": "send", "In msg nelems": 8, "dtype": "Float", "Seq": 1, "Process Group Name": "0"}'
    path = draw(f"""
        step ProfilerStep#1                 @1  |========================|
        range PP:0F0                        @1  |====                    |
        range PP:0F1                        @1  |    ====                |
        call cudaLaunchKernel               @1  |a b  c d e              |
        kernel gemm                         @7  |   aaabbbb  cc          |
        kernel ncclDevKernel_SendRecv       @20 |       dddd             | {said}
        kernel gemm                         @7  |              eee       |
    """)
    assert rows(stage_work([path])) == [[0, 0, "forward", 0, 7_000], [0, 1, "forward", 9_000, 11_000]]


def planned(schedule: type[_PipelineScheduleRuntime], rank: int) -> list[tuple[int, int, str]]:
    """Return what torch's own schedule lets a rank compute: two ranks, two stages a rank, four micro-batches."""
    made = object.__new__(schedule)
    vars(made).update(
        pp_group_size=2, n_local_stages=2, _n_microbatches=4, number_of_rounds=2, microbatches_per_round=2, rank=rank
    )
    order = made._calculate_single_rank_operations(rank)
    done = [(one.stage_index, one.microbatch_index, COMPUTING[one.computation_type.value]) for one in order if one]
    return [one for one in done if one[0] or one[2] != "input gradients"]  # nobody asks for those of the first stage


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("interleaved", ScheduleInterleaved1F1B), ("zero_bubble", ScheduleInterleavedZeroBubble)],
)
def test_a_recorded_step_has_the_order_of_torchs_schedule(name: str, schedule: type[_PipelineScheduleRuntime]) -> None:
    table = stage_work(sorted((PIPELINES / name).iterdir()))
    assert table.groupby(["rank", "step"]).ngroups == 4
    for (rank, _), done in table.groupby(["rank", "step"]):
        columns = done[["stage", "micro_batch", "action"]]
        assert [tuple(row) for row in columns.itertuples(index=False)] == planned(schedule, int(str(rank)))
        assert (done["start_ns"].to_numpy()[1:] >= done["end_ns"].to_numpy()[:-1]).all()  # one thread


def test_what_a_thread_sends_while_it_computes_is_drawn_beside_it() -> None:
    table = SPANS.tabulate(collect_spans(analyze_traces(sorted((PIPELINES / "interleaved").iterdir()))))
    kinds = table.groupby(["rank", "lane"])["kind"].unique()
    assert sorted(map(tuple, kinds)) == [("comm",), ("comm",), ("compute",), ("compute",)]
    assert all(name.startswith("thread ") and "beside" not in name for name in table["lane_name"])
