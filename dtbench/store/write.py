"""Write records and tables so that a reader sees the old file or the new one, never half of either."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtbench.base.errors import NO_ROOM, StoreError
from dtbench.base.record import Record

if TYPE_CHECKING:
    import pandas as pd

_PAGE: Final = 4096


def write_record(path: Path, record: Record) -> None:
    """Write a record as indented JSON, atomically; makes missing folders.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    write_text(path, record.model_dump_json(indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, atomically; makes missing folders.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_table(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table as Parquet without its index, with checksums, atomically; makes missing folders.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    replace_file(path, lambda temporary: frame.to_parquet(temporary, index=False, write_page_checksum=True))


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path`` and move it over ``path`` in one step.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({error.strerror or error}); free some space or choose another folder"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def find_no_room(folder: Path) -> str | None:
    """Say why a folder takes no more bytes, by trying to write a page; None: it takes them, or something else is."""
    temporary = folder / f".room.{os.getpid()}.tmp"
    try:
        temporary.write_bytes(bytes(_PAGE))
    except OSError as error:
        return os.strerror(error.errno) if error.errno in NO_ROOM else None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return None


def half_written(writer: str) -> OSError:
    """Return the error of a library that did not write a file to its end, and does not say why."""
    likely = os.strerror(errno.ENOSPC)
    return OSError(errno.ENOSPC, f"{writer} could not write all of it; most likely: {likely}")
