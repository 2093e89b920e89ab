"""What the README shows is what is printed."""

import re
from pathlib import Path

import dtbench

ROOT = Path(__file__).parents[2]


def test_the_answer_in_the_readme_is_the_one_that_its_trace_gives() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"\(`(tests/\S+\.json\.gz)`\):\n\n```\n(.*?)```", text, re.DOTALL)
    assert match is not None
    trace, answer = match.groups()
    assert str(dtbench.read_trace(ROOT / trace)).startswith(answer)
