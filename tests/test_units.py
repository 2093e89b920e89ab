"""Numbers for people."""

import doctest
import math

import pytest

from dtbench import units


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
