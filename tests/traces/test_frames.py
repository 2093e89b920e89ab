"""What frames of Python say of the collectives below them, read from files: each library's, and no script's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace


@pytest.mark.parametrize(
    ("frame", "purposes"),
    [
        ("megatron/core/distributed/param_and_grad_buffer.py(140): start_param_sync", ["grad_reduce", "unshard"]),
        ("deepspeed/runtime/zero/stage_1_and_2.py(1900): step", ["grad_reduce", "unshard"]),
        ("torch/distributed/checkpoint/state_dict_saver.py(300): save", ["state", "state"]),
        ("torch/nn/utils/clip_grad.py(210): clip_grad_norm_", ["other", "other"]),
        ("train_tensor_parallel.py(67): step", ["other", "other"]),
    ],
)
@pytest.mark.parametrize("is_device", [True, False])
def test_a_librarys_frames_say_what_is_issued_in_them(
    draw: Callable[..., Path], frame: str, purposes: list[str], is_device: bool
) -> None:
    size = '{"Input Dims": [[512]], "Input type": ["float"]}'
    runs = (
        """call cudaLaunchKernel              @1  | bg       |
        kernel ncclDevKernel_ReduceScatter @s8 |  bb      |
        kernel ncclDevKernel_AllGather     @s8 |    gg    |"""
        if is_device
        else f"""range gloo:reduce_scatter          @8  |  ==      | {size}
        range gloo:all_gather              @8  |    ==    | {size}"""
    )
    one = analyze_trace(
        read_trace(
            draw(f"""
        step ProfilerStep#1                @1  |==========|
        op aten::mm                        @1  |=         |
        python {frame}                     @1  | ====     |
        op c10d::_reduce_scatter_base_     @1  | =        | {size}
        op c10d::_allgather_base_          @1  |  =       | {size}
        {runs}
        """)
        )
    )
    assert [str(made.purpose) for made in one.collectives] == purposes
