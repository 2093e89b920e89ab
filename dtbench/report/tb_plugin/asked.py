"""What the words of a request ask for; words that make no sense are refused with a sentence."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from dtbench.report.tb_plugin.refusal import NOT_ASKED_WELL, Refusal

if TYPE_CHECKING:
    from dtbench.report.tb_plugin.collectives import Query
    from dtbench.report.tb_plugin.overlap import Choice

Words: TypeAlias = Mapping[str, str]
"""A request's parameters."""


def read_word(words: Words, name: str) -> str:
    """Return a word.

    Raises:
        Refusal: it is not there.
    """
    if not words.get(name):
        raise Refusal(NOT_ASKED_WELL, f"The request lacks `{name}`.")
    return words[name]


def read_number(words: Words, name: str) -> int:
    """Return a whole number of at least 0.

    Raises:
        Refusal: it is not there, or is none.
    """
    word = read_word(words, name)
    if not (word.isascii() and word.isdecimal() and len(word) < 16):
        raise Refusal(NOT_ASKED_WELL, f"`{name}={word}` is no number.")
    return int(word)


def read_number_or_none(words: Words, name: str) -> int | None:
    """Return a number; None: it is not asked for; raises as ``read_number``."""
    return read_number(words, name) if words.get(name) else None


def read_choice(words: Words) -> "Choice":
    """Return which bars are asked for.

    Raises:
        Refusal: there are none of this kind.
    """
    from dtbench.report.tb_plugin.overlap import By, Choice

    by = words.get("by", By.RANK.value)
    if by not in tuple(By):
        raise Refusal(NOT_ASKED_WELL, f"`by={by}` is not one of {', '.join(By)}.")
    return Choice(By(by), rank=read_number_or_none(words, "rank"), step=read_number_or_none(words, "step"))


def read_query(words: Words, doubt: str = "") -> "Query":
    """Return what is asked of the table of collectives.

    Args:
        words: of the request.
        doubt: why the table may not be all that there was; empty: nothing speaks against it.

    Raises:
        Refusal: it begins at what is no number.
    """
    from dtbench.report.tb_plugin.collectives import FILTERS, Query

    return Query(
        chosen={name: words[name] for name in FILTERS if words.get(name)},
        text=words.get("text", ""),
        owner=words.get("owner"),
        sort=words.get("sort") or "exposed_ns",
        descending=words.get("order", "descending") == "descending",
        offset=read_number_or_none(words, "offset") or 0,
        doubt=doubt,
    )
