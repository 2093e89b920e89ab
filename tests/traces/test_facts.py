"""What a rank's record adds to its trace."""

from collections.abc import Callable
from pathlib import Path

from dtbench.traces.notes.tables import OtherOwners
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.facts import RankFacts

BUCKET = "dtbench::collective group=0 seq=1 op=all_reduce bytes=8 axis=replicate async=1 owner=bucket 0"
DRAWING = f"""
    step ProfilerStep#1            @1 |==========|
    range dtbench::region backward @1 |==========|
    op aten::mm                    @1 |=         |
    range {BUCKET}                 @1 | ==       |
    range gloo:all_reduce          @2 |   ===    |
"""
FACTS = RankFacts(group_ranks={"0": (0, 2), "1": (0, 1)}, parameters={"bucket 0": ("b", "a"), "bucket 1": ("c",)})


def read(path: Path, facts: RankFacts | None) -> Collective:
    (one,) = analyze_trace(read_trace(path), facts=facts).collectives
    return one


def test_a_record_tells_the_ranks_of_a_group_and_the_parameters_of_a_bucket(draw: Callable[..., Path]) -> None:
    one = read(draw(DRAWING), FACTS)
    assert (one.group_ranks, one.group_size, one.parameters) == ((0, 2), 2, ("b", "a"))


def test_without_a_record_they_are_unknown(draw: Callable[..., Path]) -> None:
    one = read(draw(DRAWING), None)
    assert (one.group_ranks, one.group_size, one.parameters) == ((), None, ())
    assert one.owner == "bucket 0"


def test_what_dtensor_redistributes_for_a_unit_does_not_carry_its_parameters(draw: Callable[..., Path]) -> None:
    label = BUCKET.replace("axis=replicate", "axis=tensor").replace("bucket 0", "")
    one = read(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region backward          @1 |==========|
        op aten::mm                             @1 |=         |
        range FSDP::post_backward_reshard (a)   @1 | ====     |
        range {label}                           @1 |  ==      |
        range gloo:all_reduce                   @2 |   ===    |
        """),
        RankFacts(parameters={"a": ("a.weight",)}),
    )
    assert (str(one.purpose), one.owner, one.parameters) == ("tensor", "a", ())


def test_an_owner_that_the_worker_saw_otherwise_is_said(draw: Callable[..., Path]) -> None:
    label = BUCKET.replace("axis=replicate", "axis=shard").replace("bucket 0", "")
    path = draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region backward          @1 |==========|
        op aten::mm                             @1 |=         |
        range FSDP::post_backward_reduce (a)    @1 | ====     |
        range {label}                           @1 |  ==      |
        range gloo:all_reduce                   @2 |   ===    |
        """)
    collectives = analyze_trace(read_trace(path)).collectives
    assert RankFacts(owners={("0", 1): "a", ("0", 2): "b"}).find_other_owners(collectives) is None
    found = RankFacts(owners={("0", 1): "b"}).find_other_owners(collectives)
    assert found == OtherOwners((), count=1, known=1, traced="a", seen="b")
    assert str(found.of(2)).startswith("rank 2: 1 of 1 collective has another owner in the trace than FSDP said, the")
