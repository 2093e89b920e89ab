"""What looks at GPUs mean for steps: which of them others disturbed, who it was, and what held clocks back."""

from pathlib import Path

import pytest

from dtbench.base.vocabulary import Phase
from dtbench.machine.core_use import CoreWatch
from dtbench.machine.gpu_use import GpuWatch
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalWriter, StepTiming
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_launch, read_steps
from dtbench.store.records.run import LaunchRecord, RunStatus, UsedGpu
from dtbench.store.use_file import UseWriter
from tests.made_nvml import MadeGpu, MadeNvml
from tests.made_proc import MadeProc

MS = 1_000_000
RANKS, TRAIN = (21, 22), 30
RECORD = LaunchRecord(
    cell="cell", index=0, status=RunStatus.COMPLETE, started_unix_ns=0, duration_ns=1, reason=None, failures=()
)


class Machine:
    """Two ranks that take three steps of 100 ms on a GPU each, looked at between steps."""

    def __init__(self, root: Path, *gpus: MadeGpu) -> None:
        self.gpus, self._now_ns, self._unix_us = gpus, 0, 1_000_000_000
        self.proc = MadeProc(root / "proc")
        for pid in RANKS:
            self.proc.put(pid, 1, "python -P -m dtbench.worker")
            self.proc.wait(pid, {pid: (0, 0)})
        self.proc.put(TRAIN, 1, "python train.py")
        self.folder = LaunchFolder(root / "launch0")
        for rank, pid in enumerate(RANKS):
            with JournalWriter(self.folder.journal(rank), rank=rank, pid=pid, capacity=3) as journal:
                journal.begin(0)
                for step in range(3):
                    journal.finish_step(StepTiming(step, Phase.MEASURED, step * 100 * MS, 100 * MS, 50 * MS, 0.0))
        watch = GpuWatch(MadeNvml(*gpus), now_unix_ns=lambda: self._unix_us * 1000)
        cores = CoreWatch(frozenset(), self.proc.tree, gpus=watch, now_ns=lambda: self._now_ns, spent_ns=lambda: 0)
        self._writer = UseWriter(self.folder, (0, 1), cores)
        self._writer.look(RANKS)

    def step(self, *shares: dict[int, int]) -> None:
        """Let 100 ms pass, in which processes had so much of 100 of each GPU."""
        self._now_ns += 100 * MS
        self._unix_us += 2_000_000  # past all samples before
        for gpu, percent in zip(self.gpus, shares, strict=True):
            gpu.samples = [(pid, self._unix_us, share) for pid, share in percent.items()]
        self._writer.look(RANKS)

    def finish(self) -> LaunchRecord:
        finish_launch(self.folder, RECORD, ranks=2)
        return read_launch(self.folder)


def test_steps_in_which_others_had_a_gpu_are_disturbed_and_name_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MadeGpu(computing=[RANKS[0]]), MadeGpu(computing=[RANKS[1], TRAIN]))
    machine.step({21: 90}, {22: 90})
    machine.step({21: 90}, {22: 60, TRAIN: 40})
    machine.step({21: 90}, {22: 90, TRAIN: 1})
    record = machine.finish()
    assert read_steps(machine.folder)["taken_fraction"].tolist() == pytest.approx([0, 0.4, 0.01] * 2)
    (taker,) = record.takers
    assert isinstance(taker, UsedGpu), "no process that only had a little of the cores"
    assert (taker.phase, taker.pid, taker.name, taker.gpu) == (Phase.MEASURED, TRAIN, "python train.py", 1)
    assert taker.share == pytest.approx(0.4)
    assert taker.words == f"python train.py (pid 30) had GPU 1 on {taker.host} for 40.0 % of the time"
    assert (record.held_back, record.gpus_unseen) == ((), ())


def test_what_held_clocks_back_is_told_with_how_long(tmp_path: Path) -> None:
    hot = MadeGpu(computing=list(RANKS), reasons=0x20, clock_mhz=1200)
    machine = Machine(tmp_path, hot)
    machine.step({21: 50})
    hot.clock_mhz = 1000
    machine.step({21: 50})
    hot.reasons = 0
    machine.step({21: 50})
    (held,) = machine.finish().held_back
    assert (held.gpu, held.why, held.most_clock_mhz) == (0, "heat", 1980)
    assert held.share == pytest.approx(2 / 3)
    assert held.clock_mhz == pytest.approx(1100)
    assert held.words == f"GPU 0 on {held.host} was held back for 66.7 % of the time by heat, at 1100 of 1980 MHz"


def test_what_is_not_seen_is_said(tmp_path: Path) -> None:
    split = Machine(tmp_path / "split", MadeGpu(computing=[RANKS[0], TRAIN], tells=False))
    outside = Machine(tmp_path / "outside", MadeGpu(computing=[4001, 4002]))
    for machine in (split, outside):
        machine.step({})
    assert split.finish().gpus_unseen == ("the driver does not tell how much of GPU 0 each process had",)
    assert outside.finish().gpus_unseen == (
        "the driver lists no rank on any of them, as where it numbers processes outside of this container",
    )


@pytest.mark.parametrize(("gpus", "unseen"), [(None, ()), ("nvidia-ml-py is not installed",) * 2])
def test_on_cpus_nothing_is_said_of_gpus(tmp_path: Path, gpus: str | None, unseen: tuple[str, ...] | str) -> None:
    machine = Machine(tmp_path)
    now_ns = iter((0, 1, 300 * MS, 300 * MS))
    watch = CoreWatch(frozenset(), machine.proc.tree, gpus=gpus, now_ns=lambda: next(now_ns), spent_ns=lambda: 0)
    writer = UseWriter(machine.folder, (0, 1), watch)
    writer.look(RANKS)
    writer.look(RANKS)
    assert machine.finish().gpus_unseen == ((unseen,) if isinstance(unseen, str) else unseen)
