"""When the link serves what: every rank reckons the same, whatever its own backend does, in a time that tests make."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.base.ranges import CollectiveLabel, parse_link_range
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Axis, Operation

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

MS = NS_PER_MS


@dataclass
class Backend:
    """A ``Work`` whose collective is done at a time."""

    rank: "Rank"
    done_ns: int

    def wait(self) -> None:
        self.rank.now_ns = max(self.rank.now_ns, self.done_ns)


@dataclass
class Rank:
    """One rank's lanes in a time of its own: it issues all, then its lanes serve them one after another.

    Attributes:
        spans: (start, end) of each collective in the trace, ms.
    """

    folder: Path
    number: int
    now_ns: int = 0
    lanes: dict[str, Any] = field(default_factory=dict)
    jobs: list[tuple[Any, Any]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    serving: list["Rank"] = field(default_factory=list)

    def serve(self) -> None:
        """Let its lanes serve what it has issued."""
        self.serving.append(self)
        for lane, job in self.jobs:
            lane._serve_one(job)
            self.spans[-1] = (self.spans[-1][0], self.now_ns / MS)
        self.jobs.clear()


@pytest.fixture
def make_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Rank]:
    """Return ranks of one machine; the time that the link sees is that of the rank which serves."""
    from dtbench.worker.network import link

    current: list[Rank] = []

    def sleep_until(end_ns: int) -> None:
        current[-1].now_ns = max(current[-1].now_ns, end_ns)

    def record(name: str) -> nullcontext[None]:
        label = parse_link_range(name)
        assert label is not None
        current[-1].spans.append(((current[-1].now_ns - label.begun_ns) / MS, 0.0))
        return nullcontext()

    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic_ns=lambda: current[-1].now_ns))
    monkeypatch.setattr(link, "sleep_until", sleep_until)
    monkeypatch.setattr(link, "record_function", record)
    return lambda number: Rank(tmp_path, number, serving=current)


def issue(
    rank: Rank,
    seq: int,
    *,
    at_ms: float,
    backend_ms: float,
    cost_ms: float = 10,
    ranks: tuple[int, ...] = (0, 1),
    lane: str = "dp",
    operation: Operation = Operation.ALL_REDUCE,
) -> None:
    """Issue a collective whose backend is done at a time."""
    import threading

    from dtbench.worker.network import link
    from dtbench.worker.network.issue_times import IssueTimes
    from dtbench.worker.network.promise import Promise

    group = "-".join(map(str, ranks))
    label = CollectiveLabel(
        group=group, seq=seq, operation=operation, size_bytes=4, axis=Axis.REPLICATE, is_async=True, owner=""
    )
    own = rank.lanes.setdefault(lane, link._Lane(lane, link.Tally(), threading.Lock()))
    times = IssueTimes(rank.folder, group, ranks, ranks.index(rank.number))
    issue_ns = round(at_ms * MS)
    times.put(seq, max(issue_ns, own.foresee_free()))
    job = link._Job(
        label=label,
        issue_ns=issue_ns,
        service_ns=round(cost_ms * MS),
        last_issue=lambda: times.last(seq),
        work=Backend(rank, round(backend_ms * MS)),
        outputs=[],
        promise=Promise(),
        is_named=True,
        is_known=lambda: times.is_complete(seq),
    )
    own.server = None
    own.put(job)
    rank.jobs.append((own, job))


def are_possible(ranks: list[Rank]) -> bool:
    """Tell whether no collective ends on one rank before it begins on another."""
    return all(
        min(span[1] for span in of_ranks) >= max(span[0] for span in of_ranks)
        for of_ranks in zip(*(rank.spans for rank in ranks), strict=True)
    )


@pytest.mark.parametrize("late_at", [1, 3])
@pytest.mark.parametrize("late_ms", [12.0, 22.0, 90.0])
def test_a_backend_that_one_rank_sees_late_holds_up_that_collective_alone(
    make_rank: Callable[[int], Rank], late_at: int, late_ms: float
) -> None:
    first, second = make_rank(0), make_rank(1)
    for seq in range(1, 7):
        issue(first, seq, at_ms=seq, backend_ms=seq + 1)
        issue(second, seq, at_ms=seq, backend_ms=seq + 1 + (late_ms if seq == late_at else 0))
    first.serve()
    second.serve()
    assert [end for _, end in first.spans] == [1 + 10 * seq for seq in range(1, 7)]
    held_ms = late_at + 1 + late_ms
    assert [end for _, end in second.spans] == [
        max(1 + 10 * seq, held_ms if seq >= late_at else 0) for seq in range(1, 7)
    ]
    assert are_possible([first, second])


def test_the_last_rank_to_issue_is_waited_for_on_all(make_rank: Callable[[int], Rank]) -> None:
    first, second = make_rank(0), make_rank(1)
    for seq, late_ms in ((1, 0), (2, 40), (3, 41)):
        issue(first, seq, at_ms=seq, backend_ms=seq + late_ms + 1)
        issue(second, seq, at_ms=seq + late_ms, backend_ms=seq + late_ms + 1)
    for rank in (first, second):
        rank.serve()
    assert [end for _, end in first.spans] == [end for _, end in second.spans] == [11, 52, 62]
    assert [start for start, _ in first.spans] == [1, 11, 52]  # from its own issue, or from a free lane


def test_the_root_of_a_broadcast_is_done_at_once_and_what_follows_begins_on_all_alike(
    make_rank: Callable[[int], Rank],
) -> None:
    root, other = make_rank(0), make_rank(1)
    issue(root, 1, at_ms=1, backend_ms=2, operation=Operation.BROADCAST)
    root.serve()
    assert root.spans == [(1, 11)], "nobody else has issued it"
    issue(root, 2, at_ms=12, backend_ms=32)
    issue(other, 1, at_ms=30, backend_ms=31, operation=Operation.BROADCAST)
    issue(other, 2, at_ms=31, backend_ms=32)
    root.serve()
    other.serve()
    assert root.spans[1][1] == other.spans[1][1] == 50, "the broadcast was served until 40"
    assert root.spans[1][0] <= other.spans[1][1]
    assert other.spans[1][0] <= root.spans[1][1]


def test_a_lane_that_groups_share_is_waited_for_on_all_ranks_of_a_group(make_rank: Callable[[int], Rank]) -> None:
    """Rank 1 has a long transfer with rank 2 before it, of which rank 0 knows nothing."""
    ranks = [make_rank(number) for number in range(3)]
    for number in (1, 2):
        issue(ranks[number], 1, at_ms=1, backend_ms=2, cost_ms=50, ranks=(1, 2), lane="")
    for number in (0, 1):
        issue(ranks[number], 1, at_ms=3, backend_ms=4, ranks=(0, 1), lane="")
    for rank in ranks:
        rank.serve()
    assert ranks[0].spans == [(3, 61)]
    assert ranks[1].spans == [(1, 51), (51, 61)]


@pytest.mark.parametrize("seed", range(20))
def test_every_rank_keeps_the_closed_form_whatever_its_backend_does(
    make_rank: Callable[[int], Rank], seed: int
) -> None:
    """Done at ``max(backend, max(last issue, end of the one before) + service)``."""
    random = Random(seed)
    count = random.choice((2, 3, 4))
    ranks = [make_rank(number) for number in range(count)]
    issued_ms, free_ms, ends_ms = [0.0] * count, 0.0, []
    backends_ms: list[list[float]] = []
    for seq in range(1, 9):
        issued_ms = [at_ms + random.randint(0, 30) for at_ms in issued_ms]
        cost_ms = random.randint(1, 20)
        backends_ms.append([max(issued_ms) + random.choice((1, 1, 1, 25)) for _ in ranks])
        for rank, at_ms, backend_ms in zip(ranks, issued_ms, backends_ms[-1], strict=True):
            members = tuple(range(count))
            issue(rank, seq, at_ms=at_ms, backend_ms=backend_ms, cost_ms=cost_ms, ranks=members)
        free_ms = max(*issued_ms, free_ms) + cost_ms
        ends_ms.append(free_ms)
    for number, rank in enumerate(ranks):
        rank.serve()
        moved_ms = 0.0  # one lane serves one after another, so what comes back late shows those behind it late, too
        for (_, end_ms), own_ms, of_ranks in zip(rank.spans, ends_ms, backends_ms, strict=True):
            moved_ms = max(moved_ms, of_ranks[number])
            assert end_ms == max(own_ms, moved_ms)
    assert are_possible(ranks)


def test_a_lane_that_woke_late_shows_no_collective_that_begins_after_others_have_ended(
    make_rank: Callable[[int], Rank],
) -> None:
    first, second = make_rank(0), make_rank(1)
    for rank in (first, second):
        issue(rank, 1, at_ms=1, backend_ms=2)
        issue(rank, 2, at_ms=1, backend_ms=2, cost_ms=0.5)
        rank.jobs, later = rank.jobs[:1], rank.jobs[1:]
        rank.serve()
        rank.jobs = later
    (lane,) = second.lanes.values()
    lane.ended_ns = second.now_ns = round(14 * MS)  # it had no core until then
    first.serve()
    second.serve()
    assert first.spans == [(1, 11), (11, 11.5)]
    assert second.spans == [(1, 11), (11.5, 14)]
    assert are_possible([first, second])


def test_of_ranks_on_other_machines_nothing_is_known_and_no_schedule_grows(make_rank: Callable[[int], Rank]) -> None:
    rank = make_rank(0)
    for seq in range(1, 200):
        issue(rank, seq, at_ms=seq, backend_ms=seq, cost_ms=0.5)
        rank.serve()
    (lane,) = rank.lanes.values()
    assert len(lane.schedule.open) <= 33
    assert rank.spans[-1] == (199, 199.5)
