"""Named variations of what stands above them in a file: the cells, and the named values of a matrix's axis."""

import re

from dtbench.scenario.mistakes import Mistake, shorten
from dtbench.scenario.yaml.document import Entry, Section

CELL_NAME_RULE = "small letters, digits, `_`, `-` and `.`, starting with a letter or digit, at most 64"
MOST_NAME_LENGTH = 64
MOST_CELLS = 1000
"""Of a file, in whatever way they are written."""

CELL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
FILE_SECTIONS = ("cells", "matrix", "functions", "checks", "answer")
"""Sections of a file that are no part of a cell."""
_NOT_IN_CELLS = ("schema_version", *FILE_SECTIONS)


def is_cell_name(name: str) -> bool:
    """Whether a name can be a folder on every system; ``..`` and a dot at the end cannot."""
    return len(name) <= MOST_NAME_LENGTH and CELL_NAME.fullmatch(name) is not None


def read_variations(entry: Entry, noun: str, mistakes: list[Mistake]) -> dict[str, Section]:
    """Return what each name of a mapping changes; what cannot be used is told in ``mistakes`` and left out.

    Args:
        entry: the mapping from names to changes.
        noun: what a name stands for, ``cell`` or ``variation``.
        mistakes: gets what is wrong.
    """
    if not isinstance(entry.node, Section):
        return {}
    variations: dict[str, Section] = {}
    for name, cell in entry.node.entries.items():
        if not is_cell_name(name):
            mistakes.append(
                Mistake(cell.key_place, f"a {noun} becomes a folder, so its name is made of {CELL_NAME_RULE}")
            )
        if isinstance(cell.node, Section):
            variations[name] = _without_forbidden(f"{noun} (`{shorten(name)}`)", cell.node, mistakes)
        else:
            mistakes.append(
                Mistake(
                    cell.key_place,
                    f"{noun} `{shorten(name)}` must be a mapping of what it changes; `{{}}` changes nothing",
                )
            )
    return variations


def _without_forbidden(whose: str, variation: Section, mistakes: list[Mistake]) -> Section:
    for key in _NOT_IN_CELLS:
        if key in variation.entries:
            place = variation.entries[key].key_place
            mistakes.append(Mistake(place, f"`{key}` belongs to the file, not into a {whose}"))
    entries = {key: entry for key, entry in variation.entries.items() if key not in _NOT_IN_CELLS}
    return Section(entries, variation.place)
