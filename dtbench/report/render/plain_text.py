"""What a terminal shows of any text: that text, without markup, and nothing of it acts on the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.style import Style
from rich.text import Text

from dtbench.report.words.visible import spell_controls


class Plain(Text):
    """Text whose control characters are spelled; the only kind that reports and commands make."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(spell_controls(text), style, **options)

    @classmethod
    def assemble(cls, *parts: str | Text | tuple[str, str | Style], **options: Any) -> "Plain":
        """Return text put together from parts, each plain or with its style."""
        whole = cls(**options)
        for part in parts:
            whole.append(*(part if isinstance(part, tuple) else (part,)))
        return whole

    def append(self, text: Text | str, style: str | Style | None = None) -> "Plain":
        """Add text at the end, returns this one."""
        super().append(spell_controls(text) if isinstance(text, str) else text, style)
        return self

    def join(self, lines: Iterable[Text]) -> "Plain":
        """Return the lines with this between them."""
        whole = Plain()
        for number, line in enumerate(lines):
            if number:
                whole.append(self)
            whole.append(line)
        return whole
