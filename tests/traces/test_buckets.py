"""What DDP's reducer did, in plain traces: told only where DDP left its ranges, backward by backward."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.report.words.knobs import Knob
from dtbench.report.words.trace_words import advise_traces, answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace

NODE = "autograd::engine::evaluate_function: "
HOOK = f"{NODE}torch::autograd::AccumulateGrad"
FORWARD = "DistributedDataParallel.forward"


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def moved(elements: int, dtype: str = "float") -> str:
    return f'{{"Input Dims": [[{elements}]], "Input type": ["{dtype}"]}}'


def two_backwards(draw: Callable[..., Path], model: str) -> Path:
    """Draw two micro-batches: each backward ends with a stand-still of four microseconds."""
    return draw(f"""
        step ProfilerStep#1  @1 |====================|
        range {model}        @1 |==        ==        |
        op aten::mm          @1 |==        ==        |
        op {NODE}MmBackward0 @1 |  =         =       |
        op aten::mm          @1 |  =         =       |
        op {HOOK}            @1 |   =         =      |
        op c10d::allreduce_  @1 |   =         =      | {moved(512)}
        range gloo:all_reduce @9 |   =====     =====  | {moved(512)}
        """)


def test_each_backward_of_a_step_has_its_own_buckets_and_its_own_wait(draw: Callable[..., Path]) -> None:
    one = analyze(two_backwards(draw, FORWARD))
    assert [made.owner for made in one.collectives] == ["bucket 0", "bucket 0"]
    (row,) = one.steps[0].purposes
    assert (str(row.purpose), row.wait_ns) == ("grad_reduce", 8_000)


def test_two_backwards_of_one_forward_wait_twice_also_where_no_number_ties_nodes_to_operators(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1  @1 |====================|
        range {FORWARD}      @1 |==                  |
        op aten::mm          @1 |==                  |
        op {NODE}MmBackward0 @1 |  =         =       |
        op aten::mm          @1 |  =         =       |
        op {HOOK}            @1 |   =         =      |
        op c10d::allreduce_  @1 |   =         =      | {moved(512)}
        op aten::ones_like   @1 |         ==         |
        range gloo:all_reduce @9 |   =====     =====  | {moved(512)}
        """)
    )
    (row,) = one.steps[0].purposes
    assert (str(row.purpose), row.wait_ns) == ("grad_reduce", 4_000 + 4_000)


def test_hooks_of_ones_own_are_no_buckets_and_who_waits_for_them_was_not_seen(draw: Callable[..., Path]) -> None:
    path = two_backwards(draw, "my.forward")
    one = analyze(path)
    assert [made.owner for made in one.collectives] == ["", ""]
    (row,) = one.steps[0].purposes
    assert (str(row.purpose), row.wait_ns) == ("grad_reduce", None)
    traces = analyze_traces([path])
    said = " ".join([*answer_lines(traces), *(advice.words for advice in advise_traces(traces))])
    assert "bucket" not in said
    assert not any(str(knob) in said for knob in Knob)


@pytest.mark.parametrize(
    ("dtype", "purpose", "owner"),
    [
        ("float", "grad_reduce", "bucket 0"),
        ("int", "grad_reduce", "unused-parameter map"),
        ("long int", "other", ""),
    ],
)
def test_whole_numbers_are_no_gradients_and_tokens_are_no_map_of_parameters(
    draw: Callable[..., Path], dtype: str, purpose: str, owner: str
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1   @1 |====================|
        range {FORWARD}       @1 |==                  |
        op aten::mm           @1 |==                  |
        op {HOOK}             @1 |   =                |
        op c10d::allreduce_   @1 |   =                | {moved(1, dtype)}
        range gloo:all_reduce @9 |   =====            | {moved(1, dtype)}
        """)
    )
    assert [(str(made.purpose), made.owner) for made in one.collectives] == [(purpose, owner)]


def test_buckets_that_an_optimizers_closure_reduces_are_ddps(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1              @1 |====================|
        range Optimizer.step#LBFGS.step  @1 |=================== |
        range {FORWARD}                  @1 | =                  |
        op aten::mm                      @1 | =                  |
        op {HOOK}                        @1 |   =                |
        op c10d::allreduce_              @1 |   =                | {moved(512)}
        range gloo:all_reduce            @9 |   =====            | {moved(512)}
        """)
    )
    assert [(str(made.purpose), made.owner) for made in one.collectives] == [("grad_reduce", "bucket 0")]


@pytest.mark.parametrize("lost", ["", "2"])
def test_a_step_that_lacks_a_bucket_is_noted_as_its_numbers_may_be_others(draw: Callable[..., Path], lost: str) -> None:
    """The profiler lost the first reduction of step 2: what is called bucket 0 there is bucket 1."""
    lines = []
    for number, at in (("1", 0), ("2", 20), ("3", 40)):
        first = "  " if number == lost else "= "
        rows = [
            (f"step ProfilerStep#{number} @1", "================"),
            (f"range {FORWARD} @1", "=="),
            (f"op {HOOK} @1", "   =    ="),
            ("op c10d::allreduce_ @1", f"   {first}   ="),
            ("range gloo:all_reduce @9", f"    {first.replace('=', '==')}   =="),
        ]
        lines += [f"{what} |{' ' * at}{bar.ljust(60 - at)}| {moved(512)}" for what, bar in rows]
    traces = analyze_traces([draw("\n".join(lines))])
    (one,) = traces.analyses
    owners = [made.owner for made in one.collectives]
    assert owners == ["bucket 0", "bucket 1", "bucket 0", *(["bucket 1"] if not lost else []), "bucket 0", "bucket 1"]
    note = (
        "rank 0: step 2 reduced fewer or more buckets than the 2 of other steps: a number may stand for another bucket"
    )
    assert (f"{note} there" in say_notes(traces.notes)) == (lost == "2")


SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


@pytest.mark.parametrize(
    ("searched", "types", "owners"),
    [
        ("                    ", ("", ""), ["bucket 0", "bucket 1"] * 2),
        ("=         =         ", ("", ""), ["bucket 0", ""] * 2),
        ("          =         ", ("", ""), ["bucket 0", "bucket 1", "bucket 0", ""]),
        ("=                   ", ("", ""), ["bucket 0", "", "bucket 0", "bucket 1"]),
        ("=         =         ", (moved(512), moved(4, "int")), ["bucket 0", "unused-parameter map"] * 2),
        ("=         =         ", (moved(512), moved(512)), ["bucket 0", "bucket 1"] * 2),
        ("= =                 ", ("", ""), ["", "", "bucket 0", "bucket 1"]),
    ],
    ids=["no search", "each", "the second", "the first", "told", "told as buckets", "several models"],
)
def test_what_may_be_the_map_of_unused_parameters_is_named_as_no_bucket(
    draw: Callable[..., Path], searched: str, types: tuple[str, str], owners: list[str]
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1  @1 |==========          |
        step ProfilerStep#2  @1 |          ==========|
        range {FORWARD}      @1 |==        ==        |
        op {SEARCH}          @1 |{searched}|
        op aten::mm          @1 |==        ==        |
        op {HOOK}            @1 |   =  =      =  =   |
        op c10d::allreduce_  @1 |   =         =      | {types[0]}
        op c10d::allreduce_  @1 |      =         =   | {types[1]}
        range gloo:all_reduce @9 |   ==        ==     | {types[0]}
        range gloo:all_reduce @9 |      ==        ==  | {types[1]}
        """)
    )
    assert [made.owner for made in sorted(one.collectives, key=lambda made: made.start_ns)] == owners
