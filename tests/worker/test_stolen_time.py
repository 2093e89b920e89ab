"""How much of the machine others had, from a file that the test writes."""

from pathlib import Path

import pytest

from dtbench.worker.stolen_time import StolenTime


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
