"""What the terminal report says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from dtbench.base.units import decimals_for, format_ms, format_ns
from dtbench.base.vocabulary import REDUCTIONS, Axis, Cause, DeviceKind, Operation, Purpose
from dtbench.report.words.sentences import wait_sentence, wait_word
from dtbench.runs.summary import CellSummary, OtherSummary, OwnerSummary, RunSummary
from dtbench.scenario.schema.ddp import CustomHook
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Fsdp2
from dtbench.store.records.rank import Compilation, CorrectnessResult, Receipt, ReceiptOutcome
from dtbench.store.records.run import OwnAxis, OwnLoop, RunStatus
from tests.report.shown import terminal_cell, terminal_places, terminal_run, terminal_sweep

NAN = float("nan")


def shown(renderable: RenderableType, width: int = 120) -> str:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_two_waits_lead_each_cell(make_fsdp2_tp: Callable[..., CellSummary]) -> None:
    lines = shown(terminal_cell(make_fsdp2_tp())).splitlines()
    assert lines[1].split(maxsplit=2) == ["gradient", "wait", "31.4 ms per step (12.2 % of a profiled step)"]
    assert lines[2].split(maxsplit=2)[:2] == ["unshard", "wait"]
    assert "24.5 ms per step (9.5 % of a profiled step)" in lines[2]


def test_a_purpose_that_cannot_occur_is_explained(make_ddp: Callable[..., CellSummary]) -> None:
    assert "no parameter all-gathers: DDP keeps full parameters" in shown(terminal_cell(make_ddp()))


def test_a_purpose_that_the_plan_expects_and_nobody_saw_is_not_called_absent(
    make_fsdp2_tp: Callable[..., CellSummary],
) -> None:
    cell = make_fsdp2_tp()
    without = make_fsdp2_tp(
        update={"purposes": tuple(row for row in cell.purposes if row.purpose is not Purpose.UNSHARD)}
    )
    assert "n/a: the plan expects 9 collectives per step, none was seen" in shown(terminal_cell(without))


def test_hidden_and_exposed_shares_stand_side_by_side(make_ddp: Callable[..., CellSummary]) -> None:
    row = next(line for line in shown(terminal_cell(make_ddp())).splitlines() if line.startswith("0 "))
    assert row.split() == ["0", "152.0", "110.0", "12.0", "1.0", "29.0", "60.0", "%", "7.9", "%"]


def test_idle_is_called_host_on_a_cpu_and_idle_on_a_gpu(make_ddp: Callable[..., CellSummary]) -> None:
    assert "exposed copy + host" in shown(terminal_cell(make_ddp()))
    on_gpu = make_ddp(update={"plan": make_ddp().plan.model_copy(update={"device": DeviceKind.CUDA})})
    assert "exposed copy + idle" in shown(terminal_cell(on_gpu))


def test_traffic_that_differs_from_the_plan_names_both_numbers(make_ddp: Callable[..., CellSummary]) -> None:
    row = make_ddp().purposes[0].model_copy(update={"matches_plan": False, "planned_count": 3})
    text = shown(terminal_cell(make_ddp(update={"purposes": (row,)})))
    assert "DIFFERS" in text
    assert "grad_reduce: plan: 3 with 20.0 MiB, got 2 with 20.0 MiB" in text


def test_why_nothing_can_overlap_is_said_once_for_all_purposes_with_that_reason(
    make_fsdp2_tp: Callable[..., CellSummary],
) -> None:
    text = shown(terminal_cell(make_fsdp2_tp()))
    assert text.count("gloo issues FSDP2's collectives synchronously") == 1
    assert "unshard, grad_reduce  no: gloo issues FSDP2's collectives synchronously" in text


def test_only_knobs_that_need_attention_are_listed_the_rest_is_counted(
    make_fsdp2_tp: Callable[..., CellSummary],
) -> None:
    text = one_line(shown(terminal_cell(make_fsdp2_tp())))
    assert "3 knobs agree" in text
    assert "parallel.static_graph" not in text
    assert "DISAGREES optimizer.fused: asked true, got False; torch fell back to foreach" in text
    assert "no effect here parallel.forward_prefetch: asked 1, got 1" in text


def test_names_with_markup_characters_appear_as_they_are(
    make_ddp: Callable[..., CellSummary], make_run: Callable[..., RunSummary]
) -> None:
    receipt = Receipt(knob="[red]knob", asked="[a]", got="[/]", outcome=ReceiptOutcome.DISAGREES, note="[link]x[/link]")
    cell = make_ddp(
        update={
            "name": "[bold]cell",
            "receipts": (receipt,),
            "unknown_names": (("kernel[/bold]<:smile:>", 2),),
            "notes": ("[blink]note",),
            "status": RunStatus.FAILED,
            "reason": "[b]reason",
        }
    )
    run = make_run(cell, make_ddp(), question="[i]why", overrides=("a=[x]",), status=RunStatus.FAILED, reason="[u]r")
    text = shown(terminal_run(run), 160)
    for name in (
        "[bold]cell",
        "[red]knob: asked [a], got [/]; [link]x[/link]",
        "kernel[/bold]<:smile:> (2)",
        "[blink]note",
        "FAILED: [b]reason",
        "[i]why",
        "--set a=[x]",
        "[u]r",
    ):
        assert name in text


def test_a_run_of_some_cells_says_that_others_are_left_out(
    make_ddp: Callable[..., CellSummary], make_run: Callable[..., RunSummary]
) -> None:
    said = "only `ddp` of the scenario: what it claims of others is left out"
    run = make_run(make_ddp())
    assert said in shown(terminal_run(run.model_copy(update={"only": ("ddp",)})), 160)
    assert said not in shown(terminal_run(run), 160)


def test_a_number_that_could_not_be_computed_reads_na_and_never_zero(make_ddp: Callable[..., CellSummary]) -> None:
    cell = make_ddp()
    unknown = cell.step_time.model_copy(
        update=dict.fromkeys(("median", "low", "high", "quartile1", "quartile3"), NAN) | {"count": 0}
    )
    empty = make_ddp(
        update={
            "status": RunStatus.FAILED,
            "reason": "rank 1 was killed",
            "step_time": unknown,
            "profiler_cost": unknown,
            "time_to_first_step_ns": NAN,
            "tokens_per_second": NAN,
            "cpu_ns_per_step": NAN,
            "hidden_fraction": NAN,
            "exposed_step_fraction": NAN,
            "memory": None,
            "purposes": (),
            "ranks": (),
            "receipts": (),
            "warmup": None,
            "correctness": None,
        }
    )
    text = shown(terminal_cell(empty))
    assert "This cell FAILED: rank 1 was killed" in text
    assert "gradient wait  n/a: no step was profiled" in text
    assert "step time      n/a: no MEASURED step is known" in text
    assert "n/a, MFU n/a (peak unknown)" in text
    assert "knobs agree" not in text
    assert "0 ns" not in text
    assert "nan" not in text.lower().replace("n/a", "")


def test_a_cell_that_did_not_finish_says_so_and_shows_what_it_has(make_ddp: Callable[..., CellSummary]) -> None:
    text = shown(terminal_cell(make_ddp(update={"status": RunStatus.RUNNING})))
    assert "This cell is not finished" in text
    assert "142 ms median of 20 steps" in text


def test_results_that_differ_from_the_single_process_are_shown_as_failed(make_ddp: Callable[..., CellSummary]) -> None:
    result = CorrectnessResult(
        passed=False,
        loss_error=0.3,
        loss_tolerance=1e-5,
        gradient_error=NAN,
        gradient_tolerance=1e-5,
        worst_parameter="head.weight",
    )
    text = one_line(shown(terminal_cell(make_ddp(update={"correctness": result}))))
    assert "FAILED, differs from a single process: loss error 3.0e-01 (tolerance 1.0e-05), gradient error n/a" in text
    assert "worst parameter head.weight" in text


def test_warm_up_that_never_settled_and_unread_events_are_said(make_fsdp2_tp: Callable[..., CellSummary]) -> None:
    text = one_line(shown(terminal_cell(make_fsdp2_tp())))
    assert "NOT settled after 60 steps: the step time still drifted by 6.2 %" in text
    assert "3 trace events could not be read" in text
    assert "device events that no rule knows: void mystery_kernel<4>[float] (12)" in text


def test_the_plans_notes_and_the_cells_notes_appear_once(make_fsdp2_tp: Callable[..., CellSummary]) -> None:
    note = make_fsdp2_tp().plan.notes[0]
    text = one_line(shown(terminal_cell(make_fsdp2_tp(update={"notes": (note, "4 ranks share 2 cores")}))))
    assert text.count(note) == 1
    assert "4 ranks share 2 cores" in text


def test_one_cell_needs_no_table_of_cells_and_two_get_one(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    assert "All cells" not in shown(terminal_run(make_run(make_ddp())))
    assert "All cells" in shown(terminal_run(make_run()))


def test_cells_without_axes_are_told_apart_by_their_names(make_run: Callable[..., RunSummary]) -> None:
    rows = [
        line.split() for line in shown(terminal_sweep(make_run())).splitlines() if line.startswith(("ddp", "fsdp2_tp"))
    ]
    assert rows[0] == ["ddp", "2", "142.0", "140.5-143.5", "7.21", "k", "12.3", "none", "11.5", "60.0", "%", "passed"]
    assert rows[1][-2:] == ["knob", "differs"]


@pytest.mark.parametrize("width", [80, 120])
def test_no_name_of_a_purpose_or_cell_is_broken_at_usual_widths(
    make_run: Callable[..., RunSummary], width: int
) -> None:
    text = shown(terminal_run(make_run()), width)
    assert "\ngrad_reduce  " in text
    assert "\nfsdp2_tp " in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_causes_are_summed_where_not_every_owner_is_shown(make_ddp: Callable[..., CellSummary]) -> None:
    def owned(count: int) -> str:
        owners = tuple(
            OwnerSummary(
                owner=f"layers.{i}", operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD,
                cause=Cause.LATE_ISSUE if i % 2 else Cause.SYNC_OP, exposed_ns=3_000_000, owner_exposed_ns=3_000_000,
            )
            for i in range(count)
        )  # fmt: skip
        return one_line(shown(terminal_cell(make_ddp().model_copy(update={"owners": owners}))))

    assert "by cause: issued blocking 18.0 ms, issued late 15.0 ms" in owned(11)
    assert "by cause" not in owned(3)


def test_many_ranks_are_cut_and_the_rest_is_announced(make_ddp: Callable[..., CellSummary]) -> None:
    row = make_ddp().ranks[0]
    ranks = tuple(row.model_copy(update={"rank": rank}) for rank in range(64))
    text = one_line(shown(terminal_cell(make_ddp(update={"ranks": ranks}))))
    assert "the 16 ranks with the longest steps of 64; the other 48 ranks: step" in text
    assert "--json has all" in text


def test_the_report_ends_with_where_things_are(make_run: Callable[..., RunSummary], tmp_path: Path) -> None:
    text = terminal_places(make_run()).plain
    assert "dtbench tensorboard" not in text, "there are no event files"
    assert "dtbench report results/small/20260101T120000Z-ab12 --json" in text
    assert "cells/ddp/launch0/traces (2)" in text
    assert "cells/fsdp2_tp (8)" in text
    (tmp_path / "tb").mkdir()
    assert f"dtbench tensorboard {tmp_path}" in terminal_places(make_run(path=str(tmp_path))).plain


def test_a_column_of_times_has_as_many_decimals_as_its_largest_needs() -> None:
    assert decimals_for([9_000_000]) == 3
    assert decimals_for([50_000_000, NAN]) == 2
    assert decimals_for([]) == 3
    assert decimals_for([100_000_000]) == 1
    assert format_ms(1_500_000, 2) == "1.50"
    assert format_ms(NAN, 2) == "n/a"


def make_own(make_ddp: Callable[..., CellSummary], backend: str | None = "gloo") -> CellSummary:
    plan = OwnLoop(
        script="train.py",
        device=DeviceKind.CPU,
        backend=backend,
        mesh=(OwnAxis(name="dp", axis=Axis.REPLICATE, size=2),),
        ranks=2,
        min_warmup_steps=8,
        max_warmup_steps=60,
        measured_steps=20,
        profiled_steps=5,
        tokens_per_step=None,
        notes=("said by the loop",),
    )
    row = (
        make_ddp()
        .purposes[0]
        .model_copy(update={"matches_plan": None, "planned_count": None, "planned_size_bytes": None})
    )
    fields = {"purposes": (row,), "receipts": (), "correctness": None, "tokens_per_second": NAN}
    return make_ddp(update={"scenario": None, "plan": plan, **fields})


def test_a_persons_own_loop_claims_no_plan_no_check_and_no_knob(make_ddp: Callable[..., CellSummary]) -> None:
    text = shown(terminal_cell(make_own(make_ddp)))
    assert "2 ranks: your own loop, dp 2 on gloo" in text
    assert "plan           none: your own loop in train.py" in text
    assert "not checked: your own loop" in text
    assert "n/a (say tokens_per_step), MFU n/a (your own model)" in text
    assert "unshard wait   none, no such collective was issued" in text
    assert "said by the loop" in text
    assert "= plan" not in text
    assert "knobs" not in text
    header = next(line for line in text.splitlines() if line.startswith("purpose"))
    assert header.split()[:4] == ["purpose", "count", "size", "comm"]


def test_a_loop_that_reduces_by_hand_is_not_said_to_have_issued_no_such_collective(
    make_ddp: Callable[..., CellSummary],
) -> None:
    own = make_own(make_ddp)
    (row,) = own.purposes
    by_hand = row.model_copy(update={"purpose": Purpose.OTHER, "count": 12, "size_bytes": 13_500_000})
    told, untold = own, own.model_copy(update={"purposes": (by_hand,)})
    assert (wait_word(told, Purpose.UNSHARD), wait_word(untold, Purpose.UNSHARD)) == ("none", "n/a")
    assert wait_word(untold, Purpose.GRAD_REDUCE) == "n/a"
    may_be = "n/a: none could be told; 12 collectives of purpose other, 12.9 MiB a step, may be such"
    assert wait_sentence(untold, Purpose.GRAD_REDUCE) == may_be
    unsized = by_hand.model_copy(update={"count": 1, "size_bytes": None})
    assert wait_sentence(own.model_copy(update={"purposes": (row, unsized)}), Purpose.UNSHARD) == (
        "n/a: none could be told; 1 collective of purpose other may be such"
    )
    summed = untold.model_copy(
        update={
            "others": (
                make_other(Operation.ALL_REDUCE, count=4, size_bytes=660),  # all of a tutorial's model
                make_other(Operation.ALL_GATHER, count=1, size_bytes=16, are_numbers=True),
                make_other(Operation.BARRIER, count=1, size_bytes=None),
            )
        }
    )
    assert wait_sentence(summed, Purpose.GRAD_REDUCE) == (
        "n/a: none could be told; 4 collectives of purpose other, 660 B a step, may be such"
    )
    assert wait_word(summed, Purpose.UNSHARD) == "none"  # no all-reduce gathers parameters, nor do numbers
    assert wait_sentence(summed, Purpose.UNSHARD) == "none, no such collective was issued"
    planned = make_ddp().model_copy(update={"purposes": (by_hand, *make_ddp().purposes)})
    assert wait_word(planned, Purpose.UNSHARD) == "none"


def test_what_a_function_of_ones_own_does_unseen_is_not_said_to_be_none(make_ddp: Callable[..., CellSummary]) -> None:
    cell = make_ddp()
    assert cell.scenario is not None
    hooked = cell.scenario.parallel.model_copy(update={"comm_hook": CustomHook(kind="custom", function="hooks:mine")})
    scenario = cell.scenario.model_copy(update={"parallel": hooked})
    own = make_ddp(
        update={"scenario": scenario, "purposes": (), "ranks": (cell.ranks[0].model_copy(update={"comm_ns": 0}),)}
    )
    assert wait_word(own, Purpose.GRAD_REDUCE) == "n/a"
    assert wait_sentence(own, Purpose.GRAD_REDUCE) == (
        "n/a: a function of your own does it, and no such collective was seen"
    )
    assert wait_word(own, Purpose.UNSHARD) == "none"


@pytest.mark.parametrize("operation", [None, *Operation])
def test_any_operation_that_hands_something_on_may_be_a_loops_way_to_average_gradients(
    make_ddp: Callable[..., CellSummary], operation: Operation | None
) -> None:
    own = make_own(make_ddp)
    (row,) = own.purposes
    by_hand = row.model_copy(update={"purpose": Purpose.OTHER})
    some = own.model_copy(update={"purposes": (by_hand,), "others": (make_other(operation, count=1, size_bytes=660),)})
    is_barrier, is_sum = operation is Operation.BARRIER, operation in REDUCTIONS
    assert wait_word(some, Purpose.GRAD_REDUCE) == ("none" if is_barrier else "n/a")
    assert wait_word(some, Purpose.UNSHARD) == ("none" if is_barrier or is_sum else "n/a")


def make_other(
    operation: Operation | None, *, count: int, size_bytes: int | None, are_numbers: bool = False
) -> OtherSummary:
    return OtherSummary(operation=operation, are_numbers=are_numbers, count=count, size_bytes=size_bytes)


def test_a_single_process_has_no_backend(make_ddp: Callable[..., CellSummary]) -> None:
    assert "without a process group" in shown(terminal_cell(make_own(make_ddp, backend=None)))


def test_the_knobs_of_a_cell_are_told_whole_however_narrow_the_screen(
    make_fsdp2_tp: Callable[..., CellSummary],
) -> None:
    knobs = {"kind": "fsdp2", "shards": 2, "tensor": 2, "sequence_parallel": True, "unshard_async_op": True}
    scenario = make_fsdp2_tp().scenario
    assert scenario is not None
    parallel = Fsdp2.model_validate({**knobs, "forward_prefetch": 1})
    cell = make_fsdp2_tp(update={"scenario": scenario.model_copy(update={"parallel": parallel})})
    text = shown(terminal_cell(cell), 80)
    assert "fsdp2_tp  4 ranks: fsdp2, shard 2 x tensor 2 on gloo" in text
    assert "knobs sequence_parallel=true, unshard_async_op=true, forward_prefetch=1 step time" in one_line(text)


def test_the_title_of_a_cell_says_that_a_link_was_emulated(make_ddp: Callable[..., CellSummary]) -> None:
    link = EmulatedNetwork(kind="emulated", bandwidth_gb_per_s=0.125)
    scenario = make_ddp().scenario
    assert scenario is not None
    linked = make_ddp(update={"scenario": scenario.model_copy(update={"network": link})})
    assert "2 ranks: ddp, replicate 2 on gloo, over an emulated link" in shown(terminal_cell(linked))
    assert "emulated" not in shown(terminal_cell(make_ddp()))


def test_a_persons_own_loop_is_told_what_draws_its_plot(
    make_ddp: Callable[..., CellSummary], make_run: Callable[..., RunSummary]
) -> None:
    places = terminal_places(make_run(make_own(make_ddp))).plain
    assert "dtbench analyze results/small/20260101T120000Z-ab12 makes it, and the plot" in places
    assert "dtbench analyze" not in terminal_places(make_run()).plain


def test_what_compiling_took_is_a_row_of_its_own(make_ddp: Callable[..., CellSummary]) -> None:
    compilation = Compilation(graphs=2, recompiles=1, graph_breaks=0, duration_ns=5_340_000_000)
    text = shown(terminal_cell(make_ddp().model_copy(update={"compilation": compilation})))
    assert "5.34 s on the slowest rank: 2 graphs, 1 recompile, 0 graph breaks" in text
    assert "compiling" not in shown(terminal_cell(make_ddp()))


def test_a_wait_that_is_known_is_the_same_in_headline_and_table_where_no_step_has_an_account(
    make_ddp: Callable[..., CellSummary],
) -> None:
    cell = make_ddp(update={"ranks": ()})
    (row,) = [one for one in cell.purposes if one.purpose is Purpose.GRAD_REDUCE]
    assert row.wait_ns is not None
    untold = "where the time of its profiled steps went is not known"
    assert wait_sentence(cell, Purpose.GRAD_REDUCE) == f"{format_ns(row.wait_ns)} per step ({untold})"
    assert wait_word(cell, Purpose.GRAD_REDUCE) == format_ns(row.wait_ns)
    purposes = tuple(one.model_copy(update={"wait_ns": None}) for one in cell.purposes)
    unwatched = make_ddp(update={"ranks": (), "purposes": purposes})
    assert wait_sentence(unwatched, Purpose.GRAD_REDUCE) == f"n/a: {untold}"
