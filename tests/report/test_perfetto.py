"""Perfetto archives: their manifest against Perfetto's reference, their content against the traces."""

import gzip
import json
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError, TraceError
from dtbench.cli.export import archive_page
from dtbench.report.documents.archive import WrittenArchive
from dtbench.report.documents.archive import document as archive_document
from dtbench.report.documents.traces import collective_rows
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.export.perfetto import ArchivePlan, make_manifest, plan_archive, write_archive
from dtbench.report.page.page import Table
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.reader.find import find_traces
from dtbench.traces.reader.source import TraceSource

GLOO = Path(__file__).parents[1] / "traces" / "recorded"
V100 = Path(__file__).parents[3] / "shared" / "traces" / "v100x8_dlrm_all_ranks.tar.gz"


def make_trace(rank: int, world_size: int, *, ahead_us: float = 0, drift: float = 0) -> dict[str, Any]:
    """Forty all-reduces that end together on all ranks, read on a clock that is ahead and gains."""

    def read(time_us: float) -> float:
        return round(time_us + ahead_us + drift * (time_us - 20_000), 3)

    args = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": world_size, "dtype": "Float"}
    events = []
    for number in range(40):
        start_us, end_us = number * 1000 + 10 * rank + number * number % 7, number * 1000 + 500
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                "pid": 0,
                "tid": 20,
                "ts": read(start_us),
                "dur": round(read(end_us) - read(start_us), 3),
                "args": {**args, "Seq": number, "In msg nelems": 1024 + number, "stream": 20, "device": 0},
            }
        )
    return {"distributedInfo": {"rank": rank, "world_size": world_size}, "traceEvents": events}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write one gzipped trace per rank."""

    def write(ahead_us: Mapping[int, float], **more: Any) -> Path:
        made = tmp_path / "traces"
        made.mkdir()
        for rank, ahead in ahead_us.items():
            trace = make_trace(rank, len(ahead_us), ahead_us=ahead, **more)
            (made / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
        return made

    return write


def plan_of(path: Path) -> tuple[ArchivePlan, TraceSet]:
    traces = analyze_traces([path])
    return plan_archive(traces, find_traces(path).sources), traces


def manifest_of(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        member = tar.extractfile("perfetto_manifest.json")
        assert member is not None
        found: dict[str, Any] = json.load(member)["perfetto_manifest"]
    return found


def events_of(archive: Path, member: str) -> list[dict[str, Any]]:
    with tarfile.open(archive) as tar:
        stream = tar.extractfile(member)
        assert stream is not None
        found: list[dict[str, Any]] = json.load(stream)["traceEvents"]
    return found


def lay_out_as_perfetto(archive: Path) -> dict[str, list[float]]:
    """Return every machine's ends on the merged timeline, ms, as Perfetto's documentation says it is made."""
    manifest = manifest_of(archive)
    with tarfile.open(archive) as tar:
        names = sorted(name for name in tar.getnames() if name != "perfetto_manifest.json")
    by_path = {entry["path"]: entry for entry in manifest["files"]}
    placed = {}
    for name in names:
        clocks = by_path[name].get("clocks", {"sync_to": {"file": names[0]}, "offset_ns": 0})
        assert clocks["sync_to"] == {"file": names[0]}  # the first by name owns the timeline
        ends = [event["ts"] + event["dur"] + clocks["offset_ns"] / 1000 for event in events_of(archive, name)]
        placed[by_path[name]["machine"]["name"]] = ends
    return placed


def test_the_ends_of_collectives_meet_on_the_merged_timeline(folder: Callable[..., Path], tmp_path: Path) -> None:
    plan, _ = plan_of(folder({0: 0, 1: 5_000, 2: -40_000}))
    write_archive(plan, tmp_path / "out.tar")
    placed = lay_out_as_perfetto(tmp_path / "out.tar")
    assert list(placed) == ["rank 1", "rank 0", "rank 2"]  # the first by name is the one furthest ahead
    assert placed["rank 0"] == pytest.approx(placed["rank 1"], abs=0.01)
    assert placed["rank 2"] == pytest.approx(placed["rank 1"], abs=0.01)


def test_offsets_are_those_of_the_analysis_and_never_negative(folder: Callable[..., Path]) -> None:
    plan, traces = plan_of(folder({0: 0, 1: 5_000, 2: -40_000}))
    clocks = traces.over_ranks.clocks.by_rank
    assert any(clock.offset_ns for clock in clocks.values())
    for one in plan.traces:
        assert one.offset_ns == clocks[1].offset_ns - clocks[one.rank].offset_ns >= 0


def test_the_manifest_lists_ranks_in_order_each_a_machine_of_its_own(folder: Callable[..., Path]) -> None:
    plan, _ = plan_of(folder({0: 0, 1: 5_000}))
    assert make_manifest(plan) == {
        "perfetto_manifest": {
            "version": 1,
            "files": [
                {
                    "path": "1_rank0.json",
                    "machine": {"name": "rank 0"},
                    "clocks": {"sync_to": {"file": "0_rank1.json"}, "offset_ns": 5_000_000},
                },
                {"path": "0_rank1.json", "machine": {"name": "rank 1"}},
            ],
        }
    }


def test_traces_stand_in_the_archive_byte_for_byte_and_unzipped(folder: Callable[..., Path], tmp_path: Path) -> None:
    made = folder({0: 0, 1: 0})
    plan, _ = plan_of(made)
    size_bytes = write_archive(plan, tmp_path / "out.tar")
    assert size_bytes == (tmp_path / "out.tar").stat().st_size
    with tarfile.open(tmp_path / "out.tar") as tar:
        for rank in (0, 1):
            stream = tar.extractfile(f"{rank}_rank{rank}.json")
            assert stream is not None
            assert stream.read() == gzip.decompress((made / f"rank{rank}.pt.trace.json.gz").read_bytes())


def test_headers_are_of_the_kind_that_perfetto_reads(folder: Callable[..., Path], tmp_path: Path) -> None:
    plan, _ = plan_of(folder({0: 0, 1: 0}))
    write_archive(plan, tmp_path / "out.tar")
    raw, place, seen = (tmp_path / "out.tar").read_bytes(), 0, []
    while raw[place : place + 512].strip(b"\0"):
        header = raw[place : place + 512]
        assert header[257:265] == b"ustar  \0"  # GNU; Perfetto refuses pax's extra members
        assert header[156:157] == b"0"  # a regular file
        size = int(header[124:136].rstrip(b"\0 "), 8)
        seen.append(header[:100].rstrip(b"\0"))
        place += 512 + -(-size // 512) * 512
    assert seen == [b"perfetto_manifest.json", b"0_rank0.json", b"1_rank1.json"]
    assert raw[place:] == bytes(1024)


def documents(traces: TraceSet) -> tuple[object, object]:
    """Everything that `analyze --json` says, without where the traces are."""

    def without_path(found: object) -> object:
        if isinstance(found, dict):
            return {key: without_path(value) for key, value in found.items() if key not in ("path", "trace", "notes")}
        return [without_path(value) for value in found] if isinstance(found, list) else found

    return (
        without_path(json.loads(json.dumps(traces_document(traces)))),
        without_path(json.loads(json.dumps(list(collective_rows(traces))))),
    )


def test_the_archive_gives_the_numbers_of_the_traces_it_was_made_from(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    plan, traces = plan_of(folder({0: 0, 1: 5_000, 2: -40_000}))
    write_archive(plan, tmp_path / "out.tar")
    again = analyze_traces([tmp_path / "out.tar"])
    assert documents(again) == documents(traces)
    assert again.over_ranks.clocks == traces.over_ranks.clocks
    assert not any("left out" in note for note in say_notes(again.notes))


@pytest.mark.skipif(not V100.exists(), reason=f"no {V100}: the eight ranks of a real job")
def test_eight_real_ranks_read_back_the_same(tmp_path: Path) -> None:
    plan, traces = plan_of(V100)
    write_archive(plan, tmp_path / "out.tar")
    assert documents(analyze_traces([tmp_path / "out.tar"])) == documents(traces)
    assert [one.rank for one in plan.traces] == list(range(8))


@pytest.mark.parametrize("name", ["ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz"])
def test_one_rank_alone_is_archived_as_it_is(name: str, tmp_path: Path) -> None:
    plan, _ = plan_of(GLOO / name)
    write_archive(plan, tmp_path / "out.tar")
    assert manifest_of(tmp_path / "out.tar")["files"] == [{"path": "0_rank0.json", "machine": {"name": "rank 0"}}]
    assert not any("clock" in note for note in plan.notes)


def test_many_ranks_sort_by_name_as_they_sort_by_number(folder: Callable[..., Path]) -> None:
    plan, _ = plan_of(folder(dict.fromkeys(range(12), 0)))
    members = [one.member for one in plan.traces]
    assert members == sorted(members)
    assert members[:2] == ["00_rank0.json", "01_rank1.json"]


def test_ranks_that_are_not_in_step_keep_their_own_times_and_it_is_said(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    made = folder({0: 0, 1: 0})
    other = make_trace(1, 2)
    for number, event in enumerate(other["traceEvents"]):
        event["ts"] += 300 * (number * 7919 % 97)  # no constant explains these
    (made / "rank1.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(other).encode()))
    plan, _ = plan_of(made)
    assert [one.offset_ns for one in plan.traces] == [0, 0]
    archive = WrittenArchive(plan, Path("out.tar"), 1)
    ranks = json.loads(json.dumps(archive_document(archive)))["ranks"]
    told = [(one["clock_offset_ns"], one["clock_drift"]) for one in ranks]
    assert told == [(0, 0.0), (None, None)], "of the other one it is not known"
    (table,) = (block for part in archive_page(archive).parts for block in part.blocks if isinstance(block, Table))
    assert [row[1] for row in table.words] == ["0", "n/a"]
    assert any("not in step" in note or "not known to share a collective" in note for note in plan.notes)


def test_a_rank_that_shares_no_collective_is_not_moved_by_what_others_are(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    for ahead_us in (5_000, -5_000):
        made = folder({0: 0, 1: ahead_us})
        lone = make_trace(2, 3)
        for event in lone["traceEvents"]:
            event["name"], event["args"] = "a_kernel_that_computes", {"stream": 7, "device": 0}
        (made / "rank2.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(lone).encode()))
        plan, _ = plan_of(made)
        assert [one.is_aligned for one in plan.traces] == [True, True, False]
        moved = {one.rank: one.offset_ns for one in plan.traces}
        assert moved[2] == 0
        assert abs(moved[0] - moved[1]) == pytest.approx(5_000_000, abs=10_000)
        assert any(note.startswith("rank 2: no collective tells how far the clock is off") for note in plan.notes)
        shutil.rmtree(made)


def test_a_drift_is_said_since_one_offset_cannot_follow_it(folder: Callable[..., Path]) -> None:
    made = folder({0: 0, 1: 0})
    drifting = make_trace(1, 2, ahead_us=300, drift=2e-3)
    (made / "rank1.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(drifting).encode()))
    plan, _ = plan_of(made)
    assert any("which one offset cannot follow" in note for note in plan.notes)


def test_a_trace_that_is_cut_short_is_left_out_and_the_others_go_in(folder: Callable[..., Path]) -> None:
    made = folder({0: 0, 1: 0, 2: 0})
    cut = made / "rank1.pt.trace.json.gz"
    cut.write_bytes(cut.read_bytes()[:-200])
    plan, _ = plan_of(made)
    assert [one.rank for one in plan.traces] == [0, 2]
    assert any(note.startswith("rank 1 is left out: its trace is cut short") for note in plan.notes)


def test_when_every_trace_is_cut_short_there_is_no_archive(folder: Callable[..., Path]) -> None:
    made = folder({0: 0, 1: 0})
    for file in made.iterdir():
        file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(TraceError, match="every trace is cut short"):
        plan_of(made)


def test_events_that_cannot_be_read_are_announced(tmp_path: Path) -> None:
    text = json.dumps(make_trace(0, 1)).replace('"ph": "X"', '"ph": X', 1)
    (tmp_path / "rank0.json").write_text(text)
    plan, _ = plan_of(tmp_path / "rank0.json")
    assert any(note.startswith("rank 0: 1 event cannot be read") for note in plan.notes)


def test_names_with_odd_characters_do_not_reach_the_archive(folder: Callable[..., Path], tmp_path: Path) -> None:
    made = folder({0: 0, 1: 0})
    for rank, name in enumerate(('<b>&"\n.json', "ü" * 80 + "'; rm -rf.json")):
        (made / f"rank{rank}.pt.trace.json.gz").rename(made / name)
    plan, _ = plan_of(made)
    write_archive(plan, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert tar.getnames() == ["perfetto_manifest.json", "0_rank0.json", "1_rank1.json"]


def test_a_full_disk_is_said_of_the_archive_and_leaves_nothing(folder: Callable[..., Path], tmp_path: Path) -> None:
    plan, _ = plan_of(folder({0: 0, 1: 0}))
    target = tmp_path / "out"
    target.mkdir()
    (target / "out.tar").write_text("before")
    import resource
    import signal

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"out\.tar: cannot be written .*free some space"):
            write_archive(plan, target / "out.tar")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [file.name for file in target.iterdir()] == ["out.tar"]
    assert (target / "out.tar").read_text() == "before"


def test_a_trace_that_is_gone_meanwhile_leaves_no_archive(folder: Callable[..., Path], tmp_path: Path) -> None:
    made = folder({0: 0, 1: 0})
    plan, _ = plan_of(made)
    (made / "rank1.pt.trace.json.gz").unlink()
    with pytest.raises(TraceError, match=r"rank1.*cannot be opened"):
        write_archive(plan, tmp_path / "out.tar")
    assert not list(tmp_path.glob("*.tar")) + list(tmp_path.glob(".*"))


def test_a_trace_is_never_whole_in_memory(tmp_path: Path) -> None:
    events = make_trace(0, 1)["traceEvents"] * 2500
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode(), compresslevel=1))
    plan = ArchivePlan((plan_of(GLOO / "ddp_2ranks_rank0.json.gz")[0].traces[0],), ())
    other = replace(plan.traces[0], rank=0, source=TraceSource(path), member="0_rank0.json", offset_ns=0)
    large = ArchivePlan((other,), ())
    tracemalloc.start()
    size_bytes = write_archive(large, tmp_path / "out.tar")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size_bytes > 25_000_000
    assert peak_bytes < 8_000_000


def test_ranks_of_one_file_have_one_clock_and_are_said_to_be_in_it() -> None:
    """Each of them is written with the whole file, so that its machine shows the others, too."""
    case = Path(__file__).parents[1] / "traces" / "cases" / "one_process_two_devices.json"
    traces = analyze_traces([case])
    plan = plan_archive(traces, find_traces(case).sources)
    assert [one.is_aligned for one in plan.traces] == [True, True]
    assert plan.notes[0].startswith("ranks 0-1 are in one file, which is written whole for each")
    assert not any("no collective tells how far the clock is off" in note for note in plan.notes)
