"""What holds for every timeline, whatever the trace lacks."""

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dtbench.traces.causes.split as causes
from dtbench.base.vocabulary import Cause, Operation, Purpose, Region
from dtbench.traces.causes.split import split_exposed
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import unite
from dtbench.traces.time.shares import share_time
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective, Regions
from tests.traces.causes.conftest import NEED_NO_OTHER_RANK, SAY_ALONE

LAST_NS = 60
MAYBE = st.none() | st.integers(0, LAST_NS)
SPANS = st.lists(st.tuples(st.integers(0, LAST_NS), st.integers(0, 20)), max_size=6)


@st.composite
def collectives(draw: st.DrawFn) -> Collective:
    start_ns = draw(st.integers(0, LAST_NS))
    issue_ns = draw(MAYBE)
    return Collective(
        group=draw(st.sampled_from(["", "a", "b"])),
        axis=None,
        seq=None,
        operation=draw(st.sampled_from([None, Operation.ALL_REDUCE, Operation.BARRIER])),
        purpose=draw(st.sampled_from(Purpose)),
        owner="",
        size_bytes=None,
        issue_ns=issue_ns,
        issue_end_ns=issue_ns,
        span=unite([start_ns], [start_ns + draw(st.integers(0, 30))]),
        above=draw(st.sampled_from([(), ("cudaGraphLaunch",), ("c10d::x", "FSDP::all_gather (a)")])),
        lane=draw(st.sampled_from(["x", "y"])),
        is_async=draw(st.sampled_from([None, True, False])),
        group_size=draw(st.sampled_from([None, 1, 4])),
        ready_ns=draw(MAYBE),
        computed_ns=draw(MAYBE),
    )


@st.composite
def timelines(draw: st.DrawFn) -> RankTimeline:
    found = tuple(sorted(draw(st.lists(collectives(), max_size=6)), key=lambda one: one.start_ns))
    spans = sorted(draw(SPANS))
    compute = unite([start for start, _ in spans], [start + length for start, length in spans])
    shares = share_time([one.span for one in found], compute, [])
    starts = np.array([start for start, length in spans if length], dtype=np.int64)
    early, late = (
        np.array(draw(st.lists(st.integers(0, 50), min_size=6, max_size=6)))[: len(starts)] for _ in range(2)
    )
    borders = sorted(draw(st.lists(st.integers(0, LAST_NS), max_size=4, unique=True)))
    return RankTimeline(
        rank=0,
        is_device=draw(st.booleans()),
        collectives=found,
        step_of=(None,) * len(found),
        exposed_ns=tuple(shares.exposed_ns.sum(axis=1).tolist()),
        stepped_exposed_ns=tuple(shares.exposed_ns.sum(axis=1).tolist()),
        hidden_ns=tuple(shares.hidden_ns.sum(axis=1).tolist()),
        compute=compute,
        compute_starts_ns=starts,
        compute_launches_ns=np.stack((starts - early, starts - early + np.minimum(early, late))),
        regions=Regions(
            (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER)[: max(len(borders) - 1, 0)],
            np.array(borders[:-1], dtype=np.int64),
            np.array(borders[1:], dtype=np.int64),
        ),
        step_numbers=(),
        steps=(),
    )


def test_the_table_says_what_each_cause_takes_in_their_order() -> None:
    assert re.findall(r"^``(\w+)`` ", causes.__doc__ or "", re.MULTILINE) == list(Cause)


@settings(max_examples=300, deadline=None)
@given(timelines(), st.data())
def test_causes_add_up_to_the_exposed_time_in_their_order(timeline: RankTimeline, data: st.DataObject) -> None:
    size = len(timeline.collectives)
    last = data.draw(st.lists(st.none() | st.integers(-5, LAST_NS + 40), min_size=size, max_size=size))
    order = list(Cause)
    for collective, last_ns, exposed_ns, split in zip(
        timeline.collectives, last, timeline.exposed_ns, split_exposed(timeline, last), strict=True
    ):
        causes = [part.cause for part in split.parts]
        assert sum(part.exposed_ns for part in split.parts) == exposed_ns
        assert all(part.exposed_ns > 0 for part in split.parts)
        assert causes == sorted(set(causes), key=order.index)
        assert Cause.SKEW not in causes or (last_ns is not None and last_ns > collective.start_ns)
        assert all((part.behind is not None) == (part.cause is Cause.QUEUED) for part in split.parts)
        assert all(bool(part.missing) == (part.cause is Cause.UNKNOWN) for part in split.parts)
        assert collective.issue_ns is not None or not set(causes) & {Cause.QUEUED, Cause.LATE_ISSUE, Cause.BANDWIDTH}


@settings(max_examples=100, deadline=None)
@given(timelines())
def test_alone_nothing_is_skew_or_bandwidth_unless_its_group_has_one_rank(timeline: RankTimeline) -> None:
    splits = split_exposed(timeline, [None] * len(timeline.collectives))
    for collective, split in zip(timeline.collectives, splits, strict=True):
        causes = {part.cause for part in split.parts}
        assert Cause.SKEW not in causes
        assert causes - NEED_NO_OTHER_RANK <= {Cause.UNKNOWN} or collective.group_size == 1, SAY_ALONE


@settings(max_examples=100, deadline=None)
@given(timelines())
def test_a_last_start_after_every_end_makes_all_exposed_time_skew_or_a_pipelines_bubble(timeline: RankTimeline) -> None:
    last = [one.end_ns + 1 for one in timeline.collectives]
    splits = split_exposed(timeline, last)
    for one, exposed_ns, split in zip(timeline.collectives, timeline.exposed_ns, splits, strict=True):
        cause = Cause.BUBBLE if one.purpose is Purpose.PIPELINE else Cause.SKEW
        assert [(part.cause, part.exposed_ns) for part in split.parts] == [(cause, exposed_ns)] * (exposed_ns > 0)


def test_concurrent_collectives_share_what_lies_before_the_last_start() -> None:
    one, two = (
        Collective(
            group="a", axis=None, seq=None, operation=None, purpose=Purpose.OTHER, owner="", size_bytes=None,
            issue_ns=None, issue_end_ns=None, span=unite([start], [end]), above=(), lane=lane,
        )
        for start, end, lane in ((0, 20, "x"), (10, 30, "y"))
    )  # fmt: skip
    nothing = unite([], [])
    timeline = RankTimeline(
        rank=0, is_device=True, collectives=(one, two), step_of=(None, None), exposed_ns=(15, 15),
        stepped_exposed_ns=(15, 15), hidden_ns=(0, 0), compute=nothing,
        compute_starts_ns=nothing.starts_ns, compute_launches_ns=np.stack((nothing.starts_ns, nothing.starts_ns)),
        regions=Regions((), nothing.starts_ns, nothing.ends_ns), step_numbers=(), steps=(Window(0, 30),),
    )  # fmt: skip
    first, second = split_exposed(timeline, [14, 26])
    # One alone in [0, 10), half of [10, 14); two half of [10, 20), alone in [20, 26).
    assert (first.parts[0].cause, first.parts[0].exposed_ns) == (Cause.SKEW, 10 + 2)
    assert (second.parts[0].cause, second.parts[0].exposed_ns) == (Cause.SKEW, 5 + 6)
