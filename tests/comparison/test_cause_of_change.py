"""The cause that a comparison names is that of the difference, not the largest of what both sides have."""

from collections.abc import Mapping, Sequence

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.comparison.collectives import find_collective_changes
from dtbench.store.records.baseline import MeasuredLaunch, OwnedTime
from tests.comparison.conftest import MS, gather, make_launch

Parts = Mapping[Cause, float]


def exposed(parts_ms: Parts) -> OwnedTime:
    """Return an owner's all-gather, exposed for these causes."""
    return gather("layers.0", sum(parts_ms.values()), 20.0).model_copy(
        update={
            "cause": max(parts_ms, key=lambda cause: parts_ms[cause], default=None),
            "by_cause": {cause: part_ms * MS for cause, part_ms in parts_ms.items()},
        }
    )


def launches(*parts_ms: Parts) -> Sequence[MeasuredLaunch]:
    return [make_launch(index, 100.0, owned=[exposed(one)]) for index, one in enumerate(parts_ms)]


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ({Cause.SKEW: 8.0}, {Cause.SKEW: 8.0, Cause.LATE_ISSUE: 2.0}, Cause.LATE_ISSUE),
        ({Cause.SKEW: 8.0, Cause.LATE_ISSUE: 2.0}, {Cause.SKEW: 8.0}, Cause.LATE_ISSUE),
        ({Cause.SKEW: 8.0, Cause.TAIL: 2.0}, {Cause.BANDWIDTH: 5.0}, Cause.SKEW),
        ({Cause.TAIL: 1.0}, {Cause.TAIL: 2.0, Cause.QUEUED: 1.0, Cause.SYNC_OP: 1.0}, None),
        ({}, {Cause.QUEUED: 3.0, Cause.TAIL: 1.0}, Cause.QUEUED),
        ({Cause.UNKNOWN: 3.0}, {Cause.BANDWIDTH: 3.0, Cause.TAIL: 2.0}, None),
        ({Cause.UNKNOWN: 3.0}, {Cause.BANDWIDTH: 5.0}, Cause.BANDWIDTH),
        ({Cause.UNKNOWN: 3.0}, {Cause.UNKNOWN: 6.0}, Cause.UNKNOWN),
        ({Cause.UNKNOWN: 0.5}, {Cause.BANDWIDTH: 5.0}, Cause.BANDWIDTH),
        ({Cause.SKEW: 4.0}, {Cause.SKEW: 4.0}, None),
        ({Cause.BANDWIDTH: 4.0}, {}, Cause.BANDWIDTH),
    ],
    ids=str,
)
def test_the_cause_is_that_of_the_change(before: Parts, after: Parts, cause: Cause | None) -> None:
    (row,) = find_collective_changes(launches(before, before), launches(after, after))
    assert row.cause is cause


def test_one_odd_launch_is_not_the_middle_of_its_side() -> None:
    usual, odd = {Cause.SKEW: 8.0, Cause.LATE_ISSUE: 2.0}, {Cause.SKEW: 30.0}
    (row,) = find_collective_changes(launches(*[{Cause.SKEW: 8.0}] * 3), launches(usual, usual, odd))
    assert row.cause is Cause.LATE_ISSUE


def test_a_side_that_tells_no_causes_names_none() -> None:
    """Its steps may stand for no others, or an older version wrote only the largest."""
    silent = [make_launch(0, 100.0, owned=[gather("layers.0", 8.0, 20.0)])]
    (row,) = find_collective_changes(silent, launches({Cause.SKEW: 10.0}))
    assert row.cause is None
