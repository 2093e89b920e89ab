"""Ranks without a launcher: the lowest of a machine looks between phases, the others read."""

import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.vocabulary import DeviceKind
from dtbench.machine.core_use import Taker, UseSample
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import UseHeader, read_use
from dtbench.worker.machine.look import MachineLook, RankProcess

UNSEEN = 2**22 + 1
"""Above any process id that Linux gives, by default."""


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    """Of four ranks, the last two of which run on this machine."""
    folder = LaunchFolder(tmp_path / "launch0")
    folder.core_use(2).parent.mkdir(parents=True)
    return folder


@pytest.fixture
def processes() -> list[RankProcess]:
    """The third rank is this process; ranks of other machines have the same numbers."""
    mine = RankProcess.find()
    return [*[mine.model_copy(update={"machine": "another"})] * 2, mine, mine.model_copy(update={"pid": UNSEEN})]


def test_the_lowest_rank_of_a_machine_speaks_for_all_of_its_ranks(
    folder: LaunchFolder, processes: list[RankProcess]
) -> None:
    mine = MachineLook(folder, 2, DeviceKind.CPU, processes)
    mine.look()
    assert math.isnan(mine.find_taken([0], [10])[0]), "after one look nothing is known"
    assert sum(range(10_000))
    mine.look()
    (use,) = read_use(folder)
    assert use.header.ranks == (2, 3)
    (sample,) = use.samples
    assert sample.ranks_ns > 0, "it knows which process each rank is"
    (taken,) = mine.find_taken([sample.start_ns], [sample.end_ns - sample.start_ns])
    assert 0 <= taken <= 1
    of_another_machine = MachineLook(folder, 1, DeviceKind.CPU, processes)
    assert math.isnan(of_another_machine.find_taken([0], [10])[0])


def test_whoever_had_the_cores_so_far_is_named(folder: LaunchFolder) -> None:
    other = MachineLook(folder, 2, DeviceKind.CPU, ())
    assert other.describe_others() == "", "nobody looked"
    sample = UseSample(
        start_ns=0,
        end_ns=100,
        ranks_ns=0,
        own_ns=0,
        others_ns=80,
        kernel_ns=0,
        waited_ns=80,
        busy_ns=None,
        idle_ns=None,
        pressure_ns=None,
        throttled_ns=None,
        takers=(Taker(pid=4711, name="python busy.py", cpu_ns=80),),
    )
    for waited_ns, words in ((80, "python busy.py (pid 4711) took 0.80 of 2 cores"), (1, "")):
        lines = [UseHeader(ranks=(2, 3), cores=2), sample.model_copy(update={"waited_ns": waited_ns})]
        folder.core_use(2).write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
        assert other.describe_others() == words


def test_nobody_else_looks(folder: LaunchFolder, processes: list[RankProcess]) -> None:
    for other in (MachineLook(folder, 3, DeviceKind.CPU, processes), MachineLook(folder, 2, DeviceKind.CPU, ())):
        other.look()
        other.look()
    assert read_use(folder) == ()


def test_a_spawned_rank_tells_its_process_and_the_program_that_spawned_it() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        spawned = pool.submit(RankProcess.find).result(60)
    assert spawned.pid != os.getpid()
    assert spawned.machine == RankProcess.find().machine
    assert os.getpid() in spawned.programs
