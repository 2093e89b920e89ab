"""Numbers for people."""

import doctest
import math

import pytest

from dtbench.base import units


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(units).failed == 0


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (999, "999 ns"),
        (999_600, "1.00 ms"),
        (1_000, "1.00 us"),
        (123_456_789, "123 ms"),
        (61_000_000_000, "61.0 s"),
        (-2_500_000, "-2.50 ms"),
    ],
)
def test_a_duration_has_three_digits_in_the_unit_that_fits(duration_ns: int, text: str) -> None:
    assert units.format_ns(duration_ns) == text


def test_what_cannot_be_computed_is_never_a_zero() -> None:
    assert {f(math.nan) for f in (units.format_ns, units.format_bytes, units.format_fraction, units.format_count)} == {
        "n/a"
    }


def test_numbers_are_spelled_as_ranges_and_never_as_thousands_of_letters() -> None:
    assert [units.name_ranges(numbers) for numbers in ([], [4], [0, 1, 2, 5, 7, 8])] == ["", "4", "0-2, 5, 7-8"]
    assert units.name_ranks(range(1024)) == "ranks 0-1023"
    alternating = units.name_ranks(range(0, 1024, 2))
    assert len(alternating) < 100
    assert alternating.endswith("and 496 more")
