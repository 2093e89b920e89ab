"""Malformed files as seen in the wild: at most one event is lost, it is counted, and all others are exact."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.trace import Trace

HEAD = '{"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": ['
TAIL = '], "traceName": "x.json"}'
Texts = list[str]
Change = Callable[[str], str]


def wrap(texts: Texts, separator: str = ", ", head: str = HEAD, tail: str = TAIL) -> bytes:
    return (head + separator.join(texts) + tail).encode()


def changed(change: Change) -> Callable[[Texts], bytes]:
    """Change the text of one kernel in the middle."""

    def build(texts: Texts) -> bytes:
        victim = next(place for place in range(len(texts) // 2, len(texts)) if "gemm" in texts[place])
        return wrap([change(text) if place == victim else text for place, text in enumerate(texts)])

    return build


def replaced(old: str, new: str) -> Callable[[Texts], bytes]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return changed(change)


def everywhere(old: str, new: str) -> Callable[[Texts], bytes]:
    return lambda texts: wrap([text.replace(old, new) for text in texts])


def dumped(**options: Any) -> Callable[[Texts], bytes]:
    return lambda texts: json.dumps(json.loads(wrap(texts)), **options).encode()


def half_zeroed(texts: Texts) -> bytes:
    content = wrap(texts)
    hole = content.index(b"aten::mm3")
    return content[:hole] + b"\0" * 60 + content[hole + 60 :]


def as_bytes(old: str, new: bytes) -> Callable[[Texts], bytes]:
    return lambda texts: wrap(texts).replace(old.encode(), new, 1)


def stray_bracket(texts: Texts) -> bytes:
    return wrap(texts[:9], tail="], ") + wrap(texts[9:], head="")


def cut(texts: Texts) -> bytes:
    return wrap(texts, tail="")[:-30]


def cut_zipped(texts: Texts) -> bytes:
    """Zip so that all but the end of the last event can be unzipped."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(cut(texts)) + packer.flush(zlib.Z_SYNC_FLUSH)


class Variant(NamedTuple):
    """One way in which a file is malformed.

    Attributes:
        build: makes the file from the texts of its events.
        lost: complete events that cannot be read.
        counted: how many are said to be lost, where that is not ``lost``: damage between events, or an event that the
            end of the file cuts.
        is_truncated: whether the file must be said to end early.
        changes: whether the event in the middle is read with another name, lane or argument than it would have had.
    """

    build: Callable[[Texts], bytes]
    lost: int = 0
    counted: int | None = None
    is_truncated: bool = False
    changes: bool = False


VARIANTS = {
    "a raw tab and a raw newline in a name": Variant(replaced("gemm<", "gemm\t\n<"), changes=True),
    "another raw control character in a name": Variant(replaced("gemm<", "gemm\x01<"), changes=True),
    "a lone backslash": Variant(replaced("gemm<", r"C:\gemm<"), changes=True),
    "invalid UTF-8": Variant(as_bytes("gemm<", b"gem\xff\xfe<"), changes=True),
    "half a surrogate pair": Variant(replaced("gemm<", r"gemm\ud800<"), changes=True),
    "unescaped quotes in a name": Variant(replaced("gemm<", 'ge"m"m<'), changes=True),
    "an argument without a value": Variant(replaced('"stream": 7', '"Process Group Description": ')),
    "NaN": Variant(replaced('"stream": 7', '"occupancy": NaN')),
    "Infinity": Variant(replaced('"stream": 7', '"occupancy": -Infinity')),
    "nan and inf as C++ writes them": Variant(replaced('"stream": 7', '"occupancy": nan, "bandwidth": inf')),
    "a number beyond float64": Variant(replaced('"stream": 7', '"occupancy": 1e999')),
    "an id beyond int64": Variant(replaced('"correlation": 5', '"correlation": 1844674407370955161'), changes=True),
    "a negative duration": Variant(replaced('"dur": 5.007', '"dur": -5.007'), lost=1),
    "a duration that is no number": Variant(replaced('"dur": 5.007', '"dur": "soon"'), lost=1),
    "no duration": Variant(replaced('"dur": 5.007, ', ""), lost=1),
    "a start that is no number": Variant(replaced('"ts": ', '"ts": NaN, "was": '), lost=1),
    "a trailing comma in an event": Variant(changed(lambda text: text[:-1] + ",}")),
    "a trailing comma in arguments": Variant(changed(lambda text: text[:-2] + ",}}")),
    "a trailing comma behind the last event": Variant(lambda texts: wrap(texts, tail=", " + TAIL)),
    "truncated JSON": Variant(cut, lost=1, counted=0, is_truncated=True),
    "a truncated gzip stream": Variant(cut_zipped, lost=1, counted=0, is_truncated=True),
    "a hole of NULs": Variant(half_zeroed, lost=1),
    "a byte order mark": Variant(lambda texts: b"\xef\xbb\xbf" + wrap(texts)),
    "a bare array": Variant(lambda texts: wrap(texts, head="[", tail="]")),
    "starts and durations as text": Variant(
        lambda texts: json.dumps(
            [{**one, **{key: str(one[key]) for key in ("ts", "dur") if key in one}} for one in map(json.loads, texts)]
        ).encode()
    ),
    "a null process": Variant(replaced('"pid": 0', '"pid": null'), changes=True),
    "duplicate keys": Variant(replaced('"dur": 5.007', '"dur": 1, "dur": 5.007')),
    "null arguments": Variant(changed(lambda text: text.split(', "args"')[0] + ', "args": null}'), changes=True),
    # Layouts, which are well formed, and damage beyond the list.
    "one line": Variant(dumped()),
    "no spaces": Variant(dumped(separators=(",", ":"))),
    "indented by 4": Variant(dumped(indent=4)),
    "keys in another order": Variant(dumped(sort_keys=True)),
    "CRLF": Variant(lambda texts: wrap(texts, separator=",\r\n")),
    "a missing comma between events": Variant(lambda texts: wrap(texts, separator=" ")),
    "two commas between events": Variant(lambda texts: wrap(texts, separator=",,")),
    "a stray bracket between events": Variant(stray_bracket, counted=1),
    "a missing brace": Variant(changed(lambda text: text[:-1]), lost=1),
    "a missing quote": Variant(replaced('"name"', '"name'), lost=1),
    "an event that was cut into": Variant(changed(lambda text: text[: len(text) // 2]), lost=1),
    "another's text inside an event": Variant(changed(lambda text: text[:80] + text[:90] + text[80:]), counted=1),
    "a number in place of an event": Variant(changed(lambda text: "17"), lost=1),
    "a phase that nobody knows": Variant(replaced('"ph": "X"', '"ph": "Y"'), lost=1),
    "an object that is no event": Variant(changed(lambda text: '{"a": {"b": [{}, {}]}}'), lost=1),
}  # fmt: skip


@pytest.mark.parametrize("window_bytes", [1 << 20, 700, 64])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_at_most_one_event_is_lost_and_counted_and_all_others_are_exact(
    variant: Variant,
    window_bytes: int,
    events: list[dict[str, Any]],
    read: Callable[..., Trace],
    rows_of: Callable[[Trace], list[Any]],
    oracle: Callable[[bytes], list[Any]],
) -> None:
    texts = [json.dumps(event) for event in events]
    expected = oracle(wrap(texts))
    trace = read(variant.build(texts), window_bytes)
    rows = rows_of(trace)
    assert len(rows) == len(expected) - variant.lost
    assert len([row for row in rows if row not in expected]) == variant.changes
    assert trace.unread.is_truncated == variant.is_truncated
    assert trace.unread.count == (variant.lost if variant.counted is None else variant.counted)
    unchanged = [row for row in rows if row in expected]
    assert unchanged == [row for row in expected if row in unchanged]  # in file order


def test_a_corrupted_gzip_stream_gives_what_came_before(
    events: list[dict[str, Any]], read: Callable[..., Trace], rows_of: Callable[[Trace], list[Any]],
    oracle: Callable[[bytes], list[Any]],
) -> None:  # fmt: skip
    texts = [json.dumps({**event, "pid": place}) for place, event in enumerate(events * 50)]
    expected = oracle(wrap(texts))
    content = bytearray(gzip.compress(wrap(texts)))
    content[len(content) // 2] ^= 0xFF
    trace = read(bytes(content))
    rows = rows_of(trace)
    assert trace.unread.is_truncated or trace.unread.count
    assert len(expected) // 4 < len(rows) < len(expected)
    assert rows[: len(rows) // 2] == expected[: len(rows) // 2]


def test_a_gzip_stream_whose_checksum_does_not_fit_is_read_and_said(
    events: list[dict[str, Any]], read: Callable[..., Trace]
) -> None:
    content = bytearray(gzip.compress(wrap([json.dumps(event) for event in events])))
    content[-6] ^= 1
    trace = read(bytes(content))
    assert dict(trace.unread.events) == {"gzip checksum does not fit": 1}
    assert not trace.unread.is_truncated


def test_a_stream_of_several_gzip_members_is_read_to_its_end(
    events: list[dict[str, Any]], read: Callable[..., Trace]
) -> None:
    content = wrap([json.dumps(event) for event in events])
    packed = b"".join(gzip.compress(content[place : place + 1000]) for place in range(0, len(content), 1000))
    assert len(read(packed + b"\0" * 100)) == len(read(content))


def test_why_an_event_is_not_read_is_said(read: Callable[..., Trace]) -> None:
    event = '{"ph": "X", "name": "a", "ts": %s, "dur": %s}'
    texts = [event % pair for pair in ((1, 1), (1, -1), (1, '"x"'), (1e300, 1), (5, 1))]
    assert dict(read(wrap(texts)).unread.events) == {
        "negative duration": 1,
        "no start or duration": 1,
        "time out of range": 1,
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x28\xb5\x2f\xfd____", "packed with zstd"),
        (b"BZh9____", "packed with bzip2"),
        (b'[1, 2, "three"]', "no event"),
        (b'{"traceEvents": null}', "not a trace"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(b"[]", mtime=0)[:12], "cut short"),
    ],
)
def test_what_is_no_trace_is_refused(content: bytes, sentence: str, read: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match=f"memory.json: .*{sentence}"):
        read(content)
