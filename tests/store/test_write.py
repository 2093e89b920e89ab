"""Files are old or new, never half; a full disk is a sentence."""

import errno
from pathlib import Path

import pytest

from dtbench.base.errors import StoreError
from dtbench.store.write import replace_file, write_text


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="No space left on device"):
        replace_file(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError("write failed"), KeyboardInterrupt()])
def test_whatever_ends_a_write_leaves_no_litter(tmp_path: Path, error: BaseException) -> None:
    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise error

    with pytest.raises(type(error)):
        replace_file(tmp_path / "reference.pt", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_text(tmp_path / "results" / "run.json", "x")
