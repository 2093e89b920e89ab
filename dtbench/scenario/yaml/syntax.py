"""What is wrong with a text that is not even YAML, in words that a newcomer can act on."""

from collections.abc import Callable
from typing import NamedTuple

import yaml

from dtbench.scenario.mistakes import Mistake, Place

Locate = Callable[[int, int, int | None], Place]
"""Gives the place of a line, a column (both from 0) and a length in characters; None: to the end of the line."""


class _Stumble(NamedTuple):
    """What PyYAML's parser says in ``problem``, and what a newcomer has to hear instead.

    ``is_at_start`` points to where the thing that went wrong began, not to where the parser noticed.
    """

    problem: str
    sentence: str
    is_at_start: bool = False


_STUMBLES = (
    _Stumble("'\\t'", "a tab cannot indent or align YAML; use spaces"),
    _Stumble("found character", "a text that starts with this character needs quotes"),
    _Stumble(
        "mapping values are not allowed",
        "a `:` does not fit here; is the line indented wrongly, or does a text with `: ` in it need quotes?",
    ),
    _Stumble(
        "could not find expected ':'",
        "this is not `name: value`; is the `:` or the space after it missing?",
        is_at_start=True,
    ),
    _Stumble("expected <block end>", "this line fits no section above; is it indented too far or not far enough?"),
    _Stumble("expected ',' or ']'", "this `[` is not closed, or a `,` between its values is missing", is_at_start=True),
    _Stumble("expected ',' or '}'", "this `{` is not closed, or a `,` between its values is missing", is_at_start=True),
    _Stumble("found unexpected end of stream", "this quote is not closed", is_at_start=True),
)


def explain_character(character: int | bytes | str) -> str:
    """Say why a character that YAML does not allow stops the reading."""
    code = character if isinstance(character, int) else ord(character)
    if code == 0:
        return "a NUL byte; this is not a text file, or it was cut or padded when it was written"
    return f"the character U+{code:04X} cannot stand in a YAML file"


def explain_syntax(error: yaml.MarkedYAMLError, locate: Locate) -> Mistake:
    """Say in a newcomer's words what PyYAML's parser stumbled over, and where it really began."""
    problem = error.problem or "it cannot be read"
    stumble = next((stumble for stumble in _STUMBLES if stumble.problem in problem), None)
    mark = error.context_mark if stumble is not None and stumble.is_at_start else error.problem_mark
    place = locate(mark.line, mark.column, 1) if mark is not None else locate(0, 0, None)
    return Mistake(place, stumble.sentence if stumble is not None else f"this is not YAML: {problem}")
