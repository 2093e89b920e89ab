"""What changes of graphs do, by hand where the answer is known, and at random where a rule must hold."""

from dataclasses import replace

import pytest

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.apart import Apart
from dtbench.replay.changes.change import Change, Owner, list_collectives
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.changes.host import HostTime
from dtbench.replay.changes.kernel import Kernel
from dtbench.replay.changes.link import Link
from dtbench.replay.changes.overlap_tax import NoOverlapTax
from dtbench.replay.changes.parse import parse_change
from dtbench.replay.changes.straggler import NoStraggler
from dtbench.replay.graph import GraphStep, JobGraph, RankGraph
from dtbench.replay.longest_way import find_longest_way
from dtbench.replay.read import Recorded
from dtbench.replay.run import replay
from dtbench.replay.what_if import ask, find_changes
from dtbench.traces.job.trace_set import gather_ranks
from tests.replay.hand_made import Written, make_random

NO_TRACES = gather_ranks([])


def take(graph: JobGraph) -> int:
    """Return how long all steps take."""
    return sum(replay(graph).rounds_ns)


def hide(graph: JobGraph, *names: str) -> Change:
    owners = {Owner.of(one) for rank in graph.values() for _, one in list_collectives(rank)}
    return Hidden(tuple(owner for owner in owners if owner.name in names), ", ".join(names))


def two_buckets() -> JobGraph:
    """Buckets ready at 20 and 50 that take 40 and 30, and compute that ends at 60."""
    written = Written().begin().spend(20).issue("a", 40).spend(30).issue("b", 30).spend(10).sit(0, 1).end()
    return {0: written.finish()}


def test_a_hidden_bucket_that_delays_the_tail_has_a_bound_of_its_own() -> None:
    graph = two_buckets()
    assert take(graph) == 90
    assert take(graph) - take(hide(graph, "a").apply(graph)) == 10
    assert take(graph) - take(hide(graph, "b").apply(graph)) == 30
    assert take(Hidden().apply(graph)) == 60


def test_a_row_of_kernels_is_as_its_kernels_one_by_one() -> None:
    launches = Written().begin().spend(5).launch(10).spend(1).launch(10).spend(40).launch(3).spend(1).launch(20)
    graph = {0: launches.end().finish(is_device=True)}
    assert replay(graph).steps_ns == (46 + 3 + 20 - 5,)
    assert take(HostTime(0.0).apply(graph)) == 43
    assert take(Kernel("gemm", 2.0).apply(graph)) == 46 + 1 + 1 + 10


def test_without_the_overlap_tax_kernels_beside_communication_take_what_they_take_alone() -> None:
    written = Written().begin().spend(5).launch(10).issue("a", 60, after=(0,)).launch(30, alone_ns=21).launch(8)
    graph = {0: written.launch(4, after=(1,)).end().finish(is_device=True)}
    assert take(graph) == 5 + 10 + 60 + 4
    assert take(Hidden().apply(graph)) == 5 + 10 + 30 + 8 + 4
    assert take(NoOverlapTax().apply(graph)) == take(graph), "behind a collective that takes as long, nothing is saved"
    assert take(NoOverlapTax().apply(Hidden().apply(graph))) == 5 + 10 + 21 + 8 + 4


def test_the_overlap_tax_needs_a_device_and_kernels_that_were_seen_both_ways() -> None:
    with pytest.raises(PredictionError, match="what computes is the host"):
        NoOverlapTax().apply(two_buckets())
    with pytest.raises(PredictionError, match="no kernel of these steps was seen often enough both under"):
        NoOverlapTax().apply({0: Written().begin().launch(10).issue("a", 5).end().finish(is_device=True)})


def test_without_stragglers_each_does_what_the_rank_in_the_middle_does() -> None:
    def rank(number: int, before_ns: int, after_ns: int) -> Written:
        written = Written(number, (0, 1, 2)).begin().spend(before_ns).issue("a", 10, "one").sit(0)
        return written.spend(after_ns).issue("a", 10, "two").sit(1).end()

    graph = {number: rank(number, *spent).finish() for number, spent in enumerate(((10, 50), (20, 40), (90, 41)))}
    assert take(graph) == 90 + 10 + 50 + 10
    assert take(NoStraggler().apply(graph)) == 20 + 10 + 41 + 10


def test_ranks_that_begin_apart_begin_together_without_stragglers() -> None:
    def rank(number: int, begins_ns: int) -> Written:
        return Written(number, (0, 1, 2), begins_ns).begin().spend(10).issue("a", 5, "one").sit(0).end()

    graph = {number: rank(number, begins).finish() for number, begins in enumerate((0, 3, 70))}
    assert take(graph) == 85
    assert take(NoStraggler().apply(graph)) == 15


def test_what_is_hidden_takes_no_more_than_one_rank_of_those_that_nobody_matched() -> None:
    alone = {
        number: Written(number).begin().issue("a", time_ns).spend(5).sit(0).end().finish()
        for number, time_ns in enumerate((30, 40))
    }
    together = {
        number: Written(number, (0, 1)).begin().issue("a", time_ns, "one").spend(5).sit(0).end().finish()
        for number, time_ns in enumerate((30, 40))
    }
    for graph in (alone, together):
        recorded = Recorded(graph, (1,), replay(graph).rank_steps_ns, NO_TRACES)
        (answer,) = ask([recorded], [Hidden()]).answers
        assert (answer.own_ns, answer.saving_ns) == (40, 35)


def test_of_a_job_whose_size_nobody_tells_nothing_is_asked_that_needs_the_others() -> None:
    def rank(number: int) -> Written:
        return Written(number, (0, 1)).begin().issue("a", 30, "one").sit(0).end()

    graph = {number: rank(number).finish() for number in range(2)}
    for size, offered in ((None, False), (3, False), (2, True)):
        recorded = Recorded(graph, (1,), replay(graph).rank_steps_ns, replace(NO_TRACES, world_size=size))
        found = ask([recorded])
        assert any(answer.change == NoStraggler() for answer in found.answers) is offered
        assert (found.missing, found.unmatched) == (None if size is None else size - 2, 0)
    alone = {number: Written(number).begin().issue("a", 30).sit(0).end().finish() for number in range(2)}
    recorded = Recorded(alone, (1,), replay(alone).rank_steps_ns, replace(NO_TRACES, world_size=2))
    assert ask([recorded]).unmatched == 2


def test_links_twice_as_fast() -> None:
    assert take(Link(2.0).apply(two_buckets())) == max(60, 50 + 15)


@pytest.mark.parametrize("block", range(5))
def test_bounds_lie_between_nothing_and_what_it_takes_and_grow(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        graph = make_random(seed)
        whole = take(graph)
        savings = {names: whole - take(hide(graph, *names).apply(graph)) for names in ("a", "b", "ab", "abc")}
        took = dict.fromkeys("abc", 0)
        for key in {service.key for one in graph.values() for service in one.services.values()}:
            of_key = [
                (service.service_ns, one.collectives[int(one.items.collective[item])].owner)
                for one in graph.values()
                for item, service in one.services.items()
                if service.key == key
            ]
            took[of_key[0][1]] += max(time_ns for time_ns, _ in of_key)
        assert 0 <= savings["a"] <= took["a"], seed
        assert 0 <= savings["b"] <= took["b"], seed
        assert max(savings["a"], savings["b"]) <= savings["ab"] <= savings["abc"], seed
        assert whole - savings["abc"] == take(Hidden().apply(graph)), seed


@pytest.mark.parametrize("block", range(5))
def test_the_longest_way_is_as_long_as_all_steps(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        graph = make_random(seed)
        last_ns = max(end for one in replay(graph).executions.values() for end in (one.step_ns, *one.ends_ns))
        first_ns = min(steps[0][0] for steps in replay(graph).windows_ns.values())
        way = find_longest_way([(graph, replay(graph))])
        assert way.whole_ns == last_ns - first_ns == sum(way.ranks_ns.values()), seed


def test_what_is_no_change_is_refused_with_what_there_is() -> None:
    graph = two_buckets()
    for text in (
        "faster",
        "link: 2",
        "link: x0",
        "hidden:",
        "kernel: x2",
        "host: x-1",
        "no straggler: 3",
        "no overlap tax: 1",
    ):
        with pytest.raises(PredictionError, match=r"is no change; there are `hidden: all`"):
            parse_change(text, graph)
    with pytest.raises(PredictionError, match=r"is of `c`; there are `a, grad_reduce`, `b, grad_reduce`"):
        parse_change("hidden: c", graph)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("hidden: a", 80),
        ("hidden: b, grad_reduce", 60),
        ("hidden: grad_reduce", 60),
        ("hidden: all", 60),
        ("hidden: a's all-reduce", 80),
        ("hidden: ## a ##", 80),
    ],
)
def test_an_owner_is_named_alone_or_with_its_purpose(text: str, expected_ns: int) -> None:
    graph = two_buckets()
    change = parse_change(text, graph)
    assert (change.name, take(change.apply(graph))) == (text, expected_ns)


@pytest.mark.parametrize(
    "text", ["link: x2", "link: x0.5", "no straggler", "no overlap tax", "host: x0", "kernel: gemm_64 x3"]
)
def test_a_change_is_named_as_it_is_written(text: str) -> None:
    assert parse_change(text, two_buckets()).name == text


def test_units_that_reports_name_together_are_hidden_together() -> None:
    written = Written().begin()
    for number in (0, 1, 2, 7, 10):
        written.issue(f"layers.{number}", 10)
    graph = {0: written.sit(4).end().finish()}
    assert take(graph) == 50
    assert take(parse_change("hidden: layers.{0-2, 7}", graph).apply(graph)) == 10
    assert take(parse_change("hidden: layers.1", graph).apply(graph)) == 40
    assert take(parse_change("hidden: layers.{1-999999999}", graph).apply(graph)) == 10, "as quick as a short range"
    with pytest.raises(PredictionError, match=r"is of `layers\.\{3-6\}`"):
        parse_change("hidden: layers.{3-6}", graph)


def test_of_two_ranks_the_faster_is_not_behind() -> None:
    def rank(number: int, time_ns: int) -> Written:
        return Written(number, (0, 1)).begin().spend(time_ns).issue("a", 5, "one").sit(0).end()

    graph = {number: rank(number, time_ns).finish() for number, time_ns in enumerate((10, 31))}
    assert (take(graph), take(NoStraggler().apply(graph))) == (36, 15)


def test_changes_that_do_not_apply_say_why() -> None:
    graph = two_buckets()
    for change, why in (
        (NoStraggler(), "one rank alone"),
        (HostTime(0.0), "on CPUs the host is what computes"),
        (Kernel("conv", 2.0), "no kernel that computes has `conv` in its name"),
    ):
        with pytest.raises(PredictionError, match=why):
            change.apply(graph)
    apart = {number: Written(number).begin().issue("a", 5).end().finish() for number in range(2)}
    with pytest.raises(PredictionError, match="no collective is there on all ranks"):
        NoStraggler().apply(apart)


def test_in_a_queue_of_its_own_a_collective_waits_for_no_other() -> None:
    """Issued at 0 (40 long), 10 (5 long, needed at once), 20 (7 long, and waited for at the end)."""
    written = Written().begin().issue("gather", 40).spend(10).issue("small", 5).sit(1).spend(10).issue("late", 7)
    graph = {0: written.sit(0, 2).end().finish()}
    assert take(graph) == 45 + 10 + 7
    owner = next(Owner.of(one) for _, one in list_collectives(graph[0]) if one.owner == "small")
    assert take(Apart((owner,), "small").apply(graph)) == 47  # small 10 to 15; late, issued at 25, from 40 on
    assert take(parse_change("apart: small", graph).apply(graph)) == 47
    assert parse_change("apart: small", graph).name == "apart: small"
    alone = {0: Written().begin().issue("a", 40, lane="one").issue("b", 40, lane="two").sit(0, 1).end().finish()}
    with pytest.raises(PredictionError, match="no other collective stands in a queue of its own kind with those of a"):
        parse_change("apart: a", alone).apply(alone)
    with pytest.raises(PredictionError, match="of `c`; there are"):
        parse_change("apart: c", alone)


def test_where_compute_stands_in_the_same_lane_its_order_is_also_who_needs_whom() -> None:
    written = Written().begin().launch(10, "one").issue("a", 5, lane="one").launch(10, "one").issue("b", 5, lane="one")
    graph = {0: written.end().finish(is_device=True)}
    with pytest.raises(PredictionError, match="no other collective stands in a queue"):
        parse_change("apart: a", graph).apply(graph)


@pytest.mark.parametrize("block", range(2))
def test_all_ranks_change_queues_alike_and_programs_still_end(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        graph = make_random(seed)
        names = {Owner.of(one) for rank in graph.values() for _, one in list_collectives(rank)}
        for owner in sorted(names, key=str):
            try:
                changed = Apart((owner,), str(owner.name)).apply(graph)
            except PredictionError:
                continue
            assert take(changed) > 0
            assert {rank: one.services for rank, one in changed.items()} == {
                rank: one.services for rank, one in graph.items()
            }


def test_what_ranks_do_together_is_one_whatever_each_calls_it() -> None:
    """Rank 1 calls its units otherwise (compiled ones are `_orig_mod.layers.0`)."""

    def rank(number: int, prefix: str) -> Written:
        written = Written(number, (0, 1)).begin()
        for unit in range(2):
            written.issue(f"{prefix}layers.{unit}", 30, f"unit {unit}")
        return written.sit(1).spend(5).end()

    graph = {0: rank(0, "").finish(), 1: rank(1, "_orig_mod.").finish()}
    assert take(graph) == 65
    for text in ("hidden: layers.1", "hidden: _orig_mod.layers.1", "apart: layers.1", "apart: _orig_mod.layers.1"):
        assert take(parse_change(text, graph).apply(graph)) == 35, text
    owners = [change.label for change in find_changes(graph) if isinstance(change, Hidden) and change.owners]
    assert owners == ["layers.0, grad_reduce", "layers.1, grad_reduce"], "each once"


def test_a_rank_whose_host_runs_ahead_of_its_device_keeps_no_other_lane_busy() -> None:
    """Rank 0's host gave long before the steps begin what its lane still works for, as does rank 1's, given late."""

    def rank(number: int, begins_ns: int) -> RankGraph:
        written = Written(number, (0, 1), begins_ns).begin().issue("a", 10, "one").sit(0).end()
        return replace(written.finish(), busy_until_ns={"comm": 300})

    graph = {0: rank(0, 0), 1: rank(1, 290)}
    assert take(graph) == 310
    assert take(NoStraggler().apply(graph)) == 310


def test_steps_of_a_device_that_begin_with_a_collective_are_shorter_without_it() -> None:
    """Each step is one all-reduce and the kernel behind it: both of its steps are shorter, none longer."""
    written = Written()
    for _ in range(2):
        written.begin().issue("a", 30, after=()).launch(20, after=(len(written.items) - 1,)).sit(len(written.items) - 1)
        written.end()
    one = written.finish(is_device=True)
    graph = {0: replace(one, steps=(GraphStep(0, 0), GraphStep(1, 2)))}
    assert replay(graph).steps_ns == (50, 50)
    hidden = replay(Hidden().apply(graph))
    assert hidden.steps_ns == (20, 20)
    assert [before - after for before, after in zip(replay(graph).rounds_ns, hidden.rounds_ns, strict=True)] == [30, 30]


def test_what_runs_before_the_first_step_begins_on_its_device_may_be_saved_but_never_costs() -> None:
    written = Written().begin().issue("a", 30).launch(20, after=(0,)).sit(1).end()
    graph = {0: replace(written.finish(is_device=True), steps=(GraphStep(0, 1),))}
    assert take(graph) - take(Hidden().apply(graph)) == 30


@pytest.mark.parametrize("text", ["host: x1000001", "link: x0.0001", "kernel: gemm x5000", "latency: x" + "9" * 30])
def test_a_factor_beyond_all_machines_is_refused(text: str) -> None:
    with pytest.raises(PredictionError, match=r"a change is of x0\.001 to x1000"):
        parse_change(text, two_buckets())
