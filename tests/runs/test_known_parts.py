"""What is known of some steps only: over which a mean is, which waits count as zero, and which are not known."""

import pandas as pd
import pytest

from dtbench.runs.cell.summarize_overlap import fill_waits, find_part, fraction, mean_known


def steps(*keys: tuple[int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(keys, columns=["launch", "rank", "step"])


EVERY = steps(*((launch, rank, step) for launch in (0, 1) for rank in (0, 1, 2) for step in (7, 8)))


def test_a_part_names_ranks_and_launches_and_counts_steps_among_those_alone() -> None:
    part = find_part(steps((0, 0, 7), (0, 0, 8), (0, 2, 7)), EVERY)
    assert part is not None
    assert (part.ranks, part.of_ranks) == ((0, 2), 3)
    assert (part.launches, part.of_launches) == ((0,), 2)
    assert (part.steps, part.of_steps) == (3, 4), "of ranks 0 and 2 in launch 0"
    assert not part.has_every_rank


def test_a_part_that_has_some_step_of_each_rank_and_launch_names_none() -> None:
    part = find_part(EVERY[EVERY["step"] == 7], EVERY)
    assert part is not None
    assert (part.ranks, part.launches, part.steps, part.of_steps) == ((), (), 6, 12)
    assert part.has_every_rank


def test_all_or_nothing_is_no_part() -> None:
    assert find_part(EVERY, EVERY) is None
    assert find_part(EVERY.head(0), EVERY) is None


@pytest.mark.parametrize(
    ("waits", "least", "filled"),
    [
        ([5, None], [True, True], [5, 0]),  # a consumer that was not seen: a mean of the long waits alone would lie
        ([0, None], [True, True], [None, None]),  # none was seen anywhere: not known, and no zero
        ([0, 0], [False, False], [0, 0]),  # seen, and zero
        ([4, None], [False, False], [4, None]),
    ],
)
def test_a_wait_of_which_no_consumer_was_seen_is_zero_only_beside_one_that_was(
    waits: list[int | None], least: list[bool], filled: list[int | None]
) -> None:
    table = pd.DataFrame({"wait_ns": pd.array(waits, dtype="Int64"), "is_wait_least": least})
    assert [None if pd.isna(one) else int(one) for one in fill_waits(table)] == filled


def test_means_and_shares_are_of_what_is_known() -> None:
    table = pd.DataFrame({"part": pd.array([1, None, 5], "Int64"), "whole": pd.array([4, 100, None], "Int64")})
    assert mean_known(table["part"]) == 3
    assert mean_known(table["part"][1:2]) is None
    assert fraction(table, "part", "whole") == 0.25
