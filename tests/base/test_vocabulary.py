"""The words that both wings share."""

import pytest

from dtbench.base.vocabulary import Axis, axis_named, axis_word


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


@pytest.mark.parametrize(
    ("description", "word"),
    [
        ("mesh_tp", "tp"),
        ("mesh_dp_shard_cp", "dp_shard_cp"),
        ("mesh_ep", "ep"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EMBEDDING_GROUP", "EMBEDDING_GROUP"),
        ("default_pg", ""),
        ("undefined", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_a_groups_axis_is_called_what_its_description_calls_it(description: str | None, word: str) -> None:
    assert axis_word(description) == word
