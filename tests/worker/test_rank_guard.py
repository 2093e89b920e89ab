"""Ranks end alike what one of them did not finish; one that the others cannot join says what it raised itself."""

import threading
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
import torch.distributed as dist

from dtbench.worker.extras.state_dict.rank_guard import (
    RankGuard,
    StageRaisedError,
    StageStuckError,
    describe_error,
    find_patience_s,
)


def run_ranks(
    *acts: Callable[[], int], close: Callable[[], None] = lambda: None, patience_s: float = 10.0
) -> list[object]:
    """Run one act on each rank, then one more that works; gives what each rank ended with, in order of ranks."""
    store, ends = dist.HashStore(), [None] * len(acts)

    def run(rank: int) -> None:
        guard = RankGuard(store, rank, len(acts), close, patience_s)
        ended: list[object] = []
        for act in (acts[rank], lambda: 7):
            try:
                ended.append(guard.do(act))
            except StageRaisedError as error:
                ended.append(error.words)
        ends[rank] = ended  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(ends)


def fail() -> int:
    raise RuntimeError("planted:\n   of two lines")


def test_ranks_that_all_succeed_have_their_results() -> None:
    assert run_ranks(lambda: 1, lambda: 2) == [[1, 7], [2, 7]]


def test_where_one_raises_all_hear_of_it_and_go_on_together() -> None:
    words = f"RuntimeError: planted: of two lines (torch {torch.__version__})"
    assert run_ranks(lambda: 1, fail, lambda: 3) == [[None, 7], [words, 7], [None, 7]]


def test_who_waits_in_a_collective_for_a_rank_that_raised_is_freed_when_it_closes_its_connections() -> None:
    is_closed = threading.Event()

    def wait_for_peer() -> int:
        assert is_closed.wait(10)
        raise RuntimeError("Connection closed by peer")

    first, second = run_ranks(fail, wait_for_peer, close=is_closed.set, patience_s=0.5)
    version = f"(torch {torch.__version__})"
    assert first == [f"RuntimeError: planted: of two lines {version}", 7]
    assert second == [f"RuntimeError: Connection closed by peer {version}", 7]


def test_a_rank_whose_peers_do_not_come_at_all_says_what_it_raised() -> None:
    guard = RankGuard(dist.HashStore(), 0, 2, close=lambda: None, patience_s=0.05)
    with pytest.raises(StageStuckError, match=r"^RuntimeError: planted.*\(torch "):
        guard.do(fail)


@pytest.mark.parametrize(("stall_s", "patience_s"), [(120.0, 10.0), (40.0, 10.0), (3.0, 0.75)])
def test_who_raised_has_given_up_on_the_others_before_the_launcher_takes_all_for_hung(
    stall_s: float, patience_s: float
) -> None:
    assert find_patience_s(stall_s) == patience_s
    assert 2 * patience_s < stall_s


def test_long_words_are_cut() -> None:
    said = describe_error(ValueError("x" * 5000))
    assert len(said) < 700
    assert said.startswith("ValueError: xxx")
    assert "x... (torch " in said
