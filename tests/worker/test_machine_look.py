"""Ranks without a launcher: the lowest of a machine looks between phases, the others read."""

import math
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.core_use import Taker, UseSample
from dtbench.store.journal import JournalWriter
from dtbench.store.layout import LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.use_file import UseHeader, read_use
from dtbench.vocabulary import DeviceKind
from dtbench.worker.machine_look import MachineLook


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchFolder:
    """Two ranks of four on this machine, the lowest of which is this process."""
    for name in (LAUNCHER_VARIABLE, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    folder = LaunchFolder(tmp_path / "launch0")
    with JournalWriter(folder.journal(2), rank=2, pid=os.getpid(), capacity=1) as journal:
        journal.begin(0)
    return folder


def test_the_lowest_rank_of_a_machine_speaks_for_all_of_its_ranks(folder: LaunchFolder) -> None:
    mine = MachineLook(folder, 2, DeviceKind.CPU)
    mine.look()
    assert math.isnan(mine.find_taken([0], [10])[0]), "after one look nothing is known"
    assert sum(range(10_000))
    mine.look()
    (use,) = read_use(folder)
    assert use.header.ranks == (2, 3)
    (sample,) = use.samples
    assert sample.ranks_ns > 0, "the journal tells which process the rank is"
    (taken,) = mine.find_taken([sample.start_ns], [sample.end_ns - sample.start_ns])
    assert 0 <= taken <= 1
    assert math.isnan(MachineLook(folder, 1, DeviceKind.CPU, is_launched=True).find_taken([0], [10])[0]), (
        "of another machine"
    )


def test_whoever_had_the_cores_so_far_is_named(folder: LaunchFolder) -> None:
    other = MachineLook(folder, 2, DeviceKind.CPU, is_launched=True)
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


@pytest.mark.parametrize("variable", ["LOCAL_RANK", LAUNCHER_VARIABLE])
def test_nobody_else_looks(folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    other = MachineLook(folder, 2, DeviceKind.CPU)
    other.look()
    other.look()
    assert read_use(folder) == ()


def test_an_own_loop_looks_though_a_launcher_is_somewhere_above(
    folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAUNCHER_VARIABLE, "1")
    own = MachineLook(folder, 2, DeviceKind.CPU, is_launched=False)
    own.look()
    own.look()
    assert len(read_use(folder)) == 1
