"""Numbers that a test knows to be there, though a trace may lack them."""

from collections.abc import Iterable
from typing import TypeVar

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """Return a value that is not None."""
    assert value is not None
    return value


def total(values: Iterable[int | None]) -> int:
    """Return the sum of values none of which is None."""
    return sum(known(value) for value in values)
