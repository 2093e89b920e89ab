"""The words that both wings share."""

import pytest

from dtbench.vocabulary import Axis, axis_named


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("replicate", Axis.REPLICATE),
        ("dp_replicate", Axis.REPLICATE),
        ("dp_shard", Axis.SHARD),
        ("dp_shard_cp", Axis.SHARD),
        ("tp", Axis.TENSOR),
        ("dp", None),
        ("pp", None),
        ("", None),
    ],
)
def test_axes_are_known_by_the_names_that_people_give_them(name: str, axis: Axis | None) -> None:
    assert axis_named(name) is axis
