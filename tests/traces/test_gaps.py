"""Gaps of the main compute lane: drawn ones, an oracle that looks at every tick, and recorded traces."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtbench.report.page.trace_page import gap_table
from dtbench.traces.account.gaps import LAUNCH_BOUND_NS, GapPart, GapTime, account_gaps, find_gaps
from dtbench.traces.device.kinds import device_kinds
from dtbench.traces.device.launched import find_launched
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import COMM_WAITS, GAPS
from dtbench.traces.time.coverage import Window
from dtbench.traces.trace import Sparse, Trace, Unread
from tests.known import known, total

US = 1000


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def gaps_of(path: Path) -> GapTime:
    account = analyze(path).accounts.whole.gaps
    assert account is not None
    return account


def nonzero(account: GapTime) -> dict[str, int]:
    """Parts in microseconds, without those that are zero."""
    names = [f"{part}_ns" for part in GapPart]
    return {name.removesuffix("_ns"): getattr(account, name) // US for name in names if getattr(account, name)}


def test_a_gap_is_split_at_the_launch_the_collectives_end_and_the_bound(draw: Callable[..., Path]) -> None:
    account = gaps_of(
        draw("""
        call cudaLaunchKernel            @1   |a.b        c                                                      |
        kernel gemm                      @s7  |  aaa                                                      ccccccc|
        kernel ncclDevKernel_AllGather   @s20 |    bbbbbbbbbbbbbbb                                                |
        """)
    )
    # the gap is [5, 59): launched at 11, the all-gather ends at 19, the bound begins at 39
    assert account.lane == "0/s7"
    assert account.gap_ns == 54 * US
    assert nonzero(account) == {"host_wait": 6, "comm_wait": 8, "unexplained": 20, "launch_gap": 20}
    assert account.other_ns == 20 * US


def test_a_wait_names_its_collective_and_whose_it_is(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#3              @1   |==============================|
        range FSDP::all_gather (layer.1) @1   |  =                           |
        range FSDP::all_gather (layer.2) @1   |             =                |
        call cudaLaunchKernel            @1   |a.b.c...e....f.g              |
        kernel gemm                      @s7  |   aaa      cc e         ggg  |
        kernel ncclDevKernel_AllGather   @s20 |    bbbbbbb    ffffffff       |
        """)
    )
    rows = COMM_WAITS.tabulate([one]).to_dict("records")
    assert [(row["step"], row["owner"], row["purpose"], row["wait_ns"]) for row in rows] == [
        (3, "layer.2", "unshard", 7 * US),
        (3, "layer.1", "unshard", 5 * US),
    ]
    (row,) = GAPS.tabulate([one]).to_dict("records")
    assert (row["step"], row["comm_wait_ns"]) == (3, 12 * US)
    assert row["comm_wait_ns"] == total(purpose.wait_ns for purpose in one.steps[0].purposes)


def test_a_host_that_was_late_because_it_synchronised_is_told(draw: Callable[..., Path]) -> None:
    account = gaps_of(
        draw("""
        call cudaLaunchKernel            @1   |a.             b        |
        call cudaStreamSynchronize       @1   |  ==========            |
        call cudaDeviceSynchronize       @2   | ===================    |
        kernel gemm                      @s7  | aaa             bbbbb  |
        """)
    )
    assert nonzero(account) == {"host_wait": 11, "launch_gap": 2}
    assert account.host_sync_ns == 8 * US


def test_the_device_waits_for_no_host_while_it_computes_on_another_stream(draw: Callable[..., Path]) -> None:
    """Two streams in turns, each launched when it is due: of 12 us the device has nothing to do for 2."""
    account = gaps_of(
        draw("""
        call cudaLaunchKernel            @1   |a.b        c.     |
        kernel gemm                      @s7  |aaaa        ccc   |
        kernel gemm                      @s8  |    bbbbbb        |
        """)
    )
    assert account.gap_ns == 8 * US
    assert nonzero(account) == {"beside_compute": 6, "host_wait": 1, "launch_gap": 1}


@pytest.mark.parametrize(
    ("shown", "launched", "parts"),
    [
        (" " * 30, "c  ", {"host_wait": 2, "launch_unknown": 31, "launch_gap": 3}),  # may have waited inside C++
        ("q  q  q  q  q  q  q  q  q  q  ", "c  ", {"host_wait": 2, "launch_unknown": 31, "launch_gap": 3}),  # asked
        (" " * 20 + "=" * 8 + "  ", "c  ", {"host_wait": 33, "launch_gap": 3}),  # an operator ran meanwhile
    ],
    ids=["silent", "asks", "busy"],
)
def test_a_silent_host_that_launches_when_a_collective_has_ended_may_have_waited_for_it(
    draw: Callable[..., Path], shown: str, launched: str, parts: dict[str, int]
) -> None:
    asks = "".join("=" if letter == "q" else " " for letter in shown)
    operator = "".join("=" if letter == "=" else " " for letter in shown)
    one = analyze(
        draw(f"""
        op c10d::allreduce_              @1   | ==                                                  |
        op aten::sort                    @1   |       {operator}                                    |
        call cudaLaunchKernel            @1   |ab                                  {launched}       |
        call cudaEventQuery              @1   |       {asks}                                        |
        kernel gemm                      @s7  | aa                                    ccccc         |
        kernel ncclDevKernel_AllReduce   @s20 |   bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb                   |
        """)
    )
    account = one.accounts.whole.gaps
    assert account is not None
    assert nonzero(account) == parts
    assert account.comm_wait_ns == (None if "launch_unknown" in parts else 0)
    assert [row.wait_ns for row in one.whole_purposes] == [account.comm_wait_ns]


PERHAPS = {"launch_unknown": 30, "host_wait": 33, "launch_gap": 1}
LATE = {"host_wait": 63, "launch_gap": 1}


@pytest.mark.parametrize(
    ("asks", "thread", "parts"),
    [
        ([10, 35, 60], 1, PERHAPS),
        ([10, 35], 1, PERHAPS),
        ([60], 1, LATE),
        ([10, 35, 60], 2, PERHAPS),
        ([10, 35, 60], 3, LATE),
    ],
    ids=["asked again", "did not ask again", "never asked before the end", "backward's thread", "NCCL's watchdog"],
)
def test_a_host_that_sleeps_between_two_questions_may_have_waited_for_the_collective(
    draw: Callable[..., Path], asks: list[int], thread: int, parts: dict[str, int]
) -> None:
    """As with ``TORCH_NCCL_BLOCKING_WAIT``: it learns of the end later than a call that synchronises would."""
    asked = "".join("=" if place in asks else " " for place in range(70))
    one = analyze(
        draw(f"""
        op c10d::allreduce_              @1   | =                                                                    |
        op aten::mm                      @1   |                                                               ==     |
        call cudaLaunchKernel            @1   |ab                                                              c     |
        op aten::mul                     @2   |==                                                                    |
        call cudaEventQuery              @{thread} |{asked}|
        kernel gemm                      @s7  |a                                                                cc   |
        kernel ncclDevKernel_AllReduce   @s20 |  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb                                      |
        """)
    )
    account = one.accounts.whole.gaps
    assert account is not None
    assert nonzero(account) == parts
    assert [row.wait_ns for row in one.whole_purposes] == [None if "launch_unknown" in parts else 0]


FETCHED = """
        op c10d::allreduce_              @1   | =                                                                  |
        call cudaLaunchKernel            @1   |ab                                                          c       |
        call cudaStreamSynchronize       @1   |{sync:68}|
        kernel gemm                      @s7  | aa                                                             cc  |
        copy Memcpy DtoH                 @s9  |{copy:68}|
        kernel ncclDevKernel_AllReduce   @s20 |   bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb                                   |
        """


@pytest.mark.parametrize(
    ("sync", "copy", "parts", "sync_us"),
    [
        (f"  {'=' * 32}", "", {"host_wait": 27, "comm_wait": 30, "launch_gap": 4}, 1),
        (f"  {'=' * 32}", f"{' ' * 29}==", {"host_wait": 57, "launch_gap": 4}, 31),
        (f"  {'=' * 56}", "", {"host_wait": 57, "launch_gap": 4}, 55),
    ],
    ids=["fetched", "a copy may be it", "it returned late"],
)
def test_a_host_that_sat_until_a_collective_had_ended_waited_for_that(
    draw: Callable[..., Path], sync: str, copy: str, parts: dict[str, int], sync_us: int
) -> None:
    """``.item()`` of what an all-reduce gives; not where something else may have ended the wait."""
    one = analyze(draw(FETCHED.format(sync=sync, copy=copy)))
    account = one.accounts.whole.gaps
    assert account is not None
    assert nonzero(account) == parts
    assert account.host_sync_ns == sync_us * US
    assert [row.wait_ns for row in one.whole_purposes] == [account.comm_wait_ns]


@pytest.mark.parametrize(
    ("launch", "sync_ns"),
    [
        ("cuLaunchKernelEx", 0),
        ("hipExtModuleLaunchKernel", 0),
        ("urEnqueueKernelLaunch", 0),
        ("runFunction - job_prep_and_submit", None),
        ("launchKernel", None),
    ],
)
def test_where_nobody_knows_the_names_of_synchronising_calls_their_time_is_not_known(
    draw: Callable[..., Path], launch: str, sync_ns: int | None
) -> None:
    path = draw(f"""
        call {launch}  @1   |a             b        |
        kernel gemm    @s7  | aa             bbbbb  |
        """)
    account = gaps_of(path)
    assert nonzero(account)["host_wait"]
    assert account.host_sync_ns == sync_ns


@pytest.mark.parametrize(
    ("call", "sat_us"),
    [
        ("cudaEventSynchronize", 10),
        ("cuStreamSynchronize", 10),
        ("hipDeviceSynchronize", 10),
        ("hipMemcpyWithStream", 10),
        ("cudaMemcpy", 10),
        ("cudaMemcpyAsync", 0),
        ("cudaStreamWaitEvent", 0),
    ],
)
def test_calls_that_wait_for_the_device_are_told_from_those_that_return(
    draw: Callable[..., Path], call: str, sat_us: int
) -> None:
    path = draw(f"""
        call cudaLaunchKernel  @1   |a             b        |
        call {call}            @1   |   ==========          |
        kernel gemm            @s7  | aa             bbbbb  |
        """)
    assert gaps_of(path).host_sync_ns == sat_us * US


def test_what_held_the_device_on_other_lanes_is_named_compute_first(draw: Callable[..., Path]) -> None:
    account = gaps_of(
        draw("""
        call cudaLaunchKernel  @1   |ab                                                           |
        kernel gemm            @s7  | aa                                                   bbbbbbb|
        kernel side            @s8  |   ===                                                       |
        kernel ncclKernel      @s20 |     =======================================================|
        copy Memcpy HtoD       @s9  |   =====                                                     |
        kernel later           @s8  |          ==                                                 |
        """)
    )
    # gap from 3 to 54, the bound begins at 34; the collective goes on after the gap: nobody waited for it
    assert nonzero(account) == {"beside_compute": 5, "beside_comm": 26, "launch_gap": 20}


def test_copies_beside_and_time_that_nothing_explains_are_kept_apart(draw: Callable[..., Path]) -> None:
    account = gaps_of(
        draw("""
        call cudaLaunchKernel  @1   |ab                             |
        kernel gemm            @s7  | aa                        bb  |
        copy Memcpy HtoD       @s9  |   ===                         |
        """)
    )
    assert nonzero(account) == {"beside_copy": 3, "unexplained": 1, "launch_gap": 20}


def test_copies_and_collectives_on_the_main_lane_are_its_work(draw: Callable[..., Path]) -> None:
    account = gaps_of(
        draw("""
        call cudaLaunchKernel  @1   |abcd           |
        kernel gemm            @s7  | aa       ddd  |
        copy Memcpy HtoD       @s7  |    bb         |
        kernel ncclKernel      @s7  |      ccc      |
        """)
    )
    assert nonzero(account) == {"launch_gap": 2}


def test_time_before_the_first_and_after_the_last_work_is_a_gap_too(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        call cudaLaunchKernel  @1   |abc             |
        kernel ncclKernel      @s20 | aaa      cccccc|
        kernel gemm            @s7  |     bbbbb      |
        """)
    )
    account = one.accounts.whole.gaps
    assert account is not None
    # in front the gemm, launched at 1, waits for the first collective; nothing follows the gemm
    assert nonzero(account) == {"comm_wait": 3, "launch_gap": 1, "trace_end": 6}
    assert account.gap_ns == 10 * US  # the trace begins at 1
    assert [(one.first_wait_ns, one.first_wait_end_ns) for one in one.collectives] == [(1 * US, 4 * US), (None, None)]
    assert [row.wait_ns for row in one.whole_purposes] == [account.comm_wait_ns]


def test_a_launch_before_the_trace_is_known_by_what_was_launched_after_it(draw: Callable[..., Path]) -> None:
    path = draw("""
        call cudaLaunchKernel  @1   |  c              |
        kernel gemm            @s7  |===       ===  cc|
        kernel ncclKernel      @s20 |   ======        |
        """)
    # the second gemm comes before c on its stream, and c was launched at 2
    assert nonzero(gaps_of(path)) == {"comm_wait": 6, "launch_gap": 3}


def test_a_launch_that_nothing_tells_is_claimed_for_nobody(draw: Callable[..., Path]) -> None:
    path = draw("""
        kernel gemm            @s7  |===                           ===|
        kernel ncclKernel      @s20 |   =======================       |
        """)
    assert nonzero(gaps_of(path)) == {"launch_unknown": 27}


@pytest.mark.parametrize(
    ("calls", "parts"),
    [
        ("a   d   e", {"host_wait": 1, "comm_wait": 8, "launch_gap": 2}),
        ("a   c   e", {"host_wait": 1, "comm_wait": 4, "launch_gap": 2, "launch_unknown": 3}),
        ("ac e     ", {"comm_wait": 9, "launch_gap": 2}),
        ("a   c    ", {"launch_unknown": 11}),
    ],
    ids=["told", "lost", "before the gap", "it may have waited for the host, and that for the collective"],
)
def test_a_gap_whose_launch_is_lost_is_what_it_is_as_early_and_as_late_as_that_may_be(
    draw: Callable[..., Path], calls: str, parts: dict[str, int]
) -> None:
    """Calls are numbered as they are made: that of d came after c and before e."""
    path = draw(f"""
        call cudaLaunchKernel  @1   |{calls}         |
        kernel gemm            @s7  |aaa           ddd|
        kernel ncclKernel      @s20 |  ==========     |
        kernel gemm            @s9  |              cee|
        """)
    assert nonzero(gaps_of(path)) == parts


def test_a_gap_across_a_steps_border_is_cut_there(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1    @1   |=====           |
        step ProfilerStep#2    @1   |     =====      |
        call cudaLaunchKernel  @1   |a    bc         |
        kernel gemm            @s7  | aaa      ccc   |
        kernel ncclKernel      @s20 |      bbb       |
        """)
    )
    table = GAPS.tabulate([one]).set_index("step")
    assert table["gap_ns"].to_dict() == {1: 2 * US, 2: 4 * US}
    assert table["comm_wait_ns"].to_dict() == {1: 0, 2: 3 * US}
    assert table["host_wait_ns"].to_dict() == {1: 2 * US, 2: 0}


def test_a_trace_without_a_device_has_no_gaps_but_rows(recorded: Path) -> None:
    one = analyze(recorded / "ddp_2ranks_rank0.json.gz")
    table = GAPS.tabulate([one])
    assert len(table) == len(one.steps) > 0
    assert table["gap_ns"].isna().all()
    assert COMM_WAITS.tabulate([one]).empty


def test_a_device_that_only_communicates_has_no_main_compute_lane(draw: Callable[..., Path]) -> None:
    assert analyze(draw("kernel ncclKernel @s20 | === |")).accounts.whole.gaps is None


# A tick is a quarter of the bound; every event lies on ticks.
TICK = LAUNCH_BOUND_NS // 4
TICKS = 40
MAIN, SIDE, COMM_LANE, HOST = range(4)
LANES = (("0", "7"), ("0", "8"), ("0", "20"), ("1", "1"))

works = st.lists(
    st.tuples(st.integers(-3, 5), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=7
)
others = st.lists(st.tuples(st.integers(0, TICKS), st.integers(0, 8)), max_size=4)


def build(
    main: list[tuple[int, int, int | None]], side: list[tuple[int, int]], comm: list[tuple[int, int]]
) -> tuple[Trace, dict[str, list[Any]]]:
    """Make a trace: main-lane work as (gap before, length, how long before its start it was launched)."""
    rows: list[tuple[int, int, int, int, int]] = []  # name, lane, start, end, correlation
    now = 0
    drawn = []
    for number, (gap, length, ahead) in enumerate(main, start=1):
        start = max(0, now + gap)  # work of one lane may overlap
        end = start + length
        launched = None if ahead is None else start - ahead
        rows.append((0, MAIN, start, end, number))
        if launched is not None:
            rows.append((1, HOST, launched, launched, number))
        drawn.append((start, end, launched))
        now = end
    drawn.sort(key=lambda work: work[0])
    rows.extend((0, SIDE, start, start + length, 0) for start, length in side)
    for number, (start, length) in enumerate(comm, start=len(main) + 1):
        rows.extend([(2, COMM_LANE, start, start + length, number), (1, HOST, start, start, number)])
    table = np.array(rows, dtype=np.int64)
    correlated = np.flatnonzero(table[:, 4])
    trace = Trace(
        path="drawn",
        rank=0,
        world_size=1,
        names=("gemm", "cudaLaunchKernel", "ncclKernel"),
        categories=("kernel", "cuda_runtime"),
        lanes=LANES,
        name=table[:, 0].astype(np.int32),
        category=(table[:, 0] == 1).astype(np.int16),
        lane=table[:, 1].astype(np.int32),
        start_ns=table[:, 2] * TICK,
        end_ns=table[:, 3] * TICK,
        correlation=Sparse(correlated, table[correlated, 4]),
        details={},
        group_descriptions={},
        unread=Unread(),
    )
    return trace, {"main": drawn, "side": side, "comm": comm}


def part_of_tick(tick: int, drawn: dict[str, list[Any]]) -> str | None:
    """Look at one tick of the main lane, with launches as early and as late as they may be; None: it works."""
    early, late = (part_if_launched(tick, drawn, is_late=is_late) for is_late in (False, True))
    is_told = next((work[2] is not None for work in drawn["main"] if work[0] > tick), True)
    return "launch_unknown" if early != late or (early == "unexplained" and not is_told) else early


def part_if_launched(tick: int, drawn: dict[str, list[Any]], *, is_late: bool) -> str | None:
    """Look at one tick where what is not told was launched as early, or as late, as it may have been."""
    main = drawn["main"]
    if any(start <= tick < end for start, end, _ in main):
        return None
    before = max([0, *(end for start, end, _ in main if start <= tick)])
    later = [work for work in main if work[0] > tick]
    if not later:
        return "trace_end"
    close, _, told = later[0]
    launched = drawn["between"][main.index(later[0])][is_late] if told is None else told
    ends = [start + length for start, length in drawn["comm"] if length and start + length <= close]
    waited = max(ends, default=-1)
    is_beside = any(start <= tick < start + length for start, length in drawn["side"])
    is_early = tick < launched
    may_wait = tick < max((end for end in ends if end <= launched), default=-1)  # of whom no thread is known
    rules = [
        (is_early and is_beside, "beside_compute"),
        (is_early and (may_wait if told is None else is_silent(tick, before, told, drawn)), "launch_unknown"),
        (is_early, "host_wait"),
        (tick < waited and waited > max(before, launched), "comm_wait"),
        (tick >= close - LAUNCH_BOUND_NS // TICK, "launch_gap"),
        (is_beside, "beside_compute"),
        (any(start <= tick < start + length for start, length in drawn["comm"]), "beside_comm"),
    ]
    return next((part for fits, part in rules if fits), "unexplained")


def is_silent(tick: int, before: int, launched: int | None, drawn: dict[str, list[Any]]) -> bool:
    """Tell whether the host had nothing else to show until a collective ended, and launched at once thereafter."""
    spans = [(start + length, start) for start, length in drawn["comm"] if length]
    ended = [span for span in spans if launched is not None and span[0] <= launched]
    if launched is None or not ended:
        return False
    end, issue = max(ended)
    shown = [work[2] for work in drawn["main"] if work[2] is not None] + [start for start, _ in drawn["comm"]]
    silent = max([before, *(time for time in shown if time < end)])
    bound = LAUNCH_BOUND_NS // TICK
    return bool(issue <= silent <= tick < end and launched - end <= bound < end - silent)


@settings(max_examples=300)
@given(main=works, side=others, comm=others)
def test_the_split_agrees_with_looking_at_every_tick(
    main: list[tuple[int, int, int | None]], side: list[tuple[int, int]], comm: list[tuple[int, int]]
) -> None:
    trace, drawn = build(main, side, comm)
    working = sum(end - start for start, end, _ in drawn["main"])
    if not working or working < sum(length for _, length in side):
        return  # another lane is the main one, or none
    nesting = find_nesting(trace)
    kinds = device_kinds(trace, nesting)
    launched = find_launched(trace, nesting)
    earliest_ns, latest_ns = launched.earliest_ns // TICK * TICK, -(-launched.latest_ns // TICK) * TICK
    launched = replace(launched, earliest_ns=earliest_ns, latest_ns=latest_ns)
    events = np.flatnonzero((trace.lane == MAIN) & (trace.name == 0))
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    drawn["between"] = list(zip(earliest_ns[events] // TICK, latest_ns[events] // TICK, strict=True))
    gaps = find_gaps(trace, launched, kinds, analyze_trace(trace).collectives, Window(0, (TICKS + 20) * TICK))
    assert gaps is not None
    for from_tick, until_tick in ((0, 7), (7, 30), (30, TICKS + 20), (0, TICKS + 20)):
        found = account_gaps(gaps, [Window(from_tick * TICK, until_tick * TICK)])[0]
        counted: dict[str, int] = {}
        for tick in range(from_tick, until_tick):
            part = part_of_tick(tick, drawn)
            if part is not None:
                counted[part] = counted.get(part, 0) + 1
        parts = {part: getattr(found, f"{part}_ns") for part in GapPart}
        assert {part: ns // TICK for part, ns in parts.items() if ns} == counted
        assert found.gap_ns == sum(counted.values()) * TICK
        assert found.gap_ns == sum(
            ns or 0 for ns in (found.comm_wait_ns, found.host_wait_ns, found.launch_gap_ns, found.other_ns)
        )
        assert sum(wait.wait_ns or 0 for wait in found.waits) == (found.comm_wait_ns or 0)


FOLDER = Path(__file__).parents[3] / "shared" / "traces"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded GPU traces (../shared/traces) are not on this machine")
@pytest.mark.parametrize(
    ("name", "comm_wait_share"),
    [
        ("a100x8_ddp_rank.json.gz", (0.2, 0.23)),  # the host is late for most of the rest
        ("mi300x_ddp_rank.json.gz", (0.9, 0.92)),
        ("h800_deepep_train.json.gz", (0.2, 0.23)),  # without waits for half an exchange
    ],
)
def test_gaps_of_recorded_traces_add_up_and_almost_none_is_unexplained(
    name: str, comm_wait_share: tuple[float, float]
) -> None:
    trace = read_trace(FOLDER / name)
    one = analyze_trace(trace)
    whole = one.accounts.whole.gaps
    assert whole is not None
    (lane,) = [lane for lane in one.accounts.whole.lanes if lane.lane == whole.lane]
    assert lane.compute_ns == max(known(other.compute_ns) for other in one.accounts.whole.lanes)
    assert whole.gap_ns == known(one.whole.step_ns) - known(lane.busy_ns)
    assert whole.gap_ns == sum(
        ns or 0 for ns in (whole.comm_wait_ns, whole.host_wait_ns, whole.launch_gap_ns, whole.other_ns)
    )
    assert comm_wait_share[0] < known(whole.comm_wait_ns) / whole.gap_ns < comm_wait_share[1]
    assert whole.unexplained_ns + whole.beside_comm_ns < 0.001 * whole.gap_ns
    for step, account in zip(one.steps, one.accounts.steps, strict=True):
        assert account.gaps is not None
        busy = {lane.lane: lane.busy_ns for lane in account.lanes}[account.gaps.lane]
        assert account.gaps.gap_ns + known(busy) == step.overlap.step_ns
        waits_ns = total(purpose.wait_ns for purpose in step.purposes)
        assert known(account.gaps.comm_wait_ns) >= waits_ns  # equal where all launches are known and the lane has begun


def test_what_the_stream_stood_still_for_adds_up_though_a_part_is_not_known_in_some_steps(
    draw: Callable[..., Path],
) -> None:
    """The last step's all-reduce outlives its compute: whether anything waited for it nobody knows."""
    node = "autograd::engine::evaluate_function: "
    traces = analyze_traces(
        [
            draw(f"""
            step ProfilerStep#1            @1 |=============             |
            step ProfilerStep#2            @1 |             =============|
            op aten::mm                    @1 |=            =            |
            op {node}MmBackward0           @2 |   =                      |
            op {node}AccumulateGrad        @2 |    ==                    |
            op c10d::allreduce_            @2 |    =                     |
            op c10d::allreduce_            @1 |                =         |
            range Optimizer.step#Adam.step @1 |       =                  |
            call cudaLaunchKernel          @1 |a      d     e  f         |
            call cudaLaunchKernel          @2 |   bc                     |
            kernel gemm                    @7 | a            e           |
            kernel gemm_backward           @7 |    b                     |
            kernel adam                    @7 |        d                 |
            kernel ncclDevKernel_AllReduce @8 |     ccc         ffffffff |
            """)
        ]
    )
    section = gap_table(traces)
    ((_, _, stood, comm, host, _, launch, other),) = section.words
    assert str(comm).startswith("at least ")
    gaps = [account.gaps for account in traces.analyses[0].accounts.steps]
    assert [gap is not None and gap.comm_wait_ns is None for gap in gaps] == [False, True]
    times_ns = [
        float(number) * (1_000 if unit == "us" else 1)
        for number, unit in (
            str(words).removeprefix("at least ").split() for words in (stood, comm, host, launch, other)
        )
    ]
    assert times_ns[0] == sum(times_ns[1:]) > 0
    assert [note.partition(":")[0] for note in section.said] == ["in a sync", "at least"]


def test_a_step_with_a_wait_that_is_in_no_part_is_left_out_so_that_the_parts_add_up() -> None:
    traces = analyze_traces([Path(__file__).parent / "recorded" / "one_hardware_queue" / "queue1" / "rank0.json"])
    (one,) = traces.analyses
    account = one.accounts.steps[0]
    assert account.gaps is not None
    whole = replace(account.gaps, gap_ns=9_000, comm_wait_ns=4_000, host_wait_ns=5_000, launch_gap_ns=0, other_ns=0)
    doubtful = replace(whole, comm_wait_ns=None)
    steps = tuple(replace(account, gaps=gaps) for gaps in (whole, doubtful))
    section = gap_table(replace(traces, analyses=(replace(one, accounts=replace(one.accounts, steps=steps)),)))
    assert section.words[0][2:5] == ("9.00 us", "4.00 us", "5.00 us")
    assert section.said[1:] == ("rank 0: of the 1 of 2 steps of which all parts are known",)


@pytest.mark.parametrize(
    ("copy", "sat_us"),
    [
        ("Memcpy DtoH (Device -> Pageable)", 10),
        ("Memcpy DtoH (Device -> Pinned)", 0),
        ("Memcpy HtoD (Pageable -> Device)", 0),
        ("Memcpy DtoD (Device -> Device)", 0),
    ],
)
def test_a_copy_into_pageable_memory_synchronises_whatever_its_call_is_named(
    draw: Callable[..., Path], copy: str, sat_us: int
) -> None:
    """``.item()``, ``.cpu()``."""
    path = draw(f"""
        call cudaLaunchKernel  @1   |a             b        |
        call cudaMemcpyAsync   @1   |   cccccccccc          |
        kernel gemm            @s7  | aaaaaaa      bbbbb    |
        copy {copy}  @s7  |           c           |
        """)
    account = gaps_of(path)
    assert (account.host_sync_ns or 0) <= sat_us * US
    assert bool(account.host_sync_ns) == bool(sat_us)


@pytest.mark.parametrize(("copy", "comm_us"), [("Memcpy DtoH (Device -> Pageable)", 30), ("Memcpy DtoD", 0)])
def test_what_a_copy_into_pageable_memory_waited_for_had_ended_when_it_began(
    draw: Callable[..., Path], copy: str, comm_us: int
) -> None:
    """``.item()`` of what an all-reduce gives, in which the host makes the copy for 25 us after that has ended."""
    path = draw(f"""
        op c10d::allreduce_              @1   | =                                                                  |
        call cudaLaunchKernel            @1   |ab                                                             d    |
        call cudaMemcpyAsync             @1   |  cccccccccccccccccccccccccccccccccccccccccccccccccccccccc          |
        kernel gemm                      @s7  | aa                                                             dd  |
        copy {copy}                      @s9  |                                 cccccccccccccccccccccccc           |
        kernel ncclDevKernel_AllReduce   @s20 |   bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb                                   |
        """)
    assert nonzero(gaps_of(path)).get("comm_wait", 0) == comm_us
