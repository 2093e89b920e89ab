"""The report on anyone's traces: the answer first, then tables that fit a narrow terminal."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Cause, Purpose
from dtbench.cli.console import print_table
from dtbench.report.documents.traces import collective_rows, document_head
from dtbench.report.page.page import Table, words_of
from dtbench.report.page.slowest_ranks import MOST_RANKS
from dtbench.report.page.trace_page import (
    MOST_OWNERS,
    owner_table,
    purpose_table,
    time_table,
    traces_page,
    waiting_table,
)
from dtbench.report.words.causes import describe_cause
from dtbench.report.words.trace_words import MOST_NAMES, answer_lines, remark_lines
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.host.correlate import Uncorrelated
from dtbench.traces.job.explain import explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average, average_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.files import CutShort
from dtbench.traces.notes.lacking import NotSeenToRun
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.stragglers import RankWaiting, Waiting
from dtbench.traces.time.intervals import unite
from dtbench.traces.trace import Unread
from tests.known import known, total
from tests.traces.conftest import draw_events

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"


def tables_of(traces: TraceSet) -> list[Table]:
    return [block for part in traces_page(traces).parts for block in part.blocks if isinstance(block, Table)]


@pytest.fixture(scope="module")
def ddp() -> TraceSet:
    return analyze_traces([RECORDED / "ddp_2ranks_rank0.json.gz"])


@pytest.fixture(scope="module")
def fsdp() -> TraceSet:
    return analyze_traces([RECORDED / "fsdp2_tp_2x2_rank0.json.gz"])


def tell(traces: TraceSet, analyses: Sequence[TraceAnalysis]) -> TraceSet:
    """Return the same traces with other analyses, and what follows from these."""
    told = explain(analyses)
    return replace(traces, analyses=told.analyses, over_ranks=told.over_ranks, owners=told.owners)


def find_owners(analyses: Sequence[TraceAnalysis]) -> tuple[ExposedOwner, ...]:
    return explain(analyses).owners


def of_ranks(traces: TraceSet, count: int) -> TraceSet:
    """Return a job in which every rank did the same."""
    (one,) = traces.analyses
    ranks = [replace(one, timeline=replace(one.timeline, rank=rank)) for rank in range(count)]
    return tell(replace(traces, unread=(Unread(),) * count, world_size=count), ranks)


def repeat_steps(traces: TraceSet, times: int) -> TraceSet:
    (one,) = traces.analyses
    steps = replace(one.accounts, steps=one.accounts.steps * times)
    return replace(traces, analyses=(replace(one, steps=one.steps * times, accounts=steps),))


def test_means_of_steps_add_up(ddp: TraceSet, fsdp: TraceSet) -> None:
    for traces in (ddp, fsdp):
        (one,) = traces.analyses
        mean = average(traces.analyses)
        overlap = mean.overlap
        assert (mean.windows, mean.are_steps, mean.rank) == (3, True, 0)
        parts = total((overlap.compute_ns, overlap.exposed_comm_ns, overlap.exposed_copy_ns, overlap.idle_ns))
        assert parts == overlap.step_ns == total(step.overlap.step_ns for step in one.steps) // 3
        assert overlap.comm_ns == total((overlap.hidden_comm_ns, overlap.exposed_comm_ns))
        exposed_ns = total(step.overlap.exposed_comm_ns for step in one.steps)
        assert sum(row.exposed_ns for row in traces.owners) == exposed_ns
        purposes = average_purposes(traces.analyses)
        assert total(row.exposed_ns for row in purposes) == pytest.approx(overlap.exposed_comm_ns, abs=len(purposes))


def test_the_spread_is_the_middle_half_of_the_steps(ddp: TraceSet) -> None:
    times = sorted(known(step.overlap.step_ns) for step in ddp.analyses[0].steps)
    spread = average(ddp.analyses).step
    assert spread is not None
    assert spread.median_ns == times[1]
    assert spread.quartile1_ns == round((times[0] + times[1]) / 2)
    assert spread.quartile3_ns == round((times[1] + times[2]) / 2)


def sum_by_owner(traces: TraceSet) -> Counter[str | None]:
    """Sum over causes: of one rank alone fewer are known."""
    found: Counter[str | None] = Counter()
    for row in find_owners(traces.analyses):
        found[row.owner] += row.exposed_ns
    return found


def test_owners_of_several_ranks_are_summed_per_rank_and_step(ddp: TraceSet) -> None:
    alone, together = sum_by_owner(ddp), sum_by_owner(of_ranks(ddp, 4))
    assert {owner: exposed_ns * 4 for owner, exposed_ns in alone.items()} == together
    assert answer_lines(ddp)[0] == answer_lines(of_ranks(ddp, 4))[0]


def test_the_answer_names_the_largest_owner_and_its_cause(ddp: TraceSet) -> None:
    first, advice, alone, wait, basis = answer_lines(ddp)
    largest = find_owners(ddp.analyses)[0]
    start = "step 112 ms, 30.2 ms exposed (26.9 %); 15.4 ms of it bucket 2's all-reduce, mostly "
    assert first == start + describe_cause(largest.cause)
    assert advice.endswith(".")
    assert alone.startswith("rank 0 alone of 2: ")
    assert wait == "gradient wait 28.4 ms per step (25.3 %)"
    assert basis == "rank 0 of 2; mean of 3 steps, median step 116 ms, middle half 104 ms to 122 ms"


def test_owners_are_shown_by_cause_with_the_largest_first(ddp: TraceSet) -> None:
    section = owner_table(ddp)
    assert [column.title for column in section.columns][:4] == ["owner", "collective", "purpose", "cause"]
    largest = max(find_owners(ddp.analyses), key=lambda row: row.exposed_ns)
    assert section.words[0][:4] == ("bucket 2", "all-reduce", "grad_reduce", describe_cause(largest.cause))
    assert section.words[0][4] == format_ns(largest.exposed_ns / 3)
    assert sum(float(row[-1].removesuffix(" %")) for row in section.words) == pytest.approx(100, abs=1)


def test_every_rank_is_named_and_those_that_are_missing_are_counted(ddp: TraceSet) -> None:
    some = replace(of_ranks(ddp, 3), world_size=8)
    assert answer_lines(some)[-1].startswith("ranks 0-2 of 8; mean of 3 steps of each, ")


def name_owners(traces: TraceSet, owners: Sequence[str]) -> TraceSet:
    """Return the collectives other owners, in turn."""
    (one,) = traces.analyses
    named = tuple(replace(each, owner=owners[i % len(owners)]) for i, each in enumerate(one.collectives))
    return tell(traces, [replace(one, timeline=replace(one.timeline, collectives=named))])


def test_what_has_no_owner_is_called_unattributed(ddp: TraceSet) -> None:
    nobody = name_owners(ddp, [""])
    assert "30.2 ms of it an unattributed all-reduce, " in answer_lines(nobody)[0]
    assert {row[0] for row in owner_table(nobody).words} == {"unattributed"}


def test_many_owners_are_summed_below_those_that_are_shown(fsdp: TraceSet) -> None:
    many = name_owners(fsdp, [f"layers.{i}" for i in range(MOST_OWNERS + 5)])
    rows = [tuple(map(words_of, row)) for row in owner_table(many).first_rows]
    assert len(rows) == MOST_OWNERS + 1
    assert rows[-1][0].endswith(" more")
    assert sum(float(row[-1].removesuffix(" %")) for row in rows) == pytest.approx(100, abs=1)


def test_causes_are_summed_where_not_every_owner_is_shown(ddp: TraceSet, fsdp: TraceSet) -> None:
    many = name_owners(fsdp, [f"layers.{i}" for i in range(MOST_OWNERS + 5)])
    sums = Counter[str]()
    for row in many.owners:
        sums[describe_cause(row.cause)] += row.exposed_ns
    (cause, largest_ns), *_ = sums.most_common()
    assert owner_table(many).said[0].startswith(f"by cause: {cause} {format_ns(largest_ns / 3)}, ")
    assert not any(note.startswith("by cause") for note in owner_table(ddp).said)


def test_what_costs_next_to_nothing_gets_no_advice(ddp: TraceSet) -> None:
    first, *_ = ddp.owners
    late = replace(first, cause=Cause.LATE_READY, exposed_ns=first.exposed_ns // 50)
    later = replace(late, exposed_ns=first.exposed_ns // 1000)
    assert [note.split(":")[0] for note in owner_table(replace(ddp, owners=(first, late))).said] == [
        "gradients ready late (grad_reduce)"
    ]
    assert owner_table(replace(ddp, owners=(first, later))).said == ()


def test_steps_that_ranks_do_not_have_alike_are_counted_together(ddp: TraceSet) -> None:
    two = of_ranks(ddp, 2)
    lacking = replace(two.analyses[1], steps=two.analyses[1].steps[:2])
    assert "; mean of 5 steps, all ranks' together, " in answer_lines(tell(two, [two.analyses[0], lacking]))[-1]


def test_events_without_an_operator_are_in_the_numbers_and_collectives_without_a_span_are_not(ddp: TraceSet) -> None:
    (one,) = ddp.analyses
    first, *others = one.collectives
    unseen = replace(first, span=unite(np.empty(0, np.int64), np.empty(0, np.int64)))
    timeline = replace(one.timeline, collectives=(unseen, *others))
    untied = replace(one, uncorrelated=Uncorrelated(launched_before=2, ambiguous=1), timeline=timeline)
    assert remark_lines(replace(ddp, analyses=(untied,))) == (
        (
            "events that are tied to no operator, and in every number all the same: "
            "2 launched before the trace began, 1 with several launches"
        ),
        "collectives that were issued and not seen to run, so in no time: 1",
    )


def test_few_steps_are_shown_one_by_one_and_many_by_their_spread(ddp: TraceSet) -> None:
    few, many = time_table(ddp), time_table(repeat_steps(ddp, 10))
    assert [row[:2] for row in few.words] == [("0", "10"), ("0", "11"), ("0", "12"), ("0", "whole")]
    ((rank, steps, time, *_),) = many.words
    assert (rank, steps, time) == ("0", "30", "112 ms\n92.5-128 ms")
    assert many.notes


def test_of_many_ranks_those_with_the_longest_steps_are_shown(ddp: TraceSet) -> None:
    many = of_ranks(ddp, MOST_RANKS + 4)
    slow = many.analyses[-1]
    steps = tuple(
        replace(step, overlap=replace(step.overlap, step_ns=known(step.overlap.step_ns) + 1)) for step in slow.steps
    )
    section = time_table(replace(many, analyses=(*many.analyses[:-1], replace(slow, steps=steps))))
    assert len(section.words) == MOST_RANKS
    assert section.words[-1][0] == str(slow.rank)
    assert any("--json has all" in note for note in section.said)
    assert section.said[-1].startswith("the other 4 ranks: step 112 ms (112 ms to 112 ms), compute ")


def test_one_step_of_each_of_many_ranks_has_no_spread(ddp: TraceSet) -> None:
    (one,) = ddp.analyses
    short = tell(ddp, [replace(one, steps=one.steps[:1])])
    rows = time_table(of_ranks(short, MOST_RANKS)).words
    assert len(rows) == MOST_RANKS
    assert all("\n" not in cell for row in rows for cell in row)


def test_of_many_ranks_those_that_others_wait_for_longest_are_shown(ddp: TraceSet) -> None:
    late = tuple(
        RankWaiting(rank=rank, collectives=9, last=0, comm_ns=9, skew_wait_ns=1, caused_wait_ns=rank)
        for rank in range(MOST_RANKS + 4)
    )
    waiting = Waiting(ranks=late, collectives=9, partial=0, launched=0, unknown=0)
    section = waiting_table(replace(ddp, over_ranks=replace(ddp.over_ranks, waiting=waiting)))
    assert [row[0] for row in section.words] == [str(rank) for rank in range(4, MOST_RANKS + 4)]
    (said,) = section.said
    which, rest = said.split("; ")
    assert which == f"the {MOST_RANKS} ranks that others wait for longest, of {MOST_RANKS + 4}"
    assert rest == "the other 4 ranks: waited 1.00 ns (1.00 ns to 1.00 ns), others waited 1.50 ns (0 ns to 3.00 ns)"


def test_a_rank_of_which_nothing_is_decided_was_not_last_in_0(ddp: TraceSet) -> None:
    ranks = tuple(
        RankWaiting(rank, collectives=9, last=0, comm_ns=9, skew_wait_ns=1, caused_wait_ns=0, undecided=undecided)
        for rank, undecided in enumerate((9, 8))
    )
    waiting = Waiting(ranks=ranks, collectives=9, partial=0, launched=0, unknown=0)
    table = waiting_table(replace(ddp, over_ranks=replace(ddp.over_ranks, waiting=waiting)))
    assert [row[2:4] for row in table.words] == [("n/a", "9"), ("0", "8")]


def test_where_it_is_not_known_for_whom_ranks_waited_that_is_counted_and_nobody_named() -> None:
    """Two ranks share a device: who was last is told in 2 of 18, and 68 of the 760 us that they waited are of these."""
    traces = analyze_traces([RECORDED / "two_ranks_one_gpu" / "graph"])
    lines = answer_lines(traces)
    said = "for whom ranks wait is not known in 16 of 18 collectives (692 us of waiting, summed over ranks)"
    assert f"{said}: several came last there, or may have; who is waited for longest is not known" in lines
    assert not [line for line in lines if "is last in" in line or "issued no later" in line]
    found = document_head(traces)
    rows = list(collective_rows(traces))
    unknown = [row for row in rows if row["last_rank"] == "NaN" and row["step"] != "NaN"]
    assert (found["undecided"], len(unknown)) == (16, 2 * 16)
    assert (found["undecided_ns"], found["not_compared"]) == (692_312, 0)
    assert {row[2:4] for row in waiting_table(traces).words} == {("1", "16")}
    (note,) = waiting_table(traces).notes
    assert str(note).startswith("undecided: ")


def test_long_names_and_causes_fit_a_narrow_terminal(
    fsdp: TraceSet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"model.language_model.layers.{i}.mlp.experts.down_proj" for i in range(4)]
    for section in tables_of(repeat_steps(name_owners(fsdp, names), 10)):
        print_table(section.columns, section.first_rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "down_proj" in "".join(lines).replace(" ", "") or any("down" in line for line in lines)


def test_sections_come_in_the_order_of_reading_and_without_empty_ones(fsdp: TraceSet) -> None:
    titles = [section.title for section in tables_of(fsdp)]
    assert titles == [
        "Exposed communication by purpose and cause, ms per step and rank",
        "Exposed communication by owner and cause, per step",
        "What communication was for, per step",
        "Where the time went",
    ]
    assert all(isinstance(section, Table) and section.words for section in tables_of(fsdp))


@pytest.mark.parametrize("doubt", ["a number comes twice", "not one job"])
def test_where_causes_are_no_finding_no_advice_is_given_anywhere(fsdp: TraceSet, doubt: str) -> None:
    if doubt == "not one job":
        doubted = replace(fsdp, over_ranks=replace(fsdp.over_ranks, is_one_job=False))
    else:
        doubted = replace(fsdp, analyses=tuple(replace(one, repeated_steps=1) for one in fsdp.analyses))
    assert " At most " in " ".join(owner_table(fsdp).said)
    said = [*answer_lines(doubted), *(note for section in tables_of(doubted) for note in section.said)]
    assert not [line for line in said if " At most " in line or "Make it asynchronous" in line]


@pytest.mark.parametrize(("times", "count"), [(1, "1.50"), (9, "0.300")])
def test_what_some_steps_have_is_no_count_of_none(fsdp: TraceSet, times: int, count: str) -> None:
    repeated = repeat_steps(fsdp, times + 1)
    (one,) = repeated.analyses
    last = len(fsdp.analyses[0].steps)
    kept = [*one.steps[:last], *(replace(step, purposes=()) for step in one.steps[last:])]
    (unshard,) = (row for row in average_purposes(fsdp.analyses) if row.purpose is Purpose.UNSHARD)
    few = [
        replace(step, purposes=tuple(replace(row, count=unshard.count // 2) for row in step.purposes)) for step in kept
    ]
    (row,) = purpose_table(replace(repeated, analyses=(replace(one, steps=tuple(few)),))).words[:1]
    assert row[:2] == ("unshard", count)


def test_remarks_say_what_was_not_read_and_what_is_not_known(ddp: TraceSet) -> None:
    lost = Unread({"not JSON": 2, "no time": 1}, is_truncated=True)
    names = tuple((f"kernel {i}", i) for i in range(MOST_NAMES + 3))
    lines = remark_lines(replace(ddp, unread=(lost,), unknown_names=names, notes=(CutShort("rank0.json"),)))
    assert lines[0] == "rank0.json: cut short; what came before the cut is used"
    assert lines[1].endswith("3 events could not be read and are in no number (2 not JSON, 1 no time)")
    assert sum("may be communication" in line for line in lines) == MOST_NAMES
    assert lines[-1] == "and 3 more such names: see --json"
    assert remark_lines(ddp) == ()


def test_a_share_that_cannot_be_computed_is_not_a_number(ddp: TraceSet) -> None:
    (one,) = ddp.analyses
    silent = replace(one.steps[0].overlap, comm_ns=0, hidden_comm_ns=0, exposed_comm_ns=0)
    assert math.isnan(silent.hidden_fraction)
    alone = replace(ddp, analyses=(replace(one, steps=(replace(one.steps[0], overlap=silent),)),))
    step, _ = time_table(alone).words
    assert step[4] == "none"
    assert step[-2:] == ("n/a", "0.0 %")  # none was seen, which is no share of the step


def test_where_a_launched_collective_is_missing_what_is_exposed_is_so_much_at_least(tmp_path: Path) -> None:
    whole = Path(__file__).parents[1] / "traces" / "recorded" / "one_hardware_queue" / "queue8"
    for path in sorted(whole.glob("rank*.json")):
        trace = json.loads(path.read_text())
        kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel" and "nccl" in one["name"]]
        second = sorted(kernels, key=lambda one: one["ts"])[1]
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one is not second]
        (tmp_path / path.name).write_text(json.dumps(trace))
    first = answer_lines(analyze_traces([whole]))[0]
    assert "10.5 ms, 500 us exposed" in first
    lost = analyze_traces([tmp_path])
    assert "10.5 ms, at least 500 us exposed" in answer_lines(lost)[0]
    (note,) = pick_notes(lost.notes, NotSeenToRun)
    assert str(note).startswith("ranks 0-1: 1 collective was launched and not seen to run, so communication and ")


def test_a_mean_over_some_ranks_or_steps_says_of_which_it_is(ddp: TraceSet) -> None:
    def forget(one: TraceAnalysis, steps: Sequence[int]) -> TraceAnalysis:
        of = [
            tuple(replace(row, wait_ns=None) for row in step.purposes) if place in steps else step.purposes
            for place, step in enumerate(one.steps)
        ]
        return replace(one, steps=tuple(replace(step, purposes=rows) for step, rows in zip(one.steps, of, strict=True)))

    first, second = (replace(ddp.analyses[0], timeline=replace(ddp.analyses[0].timeline, rank=rank)) for rank in (0, 1))
    (wait,) = (line for line in answer_lines(ddp) if line.startswith("gradient wait"))
    for analyses, part in (
        ([forget(first, (0, 1, 2)), second], "rank 1 alone, of 2"),
        ([forget(first, (0, 1, 2)), forget(second, (2,))], "rank 1 alone, of 2, in 2 of 3 rank steps"),
        ([forget(first, (0,)), second], "5 of 6 rank steps"),
    ):
        traces = tell(ddp, analyses)
        (told,) = (line for line in answer_lines(traces) if line.startswith("gradient wait"))
        assert told.startswith(f"gradient wait of {part}: ")
        section = purpose_table(traces)
        assert f"* of {part}: not known of the others" in section.said
        (row,) = (row for row in section.words if row[0] == "grad_reduce")
        marked = [column.title for column, cell in zip(section.columns, row, strict=True) if cell.endswith("*")]
        assert marked == ["waited"]
    (whole,) = (line for line in answer_lines(tell(ddp, [first, second])) if line.startswith("gradient wait"))
    assert whole == wait


def test_a_wait_that_is_not_known_says_why(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    drawing = """
        step ProfilerStep#1                   @1 |==========|
        call cudaLaunchKernel                 @1 |a         |
        range FSDP::all_gather (layers.0)     @1 | ==       |
        call cudaLaunchKernelExC              @1 | b        |
        kernel gemm                           @7 | aa       |
        kernel ncclDevKernel_AllGather_RING() @8 |    bbbb  |
    """
    path.write_text(json.dumps({"traceEvents": draw_events(drawing)}))
    lines = answer_lines(analyze_traces([path]))
    assert "unshard wait n/a: not every consumer of it can be seen in the traces" in lines


def stand_behind_a_collective(path: Path, around: str, *more: str) -> TraceSet:
    """Draw a kernel that was launched behind a collective of 58 us and stands still until it has ended."""
    drawing = (
        f"step ProfilerStep#1                     @1 |{'=' * 90}|",
        f"call cudaLaunchKernel                   @1 |a  c{' ' * 86}|",
        f"{around}                                @1 | ={' ' * 88}|",
        f"call cudaLaunchKernelExC                @1 | b{' ' * 88}|",
        f"kernel gemm                             @7 | aa{' ' * 57}{'c' * 25}{' ' * 5}|",
        f"kernel ncclDevKernel_AllReduce_Sum_f32  @8 |  {'b' * 58}{' ' * 30}|",
        *more,
    )
    path.write_text(json.dumps({"traceEvents": draw_events("\n".join(drawing))}))
    return analyze_traces([path])


def test_a_wait_is_not_known_where_the_trace_does_not_say_what_compute_waited_for(tmp_path: Path) -> None:
    untold = stand_behind_a_collective(tmp_path / "untold.json", "op c10d::allreduce_")
    assert [row.wait_ns for row in average_purposes(untold.analyses)] == [None]
    waits = f"call cudaStreamWaitEvent @1 |  ={' ' * 87}|"
    told = stand_behind_a_collective(tmp_path / "told.json", "op c10d::allreduce_", waits)
    assert [row.wait_ns for row in average_purposes(told.analyses)] == [57_000]
    fsdp = stand_behind_a_collective(tmp_path / "fsdp.json", "range FSDP::all_gather (layers.0)")
    why = "missing: what the compute waited for that stood launched beside it"
    assert f"unshard wait n/a: {why}" in answer_lines(fsdp)
