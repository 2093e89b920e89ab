"""Traces drawn by hand: one character is one microsecond, one line is one name on one thread or stream."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_LINE = re.compile(r"\s*(\w+) (.+?)\s+@(\S+)\s*\|([^|]*)\|\s*(\{.*\})?")
_CATEGORY = {
    "step": "user_annotation",
    "range": "user_annotation",
    "op": "cpu_op",
    "call": "cuda_runtime",
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "python": "python_function",
}


def draw_events(drawing: str) -> list[dict[str, Any]]:
    """Read a drawing.

    ``kind name @lane |..aaa.bb|`` gives spans [2, 5) and [6, 8) us. Equal letters tie a kernel to the call that
    launched it; ``=`` ties nothing; a JSON object at the end of the line goes into the events' arguments.
    """
    events: list[dict[str, Any]] = []
    for line in drawing.strip().splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        kind, name, lane, bars, args = match.groups()
        for bar in re.finditer(r"([^ .])\1*", bars):
            letter = {} if bar[1] == "=" else {"correlation": ord(bar[1])}
            events.append(
                {
                    "ph": "X",
                    "cat": _CATEGORY[kind],
                    "name": name,
                    "pid": 0,
                    "tid": lane,
                    "ts": bar.start(),
                    "dur": len(bar[0]),
                    "args": {**json.loads(args or "{}"), **letter},
                }
            )
    return events


@pytest.fixture
def draw(tmp_path: Path) -> Callable[..., Path]:
    """Write a drawing as a trace file."""

    def write(drawing: str, name: str = "trace.json", **top: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps({**top, "traceEvents": draw_events(drawing)}))
        return path

    return write


@pytest.fixture
def recorded() -> Path:
    """Folder of the recorded gloo traces."""
    return Path(__file__).parent / "recorded"
