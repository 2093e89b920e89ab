"""How much of the machine others had, from a file that the test writes."""

import math
import os
from pathlib import Path

import pytest

from dtbench.machine.stolen_time import StolenClock, StolenTime
from dtbench.worker.loop.clock import HostClock


def write(stat: Path, *, busy: int, idle: int, stolen: int) -> None:
    stat.write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {stolen} 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")


def test_stolen_is_what_others_had_since_the_first_look(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    write(stat, busy=1000, idle=5000, stolen=3000)
    stolen = StolenTime(stat)
    assert stolen.read_fraction() is None
    write(stat, busy=1060, idle=5030, stolen=3010)
    assert stolen.read_fraction() == pytest.approx(0.1)


@pytest.mark.parametrize("said", ["", "cpu 1 2 3 4\n", "intr 1 2 3 4 5 6 7 8 9\n"])
def test_a_system_that_does_not_say_gives_no_number(tmp_path: Path, said: str) -> None:
    stat = tmp_path / "stat"
    assert StolenTime(stat).read_fraction() is None
    stat.write_text(said)
    stolen = StolenTime(stat)
    write(stat, busy=1060, idle=5030, stolen=3010)
    assert stolen.read_fraction() is None


def test_the_clock_of_steps_reads_what_others_have_had_of_all_cores(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    write(stat, busy=1000, idle=5000, stolen=3000)
    clock = StolenClock(stat)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert clock.read_ns() == 3000 * tick_ns
    write(stat, busy=1060, idle=5030, stolen=3004)
    assert clock.read_ns() == 3004 * tick_ns
    cores = os.cpu_count() or 1
    assert clock.give_fraction(3000 * tick_ns, 3004 * tick_ns, 40 * tick_ns) == pytest.approx(4 / (40 * cores))
    assert clock.give_fraction(0, 1000 * tick_ns, tick_ns) == 1.0


def test_a_machine_that_is_nobodys_guest_is_asked_once(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    write(stat, busy=1000, idle=5000, stolen=0)
    clock = StolenClock(stat)
    write(stat, busy=1060, idle=5030, stolen=9)
    assert clock.read_ns() == 0


@pytest.mark.parametrize("said", [None, "", "cpu 1 2 3 4\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3 4 5 6 7 x 9\n"])
def test_what_the_system_does_not_say_is_not_known(tmp_path: Path, said: str | None) -> None:
    stat = tmp_path / "stat"
    if said is not None:
        stat.write_text(said)
    clock = StolenClock(stat)
    assert clock.read_ns() is None
    assert math.isnan(clock.give_fraction(None, None, 5))
    assert math.isnan(clock.give_fraction(0, 0, 0))


def test_each_reading_of_a_step_says_what_others_had_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stolen_ns = iter((1_000, 1_000 + 10_000_000_000_000, None, 7))
    monkeypatch.setattr(StolenClock, "read_ns", lambda _self: next(stolen_ns))
    clock = HostClock()
    clock.start()
    assert clock.stop().stolen_fraction == 1.0
    clock.start()
    assert math.isnan(clock.stop().stolen_fraction)


def test_a_step_right_after_another_begins_with_what_that_one_ended_with(monkeypatch: pytest.MonkeyPatch) -> None:
    stolen_ns, now_ns = iter((0, 10, 10 + 4_000, 50_000, 50_000 + 7_000)), [0]
    monkeypatch.setattr(StolenClock, "read_ns", lambda _self: next(stolen_ns))
    monkeypatch.setattr("dtbench.worker.loop.clock.time.perf_counter_ns", lambda: now_ns[0])
    clock = HostClock()
    given = []
    for pause_ns in (0, 1_000, 3_000_000):
        now_ns[0] += pause_ns
        clock.start()
        now_ns[0] += 10_000
        given.append(clock.stop().stolen_fraction * 10_000 * (os.cpu_count() or 1))
    assert given == pytest.approx([10, 4_000, 7_000]), "what was stolen in the pause of 3 ms is no step's"
