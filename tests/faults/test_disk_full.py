"""A slice of the full disks; the whole is ``python -m tests.faults.disk_full``."""

import contextlib
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.launch.blame import find_culprits
from dtbench.launch.forked.servers import can_fork
from dtbench.launch.rank_processes import Ended
from dtbench.store.layout import LaunchFolder
from tests.faults.disk_full import PAGE, ROOMY, ROWS, Try, can_mount, fill_once, small_disk
from tests.faults.rows import read_recorded

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(not can_fork() or not can_mount(), reason="small disks are made by Linux's means, as root"),
]

SLICE = range(12)


def test_a_small_disk_is_full_and_goes_away(tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=8192,nr_inodes=100"):
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "file").write_bytes(b"x" * 10_000)
        assert os.path.ismount(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with small_disk(tmp_path, ROOMY):
        (tmp_path / "file").write_bytes(b"x" * 10_000)


@pytest.mark.parametrize("log", ["", "RuntimeError: what torch makes of it\n"])
def test_a_rank_whose_last_words_had_no_room_ended_on_a_full_disk(tmp_path: Path, log: str) -> None:
    with small_disk(tmp_path, f"size={16 * PAGE},nr_inodes=100"):
        folder = LaunchFolder(tmp_path)
        folder.logs.mkdir()
        folder.log(0).write_text(log)
        ended = Ended(0, 1, 10**9, was_told=False)
        assert "space" not in find_culprits(folder, [ended], held_up={}).sentence
        with contextlib.suppress(OSError), (tmp_path / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(PAGE))
        said = find_culprits(folder, [ended], held_up={}).sentence
        assert "; nothing more can be written beside its log (No space left on device): free some space" in said
        assert (log.strip() or "its log is empty") in said
        folder.log(0).unlink()
        assert {path.name for path in tmp_path.iterdir()} == {"filler", folder.logs.name}


@pytest.mark.quick("1", "2", "8")
@pytest.mark.parametrize("number", SLICE)
def test_a_full_disk_is_said_and_costs_only_what_it_had_no_room_for(
    number: int, forked: tuple[str, ...], tmp_path: Path
) -> None:
    outcome = fill_once(Try.draw(number), tmp_path, forked)
    assert not outcome.wrong, outcome


def test_of_all_full_disks_none_was_silent_and_none_took_what_was_there() -> None:
    rows = read_recorded(ROWS, 200)
    assert not [row for row in rows if row["wrong"]]
