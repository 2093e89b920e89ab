"""What makes another trace of a small one: in the meaning of its events, in their JSON, in its bytes.

Most leave a trace that the reader takes, so that what comes behind it is asked too: the same events at other times, on
other lanes, of other names, twice, or not at all.
"""

import copy
import gzip
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.fuzz.small_traces import Document, Event

Mutation = Callable[[random.Random, Document], None]

NUMBERS: Final = (
    *("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1e-400", "0", "-0.0", "-1", "0.0005", "1e15", "1e18", "null"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615", "4503599627370495"),
    *("4503599627370496", "-35184372088831", "35184372088831", "-4503599627370495"),
    *("1790857026000000.123", "true", "[]", "{}", "[[[[[]]]]]", "1" * 400, '""', '"12"', '"abc"', '"7"'),
)
"""Texts in place of a number."""

NAMES: Final = (
    *("", " ", "\0", "\ud800", "\udfff", "\ufeff", "\x1b[31mred", "\x1b]0;title\x07", "a\u202eb", "\u2066x", "\x9b2J"),
    *(
        "<script>alert(1)</script>",
        "[bold]x[/bold]",
        "[/]",
        "../../etc/passwd",
        "a" * 70_000,
        "%s%n{0}",
        "e\u0301",
        "$x_{",
    ),
    *("ProfilerStep#", "ProfilerStep#-1", "ProfilerStep#0", "ProfilerStep#99999999999999999999999", "ProfilerStep#٣"),
    *("FSDP::all_gather ()", "FSDP::all_gather", "FSDP::all_gather (layers.0) (x", "FSDP::pre_forward (layers.1)"),
    *("FSDP::post_backward_reduce (a)", "FSDP::post_backward_reduce", "FullyShardedDataParallel.forward"),
    *("DistributedDataParallel.forward", "autograd::engine::evaluate_function: ", "Optimizer.step#Adam.step"),
    *(
        "autograd::engine::evaluate_function: AccumulateGrad",
        "## Call CompiledFxGraph x ##",
        "Torch-Compiled Region: 0/0",
    ),
    *(
        "ncclDevKernel_",
        "ncclDevKernel_Generic",
        "ncclDevKernel_SendRecv(x)",
        "ncclDevKernel_AllGather_RING_LL",
        "nccl:",
    ),
    *(
        "rcclKernel",
        "oneccl_allreduce",
        "void nvshmem_x",
        "deep_ep::internode::dispatch",
        "my_allreduce",
        "gemm",
        "elementwise",
    ),
    *("nccl:all_reduce", "nccl:send 0->1", "nccl:recv 1<-0", "gloo:", "gloo:all_reduce", "gloo:send", "gloo:broadcast"),
    *("c10d::", "c10d::allreduce_", "c10d::send", "_c10d_functional::all_gather_into_tensor", "record_param_comms"),
    *("_c10d_functional::wait_tensor", "Memcpy PtoP", "Memcpy HtoD", "Memset (Device)", "cudaGraphLaunch"),
    *("cudaLaunchKernel", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpyAsync", "hipLaunchKernel"),
    *("dtbench::collective", "dtbench::collective group=0 seq=x op=all_reduce bytes=-5 axis=zzz async=7 owner=bucket"),
    *("dtbench::collective group= seq= op= bytes= axis= async= owner=", "dtbench::wait group=0 seq=13", "dtbench::own"),
    *(
        "dtbench::wait group=9 seq=-1",
        "dtbench::region backward",
        "dtbench::region ",
        "dtbench::probe",
        "dtbench::probe x",
    ),
    *("dtbench::reduces (a)", "dtbench::reduces", "dtbench::link 3", "dtbench::stage x"),
)

CATEGORIES: Final = (
    *("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime", "ac2g"),
    *("cuda_driver", "python_function", "overhead", "cuda_sync", "cuda_event", "Kernel", "Memcpy", "Operator", "Trace"),
    *("Spans", "xpu_runtime", "privateuse1_driver", "mtia_ccp_events", "gpu_something", "fwdbwd", "", "kernel\x1b[2J"),
)

VALUES: Final[tuple[object, ...]] = (
    *(None, [], {}, "x", 5, -1, 2**64, 2**70, 0.5, True, "[0, 1]", "[1, 0, ...]", [0, -1, 2**70], [[None]], "a" * 3000),
    *("allreduce", "_allgather_base", "send", "recv", "broadcast", "coalesced", "alltoall_base", "wat", "Float", "zzz"),
)

ARGUMENTS: Final = (
    *(
        "correlation",
        "External id",
        "Seq",
        "Collective name",
        "Process Group Name",
        "Process Group Ranks",
        "Group size",
    ),
    *(
        "In msg nelems",
        "Out msg nelems",
        "dtype",
        "stream",
        "device",
        "grid",
        "block",
        "Sequence number",
        "Fwd thread id",
    ),
    *("Input Dims", "Input type", "Concrete Inputs", "Module Hierarchy", "Src Rank", "Dst Rank", "Comms Id", "Async"),
    *("Process Group Description", "bytes", "wait_on_stream", "finished", "Is asynchronized op"),
)

INFOS: Final[tuple[object, ...]] = (
    *(
        None,
        [],
        {},
        "x",
        {"rank": -1, "world_size": 0},
        {"rank": 2**70, "world_size": -2},
        {"rank": "0"},
        {"rank": 0.5},
    ),
    *({"rank": 1, "world_size": 2}, {"rank": 5, "world_size": 8}, {"rank": 3, "world_size": 2}, {"world_size": 2}),
    {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": "x"}]},
    {"rank": 0, "world_size": 2, "pg_config": {}},
    {"rank": 0, "world_size": 2, "pg_config": [5, None, {"pg_name": None, "pg_desc": 7, "ranks": [None]}]},
    {"rank": 0, "world_size": 4, "pg_config": [{"pg_name": "0", "pg_desc": "mesh_tp\x1b[2J", "ranks": [0, 2, 2]}]},
)

TOPS: Final[dict[str, tuple[object, ...]]] = {
    "baseTimeNanoseconds": (None, 0, -5, "x", 2**70, 1.5, [1]),
    "deviceProperties": (
        None,
        [],
        {},
        [5],
        [{"id": "0"}],
        [{"id": 0, "name": 7}],
        [{"id": 0, "name": "B\x1b[2J200"}] * 2,
    ),
    "schemaVersion": (None, "x", 2, []),
    "traceName": (None, 5, "\x1b[2J"),
    "displayTimeUnit": (None, "ns"),
    "hostname": ("\x1b[2Jhost", 5, None),
    "cuda_runtime_version": (12080, "x", -1, None),
}

_PIECES: Final = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\0", b"\xff", b"},{", b'"ph": "X"', b"null", b"-", b"1e999"),
    *(b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b'{"a":' * 200, b"[" * 300, b"//c\n", b"\x1f\x8b", b"NaN", b",,"),
    *(b'"ts": 5,"ts": 6,', b"}]}", b'], "traceEvents": [', b'{"ph":"X","name":"a","ts":1,"dur":2},'),
)
_MARK: Final = "@@%d@@"


class _Raw(str):
    """Text that stands in the JSON as it is."""

    __slots__ = ()


def _spans(document: Document) -> list[Event]:
    """Return the events that can be changed in their meaning."""
    return [one for one in document["traceEvents"] if isinstance(one, dict) and isinstance(one.get("ts"), int | float)]


def _some(chance: random.Random, document: Document) -> list[Event]:
    """Choose events that have something in common: one, all, or those of one name, category, process or lane."""
    spans = _spans(document)
    if not spans:
        return []
    one = chance.choice(spans)
    keys = chance.choice([(), ("name",), ("cat",), ("pid",), ("pid", "tid"), ("name", "cat"), None, None, None])
    if keys is None:
        return [one]
    return [other for other in spans if all(repr(other.get(key)) == repr(one.get(key)) for key in keys)]


def shift(chance: random.Random, document: Document) -> None:
    """Put events earlier or later."""
    by = chance.choice([-1e6, 1e6, 1e9, 1e12, 0.1, -0.001, 1.0, -1.0, *[chance.uniform(-500, 500)] * 6])
    for one in _some(chance, document):
        one["ts"] = round(one["ts"] + by, 3)


def stretch(chance: random.Random, document: Document) -> None:
    """Make events last longer, shorter, no time at all, or up to each other."""
    by = chance.choice([0, 0, 0.5, 2, 10, 1e3, 1e6, 1e-6, -1])
    for one in _some(chance, document):
        if isinstance(one.get("dur"), int | float):
            one["dur"] = round(one["dur"] * by, 3)


def jitter(chance: random.Random, document: Document) -> None:
    """Move and stretch each of some events by itself."""
    for one in _some(chance, document):
        one["ts"] = round(one["ts"] + chance.uniform(-50, 50), 3)
        if isinstance(one.get("dur"), int | float):
            one["dur"] = round(abs(one["dur"] + chance.uniform(-20, 20)), 3)


def nest(chance: random.Random, document: Document) -> None:
    """Put an event inside another one, across its end, or exactly onto it."""
    spans = [one for one in _spans(document) if isinstance(one.get("dur"), int | float)]
    if len(spans) < 2:
        return
    inner, outer = chance.sample(spans, 2)
    inner["ts"] = round(outer["ts"] + chance.choice([0, 0.25, 0.5, 1]) * outer["dur"], 3)
    if chance.random() < 0.5:
        inner["dur"] = outer["dur"]
    if chance.random() < 0.5:
        inner["pid"], inner["tid"] = outer.get("pid"), outer.get("tid")


def drop(chance: random.Random, document: Document) -> None:
    """Leave events out."""
    gone = {id(one) for one in _some(chance, document)}
    document["traceEvents"] = [one for one in document["traceEvents"] if id(one) not in gone]


def drop_tail(chance: random.Random, document: Document) -> None:
    """Leave out what begins behind a moment, or before it."""
    spans = _spans(document)
    if spans:
        at, is_tail = chance.choice(spans)["ts"], chance.random() < 0.6
        gone = {id(one) for one in spans if (one["ts"] > at) == is_tail}
        document["traceEvents"] = [one for one in document["traceEvents"] if id(one) not in gone]


def repeat(chance: random.Random, document: Document) -> None:
    """Have events twice, as they are or a little later."""
    by = chance.choice([0, 0, 1, 1000, 1e5])
    for one in _some(chance, document):
        again = copy.deepcopy(one)
        again["ts"] = again["ts"] + by
        document["traceEvents"].insert(chance.randrange(len(document["traceEvents"]) + 1), again)


def reorder(chance: random.Random, document: Document) -> None:
    """Put events into another order in the file."""
    events = document["traceEvents"]
    match chance.randrange(3):
        case 0:
            chance.shuffle(events)
        case 1:
            events.reverse()
        case _ if len(events) > 1:
            first, second = chance.sample(range(len(events)), 2)
            events[first], events[second] = events[second], events[first]


def rename(chance: random.Random, document: Document) -> None:
    """Call events something else: a name that dtbench knows, one that acts where it is printed, or each other's."""
    spans = _spans(document)
    if spans:
        name = chance.choice([*NAMES, *(one.get("name") for one in chance.sample(spans, min(len(spans), 25)))])
        for one in _some(chance, document):
            one["name"] = name


def decorate(chance: random.Random, document: Document) -> None:
    """Put what acts on a terminal, or markup, into names that keep their meaning."""
    extra = chance.choice(
        ["\x1b[2J", "\u202e", "\x07", "[/]", "\r", "\n", "\x85", "\u2028", "<b>", "|", "`", "\u200b", "日本"]
    )
    for one in _some(chance, document):
        name = one.get("name")
        if isinstance(name, str):
            place = chance.choice([0, len(name), chance.randrange(len(name) + 1)])
            one["name"] = f"{name[:place]}{extra}{name[place:]}"


def recategorize(chance: random.Random, document: Document) -> None:
    """Return events another category."""
    category = chance.choice(CATEGORIES)
    for one in _some(chance, document):
        one["cat"] = category


def move(chance: random.Random, document: Document) -> None:
    """Put events onto another lane, thread, device or process."""
    key = chance.choice(["tid", "tid", "pid"])
    lane = chance.choice([7, 20, 21, 10, 11, 0, 1, "stream 7", "7", 7.0, -1, None, "[TP00] 0", "a\x1b[2J", 2**40])
    for one in _some(chance, document):
        one[key] = lane


def argue(chance: random.Random, document: Document) -> None:
    """Say something else of events, or no longer say it."""
    said = [one for one in _some(chance, document) if isinstance(one.get("args"), dict)]
    for one in said[:1]:
        name = chance.choice([*one["args"], *ARGUMENTS])
        value = chance.choice([*VALUES, *map(_Raw, NUMBERS), 0, 1, 2, 3, chance.randrange(40)])
        is_dropped = chance.random() < 0.3
        for other in said:
            other["args"].pop(name, None) if is_dropped else other["args"].update({name: value})


def retie(chance: random.Random, document: Document) -> None:
    """Change what ties events to each other: ids of launches, numbers of collectives and of operators."""
    name = chance.choice(["correlation", "correlation", "Seq", "Sequence number", "External id"])
    tied = [one for one in _spans(document) if isinstance(one.get("args"), dict) and name in one["args"]]
    if not tied:
        return
    values = [one["args"][name] for one in tied]
    match chance.randrange(4):
        case 0:
            chance.shuffle(values)
        case 1:
            values = values[1:] + values[:1]
        case 2:
            values = [chance.choice(values)] * len(values)
        case _:
            values = [value + 1 if isinstance(value, int) else value for value in values]
    for one, value in zip(tied, values, strict=True):
        one["args"][name] = value


def add_rank(chance: random.Random, document: Document) -> None:
    """Have all events once more: of another process, or on another device, as a merger writes them."""
    by = chance.choice([0, 3.0, 1e4, -1e3])
    more = copy.deepcopy([one for one in document["traceEvents"] if isinstance(one, dict)])
    keeps_ids, keeps_host = chance.random() < 0.3, chance.random() < 0.3
    for one in more:
        pid, args = one.get("pid"), one.get("args")
        if isinstance(pid, int) and not (keeps_host and pid > 5):
            one["pid"] = pid + 1
        if isinstance(one.get("ts"), int | float):
            one["ts"] = one["ts"] + by
        if isinstance(args, dict) and isinstance(args.get("correlation"), int) and not keeps_ids:
            args["correlation"] = args["correlation"] + 100_000
    document["traceEvents"] += more


def set_number(chance: random.Random, document: Document) -> None:
    """Put something odd in place of a number."""
    for one in _some(chance, document)[: chance.choice([1, 1, 3, 50])]:
        one[chance.choice(["ts", "dur", "ts", "dur", "pid", "tid", "id"])] = _Raw(chance.choice(NUMBERS))


def set_phase(chance: random.Random, document: Document) -> None:
    """Make another kind of event."""
    phase = chance.choice(["X", "B", "E", "s", "f", "i", "M", "Q", "XX", "", None, 5, "t"])
    for one in _some(chance, document)[:3]:
        one["ph"] = phase


def add_odd(chance: random.Random, document: Document) -> None:
    """Put something odd among the events."""
    odd: object = chance.choice(
        [5, None, [], {}, "x", {"ph": "X"}, [[{}]], {"ph": "X", "name": "a", "ts": 1, "dur": 1}, {"ph": "s"}]
    )
    document["traceEvents"].insert(chance.randrange(len(document["traceEvents"]) + 1), odd)


def forget_key(chance: random.Random, document: Document) -> None:
    """Take one key from events."""
    key = chance.choice(["name", "cat", "pid", "tid", "args", "ts", "dur", "ph"])
    for one in _some(chance, document)[: chance.choice([1, 5, 1000])]:
        one.pop(key, None)


def change_top(chance: random.Random, document: Document) -> None:
    """Change what the trace says of itself."""
    if chance.random() < 0.5:
        document["distributedInfo"] = chance.choice(INFOS)
        return
    name = chance.choice([*TOPS, *document])
    if name in TOPS and chance.random() < 0.6:
        document[name] = chance.choice(TOPS[name])
    elif name != "traceEvents" or chance.random() < 0.1:
        document.pop(name, None)
        document.setdefault("traceEvents", [])


def renumber_steps(chance: random.Random, document: Document) -> None:
    """Return steps other numbers, the same ones, or none."""
    steps = [one for one in _spans(document) if str(one.get("name")).startswith("ProfilerStep#")]
    name = chance.choice(["ProfilerStep#5", "ProfilerStep#999999999999999999", "train_step", "ProfilerStep*"])
    for one in chance.sample(steps, chance.randint(0, len(steps))):
        one["name"] = name


MEANINGS: Final[Sequence[Mutation]] = (
    *(
        shift,
        shift,
        stretch,
        stretch,
        jitter,
        jitter,
        nest,
        nest,
        drop,
        drop,
        drop_tail,
        repeat,
        reorder,
        rename,
        rename,
    ),
    *(decorate, recategorize, move, move, argue, argue, argue, retie, retie, add_rank, renumber_steps, change_top),
)
"""That leave the JSON of a trace, the more likely ones more than once."""

JSONS: Final[Sequence[Mutation]] = (set_number, set_number, set_phase, add_odd, forget_key)
"""That leave valid JSON, mostly, of which some is no event."""


def encode(document: object) -> bytes:
    """Write a document as torch would, with raw texts as they are."""
    raw: list[str] = []

    def mark(value: Any) -> Any:
        if isinstance(value, _Raw):
            raw.append(str(value))
            return _MARK % (len(raw) - 1)
        if isinstance(value, dict):
            return {key: mark(one) for key, one in value.items()}
        return [mark(one) for one in value] if isinstance(value, list) else value

    text = json.dumps(mark(document))
    for place, value in enumerate(raw):
        text = text.replace(f'"{_MARK % place}"', value)
    return text.encode()


def damage(chance: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """Flip, cut out, cut off, insert, repeat or move bytes, once to six times; or go on as another file."""
    text = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        chance.choice(_DAMAGES)(chance, text, chance.randrange(len(text) + 1))
    if chance.random() < 0.05:
        other = chance.choice(others)
        text[chance.randrange(len(text) + 1) :] = other[chance.randrange(len(other)) :]
    return bytes(text)


def _flip(chance: random.Random, text: bytearray, place: int) -> None:
    if place < len(text):
        text[place] ^= 1 << chance.randrange(8)


def _cut_out(chance: random.Random, text: bytearray, place: int) -> None:
    del text[place : place + chance.choice([1, 2, 5, 40, 500, 4000])]


def _cut_off(chance: random.Random, text: bytearray, place: int) -> None:
    if chance.random() < 0.3:
        del text[place:]


def _insert(chance: random.Random, text: bytearray, place: int) -> None:
    text[place:place] = chance.choice(_PIECES)


def _insert_noise(chance: random.Random, text: bytearray, place: int) -> None:
    text[place:place] = chance.randbytes(chance.randint(1, 12))


def _repeat_piece(chance: random.Random, text: bytearray, place: int) -> None:
    text[place:place] = text[place : place + chance.randint(1, 2000)]


def _copy_piece(chance: random.Random, text: bytearray, place: int) -> None:
    source, length = chance.randrange(len(text) + 1), chance.randint(1, 300)
    text[place : place + length] = text[source : source + length]


_DAMAGES: Final = (_flip, _flip, _cut_out, _cut_off, _insert, _insert_noise, _repeat_piece, _copy_piece)


def damage_packed(chance: random.Random, content: bytes) -> bytes:
    """Pack with gzip, and cut it, damage it, or put something behind it."""
    packed = gzip.compress(content, 1, mtime=0)
    match chance.randrange(4):
        case 0:
            return packed[: chance.randrange(len(packed))]
        case 1:
            return damage(chance, packed, [packed])
        case 2:
            return packed + chance.choice([packed, b"\0" * 10, b"junk", gzip.compress(b"", mtime=0), packed[:50]])
        case _:
            return packed
