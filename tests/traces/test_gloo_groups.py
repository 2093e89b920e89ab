"""gloo traces of other people: which threads serve one group, what can be known of it, and matching at scale."""

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.cpu.gloo_match import Form, Issue, Span, infer_groups, match_spans
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Collective

BIG = Form(Operation.ALL_REDUCE, 1000, 4000)
SMALL = Form(Operation.ALL_REDUCE, 10, 40)
SCALAR = Form(Operation.ALL_REDUCE, 1, 4)


def ran(*rows: tuple[int, Form]) -> list[Span]:
    """Return spans, one after another, each on a thread."""
    return [Span(number, number, lane, form, "float") for number, (lane, form) in enumerate(rows)]


def collectives(path: Path) -> tuple[Collective, ...]:
    return analyze_trace(read_trace(path)).collectives


def test_threads_that_ran_the_same_collectives_are_one_group_named_by_first_use() -> None:
    spans = ran((7, SMALL), (3, BIG), (9, SMALL), (5, BIG), (3, BIG))
    assert infer_groups(spans) == {7: "inferred 0", 9: "inferred 0", 3: "inferred 1", 5: "inferred 1"}


def test_one_form_that_every_group_has_is_no_reason_to_put_them_together() -> None:
    spans = ran((3, BIG), (5, BIG), (3, BIG), (5, BIG), (7, SMALL), (9, SMALL), (7, SMALL), (9, SMALL))
    spans += [Span(20, 20, 3, SCALAR, "float"), Span(21, 21, 7, SCALAR, "float")]
    groups = infer_groups(spans)
    assert groups[3] == groups[5] != groups[7] == groups[9]


def test_groups_with_equal_traffic_stay_unknown() -> None:
    assert infer_groups(ran(*((lane, BIG) for lane in (3, 5, 7, 9) * 4))) == {}


def test_a_thread_alone_is_a_group_only_when_it_ran_enough() -> None:
    assert infer_groups(ran(*[(3, BIG)] * 7)) == {}
    assert infer_groups(ran(*[(3, BIG)] * 8)) == {3: "inferred 0"}


def test_threads_that_take_turns_may_be_of_one_group_however_often_they_do() -> None:
    assert infer_groups(ran(*[(3, BIG), (5, SMALL)] * 20)) == {}
    assert infer_groups(ran(*[(3, BIG)] * 8, *[(5, SMALL)] * 8)) == {3: "inferred 0", 5: "inferred 1"}


@pytest.fixture
def foreign(recorded: Path, tmp_path: Path) -> Path:
    """Return the recorded run of FSDP2 over a tensor axis as torch alone would have written it."""
    content = json.loads(gzip.decompress((recorded / "fsdp2_tp_2x2_rank0.json.gz").read_bytes()))
    content["traceEvents"] = [event for event in content["traceEvents"] if not event["name"].startswith("dtbench::")]
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(content))
    return path


def test_inferred_groups_of_a_recorded_run_are_its_real_ones(recorded: Path, foreign: Path) -> None:
    labelled = {one.start_ns: one.group for one in collectives(recorded / "fsdp2_tp_2x2_rank0.json.gz")}
    pairs = {(labelled[one.start_ns], one.group) for one in collectives(foreign)}
    assert pairs == {("1", "inferred 0"), ("3", "inferred 1")}


def test_the_size_of_an_inferred_group_comes_from_what_it_spreads(foreign: Path) -> None:
    sizes = {one.group: one.group_size for one in collectives(foreign)}
    # the tensor axis only all-reduces: how many took part is in no event
    assert sizes == {"inferred 0": 2, "inferred 1": None}
    assert {one.dtype for one in collectives(foreign)} == {"float"}


def test_what_is_not_in_a_foreign_trace_is_not_claimed(foreign: Path) -> None:
    for one in collectives(foreign):
        assert one.seq is None
        assert one.axis is None
        assert one.region is None
        assert one.parameters == ()


def test_a_span_of_record_comm_encloses_nothing(draw: Callable[..., Path]) -> None:
    named, other = collectives(
        draw("""
        step ProfilerStep#1                  @1 |====================|
        op aten::mm                          @1 |                 == |
        op c10d::_allgather_base_            @1 | ===                |
        range FSDP::all_gather (layers.0)    @1 |  ============      |
        op c10d::allreduce_                  @1 |       ===          |
        range gloo:all_gather                @2 |   ===========      |
        range gloo:all_reduce                @3 |         ===        |
        """)
    )
    assert (named.owner, str(named.purpose)) == ("layers.0", "unshard")
    assert (other.owner, str(other.purpose)) == ("", "other")


def test_matching_takes_time_in_proportion_to_the_trace() -> None:
    def cpu_s(count: int) -> float:
        issues = [Issue(i, 10 * i, Operation.ALL_REDUCE, None, (1000,)) for i in range(count)]
        spans = [Span(count + i, 10 * i + 5, i % 2, BIG, "float") for i in range(count)]
        start = time.process_time()
        assert len(match_spans(issues, spans).spans) == count
        return time.process_time() - start

    few_s, many_s = (min(cpu_s(count) for _ in range(3)) for count in (4_000, 40_000))
    assert many_s < 30 * few_s  # 10 times where linear, 100 where every issue looks at every span
