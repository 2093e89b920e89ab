"""Names that FSDP units or DDP buckets of several models bear are said to be shared, where sizes show it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dtbench.base.ranges import reduces_range
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.job.shared_owners import find_shared_owners
from dtbench.traces.time.intervals import unite
from dtbench.traces.who.collectives import Collective


def gather(unit: str, size_bytes: int | None, **said: object) -> Collective:
    above = (f"FSDP::all_gather ({unit})", "FSDP::pre_forward")
    one = Collective(
        group="dp", axis=None, seq=None, operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=unit,
        size_bytes=size_bytes, issue_ns=0, issue_end_ns=0, span=unite([0], [1]), above=above, dtype="Float",
    )  # fmt: skip
    return replace(one, **said)  # type: ignore[arg-type]


def reduce(bucket: str, size_bytes: int | None, **said: object) -> Collective:
    told = {"owner": bucket, "operation": Operation.ALL_REDUCE, "purpose": Purpose.GRAD_REDUCE, "above": ()}
    return gather("", size_bytes, **{**told, **said})


def describe(collectives: Sequence[Collective], steps: Sequence[int | None] | None = None) -> list[str]:
    return list(map(str, find_shared_owners(0, collectives, steps or [0] * len(collectives))))


def test_units_of_two_models_that_bear_one_name_are_told_by_the_sizes_of_their_gathers() -> None:
    small, large = gather("layers.0", 4096), gather("layers.0", 1 << 20)
    (said,) = describe([small, large, gather("layers.1", 4096), small, large])
    assert "(layers.0: 4.00 KiB and 1.00 MiB)" in said


@pytest.mark.parametrize(
    "other",
    [
        gather("layers.0", 4096),
        gather("layers.0", 4352),
        gather("layers.0", None),
        gather("layers.1", 1 << 20),
        gather("layers.0", 2048, dtype="BFloat16"),
        gather("layers.0", 8192, group="a smaller one after forward"),
        gather("layers.0", 1 << 20, operation=Operation.REDUCE_SCATTER, purpose=Purpose.GRAD_REDUCE),
        gather("layers.0", 1 << 20, above=("aten::mm",)),
    ],
    ids=["same", "padding", "not told", "another name", "another type", "another group", "a reduction", "no unit's"],
)
def test_one_unit_may_gather_in_another_type_or_over_another_group(other: Collective) -> None:
    assert describe([gather("layers.0", 4096), other]) == []


def test_buckets_of_two_models_that_bear_one_name_are_told_by_their_sizes_in_a_step() -> None:
    small, large = reduce("bucket 0", 4096), reduce("bucket 0", 4352)
    (said,) = describe([small, reduce("bucket 1", 4096), large, reduce("bucket 1", None)])
    assert (
        "several DDP buckets bear one name, as their sizes in one step show (bucket 0: 4.00 KiB and 4.25 KiB)" in said
    )


@pytest.mark.parametrize(
    "other",
    [
        reduce("bucket 0", 4096),
        reduce("bucket 0", None),
        reduce("bucket 1", 1 << 20),
        reduce("bucket 0", 2048, dtype="BFloat16"),
        reduce("bucket 0", 8192, group="another"),
        reduce("bucket 0", 8192, above=(reduces_range("bucket 0"),)),
        reduce("layers.0", 8192),
    ],
    ids=["same", "not told", "another name", "another type", "another group", "a part of one", "no bucket's"],
)
def test_one_bucket_may_be_reduced_again_in_another_type_or_in_parts(other: Collective) -> None:
    assert describe([reduce("bucket 0", 4096), other]) == []


@pytest.mark.parametrize("steps", [(0, 1), (None, 1), (None, None)])
def test_buckets_that_are_made_anew_for_the_next_step_are_not_of_two_models(steps: tuple[int | None, ...]) -> None:
    assert describe([reduce("bucket 0", 4096), reduce("bucket 0", 8192)], steps) == []
