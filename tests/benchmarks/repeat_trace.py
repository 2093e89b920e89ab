"""A real trace repeated in time until it is as large as wished: what a long profile of the same job would be.

``python -m tests.benchmarks.repeat_trace SOURCE TARGET --mb 500`` writes at least so many MB (10**6 bytes, before
compression; ``--copies`` says it in copies) and prints ``{"copies", "events", "bytes"}``. TARGET ends in ``.json`` or
``.json.gz``. The source's own layout and digits stay; in each copy only these numbers grow:

======================================================  =================================================
start times                                             by the source's length, in whole microseconds
correlation, External id, flow ids                      by one amount: some traces use one for the other
sequence numbers of autograd and of collectives         each by its own range
``ProfilerStep#N``                                      by the number of steps
events' own indices, Python ids and their parents       each by its own range
======================================================  =================================================

Names of threads and processes (``ph: M``) come once. One copy is held in memory, never the whole.
"""

import argparse
import gzip
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

_TIED: Final = "correlation"  # ids that tie events together share one number space
_SPACE: Final = {
    b"correlation": _TIED,
    b"External id": _TIED,
    b"id": _TIED,
    b"wait_on_cuda_event_record_corr_id": _TIED,
    b"Sequence number": "autograd",
    b"Seq": "collective",
    b"Ev Idx": "index",
    b"Profiler Event Index": "index",
    b"Python id": "python",
    b"Python parent id": "python",
    b"ProfilerStep#": "step",
    b"ts": "time",
}
"""Number space by key; a quote inside a JSON string is escaped, so a key in quotes is never part of a name."""
_NUMBER: Final = re.compile(
    rb'"(' + b"|".join(key for key in _SPACE if not key.endswith(b"#")) + rb')"\s*:\s*"?(\d+)|"(ProfilerStep#)(\d+)'
)
_FROM_ONE: Final = frozenset({_TIED, "index", "python"})  # 0 means: none; it stays
_GZIP_LEVEL: Final = 6


class _Event(msgspec.Struct):
    ph: str = ""
    ts: float = math.nan
    dur: float = 0.0


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 - Kineto's key


@dataclass(frozen=True)
class Pattern:
    """One copy's text with holes.

    Attributes:
        head, tail: of the file, around the list of events.
        once: events that come only once.
        separator: what stands between two events.
        text: pieces of the others, one more than there are numbers.
        numbers, growth: each hole's number in the first copy, and by how much it grows from copy to copy.
        events: in one copy, without those of ``once``.
    """

    head: str
    once: Sequence[str]
    separator: str
    text: Sequence[str]
    numbers: Sequence[int]
    growth: Sequence[int]
    tail: str
    events: int

    def copy(self, place: int) -> str:
        """Return the text of one copy; the first is number 0 and equals the source's."""
        filled = [number + place * growth for number, growth in zip(self.numbers, self.growth, strict=True)]
        return "".join(part for pair in zip(self.text, map(str, filled), strict=False) for part in pair) + self.text[-1]


def make_pattern(content: bytes) -> Pattern:
    """Find every number of a trace's text that tells copies apart.

    Raises:
        SystemExit: fewer than two events, or a time that cannot be moved.
    """
    raws = [bytes(raw) for raw in msgspec.json.decode(content, type=_File).traceEvents]
    if len(raws) < 2:
        raise SystemExit("the source holds fewer than two events; give a trace of a whole step")
    places = list(_find_events(content, raws))
    separator = content[places[0] + len(raws[0]) : places[1]].decode()
    events = [msgspec.json.decode(raw, type=_Event, strict=False) for raw in raws]
    repeated = [raw for raw, event in zip(raws, events, strict=True) if event.ph != "M"]
    pieces, spaces, numbers = _cut(separator.encode().join(repeated))
    timed = [event for event in events if event.ph != "M" and not math.isnan(event.ts)]
    if spaces.count("time") != len(timed):
        raise SystemExit("the source has a negative or otherwise odd time; give one as torch.profiler writes it")
    growth = {space: _growth(space, spaces, numbers) for space in set(spaces)}
    growth["time"] = math.ceil(max(event.ts + event.dur for event in timed) - min(event.ts for event in timed)) + 1
    return Pattern(
        head=content[: places[0]].decode(),
        once=tuple(raw.decode() for raw, event in zip(raws, events, strict=True) if event.ph == "M"),
        separator=separator,
        text=pieces,
        numbers=numbers,
        growth=[growth[space] if _grows(space, one) else 0 for one, space in zip(numbers, spaces, strict=True)],
        tail=content[places[-1] + len(raws[-1]) :].decode(),
        events=len(repeated),
    )


def _find_events(content: bytes, raws: Sequence[bytes]) -> Iterator[int]:
    """Yield where each event starts: they lie one after another."""
    place = content.index(b'"traceEvents"')
    for raw in raws:
        place = content.index(raw, place)
        yield place
        place += len(raw)


def _grows(space: str, number: int) -> bool:
    return number != 0 or space not in _FROM_ONE


def _growth(space: str, spaces: Sequence[str], numbers: Sequence[int]) -> int:
    own = [one for one, its_space in zip(numbers, spaces, strict=True) if its_space == space and _grows(space, one)]
    return max(own) - min(own) + 1 if own else 0


def _cut(text: bytes) -> tuple[list[str], list[str], list[int]]:
    """Return the text between numbers, and each number's space and value."""
    pieces, spaces, numbers = [], [], []
    end = 0
    for match in _NUMBER.finditer(text):
        group = 2 if match[1] else 4
        pieces.append(text[end : match.start(group)].decode())
        spaces.append(_SPACE[match[group - 1]])
        numbers.append(int(match[group]))
        end = match.end(group)
    return [*pieces, text[end:].decode()], spaces, numbers


def read_source(path: Path) -> bytes:
    """Return a trace's text, unpacked."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def set_rank(pattern: Pattern, rank: int) -> Pattern:
    """Return the same trace as another rank's.

    Raises:
        SystemExit: the source does not say a rank.
    """
    said = re.compile(r'("distributedInfo"\s*:\s*\{[^}]*?"rank"\s*:\s*)\d+')
    head, in_head = said.subn(rf"\g<1>{rank}", pattern.head)
    tail, in_tail = said.subn(rf"\g<1>{rank}", pattern.tail)
    if in_head + in_tail != 1:
        raise SystemExit("the source's distributedInfo says no rank; give the trace of a distributed job")
    return replace(pattern, head=head, tail=tail)


def write_copies(pattern: Pattern, copies: int, target: Path) -> int:
    """Write a trace; gives its size in bytes before compression."""
    with gzip.open(target, "wb", compresslevel=_GZIP_LEVEL) if target.suffix == ".gz" else target.open("wb") as file:
        return sum(file.write(text.encode()) for text in _texts(pattern, copies))


def _texts(pattern: Pattern, copies: int) -> Iterator[str]:
    yield pattern.head
    for event in pattern.once:
        yield event + pattern.separator
    for place in range(copies):
        yield pattern.copy(place) + (pattern.separator if place < copies - 1 else "")
    yield pattern.tail


def main() -> None:
    """Write one trace and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--mb", type=float)
    size.add_argument("--copies", type=int)
    parser.add_argument("--rank", type=int, help="write it as this rank's")
    options = parser.parse_args()
    pattern = make_pattern(read_source(options.source))
    if options.rank is not None:
        pattern = set_rank(pattern, options.rank)
    copies = options.copies or max(1, math.ceil(options.mb * 1e6 / len(pattern.copy(0).encode())))
    written = write_copies(pattern, copies, options.target)
    print(json.dumps({"copies": copies, "events": copies * pattern.events, "bytes": written}))


if __name__ == "__main__":
    main()
