"""What ``/proc`` says, from folders that the test writes; and that this machine's own can be asked."""

import os
from pathlib import Path

import pytest

from dtbench.machine.processes import AnySystem, Identity, MachineTimes, ProcTree, Turn, name_program, open_processes
from tests.made_proc import TICK_NS, MadeProc


@pytest.fixture
def proc(tmp_path: Path) -> MadeProc:
    return MadeProc(tmp_path)


def test_processes_are_known_by_parent_and_program(proc: MadeProc) -> None:
    proc.put(7, 1, "/usr/bin/cc1 -O2", name="cc1")
    proc.put(8, 7, "python3 train.py", name="a) b (c")
    proc.put(9, 2, "", name="kworker/0:1")
    (proc.root / "self").mkdir()
    tree = proc.tree
    assert sorted(tree.find()) == [7, 8, 9]
    assert tree.identify(7) == Identity(1, "cc1")
    assert tree.identify(8) == Identity(7, "a) b (c")
    assert tree.identify(9) == Identity(2, "kworker/0:1", is_kernel=True)
    assert tree.identify(10) is None


@pytest.mark.parametrize(
    ("name", "command", "said"),
    [
        ("python3", "python3 -m pytest -n 2", "python3 -m pytest"),
        ("python", "python -u /home/me/secret/train.py --token=x", "python train.py"),
        ("python3.11", "python3.11 -c while_True:_pass", "python3.11 -c"),
        ("python", "python -P -m dtbench.worker --order o.json", "a rank of another dtbench run"),
        ("python", "python -W error -X dev -m dtbench", "python -m dtbench"),
        ("python", "python", "python"),
        ("cc1", "cc1 -O2 a.c", "cc1"),
    ],
)
def test_a_program_is_named_without_what_may_be_secret(name: str, command: str, said: str) -> None:
    assert name_program(name, command.split()) == said


def test_what_the_system_does_not_tell_is_none_and_never_zero(proc: MadeProc) -> None:
    proc.put(7, 1, "cc1")
    (proc.root / "7" / "task" / "7").mkdir(parents=True)
    tree = proc.tree
    assert tree.read_turns(7) is None, "a kernel without schedstat"
    assert tree.read_turns(8) == {}, "a process that has gone"
    assert (tree.read_machine(), tree.read_pressure_ns(), tree.read_throttled_ns()) == (None, None, None)
    (proc.root / "stat").write_text("intr 5\n")
    assert tree.read_machine() is None


def test_threads_machine_and_pressure_are_read(proc: MadeProc) -> None:
    proc.put(7, 1, "cc1")
    proc.wait(7, {7: (500, 2), 71: (30, 1)})
    proc.tick(busy=12, idle=30)
    (proc.root / "pressure").mkdir()
    (proc.root / "pressure" / "cpu").write_text("some avg10=0.58 avg60=1.03 total=4669\nfull avg10=0.00 total=7\n")
    tree = proc.tree
    assert tree.read_turns(7) == {7: Turn(500, 2), 71: Turn(30, 1)}
    assert tree.read_machine() == MachineTimes(12 * TICK_NS, 30 * TICK_NS)
    assert tree.read_pressure_ns() == 4_669_000


@pytest.mark.parametrize(
    ("group", "path", "said", "throttled_ns"),
    [
        ("0::/job", "job/cpu.stat", "usage_usec 9\nthrottled_usec 12\n", 12_000),
        ("4:memory:/m\n1:cpu,cpuacct:/job\n0::/", "cpu/job/cpu.stat", "nr_throttled 3\nthrottled_time 12\n", 12),
        ("0::/", "cpu.stat", "usage_usec 9\n", None),
        ("0::/elsewhere", "cpu.stat", "throttled_usec 12\n", None),
    ],
)
def test_a_limit_on_cpu_time_is_read_in_both_versions_of_control_groups(
    proc: MadeProc, group: str, path: str, said: str, throttled_ns: int | None
) -> None:
    (proc.root / "self").mkdir()
    (proc.root / "self" / "cgroup").write_text(group + "\n")
    file = proc.root / "cgroup" / path
    file.parent.mkdir(parents=True)
    file.write_text(said)
    assert proc.tree.read_throttled_ns() == throttled_ns


@pytest.mark.parametrize("system", [open_processes(), AnySystem()], ids=["this", "psutil"])
def test_this_process_finds_itself(system: ProcTree | AnySystem) -> None:
    mine = os.getpid()
    assert mine in set(system.find())
    identity = system.identify(mine)
    assert identity is not None
    assert identity.parent == os.getppid()
    before = system.read_cpu_ns(mine)
    assert before is not None
    assert sum(range(100_000))
    after = system.read_cpu_ns(mine)
    assert after is not None
    assert after >= before > 0
    assert system.read_cpu_ns(2**22 + 1) is None
