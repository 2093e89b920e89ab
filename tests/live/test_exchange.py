"""Rows of all ranks: heard when they are there, never waited for, and given up where nobody answers."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="rows are exchanged over a process group")

from dtbench.live import exchange as module
from dtbench.live.account import Place
from dtbench.live.exchange import Exchange


class Pair:
    def size(self) -> int:
        return 2


class Work:
    def __init__(self) -> None:
        self.is_done = False
        self.has_failed = False

    def is_completed(self) -> bool:
        return self.is_done

    def is_success(self) -> bool:
        return not self.has_failed


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The works of all exchanges: the other rank has the same row twice over."""
    made: list[Work] = []

    def gather(rows: Any, mine: Any, *, group: Any, async_op: bool) -> Work:
        rows[: len(mine)], rows[len(mine) :] = mine, 2 * mine
        made.append(Work())
        return made[-1]

    monkeypatch.setattr(module, "_ALL_GATHER", gather)
    return made


def row(value: float) -> list[float]:
    return [value] * Place.LENGTH


def test_rows_are_heard_in_order_once_they_are_there(works: list[Work]) -> None:
    exchange = Exchange(Pair())
    exchange.give(row(1), "first")
    exchange.give(row(2), "second")
    assert exchange.hear() is None
    works[1].is_done = True
    assert exchange.hear() is None, "the first is not there"
    works[0].is_done = True
    heard = exchange.hear()
    assert heard is not None
    assert (heard[0][:, 0].tolist(), heard[1]) == ([1, 2], "first")
    assert [kept for _, kept in exchange.hear_last()] == ["second"]


def test_a_rank_that_nobody_answers_hears_itself_and_never_waits(works: list[Work]) -> None:
    exchange = Exchange(Pair())
    for value in range(5):
        exchange.give(row(value), value)
    assert exchange.is_given_up
    assert len(works) == 4
    heard = exchange.hear()
    assert heard is not None
    assert (heard[0].shape, heard[1]) == ((1, Place.LENGTH), 4)


def test_an_exchange_that_failed_is_never_heard(works: list[Work], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    exchange = Exchange(Pair())
    exchange.give(row(1), None)
    works[0].is_done = works[0].has_failed = True
    assert exchange.hear() is None
    assert exchange.hear_last() == []


def test_a_rank_that_is_alone_hears_itself_at_once() -> None:
    exchange = Exchange()
    exchange.give(row(3), "kept")
    heard = exchange.hear()
    assert heard is not None
    assert (heard[0].shape, heard[1]) == ((1, Place.LENGTH), "kept")
