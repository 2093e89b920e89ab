"""What any answer about traces must be, held against the answer, and against a count that Python's ``json`` makes.

An account adds up; what was left out is counted; what is not known is nowhere a number; nothing acts where it is shown.
"""

import contextlib
import gzip
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from dtbench.base.errors import DtbenchError
from dtbench.cli.analyze import print_traces, print_traces_as_json
from dtbench.cli.console import print_error
from dtbench.report.page.page import words_of
from dtbench.report.page.trace_page import time_table
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource
from tests.fuzz.small_traces import iterate_events
from tests.fuzz.tries import Outcome, find_wrong_words

_SPANNING: Final = ("Trace", "Traces", "Spans")
_OTHER_PHASES: Final = frozenset("BEiICbnetPNODMRcvVa()STpF")
_ON_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "mtia_ccp_events"})
_NCCL: Final = "ncclDevKernel_"
_GLOO: Final = re.compile(r"gloo:(?:all_reduce|all_gather|broadcast|reduce_scatter)$")
_LEFT_OUT: Final = re.compile(r"in no number|left out|belongs? to no process|clock may have been set")
_BEYOND_EVENTS: Final = ("arrow without a time", "text behind the end", "gzip checksum does not fit")
"""Reasons of what is counted as unread, and is no complete event."""

_PARTS: Final = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_CELLS: Final = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_GAP_PARTS: Final = ("comm_wait_ns", "host_wait_ns", "launch_gap_ns", "other_ns")

Window = Mapping[str, Any]


def judge_traces(target: Path) -> Outcome:
    """Have a trace, or a folder of them, analysed, printed and written as JSON."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            traces = analyze_traces([target], workers=1)
        except DtbenchError as error:
            print_error(str(error))
            return Outcome("refused", (*find_wrong_words(said.getvalue()), *_lack_words(said.getvalue())))
        print_traces(traces)
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        print_traces_as_json(traces)
    document = json.loads(written.getvalue(), parse_constant=_refuse_constant)
    wrong = [*find_wrong_words(said.getvalue()), *find_wrong_numbers(document), *_find_wrong_cells(traces, document)]
    for path in sorted(target.iterdir()) if target.is_dir() else [target]:
        wrong += find_lost_events(path, document)
    return Outcome("answered", tuple(wrong))


def _refuse_constant(name: str) -> object:
    raise AssertionError(f"JSON has {name}")


def _lack_words(said: str) -> list[str]:
    return [] if len(said.strip()) > 20 else [f"refused in too few words: {said!r}"]


def find_wrong_numbers(document: Mapping[str, Any]) -> Iterator[str]:
    """Say which numbers of a document contradict each other."""
    stepped_ns, whole_ns, any_steps = 0, 0, False
    for rank in document["ranks"]:
        mine = [one for one in document["collectives"] if one["rank"] == rank["rank"]]
        windows = [("whole", {**rank["whole"], "step_ns": rank["whole"]["window_ns"]})]
        windows += [(f"step {step['step']}", step) for step in rank["steps"]]
        for name, window in windows:
            yield from (f"rank {rank['rank']}, {name}: {wrong}" for wrong in _find_wrong_window(window))
        yield from (f"rank {rank['rank']}: {wrong}" for wrong in _find_wrong_shares(mine, rank["whole"]))
        stepped_ns += sum(_decided_ns(step) for step in rank["steps"])
        whole_ns += _known(rank["whole"], "exposed_comm_ns") or 0
        any_steps |= any(step["step_ns"] != "NaN" for step in rank["steps"])
    yield from _find_wrong_owners(document["owners"], stepped_ns if any_steps else whole_ns)


def _decided_ns(step: Window) -> int:
    """Return the exposed communication of a step of which it is known of all whether it was hidden; else nothing."""
    exposed_ns = _known(step, "exposed_comm_ns")
    return 0 if exposed_ns is None or step["hidden_comm_ns"] == "NaN" else exposed_ns


def _known(row: Mapping[str, Any], name: str) -> int | None:
    return None if row[name] == "NaN" else int(row[name])


def _find_wrong_window(window: Window) -> Iterator[str]:
    yield from _find_wrong_times(window)
    names = ("step_ns", "comm_ns", "hidden_comm_ns", "exposed_comm_ns")
    step_ns, comm_ns, hidden_ns, exposed_ns = (_known(window, name) for name in names)
    if comm_ns is not None and hidden_ns is not None and exposed_ns is not None and hidden_ns + exposed_ns != comm_ns:
        yield f"hidden {hidden_ns} and exposed {exposed_ns} do not add up to {comm_ns}"
    yield from _find_wrong_fraction(window, "hidden_fraction", hidden_ns, comm_ns)
    yield from _find_wrong_fraction(window, "exposed_step_fraction", exposed_ns, step_ns)
    yield from _find_wrong_sums(window, {"hidden_ns": hidden_ns, "exposed_ns": exposed_ns})
    yield from _find_wrong_lanes(window["lanes"], step_ns)
    yield from _find_wrong_gaps(window["gaps"])


def _find_wrong_times(window: Window) -> Iterator[str]:
    """Say which times of a window are none, and whether its parts add up to it."""
    times = {name: time_ns for name, time_ns in window.items() if name.endswith("_ns") and time_ns != "NaN"}
    if any(time_ns < 0 for time_ns in times.values()):
        yield f"negative: {times}"
    if "step_ns" not in times:
        if times.keys() - {"unattributed_ns", "comm_ns"}:
            yield f"times of a window of which no length is known: {times}"
        return
    if max(times.values()) > times["step_ns"]:
        yield f"longer than the window: {times}"
    if times.keys() >= {*_PARTS} and sum(times[name] for name in _PARTS) != times["step_ns"]:
        yield f"parts do not add up to the window: {times}"


def _find_wrong_sums(window: Window, totals: Mapping[str, int | None]) -> Iterator[str]:
    """Say where purposes or groups do not add up to the window."""
    for rows in ("purposes", "groups"):
        for part, total_ns in totals.items():
            parts = [_known(row, part) for row in window[rows]]
            if total_ns is not None and None not in parts and sum(one or 0 for one in parts) != total_ns:
                yield f"{part} of {rows} {parts} do not add up to {total_ns}"


def _find_wrong_gaps(gaps: Any) -> Iterator[str]:
    """Say whether parts of gaps do not add up; where a wait is not known to be for communication, it is in no part."""
    lacking_ns = 0 if gaps == "NaN" else gaps["gap_ns"] - sum(_known(gaps, part) or 0 for part in _GAP_PARTS)
    if lacking_ns < 0 or (lacking_ns and gaps["comm_wait_ns"] != "NaN"):
        yield f"parts of gaps do not add up: {gaps}"


def _find_wrong_fraction(window: Window, name: str, part_ns: int | None, whole_ns: int | None) -> Iterator[str]:
    if window[name] == "NaN":
        return
    if part_ns is None or not whole_ns or not math.isclose(window[name], part_ns / whole_ns, abs_tol=1e-9):
        yield f"{name} is {window[name]}, of {part_ns} and {whole_ns}"


def _find_wrong_lanes(lanes: Sequence[Mapping[str, Any]], step_ns: int | None) -> Iterator[str]:
    for lane in lanes:
        kinds = [_known(lane, kind) for kind in ("compute_ns", "comm_ns", "copy_ns")]
        known_ns = [time_ns for time_ns in kinds if time_ns is not None]
        busy_ns = _known(lane, "busy_ns")
        longest_ns = max(known_ns, default=0) if busy_ns is None else busy_ns
        is_too_long = step_ns is not None and longest_ns > step_ns
        if not max(known_ns, default=0) <= longest_ns <= sum(known_ns) or min(known_ns, default=0) < 0 or is_too_long:
            yield f"impossible lane in {step_ns}: {lane}"


def _find_wrong_shares(mine: Sequence[Mapping[str, Any]], whole: Window) -> Iterator[str]:
    shares = [_known(one, "exposed_ns") for one in mine]
    exposed_ns = _known(whole, "exposed_comm_ns")
    if exposed_ns is not None and None not in shares and sum(one or 0 for one in shares) != exposed_ns:
        yield f"shares of collectives add up to {sum(one or 0 for one in shares)}, not {exposed_ns}"
    for one in mine:
        causes = [name for name in one if name.startswith("exposed_") and name != "exposed_ns"]
        parts, share = [_known(one, name) for name in causes], _known(one, "exposed_ns")
        if share is not None and None not in parts and sum(part or 0 for part in parts) != share:
            yield f"causes {parts} do not add up to {share}"
        if one["start_ns"] != "NaN" and one["end_ns"] < one["start_ns"]:
            yield f"a collective ends before it starts: {one}"


def _find_wrong_owners(owners: Sequence[Mapping[str, Any]], exposed_ns: int) -> Iterator[str]:
    sums: dict[object, int] = defaultdict(int)
    told: dict[object, int] = {}
    for row in owners:
        key = (row["owner"], row["purpose"], row["operation"])
        sums[key] += row["exposed_ns"]
        told[key] = row["owner_exposed_ns"]
    if sums != told:
        yield f"causes of owners {sums} do not add up to {told}"
    if sum(sums.values()) != exposed_ns:
        yield f"owners have {sum(sums.values())} ns of exposed communication, not {exposed_ns}"


def _find_wrong_cells(traces: TraceSet, document: Mapping[str, Any]) -> Iterator[str]:
    """Say which cells of the printed table say a number that is not known, or none that is."""
    rows = [tuple(map(words_of, row)) for row in time_table(traces).rows]
    shown = {(row[0], row[1]): row[2:] for row in rows}
    for rank in document["ranks"]:
        windows = [(str(step["step"]), step) for step in rank["steps"]]
        windows += [("whole", {**rank["whole"], "step_ns": rank["whole"]["window_ns"]})]
        for name, window in windows:
            cells = shown.get((str(rank["rank"]), name), ())
            for cell, part in zip(cells, _CELLS, strict=False):
                if (cell == "n/a") != (window[part] == "NaN") and not (
                    part == "exposed_comm_ns" and not window["comm_ns"]
                ):
                    yield f"rank {rank['rank']}, {name}: {part} is {window[part]} and printed as {cell}"


@dataclass(frozen=True)
class _Counted:
    """What ``json`` finds in a file: events that must be read or counted, and how long each lane was busy.

    Lanes of devices, as a whole and with NCCL; threads, with gloo.
    """

    events: range
    busy_ns: Mapping[str, int]
    nccl_ns: Mapping[str, int]
    gloo_ns: Mapping[str, int]


def find_lost_events(path: Path, document: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a file is neither in a number nor counted; nothing of one that is no strictly valid JSON."""
    ranks = [rank for rank in document["ranks"] if rank["path"] == str(path)]
    counted = _count(path)
    if counted is None or not ranks:
        return
    trace = read_trace(TraceSource(path))
    beyond = sum(trace.unread.events.get(reason, 0) for reason in _BEYOND_EVENTS)
    if len(trace) + trace.unread.count - beyond not in counted.events:
        yield (
            f"{path.name}: {counted.events[-1]} events, {len(trace)} are read and {dict(trace.unread.events)} counted"
        )
    is_said = any(_LEFT_OUT.search(note) for note in document["notes"])
    is_known = all(rank["whole"]["compute_ns"] != "NaN" for rank in ranks)
    if is_known and not (is_said or trace.unread.count or trace.unread.is_truncated):
        yield from _find_lost_lanes(path, counted, [rank["whole"]["lanes"] for rank in ranks])


def _find_lost_lanes(path: Path, counted: _Counted, ranks: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Say which lanes of a device lack time; several processes of a file, a rank each, may share one."""
    for lane, busy_ns in counted.busy_ns.items():
        mine = [row for lanes in ranks for row in lanes if row["lane"] == lane]
        shown_ns = [_known(row, "busy_ns") or 0 for row in mine]
        if sum(shown_ns) < busy_ns or max(shown_ns, default=0) > busy_ns:
            yield f"{path.name}: lane {lane} was busy for {busy_ns} ns, and is said to be for {shown_ns}"
        if sum(_known(row, "comm_ns") or 0 for row in mine) < counted.nccl_ns[lane]:
            yield f"{path.name}: lane {lane} has kernels of NCCL for {counted.nccl_ns[lane]} ns, and {mine} is said"
    for lane, least_ns in counted.gloo_ns.items():
        mine = [row for lanes in ranks for row in lanes if row["lane"] == lane]
        if sum(_known(row, "comm_ns") or 0 for row in mine) < least_ns:
            yield f"{path.name}: thread {lane} ran gloo for {least_ns} ns, and {mine} is said"


def _count(path: Path) -> _Counted | None:
    """Count what is in a file; None: it is no strictly valid JSON, or has a key twice."""
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
        document = json.loads(text, object_pairs_hook=_refuse_twice, parse_float=Decimal, parse_constant=_refuse_nan)
    except (ValueError, ArithmeticError, OSError, EOFError, RecursionError, gzip.zlib.error):  # type: ignore[attr-defined]
        return None
    events = list(iterate_events(document))
    shared = _collect(events, _is_operator)  # a process of its own where it lies on a device's lane
    spans = {lane: mine for lane, mine in _collect(events, _is_on_device).items() if lane not in shared}
    threads = _collect(events, _is_of_gloo)
    kernels = _collect(events, _is_kernel)  # what is called so and is a copy is a copy
    return _Counted(
        events=_count_events(events),
        busy_ns={lane: _unite(mine) for lane, mine in spans.items()},
        gloo_ns={} if spans else {lane: _unite(mine) for lane, mine in threads.items()},
        nccl_ns={lane: _unite([one for one in kernels.get(lane, ()) if one[2].startswith(_NCCL)]) for lane in spans},
    )


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return str(event.get("cat")) == "kernel"


def _is_on_device(event: Mapping[str, Any]) -> bool:
    return event.get("cat") in _ON_DEVICE


def _is_operator(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "cpu_op"


def _is_of_gloo(event: Mapping[str, Any]) -> bool:
    """Tell whether an event is a span of gloo's; not of one that was open at the end, which nobody saw to end."""
    args = event.get("args")
    is_open = isinstance(args, dict) and str(args.get("finished", True)).lower() == "false"
    is_gloos = event.get("cat") in ("cpu_op", "user_annotation") and _GLOO.match(str(event.get("name"))) is not None
    return is_gloos and not is_open


def _collect(
    events: Sequence[object], fits: Callable[[Mapping[str, Any]], bool]
) -> dict[str, list[tuple[int, int, str]]]:
    """Return start, end and name of complete events by lane; of none where one is not written as torch does."""
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for one in events:
        if isinstance(one, dict) and one.get("ph") == "X" and fits(one):
            span = _span_of(one)
            if span is None:
                return {}
            found[f"{one.get('pid')}/{one.get('tid')}"].append(span)
    return found


def _refuse_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse_nan(name: str) -> object:
    raise ValueError(name)


def _count_events(events: Sequence[object]) -> range:
    """Return how many events may be counted: what shows no ``ph``, one after the other, is one text, or each is one."""
    shows_phase = [isinstance(one, dict) and "ph" in one for one in events]
    most = sum(map(_must_be_counted, events))
    texts = sum(not shows and (not place or shows_phase[place - 1]) for place, shows in enumerate(shows_phase))
    return range(most - shows_phase.count(False) + texts, most + 1)


def _must_be_counted(event: object) -> bool:
    """Tell whether an event must be read, or counted as not read: no other phases, no rows that span everything."""
    if not isinstance(event, dict):
        return True
    phase, category = event.get("ph"), event.get("cat")
    if phase == "X":
        return not (isinstance(category, str) and category in _SPANNING)
    return not (isinstance(phase, str) and (phase in ("s", "f") or (len(phase) == 1 and phase in _OTHER_PHASES)))


def _span_of(event: Mapping[str, Any]) -> tuple[int, int, str] | None:
    """Return start, end and name of an event on a device, ns; None: it is not written as torch does."""
    ts, dur, name = event.get("ts"), event.get("dur"), event.get("name")
    if not all(type(event.get(key)) is int for key in ("pid", "tid")) or not isinstance(name, str):
        return None
    if not all(isinstance(time, int | Decimal) and not isinstance(time, bool) for time in (ts, dur)):
        return None
    times = [Decimal(ts) * 1000, Decimal(dur) * 1000]  # type: ignore[arg-type]
    if any(time != time.to_integral_value() or abs(time) > 1 << 60 for time in times):
        return None
    return int(times[0]), int(times[0] + times[1]), name


def _unite(spans: Sequence[tuple[int, int, str]]) -> int:
    """Return how long any of some spans ran."""
    total, end = 0, None
    for start, beyond, _ in sorted(spans):
        begin = start if end is None else max(start, end)
        total += max(0, beyond - begin)
        end = beyond if end is None else max(end, beyond)
    return total
