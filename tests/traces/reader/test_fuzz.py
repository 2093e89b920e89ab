"""Ten thousand damaged files: never a crash or a hang, and never an event lost in silence."""

import gzip
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.trace import Trace

FILES = 10_000
SLOWEST_S = 10.0  # of CPU: the bound of a hang; a file of 2 kB takes a millisecond, the worst garbage here 2.5 s
PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\0",
    b"\xff",
    b"},{",
    b'"ph": "X"',
    b"null",
    b"-",
    b"1e999",
]


def damage(content: bytes, chance: random.Random) -> bytes:
    """Flip, cut out, cut off, insert or repeat something, once to three times."""
    text = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(text) + 1)
        match chance.randrange(6):
            case 0 if place < len(text):
                text[place] ^= 1 << chance.randrange(8)
            case 1:
                del text[place : place + chance.randint(1, 40)]
            case 2:
                del text[place:]
            case 3:
                text[place:place] = chance.choice(PIECES)
            case 4:
                text[place:place] = text[place : place + chance.randint(1, 200)]
            case _:
                text[place:place] = chance.randbytes(chance.randint(1, 8))
    return bytes(text)


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("zipped", [False, True])
def test_whatever_is_damaged_nothing_crashes_or_hangs_or_vanishes_in_silence(
    zipped: bool, part: int, events: list[dict[str, Any]], read: Callable[..., Trace], oracle: Callable[[str], Any],
    rows_of: Callable[[Trace], Any],
) -> None:  # fmt: skip
    chance = random.Random(f"{zipped} {part}")  # seeded: the same files every time
    content = json.dumps({"schemaVersion": 1, "traceEvents": events[:14], "traceName": "x.json"}).encode()
    whole = gzip.compress(content) if zipped else content
    expected = rows_of(read(content))
    outcomes = {"refused": 0, "told": 0, "whole": 0}
    for _ in range(FILES // 20):
        damaged = damage(whole, chance)
        window_bytes = chance.choice([64, 500, 1 << 20])
        started = time.process_time()
        try:
            trace = read(damaged, window_bytes)
        except TraceError:
            outcomes["refused"] += 1
            continue
        assert time.process_time() - started < SLOWEST_S
        assert len(trace.names) == 0 or int(trace.name.max(initial=0)) < len(trace.names)
        if trace.unread.count or trace.unread.is_truncated:
            outcomes["told"] += 1
            continue
        outcomes["whole"] += 1
        rows = rows_of(trace)
        assert len(rows) >= len(expected) or rows == oracle(unzip(damaged).decode("utf-8", "replace"))
    assert min(outcomes.values()) > 0


GARBAGE = {
    "random": random.Random(1).randbytes(200_000),
    "quotes": b'"' * 200_000,
    "braces": b"{" * 200_000,
    "brackets": b"[" * 200_000,
    "borders": b"},{" * 70_000,
    "NULs": b"\0" * 200_000,
    "digits": b"1" * 200_000,
    "nesting": b'{"a":' * 9_000,
    "nesting of long objects": (b'{"a": "%s", "b":' % (b"x" * 1_000)) * 400,
    "objects in arrays": b'{"a":[[[[' * 9_000,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_stretch_of_garbage_costs_no_event_around_it_and_little_time(
    garbage: bytes, read: Callable[..., Trace]
) -> None:
    around = b",".join(b'{"ph": "X", "name": "a", "ts": %d, "dur": 1}' % number for number in range(500))
    started = time.process_time()
    trace = read(b'{"traceEvents": [' + around + b"," + garbage + b"," + around + b"]}")
    assert (len(trace), dict(trace.unread.events)) == (1000, {"unreadable text": 1})
    assert time.process_time() - started < SLOWEST_S


def unzip(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
