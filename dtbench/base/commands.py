r"""Commands that are shown for pasting into a shell: whatever a name holds, it stays one word and acts on nothing.

What cannot be seen is spelled as bash and zsh read it (``$'a\x0ab'``): where it is shown, it would be spelled anyway.
"""

import shlex
from os import PathLike, fspath


def spell_command(*words: str | PathLike[str]) -> str:
    """Return a command line of these words.

    >>> spell_command("dtbench", "report", "my runs/$(date)")
    "dtbench report 'my runs/$(date)'"
    """
    return " ".join(map(spell_word, words))


def spell_word(word: str | PathLike[str]) -> str:
    r"""Return one word of a command line.

    >>> print(spell_word("a b"), spell_word("a\nb"))
    'a b' $'a\x0ab'
    """
    text = fspath(word)
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_spell, text))}'"


def _spell(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
