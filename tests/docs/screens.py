"""Screens for the docs: what commands print at three widths, and in colour on light and on dark terminals.

    python -m tests.docs.screens quickstart="report results/example" ranks="analyze traces/"

writes ``docs/images/screens/NAME_light.svg`` and ``NAME_dark.svg``, 100 columns wide, and for each other width a text
file below ``docs/screens``; ``docs/screens.md`` shows them. What a screen is of is not in the repository where it is
large, so this is done by hand, when what commands say has changed much.
"""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

DOCS: Final = Path(__file__).parents[2] / "docs"
WIDTHS: Final = (80, 160)
DRAWN: Final = 100
_TEXT, _MUTED, _ACCENT = (32, 33, 36), (95, 99, 104), (0, 97, 164)
_GOOD, _WARNING, _BAD = (0, 112, 79), (138, 90, 0), (179, 38, 30)
THEMES: Final = {
    "light": TerminalTheme(
        (255, 255, 255),
        _TEXT,
        [_TEXT, _BAD, _GOOD, _WARNING, _ACCENT, (107, 61, 153), (15, 107, 92), _MUTED],
        [_MUTED, _BAD, _GOOD, _WARNING, _ACCENT, (107, 61, 153), (15, 107, 92), _TEXT],
    ),
    "dark": DIMMED_MONOKAI,
}
_FRAME: Final = (
    '<svg class="{unique_id}" viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">'
    "<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}"
    ' {styles}</style><defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" '
    'height="{terminal_height}"/></clipPath>{lines}</defs><rect width="100%" height="100%" fill="GROUND"/>'
    '<g clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>'
)


_STYLED: Final = re.compile(r"\x1b\[[0-9;]*m")


def run_command(words: str, width: int) -> str:
    """Return what a command prints, in colour, on a terminal that is so wide: sentences broken as they are there."""
    colour = {"FORCE_COLOR": "1", "COLORTERM": "truecolor"}
    done = subprocess.run(
        [sys.executable, "-m", "dtbench", *shlex.split(words)],
        env={**os.environ, "COLUMNS": str(width), "PYTHONIOENCODING": "utf-8", **colour},
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.stdout.decode()


def draw(printed: str, width: int, theme: TerminalTheme, name: str) -> str:
    """Return what was printed, with its colours, as SVG; letters are the reader's own monospaced ones."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(printed.rstrip()), end="")
    ground = "#{:02x}{:02x}{:02x}".format(*theme.background_color)
    return console.export_svg(theme=theme, code_format=_FRAME.replace("GROUND", ground), unique_id=name)


def main(subjects: list[str]) -> None:
    """Write the screens of ``NAME=COMMAND`` each."""
    images, texts = DOCS / "images" / "screens", DOCS / "screens"
    for folder in (images, texts):
        folder.mkdir(parents=True, exist_ok=True)
    for subject in subjects:
        name, _, words = subject.partition("=")
        printed = run_command(words, DRAWN)
        for theme, colours in THEMES.items():
            drawn = draw(printed, DRAWN, colours, f"{name}-{theme}")
            (images / f"{name}_{theme}.svg").write_text(drawn, encoding="utf-8")
        for width in WIDTHS:
            shown = _STYLED.sub("", run_command(words, width))
            plain = re.sub(r"[ \t]+$", "", shown, flags=re.MULTILINE)
            (texts / f"{name}_{width}.txt").write_text(plain, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(printed.splitlines())} lines of {DRAWN} columns\n")


if __name__ == "__main__":
    main(sys.argv[1:])
