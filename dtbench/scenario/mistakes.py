"""Mistakes that people make in scenario files: where each one is, what is wrong, and what was probably meant.

A person who fixes a file wants all of its mistakes at once, so reading collects ``Mistake`` values and only the end of
it raises. One mistake prints as::

    quickstart.yaml:7:3: `layer` is not a field of `model`; did you mean `layers`?
      7 |   layer: 4
        |   ^^^^^
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.errors import ScenarioError
from dtbench.base.units import count_things

SET: Final = "--set"
"""The option that changes a field."""

AXIS_PREFIX: Final = "matrix."
"""Begins a ``--set`` that makes an axis, as ``--sweep`` does."""

_NEAR: Final = 0.6
"""Least ratio of words that one may stand for the other, as difflib has it."""
_MAX_SHOWN_MISTAKES = 20
MOST_MISTAKES = 200
"""Of one kind that are looked for: each is explained with the likely right word, which takes milliseconds."""
_MAX_SHOWN_COLUMNS = 110


@dataclass(frozen=True)
class FilePlace:
    """A stretch of one line of a file; ``line`` and ``column`` count from 1, as editors do."""

    source_name: str
    line: int
    column: int
    length: int
    source_line: str


@dataclass(frozen=True)
class OverridePlace:
    """Anywhere in a ``--set`` (or what ``option`` says); ``order`` is its position among the others, from 0."""

    typed: str
    order: int
    option: str = SET

    @property
    def path(self) -> str:
        """What stands before the first ``=``."""
        return self.typed.partition("=")[0].strip()

    @property
    def is_for_one_cell(self) -> bool:
        """Whether its path names a cell."""
        return self.path.startswith("cells.")


Place = FilePlace | OverridePlace


@dataclass(frozen=True)
class Mistake:
    """One thing that a person has to change.

    Attributes:
        sentence: without a final period.
        meant: the likely right word.
        is_unknown_field: another cell of the same file may well have such a field.
    """

    place: Place
    sentence: str
    meant: str | None = None
    is_unknown_field: bool = False


def find_nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that ``word`` is most likely a slip of, by difflib's ratio; None when nothing is near.

    It is what ``difflib.get_close_matches`` finds first; but a ratio, which takes long, is computed only where its
    upper bound is not below the best one so far.
    """
    by_lowercase = {candidate.lower(): candidate for candidate in candidates}
    matcher = difflib.SequenceMatcher(b=word.lower())
    bounds: list[tuple[float, str]] = []
    for lowercase in by_lowercase:
        matcher.set_seq1(lowercase)
        if matcher.real_quick_ratio() >= _NEAR:
            bounds.append((matcher.quick_ratio(), lowercase))
    best, nearest = _NEAR, None
    for bound, lowercase in sorted(bounds, reverse=True):
        if bound < best:
            break
        matcher.set_seq1(lowercase)
        best, nearest = max((best, nearest or ""), (matcher.ratio(), lowercase))
    return by_lowercase[nearest] if nearest else None


def join_words(words: Sequence[str], last: str = "or") -> str:
    """Join words as a sentence does.

    >>> join_words(["a", "b", "c"])
    'a, b or c'
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def split_lines(text: str) -> list[str]:
    """Cut a text into lines where YAML does, so that its line numbers can be used as indices."""
    return re.split("\r\n|[\r\n\x85\u2028\u2029]", text)


def to_printable(text: str) -> str:
    """Replace what would garble a terminal; every character keeps its column."""
    return "".join(character if character.isprintable() else " " if character == "\t" else "�" for character in text)


def shorten(text: str, max_length: int = 60) -> str:
    """Cut a text for use inside a sentence."""
    return to_printable(text if len(text) <= max_length else f"{text[: max_length - 3]}...")


def as_error(mistakes: Sequence[Mistake]) -> ScenarioError:
    """Return one error that tells all mistakes, in the order of the file, then of the command line."""
    blocks = [_render(mistake) for mistake in sorted(dict.fromkeys(mistakes), key=_position)]
    shown = blocks[:_MAX_SHOWN_MISTAKES]
    if len(blocks) > len(shown):
        at_least = "at least " if len(mistakes) >= MOST_MISTAKES else ""
        shown.append(f"... and {at_least}{count_things(len(blocks) - len(shown), 'more mistake')}.")
    return ScenarioError("\n".join(shown))


def _position(mistake: Mistake) -> tuple[bool, int, int]:
    match mistake.place:
        case FilePlace(line=line, column=column):
            return False, line, column
        case OverridePlace(order=order):
            return True, order, 0


def _render(mistake: Mistake) -> str:
    question = "" if mistake.meant is None else f"; did you mean `{shorten(mistake.meant)}`?"
    sentence = f"{mistake.sentence}{question}"
    match mistake.place:
        case FilePlace() as place:
            heading = f"{to_printable(place.source_name)}:{place.line}:{place.column}: {sentence}"
            return "\n".join([heading, *_excerpt(place)])
        case OverridePlace(typed=typed, option=option):
            option = "--sweep" if typed.startswith(AXIS_PREFIX) else option  # `matrix.` of a --set is the same
            return f"{option} {shorten(typed.removeprefix(AXIS_PREFIX))}: {sentence}"


def _excerpt(place: FilePlace) -> list[str]:
    """Return the source line and, under it, the caret; a long line is cut to a window around the place."""
    first = max(0, place.column - 1 - _MAX_SHOWN_COLUMNS // 2) if len(place.source_line) > _MAX_SHOWN_COLUMNS else 0
    line = to_printable(place.source_line[first : first + _MAX_SHOWN_COLUMNS])
    if not line.strip():
        return []
    indent = place.column - 1 - first
    carets = "^" * max(1, min(place.length, len(line) - indent))
    number = str(place.line)
    return [f"  {number} | {line}", f"  {' ' * len(number)} | {' ' * indent}{carets}"]
