"""What a terminal shows of any text: that text, without markup, and nothing of it acts on the terminal."""

from typing import Any

from rich.style import Style
from rich.text import Text

from dtbench.report.visible import spell_controls


class Plain(Text):
    """Text whose control characters are spelled; the only kind that reports and commands make."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(spell_controls(text), style, **options)

    def append(self, text: Text | str, style: str | Style | None = None) -> "Plain":
        """Add text at the end, which ``assemble`` does with every part; returns this one."""
        super().append(spell_controls(text) if isinstance(text, str) else text, style)
        return self
