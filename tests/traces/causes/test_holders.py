"""Who held a collective up: another one on its stream, or one of its process group on any stream."""

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.traces.causes.holders import Holders, find_holders
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

SAID = '{"Collective name": "%s", "Process Group Name": "%s", "dtype": "Float"}'
NOBODY = Holders(0, None)
HELD = Holders(6000, 0)  # from its issue to its start


@pytest.mark.parametrize(
    ("streams", "groups", "operations", "second"),
    [
        (("20", "20"), ("0", "0"), ("allreduce", "allgather"), HELD),
        (("20", "21"), ("0", "0"), ("allreduce", "allgather"), HELD),
        (("20", "20"), ("0", "1"), ("allreduce", "allgather"), HELD),
        (("20", "21"), ("0", "1"), ("allreduce", "allgather"), NOBODY),
        (("20", "21"), ("0", "0"), ("send", "recv"), NOBODY),
    ],
    ids=["stream and group", "group", "stream", "neither", "a pair's own communicator"],
)
def test_a_stream_and_a_communicator_serve_one_after_another(
    draw: Callable[..., Path],
    streams: tuple[str, str],
    groups: tuple[str, str],
    operations: tuple[str, str],
    second: Holders,
) -> None:
    said = [SAID % pair for pair in zip(operations, groups, strict=True)]
    path = draw(f"""
        call cudaLaunchKernel     @1            |c a   b              |
        kernel gemm               @7            | ccc                 |
        kernel ncclDevKernel_One  @{streams[0]} |    aaaaaaaa         | {said[0]}
        kernel ncclDevKernel_Two  @{streams[1]} |            bbbb     | {said[1]}
        """)
    timeline = analyze_trace(read_trace(path)).timeline
    assert [one.issue_ns for one in timeline.collectives] == [2000, 6000]
    first, found = find_holders(timeline)
    assert first == NOBODY
    assert found == second


def test_what_holds_both_the_stream_and_the_communicator_counts_once(draw: Callable[..., Path]) -> None:
    said = SAID % ("allreduce", "0")
    path = draw(f"""
        call cudaLaunchKernel       @1  |abcd                 |
        kernel gemm                 @7  |                  ddd|
        kernel ncclDevKernel_One    @20 |    aaaa             | {said}
        kernel ncclDevKernel_Two    @21 |        bbbbb        | {said}
        kernel ncclDevKernel_Three  @20 |             ccc     | {said}
        """)
    assert find_holders(analyze_trace(read_trace(path)).timeline)[2] == Holders(9000, 1)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ('{"Collective name": "allreduce"}', '{"Collective name": "allreduce"}', Holders(0, None, 6000)),
        (SAID % ("allreduce", "0"), '{"Collective name": "allreduce"}', Holders(0, None, 6000)),
        (SAID % ("allreduce", "0"), '{"Collective name": "send"}', NOBODY),
        (
            '{"Collective name": "allreduce", "Group size": 8}',
            '{"Collective name": "allreduce", "Group size": 2}',
            NOBODY,
        ),
    ],
    ids=["neither is named", "one is named", "a pair's own communicator", "unlike sizes"],
)
def test_two_of_one_communicator_are_not_told_where_no_group_is_named(
    draw: Callable[..., Path], first: str, second: str, found: Holders
) -> None:
    path = draw(f"""
        call cudaLaunchKernel       @1  |c a   b              |
        kernel gemm                 @7  | ccc                 |
        kernel ncclDevKernel_One    @20 |    aaaaaaaa         | {first}
        kernel ncclDevKernel_Two    @21 |            bbbb     | {second}
        """)
    assert find_holders(analyze_trace(read_trace(path)).timeline)[1] == found


def put_off(
    draw: Callable[..., Path], drawing: str, last_starts_ns: list[int | None], skew_ns: list[int]
) -> list[Holders]:
    """Draw one rank, and say when the last rank of each collective began, and how much was exposed before."""
    timeline = analyze_trace(read_trace(draw(drawing))).timeline
    return list(find_holders(timeline, last_starts_ns, skew_ns))


@pytest.mark.parametrize(
    ("last_ns", "skew_ns", "put_off_ns"),
    [
        (4000, 0, 0),  # in time
        (11_000, 0, 0),  # within what ranks scatter by
        (15_000, 0, 11_000),  # of 20 us from its issue to its start
        (15_000, 2000, 9000),  # of which 2 us were exposed, and are told
        (15_000, 11_000, 0),
        (25_000, 0, 20_000),  # the one before had long been done
        (None, 0, 20_000),  # perhaps, where it is known of others
    ],
)
def test_what_held_the_queue_only_because_a_rank_came_late_is_told_apart(
    draw: Callable[..., Path], last_ns: int | None, skew_ns: int, put_off_ns: int
) -> None:
    said, shown = SAID % ("allreduce", "0"), " " * (skew_ns // 1000)
    drawing = f"""
        call cudaLaunchKernel     @1  |c a   bd{" " * 44}|
        kernel gemm               @7  | ccc{" " * 48}|
        kernel gemm               @7  |    {shown}{"d" * (22 - len(shown))}{" " * 26}|
        kernel ncclDevKernel_One  @20 |    {"a" * 22}{" " * 26}| {said}
        kernel ncclDevKernel_Two  @20 |    {" " * 22}{"b" * 20}      | {said}
        """
    found = put_off(draw, drawing, [last_ns, 26_000], [skew_ns, 0])
    assert found == [NOBODY, Holders(20_000, 0, put_off_ns=put_off_ns)]
    assert put_off(draw, drawing, [None, None], [0, 0])[1].put_off_ns == 0  # one rank's trace tells no waits


@pytest.mark.parametrize(
    ("skew_ns", "put_off_ns"),
    [(0, [0, 6000, 3000, 2000]), (5000, [0, 6000, 3000, 0]), (14_000, [0, 0, 0, 0])],
)
def test_a_late_rank_puts_a_queue_off_once_in_all(
    draw: Callable[..., Path], skew_ns: int, put_off_ns: list[int]
) -> None:
    """The first waits 14 us for it; those that follow are exposed, and the fourth was issued 2 us before its start."""
    said = SAID % ("allreduce", "0")
    first, shown = " " * 16, " " * (skew_ns // 1000)
    drawing = f"""
        call cudaLaunchKernel       @1  |abce{first[1:]}       d    |
        kernel gemm                 @7  |aa {first}            |
        kernel gemm                 @7  |   {shown}{"e" * (16 - len(shown))}            |
        kernel ncclDevKernel_One    @20 |   {"a" * 16}            | {said}
        kernel ncclDevKernel_Two    @20 |   {first}bbbbbb      | {said}
        kernel ncclDevKernel_Three  @20 |   {first}      ccc   | {said}
        kernel ncclDevKernel_Four   @20 |   {first}         ddd| {said}
        """
    found = put_off(draw, drawing, [17_000, 19_000, 25_000, 28_000], [skew_ns, 0, 0, 0])
    assert [one.put_off_ns for one in found] == put_off_ns


def test_what_ran_beside_is_of_another_communicator(draw: Callable[..., Path]) -> None:
    path = draw("""
        call cudaLaunchKernel       @1  |c a   b              |
        kernel gemm                 @7  | ccc                 |
        kernel ncclDevKernel_One    @20 |    aaaaaaaa         |
        kernel ncclDevKernel_Two    @21 |           bbbb      |
        """)
    assert find_holders(analyze_trace(read_trace(path)).timeline)[1] == NOBODY


def test_a_cause_is_no_surer_where_the_names_of_groups_are_missing(recorded: Path, tmp_path: Path) -> None:
    source = recorded / "two_ranks_one_gpu" / "fsdp2"
    unnamed = tmp_path / "unnamed"
    unnamed.mkdir()
    for path in source.glob("rank*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        (unnamed / path.name[:-3]).write_text(text.replace('"Process Group ', '"No such '))
    told, untold = (sum_causes(folder) for folder in (source, unnamed))
    assert MissingInput.QUEUE not in told
    held_ns = told[Cause.QUEUED] + told[MissingInput.PUT_OFF]  # two ranks that take turns on one device wait most of it
    assert held_ns > untold[Cause.QUEUED] == 0
    assert untold[MissingInput.QUEUE] + untold[MissingInput.PUT_OFF] > 0.9 * held_ns
    assert untold[Cause.BANDWIDTH] < 1.2 * told[Cause.BANDWIDTH]  # clocks are not aligned: less of it is skew
    assert Cause.SERIALIZED not in untold


def sum_causes(folder: Path) -> Counter[Cause | MissingInput]:
    """Sum exposed time by cause, and of what is unknown by the first input that is missing."""
    times_ns = Counter[Cause | MissingInput]()
    for one in analyze_traces([folder]).analyses:
        for part in (part for split in one.splits for part in split.parts):
            times_ns[part.missing[0] if part.missing else part.cause] += part.exposed_ns
    return times_ns
