"""Names of modules and of what is in them, where prose speaks of them: a move leaves none behind."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TOLD: Final = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "notebooks").glob("*.ipynb"),
    *(ROOT / "dtbench").rglob("*.py"),
    ROOT / "README.md",
]
_NAME: Final = re.compile(r"`{1,2}(dtbench(?:\.[A-Za-z_]\w*)+)(?:\(\))?`{1,2}")


def find_names() -> Iterator[tuple[str, str]]:
    for path in TOLD:
        for name in sorted(set(_NAME.findall(path.read_text(encoding="utf-8")))):
            yield str(path.relative_to(ROOT)), name


def is_there(name: str) -> bool:
    found: object = importlib.import_module("dtbench")
    place, _, rest = name.partition(".")
    for one in rest.split("."):
        place = f"{place}.{one}"
        if not hasattr(found, one):
            try:
                importlib.import_module(place)
            except ModuleNotFoundError:
                return False
        found = getattr(found, one)
    return True


@pytest.mark.parametrize(("place", "name"), sorted(find_names()))
def test_what_prose_names_is_there(place: str, name: str) -> None:
    assert is_there(name), f"{place} speaks of `{name}`"
