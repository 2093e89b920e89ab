"""Where the steps of a device trace begin."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.traces.job.foreign import analyze_traces

# a, d, g: the next batch is copied at once on a stream of its own; c, f, i: an all-gather, before its step computes
COPIED_EARLY = """
step ProfilerStep#1               @1  |=========                             |
step ProfilerStep#2               @1  |         =========                    |
step ProfilerStep#3               @1  |                  =========           |
call cudaMemcpyAsync              @1  |a        d        g                   |
call cudaLaunchKernel             @1  | cb       fe       ih                 |
copy Memcpy_HtoD                  @9  | aa       dd       gg                 |
kernel ncclDevKernel_AllGather    @20 |   cc         ff          ii          |
kernel gemm                       @7  |     bbbbbbbb   eeeeeeeeee  hhhhhhhhhh|
"""


def test_a_copy_of_the_next_batch_begins_no_step_while_the_one_before_computes(draw: Callable[..., Path]) -> None:
    (one,) = analyze_traces([draw(COPIED_EARLY)]).analyses
    starts = [(step.start_ns, step.end_ns) for step in one.timeline.steps]
    assert starts == [(1000, 14000), (14000, 26000), (26000, 38000)]


@pytest.mark.parametrize("early", [True, False])
def test_a_step_whose_work_all_began_early_begins_with_it(draw: Callable[..., Path], *, early: bool) -> None:
    gathered = "   bb" if early else "           bb"
    drawing = f"""
    step ProfilerStep#1            @1  |=====            |
    step ProfilerStep#2            @1  |     =====       |
    call cudaLaunchKernel          @1  |a    b           |
    kernel gemm                    @7  | aaaaaaaa        |
    kernel ncclDevKernel_AllGather @20 |{"   " + gathered:17}|
    """
    (one,) = analyze_traces([draw(drawing)]).analyses
    assert one.timeline.steps[1].start_ns == (6000 if early else 14000)
