"""One known situation: the cells that inject it, and what must be found in them."""

from collections.abc import Mapping
from dataclasses import dataclass

from dtbench.scenario.written import Words
from dtbench.selftest.expectations import Expectation


@dataclass(frozen=True)
class Row:
    """A row of the selftest.

    Attributes:
        name: as ``--only`` takes it.
        claim: what is injected and must be found, with its numbers: a sentence.
        cells: what each changes of the shared sections, by name; rows of equal cells share their launches.
        expectations: what must be found, beside what every cell is checked for.
        fed_by: cells without a link: what the fastest of them measured feeds the closed forms of the others, because
            other work on the machine only ever lengthens a step; empty: costs as injected.
    """

    name: str
    claim: str
    cells: Mapping[str, Words]
    expectations: tuple[Expectation, ...]
    fed_by: tuple[str, ...] = ()
