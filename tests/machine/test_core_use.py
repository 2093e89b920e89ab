"""Who had the cores between two looks, on machines that the test makes up."""

from pathlib import Path

import pytest

from dtbench.machine.core_use import CoreWatch, Taker, UseSample
from tests.made_proc import TICK_NS, MadeProc

MS = 1_000_000
SHELL, LAUNCHER, RANK0, RANK1, LOADER, LOOP, KERNEL, HELPER, OLDER = 10, 20, 21, 22, 23, 30, 2, 24, 25
RANKS = (RANK0, RANK1)


class Machine:
    """Two ranks below a launcher below a shell, which also started a busy loop."""

    def __init__(self, root: Path) -> None:
        self.proc = MadeProc(root)
        for pid, parent, command in (
            (SHELL, 1, "bash"),
            (LAUNCHER, SHELL, "dtbench run fsdp2"),
            (RANK0, LAUNCHER, "python -P -m dtbench.worker"),
            (RANK1, LAUNCHER, "python -P -m dtbench.worker"),
            (LOADER, RANK1, "python loader.py"),
            (OLDER, LAUNCHER, "make"),
            (LOOP, SHELL, "python busy.py"),
            (KERNEL, 0, ""),
        ):
            self.proc.put(pid, parent, command, name="kthreadd" if pid == KERNEL else None, cpu_ns=5 * MS)
        for rank in RANKS:
            self.proc.wait(rank, {rank: (0, 0)})
        self.now_ns = 0
        self.watch = CoreWatch(
            roots=frozenset({LAUNCHER}),
            processes=self.proc.tree,
            now_ns=lambda: self.now_ns,
            spent_ns=lambda: self.now_ns // 1000,
        )
        assert self.watch.look(RANKS) is None, "the first look has nothing to hold itself against"

    def look(self, after_ns: int = 100 * MS) -> UseSample:
        self.now_ns += after_ns
        sample = self.watch.look(RANKS)
        assert sample is not None
        return sample


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_time_is_told_apart_by_whose_it_is(machine: Machine) -> None:
    machine.proc.put(HELPER, LAUNCHER, "torch_shm_manager")
    machine.proc.spend(p21=60 * MS, p22=30 * MS, p23=5 * MS, p20=2 * MS, p24=1 * MS, p30=90 * MS, p10=1 * MS, p2=3 * MS)
    sample = machine.look()
    assert (sample.start_ns, sample.end_ns) == (0, 100 * MS)
    assert sample.ranks_ns == 95 * MS, "what a rank started works for it"
    assert sample.own_ns == 3 * MS, "the launcher and its helpers are no others"
    assert sample.others_ns == 91 * MS, "the shell that the launcher was started from is"
    assert sample.kernel_ns == 3 * MS
    assert sample.takers == (
        Taker(pid=LOOP, name="python busy.py", cpu_ns=90 * MS),
        Taker(pid=SHELL, name="bash", cpu_ns=MS),
    )


def test_what_the_launchers_process_had_started_before_is_another(machine: Machine) -> None:
    """A test or a notebook that starts a busy loop, and then ranks."""
    machine.proc.put(51, OLDER, "cc1", cpu_ns=8 * MS)
    machine.proc.put(52, HELPER, "cc1", cpu_ns=4 * MS)
    machine.proc.put(HELPER, LAUNCHER, "torch_shm_manager", cpu_ns=2 * MS)
    machine.proc.spend(p25=20 * MS)
    sample = machine.look()
    assert (sample.others_ns, sample.own_ns) == (28 * MS, 6 * MS)


def test_what_forks_ranks_is_dtbenchs_own_whenever_it_began(tmp_path: Path) -> None:
    server, spare, rank, start = 40, 41, 42, 43
    proc = MadeProc(tmp_path)
    for pid, parent, command in (
        (LAUNCHER, 1, "dtbench catalogue"),
        (server, LAUNCHER, "python -P -m dtbench.launch.forked.server even"),
        (OLDER, LAUNCHER, "make"),
    ):
        proc.put(pid, parent, command, cpu_ns=5 * MS)
    clock = iter(range(0, 1000 * MS, 100 * MS))
    watch = CoreWatch(roots=frozenset({LAUNCHER}), processes=proc.tree, now_ns=lambda: next(clock), spent_ns=lambda: 0)
    watch.look(())
    for pid, parent, command in ((start, LAUNCHER, "python start.py"), (rank, server, "python"), (spare, server, "sh")):
        proc.put(pid, parent, command, cpu_ns=0)
    proc.wait(rank, {rank: (0, 0)})
    proc.spend(p40=30 * MS, p41=4 * MS, p42=50 * MS, p43=2 * MS, p25=7 * MS)
    sample = watch.look((rank,))
    assert sample is not None
    assert (sample.ranks_ns, sample.own_ns, sample.others_ns) == (50 * MS, 36 * MS, 7 * MS)
    assert [one.pid for one in sample.takers] == [OLDER]
    for pid in (rank, start):
        proc.end(pid)
    proc.spend(p40=6 * MS)
    ended = watch.look((rank,))
    assert ended is not None
    assert (ended.own_ns, ended.others_ns) == (6 * MS, 0), "its ranks have ended meanwhile"


def test_what_the_ranks_program_started_is_no_other_whenever_it_began(machine: Machine) -> None:
    machine.watch.roots, machine.watch.programs = frozenset(), frozenset({LAUNCHER})
    machine.proc.spend(p21=60 * MS, p20=2 * MS, p25=20 * MS, p30=9 * MS)
    sample = machine.look()
    assert (sample.ranks_ns, sample.own_ns, sample.others_ns) == (60 * MS, 22 * MS, 9 * MS)


def test_only_what_others_had_while_ranks_stood_ready_is_taken(machine: Machine) -> None:
    machine.proc.spend(p30=90 * MS)
    idle = machine.look()
    assert (idle.others_ns, idle.waited_ns, idle.find_taken_ns()) == (90 * MS, 0, 0)
    machine.proc.spend(p30=90 * MS)
    machine.proc.wait(RANK0, {RANK0: (40 * MS, 10)})
    machine.proc.wait(RANK1, {RANK1: (20 * MS, 10)})
    fought_for = machine.look()
    assert fought_for.waited_ns == 59 * MS, "waking up 20 times takes a millisecond"
    assert fought_for.find_taken_ns() == 59 * MS
    machine.proc.wait(RANK0, {RANK0: (140 * MS, 10)})
    machine.proc.spend(p30=7 * MS)
    among_themselves = machine.look()
    assert among_themselves.find_taken_ns() == 7 * MS, "ranks that wait for each other lose nothing to others"


def test_waking_up_costs_nobody_a_step_on_a_machine_with_cores_to_spare(machine: Machine) -> None:
    machine.proc.spend(p30=100 * MS)
    machine.proc.wait(RANK0, {RANK0: (4 * MS, 100), 99: (30_000, 1)})
    assert machine.look().find_taken_ns() == 0


def test_processes_come_and_go_between_looks(machine: Machine) -> None:
    machine.proc.put(50, SHELL, "cc1", cpu_ns=20 * MS)
    assert machine.look().takers == (Taker(pid=50, name="cc1", cpu_ns=20 * MS),)
    machine.proc.end(50)
    assert machine.look().others_ns == 0
    machine.proc.end(LOOP)
    machine.proc.put(LOOP, LAUNCHER, "helper", cpu_ns=2 * MS)  # the number is given again, to another
    sample = machine.look()
    assert (sample.others_ns, sample.own_ns) == (0, 2 * MS)


def test_a_thread_that_ended_takes_nothing_back(machine: Machine) -> None:
    machine.proc.wait(RANK0, {RANK0: (10 * MS, 0), 77: (50 * MS, 0)})
    assert machine.look().waited_ns == 60 * MS
    (machine.proc.root / str(RANK0) / "task" / "77" / "schedstat").unlink()
    (machine.proc.root / str(RANK0) / "task" / "77").rmdir()
    machine.proc.wait(RANK0, {RANK0: (12 * MS, 0)})
    assert machine.look().waited_ns == 2 * MS


def test_without_schedstat_pressure_tells_and_without_that_what_was_idle(machine: Machine) -> None:
    for rank in RANKS:
        (machine.proc.root / str(rank) / "task" / str(rank) / "schedstat").unlink()
    (machine.proc.root / "pressure").mkdir()
    pressure = machine.proc.root / "pressure" / "cpu"
    pressure.write_text("some total=1000\n")
    machine.proc.tick(busy=0, idle=0)
    assert machine.look().waited_ns is None
    pressure.write_text("some total=31000\n")
    machine.proc.spend(p30=90 * MS)
    assert machine.look().find_taken_ns() == 30 * MS
    pressure.unlink()
    machine.proc.spend(p30=9 * TICK_NS)
    machine.proc.tick(busy=16, idle=4)
    sample = machine.look()
    assert (sample.idle_ns, sample.find_taken_ns()) == (4 * TICK_NS, 5 * TICK_NS)


def test_a_look_that_takes_long_is_not_repeated_soon(machine: Machine) -> None:
    spent = iter((0, 5 * MS, 5 * MS, 5 * MS))
    machine.watch.spent_ns = lambda: next(spent)
    machine.now_ns += 100 * MS
    assert machine.watch.look_if_due(RANKS) is not None
    machine.now_ns += 999 * MS
    assert machine.watch.look_if_due(RANKS) is None, "5 ms are half a percent of a second"
    machine.now_ns += 2 * MS
    assert machine.watch.look_if_due(RANKS) is not None
