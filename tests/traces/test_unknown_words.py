"""Words in dtbench's own ranges that only another version knows: unknown there, counted, and all else stays."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.job.many import analyze_files
from dtbench.traces.job.trace_set import gather_ranks
from dtbench.traces.notes.job import UnknownWords
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.rank.file import TraceFile
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource

TRACE = "ddp_2ranks_rank0.json.gz"


def rewrite(recorded: Path, tmp_path: Path, old: str, new: str, count: int = -1) -> Path:
    """Write a recorded trace of ours as another version might have."""
    text = gzip.decompress((recorded / TRACE).read_bytes()).decode()
    assert old in text
    path = tmp_path / "trace.json"
    path.write_text(text.replace(old, new, count))
    return path


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("axis=replicate async=1 owner=bucket 1", "axis=sharD async=1 owner=bucket 1", 3),
        ("axis=replicate", "axis=expert_data", 9),
        ("seq=17 op=all_reduce bytes=4194304 axis=replicate", "seq=17 op=all_reduce bytes=4194304 axis=9", 1),
    ],
)
def test_an_axis_of_another_version_is_unknown_and_all_else_stays(
    recorded: Path, tmp_path: Path, old: str, new: str, count: int
) -> None:
    known, one = analyze(recorded / TRACE), analyze(rewrite(recorded, tmp_path, old, new))
    assert sum(collective.axis is None for collective in one.collectives) == count
    assert [replace(collective, axis=None) for collective in one.collectives] == [
        replace(collective, axis=None) for collective in known.collectives
    ]
    assert (one.whole, one.whole_purposes, one.steps) == (known.whole, known.whole_purposes, known.steps)
    assert sum(words for _, words in one.unknown_words) == count
    assert known.unknown_words == ()


@pytest.mark.parametrize("new", ["op=all_reduce_coalesced", "op=", "op=Sum"])
def test_of_an_operation_of_another_version_c10ds_operator_says_what_it_is(
    recorded: Path, tmp_path: Path, new: str
) -> None:
    known, one = analyze(recorded / TRACE), analyze(rewrite(recorded, tmp_path, "op=all_reduce", new))
    assert one.collectives == known.collectives
    assert (one.whole_purposes, one.steps) == (known.whole_purposes, known.steps)


def test_an_operation_that_nothing_says_is_unknown_and_its_span_is_found_by_its_size(
    recorded: Path, tmp_path: Path
) -> None:
    path = rewrite(recorded, tmp_path, "op=all_reduce bytes=4194304", "op=fold bytes=4194304")
    path.write_text(path.read_text().replace('"c10d::allreduce_"', '"c10d::fold_"'))
    known, one = analyze(recorded / TRACE), analyze(path)
    assert one.whole == known.whole
    folded = [collective for collective in one.collectives if collective.size_bytes == 4_194_304]
    assert folded
    assert {collective.operation for collective in folded} == {None}
    assert [one.span for one in folded] == [one.span for one in known.collectives if one.size_bytes == 4_194_304]


def test_a_field_of_another_version_is_passed_over(recorded: Path, tmp_path: Path) -> None:
    known = analyze(recorded / TRACE)
    one = analyze(rewrite(recorded, tmp_path, " async=1 owner=", " async=1 device=2 owner="))
    assert (one.collectives, one.steps) == (known.collectives, known.steps)
    assert one.unknown_words == (("device=2", 9),)


@pytest.mark.parametrize("word", ["axis=cell", "op=fold", "bytes=much", "async=maybe", "device=2"])
def test_words_of_another_version_cost_a_device_trace_nothing_else(draw: Callable[..., Path], word: str) -> None:
    fields = {"op": "all_gather", "bytes": "64", "axis": "shard", "async": "1"}
    key, _, value = word.partition("=")

    def trace(name: str, fields: dict[str, str]) -> TraceAnalysis:
        said = " ".join(f"{key}={value}" for key, value in fields.items())
        return analyze(
            draw(
                f"""
                step ProfilerStep#1            @1  |===========|
                range dtbench::region forward  @1  |===========|
                range dtbench::collective group=0 seq=1 {said} owner=gather (x) @1 | ====      |
                op c10d::_allgather_base_      @1  |  ==       |
                call cudaLaunchKernel          @1  |  a   b    |
                kernel ncclDevKernel_AllGather @s7 |   aaaa    |
                kernel gemm                    @s8 |       bb  |
                """,
                name,
            )
        )

    known, one = trace("known.json", fields), trace("other.json", {**fields, key: value})
    for old, new in zip(known.collectives, one.collectives, strict=True):
        assert replace(new, axis=old.axis, size_bytes=old.size_bytes, is_async=old.is_async, above=old.above,
                       purpose=old.purpose) == old  # fmt: skip
    assert (one.whole, known.unknown_words, one.unknown_words) == (known.whole, (), ((word, 1),))


def test_a_size_that_cannot_be_read_is_the_spans(recorded: Path, tmp_path: Path) -> None:
    known = analyze(recorded / TRACE)
    one = analyze(rewrite(recorded, tmp_path, "bytes=4194304", "bytes=4MiB"))
    assert [collective.size_bytes for collective in one.collectives] == [
        collective.size_bytes for collective in known.collectives
    ]
    assert [collective.span for collective in one.collectives] == [collective.span for collective in known.collectives]


def test_a_range_without_a_number_leaves_its_collective_without_one_and_keeps_its_time(
    recorded: Path, tmp_path: Path
) -> None:
    known, one = analyze(recorded / TRACE), analyze(rewrite(recorded, tmp_path, "seq=17", "seq=x7"))
    assert one.whole == known.whole
    (lost,) = [collective for collective in one.collectives if collective.seq is None]
    (same,) = [collective for collective in known.collectives if collective.seq == 17]
    assert (lost.operation, lost.purpose, lost.span, lost.size_bytes) == (
        Operation.ALL_REDUCE,
        Purpose.GRAD_REDUCE,
        same.span,
        same.size_bytes,
    )


def test_a_region_of_another_version_is_no_region(recorded: Path, tmp_path: Path) -> None:
    known, one = analyze(recorded / TRACE), analyze(rewrite(recorded, tmp_path, "region optimizer", "region update"))
    assert one.whole == known.whole
    assert [collective.purpose for collective in one.collectives] == [
        collective.purpose for collective in known.collectives
    ]
    assert {word for word, _ in one.unknown_words} == {"region update"}


def test_a_note_counts_the_words_and_names_them(recorded: Path, tmp_path: Path) -> None:
    path = rewrite(recorded, tmp_path, "axis=replicate", "axis=repliCate", 1)
    traces = gather_ranks(analyze_files([TraceFile(TraceSource(path))], workers=1))
    (note,) = map(str, pick_notes(traces.notes, UnknownWords))
    assert note.startswith("1 word in dtbench's own ranges is not known to this version (axis=repliCate)")
    known = gather_ranks(analyze_files([TraceFile(TraceSource(recorded / TRACE))], workers=1))
    assert not pick_notes(known.notes, UnknownWords)
