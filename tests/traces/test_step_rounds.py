"""Steps that are no whole rounds of accumulation: a note says that means hold another share of the reduction."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import PartRounds
from dtbench.traces.notes.note import pick_notes

DDP = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "ddp"
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
LESS = "hold less of it than a training does; record a multiple of"


@pytest.mark.parametrize(
    ("reduces", "said"),
    [
        ("0001", None),  # nobody knows whether it is each fourth
        ("00010001", None),
        ("01000100", None),
        ("0001000100", f"one step in 4 reduces gradients, and 2 of the 10 that means go over: they {LESS} 4 steps"),
        ("10101", "one step in 2 reduces gradients, and 3 of the 5 that means go over: they hold more of it than a"),
        ("01010", f"one step in 2 reduces gradients, and 2 of the 5 that means go over: they {LESS} 2 steps"),
        ("1111", None),
        ("000", None),
        ("0101000", None),  # an evaluation follows
        ("0110", None),
    ],
)
def test_steps_that_are_no_whole_rounds_are_said_to_be_none(
    draw: Callable[..., Path], reduces: str, said: str | None
) -> None:
    def bars(spaces: int, *, of_all: bool = False) -> str:
        return "".join(
            f"{' ' * spaces}={' ' * (9 - spaces)}" if of_all or reduces[step] == "1" else " " * 10
            for step in range(len(reduces))
        )

    steps = "\n".join(
        f"step ProfilerStep#{5 + step} @1 |{' ' * (10 * step)}{'=' * 10}|" for step in range(len(reduces))
    )
    reductions = f"""
        op {NODE}              @1 |{bars(3)}|
        op c10d::allreduce_    @1 |{bars(3)}|
        range gloo:all_reduce  @2 |{bars(4)}|
    """
    traces = analyze_traces(
        [draw(f"{steps}\nop aten::mm @1 |{bars(1, of_all=True)}|{reductions if '1' in reduces else ''}".strip())]
    )
    found = list(map(str, pick_notes(traces.notes, PartRounds)))
    assert [said is not None and said in note for note in found] == ([True] if said else [])


def test_where_one_step_is_not_told_nothing_is_said_of_rounds(draw: Callable[..., Path]) -> None:
    """Its operators were not recorded, so that it is not known what its all-reduce was for."""

    def bars(start: int, *, of_third: bool) -> str:
        return "".join(
            f"{' ' * start}={' ' * (9 - start)}" if step in (0, 4) or (step == 2 and of_third) else " " * 10
            for step in range(5)
        )

    for is_told in (True, False):
        steps = "\n".join(f"step ProfilerStep#{step} @1 |{' ' * (10 * step)}{'=' * 10}|" for step in range(5))
        computes = "".join(" =        " if is_told or step != 2 else " " * 10 for step in range(5))
        drawing = f"""{steps}
            op aten::mm            @1 |{computes}|
            op {NODE}              @1 |{bars(3, of_third=is_told)}|
            op c10d::allreduce_    @1 |{bars(3, of_third=is_told)}|
            range gloo:all_reduce  @2 |{bars(4, of_third=True)}|
        """
        found = pick_notes(analyze_traces([draw(drawing.strip())]).notes, PartRounds)
        assert [note.length for note in found] == ([2] if is_told else [])


def lose_reductions(folder: Path, ranks: tuple[int, ...], *, with_records: bool) -> TraceSet:
    """Analyze DDP's traces without what the second of three steps reduced on rank 1."""
    for rank in ranks:
        trace = json.loads(gzip.decompress((DDP / f"rank{rank}.json.gz").read_bytes()))
        events: list[dict[str, Any]] = trace["traceEvents"]
        if rank:
            starts = sorted(
                one["ts"]
                for one in events
                if one["name"].startswith("ProfilerStep") and one["cat"] == "user_annotation"
            )
            records = [
                one
                for one in events
                if one["name"] in ("c10d::allreduce_", "record_param_comms", "nccl:all_reduce")
                if starts[1] <= one["ts"] < starts[2]
            ]
            calls = {
                one["args"]["correlation"]
                for one in events
                if one.get("cat") in ("cuda_runtime", "cuda_driver")
                if any(at["ts"] <= one["ts"] < at["ts"] + at["dur"] and at["tid"] == one["tid"] for at in records)
            }
            trace["traceEvents"] = [
                one
                for one in events
                if not any(one is lost for lost in records if with_records)
                and not (one.get("args", {}).get("correlation") in calls and (with_records or one["cat"] == "kernel"))
            ]
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return analyze_traces([folder])


@pytest.mark.parametrize(
    ("ranks", "with_records"),
    [
        ((0, 1), True),  # as the other rank shows
        ((0, 1), False),
        ((1,), False),  # as the calls show that launched them
    ],
)
def test_a_step_that_lost_its_reductions_makes_no_rounds(
    tmp_path: Path, ranks: tuple[int, ...], *, with_records: bool
) -> None:
    traces = lose_reductions(tmp_path, ranks, with_records=with_records)
    counts = [
        [sum(row.count for row in step.purposes if row.purpose is Purpose.GRAD_REDUCE) for step in one.steps]
        for one in traces.analyses
    ]
    assert counts[-1] == [6, 0, 6]
    assert not pick_notes(traces.notes, PartRounds)
