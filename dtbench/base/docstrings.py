"""What the docstring of a class says: of itself, and of each of its attributes. Documents and references read it."""

import inspect
import re
from typing import Final

_ATTRIBUTES: Final = "Attributes:"
_FIELD: Final = re.compile(r"(\w+(?:, \w+)*): (.*)")


def read_summary(cls: type) -> str:
    """Return what a class says of itself, without its attributes; empty: nothing."""
    return clean(_own_words(cls).partition(_ATTRIBUTES)[0])


def read_attributes(cls: type) -> dict[str, str]:
    """Return what a class and those it is made of say of each attribute.

    >>> class Link:
    ...     '''A link.
    ...
    ...     Attributes:
    ...         latency_ns: of a message,
    ...             both ways.
    ...         lanes, groups: how many.
    ...     '''
    >>> read_attributes(Link)
    {'latency_ns': 'of a message, both ways', 'lanes': 'how many', 'groups': 'how many'}
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        for entry in _split(inspect.cleandoc(_own_words(one)).partition(_ATTRIBUTES)[2]):
            said = _FIELD.fullmatch(entry)
            if said is not None:
                found |= dict.fromkeys(said[1].split(", "), clean(said[2]).removesuffix("."))
    return found


def _own_words(cls: type) -> str:
    return cls.__dict__.get("__doc__") or ""


def _split(section: str) -> list[str]:
    """Return the entries of a section, each on one line: what is indented further goes on."""
    entries: list[str] = []
    for line in section.splitlines():
        if not line.strip():
            continue
        if not line.startswith("    "):  # the section is over
            break
        if line.startswith("     ") and entries:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line.strip())
    return entries


def clean(words: str) -> str:
    """Return words on one line, with the marks of code that Markdown has."""
    return " ".join(words.split()).replace("``", "`")
