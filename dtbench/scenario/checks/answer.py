"""An answer's placeholders: ``{step_time.median of cap_4 over torch_default}``, ``{lowest step_time.median}``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dtbench.scenario.checks.values import ValueName, read_value

_SLOT = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Slot:
    """One placeholder.

    Attributes:
        cell: None: the only cell of the file, or any for ``lowest`` and ``highest``.
        other: the cell that ``over`` and ``minus`` compare with.
    """

    value: ValueName
    how: Literal["plain", "over", "minus", "lowest", "highest"]
    cell: str | None = None
    other: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells that it names."""
        return tuple(name for name in (self.cell, self.other) if name is not None)


def read_slots(answer: str) -> list[Slot]:
    """Return the placeholders of an answer.

    Raises:
        ValueError: one of them cannot be understood; says which and why.
    """
    if re.search(r"[{}]", _SLOT.sub("", answer)):
        raise ValueError("a `{` without its `}`, or the other way round")
    return [_read_slot(found.group(1).strip()) for found in _SLOT.finditer(answer)]


def fill_slots(answer: str, fill: Callable[[Slot], str]) -> str:
    """Put words in the place of every placeholder."""
    return _SLOT.sub(lambda found: fill(_read_slot(found.group(1).strip())), answer)


def _read_slot(text: str) -> Slot:
    for how in ("lowest", "highest"):
        if text.startswith(f"{how} "):
            return Slot(read_value(text.removeprefix(how).strip()), "lowest" if how == "lowest" else "highest")
    name, _, cells = text.rpartition(" of ") if " of " in text else (text, "", "")
    value = read_value(name.strip())
    words = cells.split()
    match words:
        case []:
            return Slot(value, "plain")
        case [cell]:
            return Slot(value, "plain", cell)
        case [cell, "over", other]:
            return Slot(value, "over", cell, other)
        case [cell, "minus", other]:
            return Slot(value, "minus", cell, other)
        case _:
            raise ValueError(f"`{{{text}}}`: write `{{value of cell}}`, `... over other}}` or `... minus other}}`")
