"""Take evidence out of traces, one kind at a time: no figure turns into zero, no cause gets surer."""

import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.base.errors import TraceError
from dtbench.report.documents.traces import collective_rows
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.words.trace_words import answer_lines, remark_lines
from dtbench.traces.job.trace_set import TraceSet, gather_ranks
from dtbench.traces.kinds.categories import CALLS
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Trace

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "traces"


def without_launches(trace: Trace) -> Trace:
    return trace.select(~trace.is_one_of(CALLS))


def without_ranges(trace: Trace) -> Trace:
    is_step = trace.is_named(lambda name: name.startswith("ProfilerStep#"))
    is_gloo = trace.is_named(lambda name: name.startswith("gloo:"))
    return trace.select(~trace.is_one_of(("user_annotation",)) | is_step | is_gloo)


def without_steps(trace: Trace) -> Trace:
    return trace.select(~trace.is_named(lambda name: name.startswith("ProfilerStep#")))


def without_operators(trace: Trace) -> Trace:
    return trace.select(~trace.is_one_of(("cpu_op", "python_function")))


def without_host(trace: Trace) -> Trace:
    is_gloo = trace.is_named(lambda name: name.startswith("gloo:"))
    return trace.select(~trace.is_one_of(("cpu_op", "python_function", "user_annotation", *CALLS)) | is_gloo)


def without_sizes(trace: Trace) -> Trace:
    details = {
        event: replace(said, shapes=(), in_elements=None, out_elements=None) for event, said in trace.details.items()
    }
    names = tuple(re.sub(r" bytes=\d+", "", name) for name in trace.names)
    return replace(trace, details=details, names=names)


def without_groups(trace: Trace) -> Trace:
    details = {
        event: replace(said, group=None, group_description=None, group_size=None, ranks=(), seq=None)
        for event, said in trace.details.items()
    }
    return replace(trace, details=details, group_descriptions={}, group_ranks={})


def without_some_kernels(trace: Trace) -> Trace:
    kernels = np.flatnonzero(trace.is_named(lambda name: "nccl" in name.lower()) & trace.is_one_of(("kernel",)))
    gone = np.zeros(len(trace), dtype=np.bool_)
    gone[kernels[::3]] = True
    return trace.select(~gone)


def cut(part: float) -> Callable[[Trace], Trace]:
    """End the file in the middle: events stay as far as it goes, in the order in which the profiler wrote them."""

    def without_end(trace: Trace) -> Trace:
        unread = replace(trace.unread, is_truncated=True)
        return replace(trace.select(np.arange(len(trace)) < round(part * len(trace))), unread=unread)

    return without_end


def cut_without_steps(part: float) -> Callable[[Trace], Trace]:
    return lambda trace: without_steps(cut(part)(trace))


LOSSES: dict[str, Callable[[Trace], Trace]] = {
    "launches": without_launches,
    "ranges": without_ranges,
    "steps": without_steps,
    "operators": without_operators,
    "host": without_host,
    "sizes": without_sizes,
    "groups": without_groups,
    "kernels of collectives": without_some_kernels,
    **{f"end from {part:.0%}": cut(part) for part in (0.3, 0.8, 0.999)},
    **{f"end from {part:.0%} and steps": cut_without_steps(part) for part in (0.95,)},
}


@cache
def read_all(name: str, most: int = 2) -> list[Trace]:
    if (HERE / "recorded" / name).exists():
        return [read_trace(HERE / "recorded" / name)]
    if not SHARED.is_dir():
        pytest.skip("the recorded GPU traces (../shared/traces) are not on this machine")
    if ".tar" not in name:
        return [read_trace(SHARED / name)]
    with tarfile.open(SHARED / name) as archive:
        members = sorted(one for one in archive.getnames() if one.endswith(".json"))
    return [read_trace(TraceSource(SHARED / name, member)) for member in members[:most]]


def answer(traces: Sequence[Trace]) -> TraceSet | None:
    """Return the answer; None: all traces are refused."""
    answers: list[Answer] = []
    for place, trace in enumerate(traces):
        file = TraceFile(TraceSource(Path(f"trace{place}.json"), rank=place))
        try:
            answers.append(Analyzed(file, analyze_trace(trace), trace.rank, trace.world_size, trace.unread))
        except TraceError as error:
            answers.append(Unusable(file, str(error)))
    if all(isinstance(one, Unusable) for one in answers):
        return None
    return gather_ranks(answers)


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every figure of a document by its path; lists of rows by what names them."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from flatten(one, f"{path}.{name}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            key = str(place)
            if isinstance(one, Mapping):
                names = [str(one[name]) for name in ("rank", "step", "purpose", "lane", "group", "name") if name in one]
                key = "/".join(names) or key
            yield from flatten(one, f"{path}[{key}]")
    else:
        yield path, value


# Counts of what is left out, and what a loss may truly turn to nothing.
_MAY_BE_ZERO = re.compile(
    r"uncorrelated|unread|unsized|^\.owners|waiting|unknown_names|names_on_comm|overlap_tax|_unknown_ns|trace_end|"
    r"unexplained|\.count$|other_ns|beside_|unattributed"
)


def figures(traces: TraceSet) -> dict[str, float]:
    document = dict(flatten(traces_document(traces)))
    return {
        path: float(value)
        for path, value in document.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not _MAY_BE_ZERO.search(path)
    }


Causes = dict[tuple[object, ...], tuple[str, Any, Any]]


def causes_of(traces: TraceSet) -> Causes:
    """Return for each collective that ran its cause, its exposed time, and the part of it whose cause is not known."""
    return {
        (row["rank"], row["lane"], row["start_ns"]): (str(row["cause"]), row["exposed_ns"], row["exposed_unknown_ns"])
        for row in collective_rows(traces)
        if isinstance(row["exposed_ns"], int) and row["start_ns"] != "NaN"
    }


def is_surer(before: tuple[str, Any, Any], after: tuple[str, Any, Any]) -> bool:
    """Tell whether time has a cause whose cause was not known; moments that shift a little are no evidence."""
    return bool(before[2] - after[2] > 0.07 * before[1])


RANKS = "v100x8_dlrm_all_ranks.tar.gz"
NAMES = (
    "ddp_2ranks_rank0.json.gz",
    "fsdp2_tp_2x2_rank0.json.gz",
    "a100x8_ddp_rank.json.gz",
    "mi300x_ddp_rank.json.gz",
    "h800_deepep_train.json.gz",
    RANKS,
)


def find_wrong(whole: TraceSet, left: TraceSet, *, loses_purposes: bool) -> Iterator[str]:
    """Say which figures a loss turned into zero, and which times got a cause by it."""
    before, after = figures(whole), figures(left)
    for path in before:
        # A collective may have another purpose for want of evidence; its time is then that one's.
        if before[path] and after.get(path) == 0 and not (loses_purposes and ".purposes[" in path):
            yield f"{path} {before[path]} -> 0"
    causes = causes_of(whole)
    for key, found in causes_of(left).items():
        if key in causes and is_surer(causes[key], found):
            yield f"{key}: {causes[key]} -> {found}"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_taken_away_is_neither_zero_nor_surer(name: str, loss: str) -> None:
    whole, left = answer(read_all(name)), answer([LOSSES[loss](trace) for trace in read_all(name)])
    assert whole is not None
    if left is None:
        return  # refused with a sentence
    wrong = list(find_wrong(whole, left, loses_purposes=loss in ("ranges", "groups", "host")))
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:40]])
    assert answer_lines(left)


@pytest.mark.parametrize("kept", [7, 1])
def test_ranks_that_are_taken_away_make_nothing_zero_and_nobody_surer(kept: int) -> None:
    traces = read_all(RANKS, 8)
    whole, left = answer(traces), answer(traces[:kept])
    assert whole is not None
    assert left is not None
    wrong = list(find_wrong(whole, left, loses_purposes=False))
    assert not wrong, "\n".join(wrong[:40])
    assert not any(one.cause == "skew" for one in left.owners)
    assert left.over_ranks.waiting.straggler is None


@pytest.mark.parametrize("loss", ["launches", "operators", "host", "steps"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_taken_away_is_named(name: str, loss: str) -> None:
    whole, left = answer(read_all(name)), answer([LOSSES[loss](trace) for trace in read_all(name)])
    assert whole is not None
    if left is None or lines_of(left) == lines_of(whole):
        return  # refused, or there was nothing of it to take
    assert set(remark_lines(left)) - set(remark_lines(whole)) or left.uncorrelated != whole.uncorrelated


def lines_of(traces: TraceSet) -> list[str]:
    return [*answer_lines(traces), *remark_lines(traces)]
