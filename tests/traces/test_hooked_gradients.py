"""A collective that a parameter's hook waits for first belongs to that parameter."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Collective

SCATTER = "dtbench::collective group=2 seq={seq} op=reduce_scatter bytes={size} axis=tensor async=1 owner="
HOOK = "dtbench::_data_parallel_utils.sync_grad_hook ({owner})"


def collectives(path: Path) -> tuple[Collective, ...]:
    return analyze_trace(read_trace(path)).timeline.collectives


def draw_hook(draw: Callable[..., Path], owner: str) -> Path:
    """One reduce-scatter that is hidden in part, and the hook that stands still for the rest."""
    return draw(f"""
        step ProfilerStep#1                     @1 |====================|
        range dtbench::region backward          @1 |==================  |
        op _c10d_functional::reduce_scatter_tensor @1 | ==              |
        range {SCATTER.format(seq=1, size=8)}   @1 | =                  |
        op aten::mm                             @1 |    =====           |
        range {HOOK.format(owner=owner)}        @1 |          =======   |
        op _c10d_functional::wait_tensor        @1 |           =====    |
        range gloo:reduce_scatter               @2 |  ==============    |
        """)


def test_what_a_parameters_hook_waits_for_first_is_that_parameters(draw: Callable[..., Path]) -> None:
    (one,) = collectives(draw_hook(draw, "layers.1.up.weight"))
    assert one.owner == "layers.1.up.weight"
    assert one.awaited_by == "_data_parallel_utils.sync_grad_hook"
    assert one.first_wait_ns is not None
    assert one.first_wait_end_ns is not None
    assert one.first_wait_end_ns - one.first_wait_ns == 5000


@pytest.mark.parametrize("owner", ["backward", "forward"])
def test_a_hook_of_nobody_knows_which_parameter_names_nothing(draw: Callable[..., Path], owner: str) -> None:
    (one,) = collectives(draw_hook(draw, owner))
    assert one.owner != owner
    assert one.awaited_by == ""


def test_what_was_waited_for_before_the_hook_keeps_its_owner(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1                     @1 |====================|
        range dtbench::region backward          @1 |==================  |
        op _c10d_functional::reduce_scatter_tensor @1 | ==              |
        range {SCATTER.format(seq=1, size=8)}   @1 | =                  |
        op _c10d_functional::wait_tensor        @1 |     ===            |
        op aten::mm                             @1 |         =          |
        range {HOOK.format(owner="layers.1.up.weight")} @1 |          =======   |
        range gloo:reduce_scatter               @2 |  ======            |
        """)
    (one,) = collectives(path)
    assert (one.owner == "layers.1.up.weight", one.awaited_by) == (False, "")
