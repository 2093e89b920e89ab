"""Sharded optimizers without ranges: ZeRO-2 and ZeRO-3, recorded, and what only looks like one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.analyze.foreign import analyze_traces
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace
from dtbench.report.facts import Knob
from dtbench.report.trace_words import advise_traces, answer_lines

PARAMETERS_BYTES = 4 * (2 * (192 * 192 + 192) + 192 * 8 + 8)


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def purposes(one: TraceAnalysis) -> list[dict[str, tuple[float, int | float | None]]]:
    return [{str(row.purpose): (row.count, row.size_bytes) for row in step.purposes} for step in one.steps]


@pytest.mark.parametrize(("name", "owner", "norm_bytes"), [("zero2", "AdamW.step", 4), ("zero3", "ZeRO-3", 8)])
def test_parameters_and_gradients_of_zero_are_told_and_no_knob_of_fsdp_or_ddp_is_named(
    recorded: Path, name: str, owner: str, norm_bytes: int
) -> None:
    folder = recorded / "zero" / name
    for path in sorted(folder.iterdir()):
        one = analyze(path)
        whole = (1, PARAMETERS_BYTES)
        assert purposes(one) == [{"unshard": whole, "grad_reduce": whole, "other": (1, norm_bytes)}] * 2
        owners = {str(c.purpose): c.owner for c in one.collectives}
        assert owners == {"unshard": owner, "grad_reduce": owner, "other": ""}
    traces = analyze_traces([folder])
    said = " ".join([*answer_lines(traces), *(one.words for one in advise_traces(traces))])
    assert "gradient wait" in said
    assert "unshard wait" in said
    assert not any(str(knob) in said for knob in Knob)


def test_where_not_every_step_gathers_after_its_optimizer_nothing_is_taken_for_a_sharded_one(
    draw: Callable[..., Path],
) -> None:
    moved = '{"Input Dims": [[4], [2]], "Input type": ["float", "float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                @1 |==========          |
        step ProfilerStep#2                                @1 |          ==========|
        op autograd::engine::evaluate_function: Mm         @1 |=         =         |
        op c10d::allreduce_                                @1 |  =         =       | {moved}
        range Optimizer.step#SGD.step                      @1 |     =         =    |
        op c10d::_allgather_base_                          @1 |               =    | {moved}
        op c10d::_allgather_base_                          @1 |       =            | {moved}
        range gloo:all_reduce                              @2 |   =         =      | {moved}
        range gloo:all_gather                              @2 |        =           | {moved}
        """)
    )
    assert "unshard" not in {str(row.purpose) for step in one.steps for row in step.purposes}
