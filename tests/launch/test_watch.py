"""Who is blamed for a hang."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind, Phase, Region
from dtbench.launch.watch import PATIENT_TIMEOUT_NS, Beats, Watch, find_hung, find_stopped
from dtbench.store.journal import JournalView, RankState
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import read_use

LATE = 100


def view(
    rank: int,
    step: int,
    region: Region | None,
    *,
    issued: int = 0,
    beat: int = 0,
    state: RankState = RankState.STEPPING,
) -> JournalView:
    return JournalView(rank, 1, state, Phase.MEASURED, step, region, beat, issued, ())


def find_hung_ranks(views: tuple[JournalView | None, ...], now_ns: int) -> tuple[int, ...]:
    """Look at ranks whose beats are on the launcher's clock."""
    beats_ns = tuple(0 if one is None else one.beat_unix_ns for one in views)
    return find_hung(views, beats_ns, now_ns=now_ns, timeout_ns=50)


@pytest.mark.parametrize(
    ("views", "hung"),
    [
        ((view(0, 5, Region.BACKWARD), view(1, 4, Region.OPTIMIZER)), (1,)),
        ((view(0, 5, Region.BACKWARD, issued=9), view(1, 5, Region.BACKWARD, issued=8)), (1,)),
        ((view(0, 5, Region.FORWARD), view(1, 5, Region.BACKWARD)), (0,)),
        ((view(0, 5, Region.FORWARD), view(1, 5, Region.FORWARD)), (0, 1)),
        ((view(0, 5, Region.FORWARD), None), ()),
        ((view(0, 5, Region.FORWARD), view(1, 5, None, state=RankState.DONE)), ()),
        ((view(0, 5, Region.FORWARD, beat=LATE), view(1, 2, None)), ()),
        ((view(0, 9, None, state=RankState.DONE),), ()),
    ],
)
def test_the_rank_that_came_least_far_is_the_one_that_hangs(
    views: tuple[JournalView | None, ...], hung: tuple[int, ...]
) -> None:
    assert find_hung_ranks(views, LATE) == hung


def test_a_rank_that_never_begins_is_given_longer_and_then_blamed() -> None:
    views = (view(0, 0, None, state=RankState.STARTING, beat=50), None)
    assert find_hung_ranks(views, PATIENT_TIMEOUT_NS) == ()
    assert find_hung_ranks(views, PATIENT_TIMEOUT_NS + 51) == (1,)


def test_a_rank_that_hangs_when_all_is_done_is_ended_after_the_longer_time() -> None:
    views = (view(0, 9, None, state=RankState.FINISHING), view(1, 9, None, state=RankState.DONE))
    assert find_hung_ranks(views, PATIENT_TIMEOUT_NS) == ()
    assert find_hung_ranks(views, PATIENT_TIMEOUT_NS + 1) == (0,)


@pytest.mark.parametrize("step_ns", [600 * NS_PER_S, -600 * NS_PER_S, 0])
def test_a_clock_that_is_set_kills_nobody_and_hides_nothing(step_ns: int) -> None:
    """Ranks beat by the time of day; whether they live is told by the launcher's own clock."""
    timeout_ns, day_ns = 300 * NS_PER_S, 10**18
    beats = Beats(2, 0)
    for now_s in range(0, 60, 2):
        day_ns += 2 * NS_PER_S + (step_ns if now_s == 30 else 0)
        views = (view(0, 5, Region.BACKWARD, beat=day_ns), view(1, 5, Region.FORWARD, beat=day_ns))
        now_ns = now_s * NS_PER_S
        assert find_hung(views, beats.see(views, now_ns), now_ns=now_ns, timeout_ns=timeout_ns) == ()
    for silent_s, hung in ((299, ()), (301, (1,))):
        now_ns = (58 + silent_s) * NS_PER_S
        assert find_hung(views, beats.see(views, now_ns), now_ns=now_ns, timeout_ns=timeout_ns) == hung


def test_a_process_that_a_signal_stopped_is_told_from_one_that_waits() -> None:
    waits = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"]
    processes = [subprocess.Popen(waits, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        processes[1].send_signal(signal.SIGSTOP)
        views = tuple(
            dataclasses.replace(view(rank, 5, Region.BACKWARD), pid=process.pid)
            for rank, process in enumerate(processes)
        )
        end_s = time.monotonic() + 10
        while not find_stopped(views) and time.monotonic() < end_s:
            time.sleep(0.01)
        assert find_stopped(views) == (1,)
        assert find_stopped((None, view(1, 5, None))) == (), "nobody's process"
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_what_the_launcher_starts_for_its_ranks_takes_nothing_from_them(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path)
    busy = "import time\nwhile time.process_time() < 30: pass"
    with Watch(folder, ranks=[0], device=DeviceKind.CPU, judge=lambda _: {}, on_look=lambda _: None):
        helper = subprocess.Popen([sys.executable, "-c", busy])
        while not (uses := read_use(folder)) or len(uses[0].samples) < 2:
            time.sleep(0.05)
        helper.kill()
        helper.wait()
    (use,) = read_use(folder)
    assert sum(sample.own_ns for sample in use.samples) > 50_000_000
    assert helper.pid not in {taker.pid for sample in use.samples for taker in sample.takers}
