"""All eight ranks of a recorded job without any metadata: who waits for whom, whatever is done to clocks and events."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.ranks.over_ranks import OverRanks, compare_ranks
from dtbench.traces.reader import read_trace
from dtbench.traces.timeline import RankTimeline
from tests.known import known
from tests.unpack import unpack

ARCHIVE = Path(__file__).parents[4] / "shared" / "traces" / "v100x8_dlrm_all_ranks.tar.gz"
pytestmark = pytest.mark.skipif(
    not ARCHIVE.is_file(), reason="the recorded GPU traces (../shared/traces) are not on this machine"
)
LAST = [0, 0, 0, 0, 0, 0, 0, 3]  # in the five others two or three ranks begin within a tenth of the wait for them
RANK_5_ALONE = [0, 0, 0, 0, 0, 1, 0, 3]  # where a clock that is off by microseconds puts rank 4, 52 of 534 us earlier
FEW_US = 8_000  # ends of one collective differ by 1 to 7 us


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dlrm")
    unpack(ARCHIVE, folder)
    return sorted(folder.rglob("*.json"))


@pytest.fixture(scope="module")
def timelines(paths: list[Path]) -> list[RankTimeline]:
    return [analyze_trace(read_trace(path)).timeline for path in paths]


def waits(compared: OverRanks) -> list[list[int]]:
    return [[one.skew_wait_ns or 0 for one in compared.collectives[rank]] for rank in range(8)]


def last(compared: OverRanks) -> list[int | None]:
    return [one.last for one in compared.waiting.ranks]


def test_nearly_all_time_in_kernels_is_waiting_and_rank_7_is_waited_for(timelines: list[RankTimeline]) -> None:
    compared = compare_ranks(timelines)
    assert [known(one.skew_wait_ns) // 1000 for one in compared.waiting.ranks] == [
        *(5580, 11125, 3280, 9571, 6370, 6041, 3342, 1534)  # "wait_us_by_rank" of expected.json
    ]
    assert sum(one.comm_ns for one in compared.waiting.ranks) == 48_542_000
    assert 0.964 <= compared.waiting.wait_fraction <= 0.967
    assert last(compared) == LAST
    assert compared.waiting.straggler is not None
    assert compared.waiting.straggler.rank == 7
    assert compared.waiting.straggler.caused_wait_ns == 5_565_000  # of the 35.6 ms that others waited until it began
    assert [(one.ranks, one.collectives, one.caused_wait_ns // 1000) for one in compared.waiting.together] == [
        ((2, 6, 7), 1, 10_675),
        ((4, 5), 3, 9_204),
        ((4, 5, 7), 1, 580),
    ]
    assert compared.notes == ()


@pytest.mark.parametrize("rank", range(8))
@pytest.mark.parametrize("offset_ns", [5_000_000, -5_000_000, 86_400_000_000_000])
def test_a_clock_that_is_off_changes_waits_by_a_few_microseconds(
    jobs: Any, timelines: list[RankTimeline], rank: int, offset_ns: int
) -> None:
    moved = [jobs.shift(one, offset_ns) if one.rank == rank else one for one in timelines]
    compared = compare_ranks(moved)
    assert np.abs(np.subtract(waits(compared), waits(compare_ranks(timelines)))).max() <= FEW_US
    assert 0.964 <= compared.waiting.wait_fraction <= 0.967
    assert last(compared) in (LAST, RANK_5_ALONE)
    assert len(say_notes(compared.notes)) == 1
    assert say_notes(compared.notes)[0].startswith(f"rank {rank}: its clock is ")


@pytest.mark.parametrize("offset_ns", [0, 5_000_000])
@pytest.mark.parametrize("rank", range(8))
def test_one_event_missing_anywhere_changes_no_other_collective(
    jobs: Any, timelines: list[RankTimeline], rank: int, offset_ns: int
) -> None:
    whole = compare_ranks(timelines)
    for lost in range(8):
        damaged = [jobs.shift(jobs.drop(one, lost), offset_ns) if one.rank == rank else one for one in timelines]
        compared = compare_ranks(damaged)
        expected, found = waits(whole), waits(compared)
        del expected[rank][lost]
        for other in range(8):
            if other != rank:
                assert compared.collectives[other][lost].skew_wait_ns is None  # that rank may have been the last one
                expected[other][lost] = found[other][lost] = 0
        assert (
            max(abs(a - b) for mine, own in zip(expected, found, strict=True) for a, b in zip(mine, own, strict=True))
            <= FEW_US
        )
        if whole.collectives[rank][lost].is_last is False:  # then the others' waits are known, even without its launch
            was_last = [int(whole.collectives[other][lost].is_last or 0) for other in range(8)]
            left = [np.subtract(counts, was_last).tolist() for counts in (LAST, RANK_5_ALONE)]
            assert last(compared) in left  # of that one nobody knows it any more
            for mine, own in zip(whole.waiting.ranks, compared.waiting.ranks, strict=True):
                if mine.rank != rank:
                    assert abs(known(mine.skew_wait_ns) - known(own.skew_wait_ns)) <= 8 * FEW_US


@pytest.mark.parametrize("rank", range(8))
def test_a_kernel_missing_anywhere_changes_neither_the_share_nor_who_is_waited_for(
    jobs: Any, timelines: list[RankTimeline], paths: list[Path], tmp_path: Path, rank: int
) -> None:
    whole = compare_ranks(timelines).waiting
    for lost in range(8):
        damaged = list(timelines)
        damaged[rank] = jobs.shift(read_without_kernel(paths[rank], lost, tmp_path), 5_000_000 * (lost % 2))
        waiting = compare_ranks(damaged).waiting
        assert 0.9635 <= waiting.wait_fraction <= 0.967  # a corrected clock is off by 1.5 us, as it says
        assert [one.last for one in waiting.ranks] in (LAST, RANK_5_ALONE)
        assert (waiting.partial, waiting.launched) == (0, 1)
        for mine, own in zip(whole.ranks, waiting.ranks, strict=True):
            # a clock that rests on the ends of the few all-reduces among them is off by that in each of eight
            assert abs(known(mine.skew_wait_ns) - known(own.skew_wait_ns)) <= 8 * FEW_US


def read_without_kernel(path: Path, lost: int, folder: Path) -> RankTimeline:
    """Read a trace whose file lacks one kernel of a collective; its launch is still there."""
    document = json.loads(path.read_text(encoding="utf-8"))
    kernels = [one for one in document["traceEvents"] if one.get("cat") == "kernel" and "nccl" in one["name"]]
    document["traceEvents"].remove(sorted(kernels, key=lambda one: one["ts"])[lost])
    damaged = folder / path.name
    damaged.write_text(json.dumps(document), encoding="utf-8")
    timeline = analyze_trace(read_trace(damaged)).timeline
    assert len(timeline.collectives) == 7
    assert len(timeline.unseen) == 1
    return timeline
