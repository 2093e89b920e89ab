"""Names that FSDP units of several models bear are said to be shared, where sizes show it."""

from dataclasses import replace

import pytest

from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import unite
from dtbench.analyze.shared_units import describe_shared_units
from dtbench.vocabulary import Operation, Purpose


def gather(unit: str, size_bytes: int | None, **said: object) -> Collective:
    above = (f"FSDP::all_gather ({unit})", "FSDP::pre_forward")
    one = Collective(
        group="dp", axis=None, seq=None, operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=unit,
        size_bytes=size_bytes, issue_ns=0, issue_end_ns=0, span=unite([0], [1]), above=above, dtype="Float",
    )  # fmt: skip
    return replace(one, **said)  # type: ignore[arg-type]


def test_units_of_two_models_that_bear_one_name_are_told_by_the_sizes_of_their_gathers() -> None:
    small, large = gather("layers.0", 4096), gather("layers.0", 1 << 20)
    (said,) = describe_shared_units([small, large, gather("layers.1", 4096), small, large])
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
    assert list(describe_shared_units([gather("layers.0", 4096), other])) == []
