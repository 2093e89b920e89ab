"""Units that behave alike, named together: ``layers.0`` to ``layers.3`` are ``layers.{0-3}``."""

import re
from collections.abc import Sequence
from typing import Final

from dtbench.base.units import name_ranges

_NUMBER: Final = re.compile(r"(?<![^. ])\d+(?![^. ])")


def find_pattern(owner: str) -> str:
    """Return a name with a place in its first number's stead, which names of like units share.

    >>> find_pattern("layers.3.attention"), find_pattern("bucket 3"), find_pattern("lm_head")
    ('layers.{}.attention', 'bucket {}', 'lm_head')
    """
    return _NUMBER.sub("{}", owner, count=1)


def name_together(owners: Sequence[str]) -> str:
    """Name units of one pattern.

    >>> name_together(["layers.0", "layers.1", "layers.2", "layers.7"])
    'layers.{0-2, 7}'
    >>> name_together(["bucket 3"])
    'bucket 3'
    """
    if len(owners) == 1:
        return owners[0]
    numbers = sorted({int(found.group()) for owner in owners if (found := _NUMBER.search(owner))})
    return find_pattern(owners[0]).replace("{}", f"{{{name_ranges(numbers)}}}", 1)
