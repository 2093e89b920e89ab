"""Who is blamed for a hang."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtbench.launch.watch import PATIENT_TIMEOUT_NS, Watch, find_hung
from dtbench.store.journal import JournalView, RankState
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import read_use
from dtbench.vocabulary import DeviceKind, Phase, Region

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
    assert find_hung(views, now_ns=LATE, started_ns=0, timeout_ns=50) == hung


def test_a_rank_that_never_begins_is_given_longer_and_then_blamed() -> None:
    views = (view(0, 0, None, state=RankState.STARTING, beat=50), None)
    assert find_hung(views, now_ns=PATIENT_TIMEOUT_NS, started_ns=0, timeout_ns=50) == ()
    assert find_hung(views, now_ns=PATIENT_TIMEOUT_NS + 51, started_ns=0, timeout_ns=50) == (1,)


def test_a_rank_that_hangs_when_all_is_done_is_ended_after_the_longer_time() -> None:
    views = (view(0, 9, None, state=RankState.FINISHING), view(1, 9, None, state=RankState.DONE))
    assert find_hung(views, now_ns=PATIENT_TIMEOUT_NS, started_ns=0, timeout_ns=50) == ()
    assert find_hung(views, now_ns=PATIENT_TIMEOUT_NS + 1, started_ns=0, timeout_ns=50) == (0,)


def test_what_the_launcher_starts_for_its_ranks_takes_nothing_from_them(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path)
    busy = "import time\nwhile time.process_time() < 30: pass"
    with Watch(folder, ranks=1, device=DeviceKind.CPU, stall_timeout_ns=10**12, on_look=lambda _: None):
        helper = subprocess.Popen([sys.executable, "-c", busy])
        while not (uses := read_use(folder)) or len(uses[0].samples) < 2:
            time.sleep(0.05)
        helper.kill()
        helper.wait()
    (use,) = read_use(folder)
    assert sum(sample.own_ns for sample in use.samples) > 50_000_000
    assert helper.pid not in {taker.pid for sample in use.samples for taker in sample.takers}
