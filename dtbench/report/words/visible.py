r"""What came out of a file, spelled so that nothing of it acts where it is shown: ``\x1b`` in place of an escape.

Each medium asks here once: a terminal where its text is made (``plain_text``, ``cli/console``), Markdown, HTML and
plots where they escape what else would be markup, JSON for a browser where it is encoded. Line breaks and tabs stay.
"""

import re
from typing import Final

_MARKS: Final = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f"
"""What turns the direction of text around, ends a line or is not seen; joiners stay, which scripts and emoji need."""

_ACTING: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_MARKS}]")
_ACTING_IN_JSON: Final = re.compile(rf"\\(?:[^bfru]|[bfr]|u[0-9a-f]{{4}})|[\x7f-\x9f{_MARKS}]", re.IGNORECASE)


def spell_controls(words: str) -> str:
    r"""Return words in which every character that would act on a terminal or a reader's eye is spelled.

    >>> spell_controls("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    return _ACTING.sub(lambda match: _spell(match.group()), words)


def spell_controls_of_json(encoded: bytes) -> bytes:
    r"""Return a JSON document of msgspec's, whose texts are spelled as ``spell_controls`` does.

    >>> spell_controls_of_json(rb'["a\u001b\\u001b\n"]')
    b'["a\\\\x1b\\\\u001b\\n"]'
    """
    return _ACTING_IN_JSON.sub(_spell_in_json, encoded.decode()).encode()


def _spell_in_json(match: re.Match[str]) -> str:
    found = match.group()
    short = {r"\b": "\b", r"\f": "\f", r"\r": "\r"}
    meant = short.get(found) or (chr(int(found[2:], 16)) if found.startswith(r"\u") else found)
    return found if found.startswith("\\") and not _ACTING.match(meant) else _spell(meant).replace("\\", r"\\")


def _spell(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
