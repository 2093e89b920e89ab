"""Names of compute kernels for a column: templates fill a page, and those of one library begin and end alike."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

_MOST: Final = 52
_MOST_TURNS: Final = 4


def shorten_apart(names: Sequence[str], most: int = _MOST) -> dict[str, str]:
    """Return for each name one of about so many letters, cut where it tells no two of them apart; unlike ones differ.

    >>> list(shorten_apart(["void apply_to_all<float, Adam, 4>", "void apply_to_all<float, Sgd, 4>"], 20).values())
    ['apply_to_...Adam, 4>', 'apply_to_... Sgd, 4>']
    """
    short = {name: _cut_middle(name, most) for name in names}
    for _ in range(_MOST_TURNS):  # those still alike share a longer beginning
        for alike in _find_alike(short):
            same = _count_alike(alike)
            short.update({name: _cut_around(name, same, most) for name in alike})
    for alike in _find_alike(short):
        short.update({name: name for name in alike})
    return short


def _find_alike(short: dict[str, str]) -> list[list[str]]:
    """Return names that are cut to the same letters."""
    counts = Counter(short.values())
    return [[name for name in short if short[name] == cut] for cut, count in counts.items() if count > 1]


def _count_alike(names: Sequence[str]) -> int:
    """Return with how many equal letters all begin."""
    letters = enumerate(zip(*names, strict=False))
    return next((at for at, those in letters if len({*those}) > 1), min(map(len, names)))


def _cut_middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    said = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    end = (most - 3) // 2
    return said if len(said) <= most else f"{said[: most - 3 - end]}...{said[-end:]}"


def _cut_around(name: str, at: int, most: int) -> str:
    """Keep how a name begins, and what stands where it differs from those like it."""
    head = most // 3
    rest = name[at : at + most - head - 6]
    end = "..." if at + len(rest) < len(name) else ""
    return f"{name.removeprefix('void ').replace('(anonymous namespace)::', '')[:head]}...{rest}{end}"
