"""Steps around a load and beside saves: the slowest rank of each counts, and the cost is what training lost."""

import math
from typing import Any

import pytest

from dtbench.base.units import MIB
from dtbench.report.page.stages import step_sentences
from dtbench.runs.cell.summarize_state_steps import summarize_state_steps
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import StateDictRecord, StateStepsRecord


def make_rank(rank: int, **changes: Any) -> RankRecord:
    told: dict[str, Any] = {
        "before_ns": (10, 10),
        "load_ns": 500,
        "first_ns": 40,
        "after_ns": (11,),
        "alone_ns": (10, 10, 10, 10),
        "blocked_ns": (100, 100),
        "beside_ns": (20, 10, 20, 10),
        "in_flight": 4,
        "saved_ns": (130, 130),
        "file_bytes": 2 * MIB,
        "mismatched": 0,
    }
    steps = StateStepsRecord.model_validate({**told, **changes})
    fields: dict[str, Any] = {"rank": rank, "extras": RankExtras(state_dict=StateDictRecord(stages=(), steps=steps))}
    return RankRecord.model_construct(**fields)


def test_a_save_costs_what_it_blocks_and_by_how_much_its_steps_are_longer() -> None:
    found = summarize_state_steps({0: [make_rank(0), make_rank(1)]}, 2, None)
    assert found is not None
    assert (found.before_ns, found.load_ns, found.first_ns, found.after_ns) == (10, 500, 40, 11)
    assert (found.alone_ns, found.beside_ns, found.blocked_ns, found.saved_ns) == (10, 15, 100, 130)
    assert (found.steps, found.in_flight, found.file_bytes, found.mismatched) == (2, 2, 2 * MIB, 0)
    assert found.cost_ns == 100 + (10 + 0 + 10 + 0) / 2
    assert found.cost_ns_per_mib == found.cost_ns / 2


def test_steps_beside_a_save_that_are_those_alone_cost_nothing_more_than_it_blocks() -> None:
    """A burst in every second step, with or without a save: a mean held against a median would be 45 of 90."""
    steps = (10, 100) * 3
    found = summarize_state_steps(
        {0: [make_rank(0, alone_ns=steps, beside_ns=steps, blocked_ns=(7, 7, 7), saved_ns=(130,) * 3)]}, 1, None
    )
    assert found is not None
    assert (found.cost_ns, found.cost_low_ns, found.cost_high_ns) == pytest.approx((7, 7, 7))


@pytest.mark.parametrize(("alone_ns", "blocked_ns"), [((10, 10, 90, 90), (1, 1)), ((10, 10), (1,))])
def test_a_cost_whose_interval_holds_zero_or_that_has_none_is_not_told(
    alone_ns: tuple[int, ...], blocked_ns: tuple[int, ...]
) -> None:
    rank = make_rank(
        0, alone_ns=alone_ns, beside_ns=alone_ns[::-1], blocked_ns=blocked_ns, saved_ns=(900,) * len(blocked_ns)
    )
    found = summarize_state_steps({0: [rank]}, 1, None)
    assert found is not None
    assert math.isnan(found.cost_ns)
    assert math.isnan(found.cost_ns_per_mib)
    assert len(blocked_ns) == 1 or found.cost_low_ns < 0 < found.cost_high_ns


def test_the_slowest_rank_of_each_step_counts_and_wrong_keys_of_all() -> None:
    slow = make_rank(1, first_ns=90, beside_ns=(10, 50, 20, 10), blocked_ns=(300, 50), mismatched=3)
    found = summarize_state_steps({0: [make_rank(0), slow]}, 2, None)
    assert found is not None
    assert (found.first_ns, found.blocked_ns, found.mismatched) == (90, 200, 3)
    assert found.cost_ns == 200 + (10 + 40 + 10 + 0) / 2


def test_ranks_that_trained_around_nothing_tell_nothing() -> None:
    fields: dict[str, Any] = {"rank": 0}
    assert summarize_state_steps({0: [RankRecord.model_construct(**fields)], 1: []}, 1, None) is None


def test_a_launch_of_which_a_rank_does_not_tell_has_no_part_in_them() -> None:
    fields: dict[str, Any] = {"rank": 1}
    silent = RankRecord.model_construct(**fields)
    assert summarize_state_steps({0: [make_rank(0), silent]}, 2, None) is None
    found = summarize_state_steps({0: [make_rank(0, load_ns=9), silent], 1: [make_rank(0), make_rank(1)]}, 2, None)
    assert found is not None
    assert (found.load_ns, str(found.known_part)) == (500, "launch1 alone, of 2")


@pytest.mark.parametrize(("saved_ns", "in_flight", "beside_ns", "cost_ns"), [(115, 1, 20, 110), (90, 0, math.nan, 100)])
def test_steps_that_began_when_the_save_was_done_are_none_beside_it(
    saved_ns: int, in_flight: int, beside_ns: float, cost_ns: float
) -> None:
    """The second step is long for whatever other reason."""
    told: dict[str, Any] = {"beside_ns": (20, 90, 20, 90), "saved_ns": (saved_ns,) * 2, "in_flight": 2 * in_flight}
    found = summarize_state_steps({0: [make_rank(0, **told)]}, 1, None)
    assert found is not None
    assert (found.in_flight, found.cost_ns) == (in_flight, cost_ns)
    assert found.beside_ns == pytest.approx(beside_ns, nan_ok=True)


ASKED = StateDict(stages=(), rounds=2, steps=2)


@pytest.mark.parametrize("name", ["alone_ns", "beside_ns", "blocked_ns", "saved_ns"])
@pytest.mark.parametrize("ranks", [(0, 1), (1,)])
def test_what_lacks_steps_or_saves_has_no_time_and_no_cost(name: str, ranks: tuple[int, ...]) -> None:
    lost: dict[str, Any] = {name: (9,)}
    records = [make_rank(rank, **lost) if rank in ranks else make_rank(rank) for rank in (0, 1)]
    found = summarize_state_steps({0: records, 1: [make_rank(0), make_rank(1)]}, 2, ASKED)
    assert found is not None
    assert math.isnan(getattr(found, name))
    assert math.isnan(found.cost_ns)
    assert math.isnan(found.cost_low_ns)
    (_, said) = step_sentences(found, is_judged=True)
    assert said.endswith("is n/a, since not every save and step is told of every rank")


@pytest.mark.parametrize(("saved_ns", "extent"), [(115, "in all"), (130, "in these steps")])
def test_a_save_of_no_bytes_has_no_cost_per_mib_and_one_that_others_disturbed_is_not_judged(
    saved_ns: int, extent: str
) -> None:
    told: dict[str, Any] = {"file_bytes": 0, "saved_ns": (saved_ns,) * 2, "in_flight": 2 if saved_ns == 115 else 4}
    found = summarize_state_steps({0: [make_rank(0, **told)]}, 1, ASKED)
    assert found is not None
    assert (found.cost_ns, math.isnan(found.cost_ns_per_mib)) == (110, True)
    for is_judged in (True, False):
        (_, said) = step_sentences(found, is_judged=is_judged)
        assert (f"110 ns of training {extent}" in said) is is_judged
        assert said.endswith("is not judged, since others had the cores") is not is_judged
