"""Ranks that wait for a quiet machine: all come to the same answer, and never wait longer than they may."""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.machine.stolen_time import Look, StolenClock, look_at_machine
from dtbench.worker.loop.idle_wait import IdleWait
from dtbench.worker.loop.store_exchange import StoreExchange
from tests.worker.thread_store import ThreadStore

T = TypeVar("T")
BUSY, CALM, BLOCK_NS = 0.3, 0.0, 2_000_000_000


class Ranks:
    """Ranks whose looks at their machines give what is written here, each half a second, the last for ever."""

    def __init__(self, *seen: Sequence[float], timeout_s: float = 60.0) -> None:
        store = ThreadStore()
        self.looks = [0] * len(seen)
        self.said: list[list[str]] = [[] for _ in seen]
        self.signs_of_life = [0] * len(seen)
        self.ranks = [
            IdleWait(
                store=StoreExchange(store, rank, len(seen)),
                timeout_s=timeout_s,
                say=partial(self._say, rank),
                touch=partial(self._touch, rank),
                look=partial(self._look, rank, of_rank),
            )
            for rank, of_rank in enumerate(seen)
        ]

    def _say(self, rank: int, what: str, detail: str) -> None:
        self.said[rank].append(f"{what}: {detail}")

    def _look(self, rank: int, seen: Sequence[float]) -> Look:
        self.looks[rank] += 1
        return Look(seen[min(self.looks[rank], len(seen)) - 1], 0.5)

    def _touch(self, rank: int) -> None:
        self.signs_of_life[rank] += 1

    def together(self, call: Callable[[int, IdleWait], T]) -> list[T]:
        with ThreadPoolExecutor(len(self.ranks)) as threads:
            return list(threads.map(call, range(len(self.ranks)), self.ranks))


def wait(_rank: int, quiet: IdleWait) -> None:
    quiet.wait()


def test_a_quiet_machine_is_looked_at_once() -> None:
    ranks = Ranks([CALM], [math.nan])
    ranks.together(wait)
    assert ranks.looks == [1, 1]
    assert ranks.said == [[], []]


def test_all_ranks_wait_until_the_last_machine_is_quiet() -> None:
    ranks = Ranks([CALM], [BUSY, BUSY, CALM])
    ranks.together(wait)
    assert ranks.looks == ranks.signs_of_life == [3, 3]
    assert ranks.said == [["waited for other virtual machines of the host: 1.5 s"]] * 2


def test_a_machine_that_never_is_quiet_is_waited_for_until_time_is_up_once_in_a_launch() -> None:
    ranks = Ranks([BUSY], [BUSY], timeout_s=2.0)
    ranks.together(wait)
    assert ranks.looks == [4, 4]
    ranks.together(wait)
    assert ranks.looks == [5, 5]
    assert ranks.together(lambda _, quiet: quiet.wants_again([BUSY] * 5, BLOCK_NS)) == [False, False]


def test_without_time_to_wait_nobody_looks() -> None:
    ranks = Ranks([BUSY], timeout_s=0.0)
    ranks.together(wait)
    assert ranks.together(lambda _, quiet: quiet.wants_again([BUSY] * 5, BLOCK_NS)) == [False]
    assert ranks.looks == [0]


@pytest.mark.parametrize(
    ("stolen", "again"),
    [
        ([CALM, CALM, CALM, BUSY, BUSY], False),
        ([CALM, CALM, BUSY, BUSY, BUSY], True),
        ([math.nan] * 5, False),
        ([CALM, CALM], False),
        ([CALM, BUSY], True),
        ([], False),
    ],
)
def test_steps_of_which_fewer_than_three_were_left_alone_run_again_on_all_ranks(
    stolen: Sequence[float], *, again: bool
) -> None:
    ranks = Ranks([CALM], [CALM])
    found = ranks.together(lambda rank, quiet: quiet.wants_again(stolen if rank else [CALM] * 5, BLOCK_NS))
    assert found == [again, again]
    assert ranks.looks == [int(again)] * 2, "and before that they wait"


def test_what_runs_again_takes_of_the_time_to_wait() -> None:
    ranks = Ranks([CALM], timeout_s=5.0)
    found = [ranks.together(lambda _, quiet: quiet.wants_again([BUSY] * 5, BLOCK_NS)) for _ in range(4)]
    assert found == [[True], [True], [False], [False]], "2.5 s each"


def test_a_look_takes_half_a_second_and_gives_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    stolen_ns = iter((5, 5 + 100_000_000))
    stolen = StolenClock()
    monkeypatch.setattr(stolen, "read_ns", lambda: next(stolen_ns))
    seen = look_at_machine(stolen)
    assert seen.took_s >= 0.5
    cores = os.cpu_count() or 1
    assert seen.stolen_fraction == pytest.approx(0.1 / (seen.took_s * cores))


@pytest.mark.parametrize(("before_ns", "fraction"), [(0, 0.0), (None, math.nan)])
def test_a_machine_that_is_nobodys_guest_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, before_ns: int | None, fraction: float
) -> None:
    stolen = StolenClock()
    monkeypatch.setattr(stolen, "read_ns", lambda: before_ns)
    seen = look_at_machine(stolen)
    assert seen.took_s == 0.0
    assert seen.stolen_fraction == pytest.approx(fraction, nan_ok=True)
