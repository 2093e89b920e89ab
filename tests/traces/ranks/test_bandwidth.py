"""nccl-tests' bandwidths."""

import math

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        (Operation.ALL_REDUCE, 1.75),
        (Operation.ALL_GATHER, 0.875),
        (Operation.REDUCE_SCATTER, 0.875),
        (Operation.ALL_TO_ALL, 0.875),
        (Operation.BROADCAST, 1.0),
        (Operation.REDUCE, 1.0),
        (Operation.SEND, 1.0),
    ],
)
def test_factors_for_eight_ranks_are_nccl_tests(operation: Operation, factor: float) -> None:
    assert bus_factor(operation, 8) == factor


@pytest.mark.parametrize(
    ("operation", "ranks"),
    [(Operation.BARRIER, 8), (None, 8), (Operation.ALL_REDUCE, None), (Operation.ALL_REDUCE, 1)],
)
def test_what_has_no_bus_has_no_factor(operation: Operation | None, ranks: int | None) -> None:
    assert math.isnan(bus_factor(operation, ranks))


def test_bytes_per_second_are_decimal() -> None:
    assert algorithm_bandwidth(10**9, 10**9) == 1e9
    assert math.isnan(algorithm_bandwidth(None, 10))
    assert math.isnan(algorithm_bandwidth(10, 0))
    assert math.isnan(algorithm_bandwidth(10, None))


def test_what_is_faster_than_any_memory_is_no_bandwidth() -> None:
    assert algorithm_bandwidth(50_000, 1) == 5e13
    assert math.isnan(algorithm_bandwidth(50_001, 1))
