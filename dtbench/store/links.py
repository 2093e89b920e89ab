"""Links inside a run's folder: whoever made the folder chose where they lead, so none is followed.

Nor is what waits for a writer, or reads from a device: a pipe in place of a table would be read for ever.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from dtbench.base.errors import StoreError


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a link or a pipe in it; the folder's own name may be one, which is its user's choice.

    Raises:
        StoreError: names the first.
    """
    for entry in _scan(folder):
        if entry.is_dir(follow_symlinks=False):
            refuse_links(Path(entry.path))
        elif not entry.is_file(follow_symlinks=False):
            raise _make_refusal(Path(entry.path))


def refuse_link(path: Path) -> None:
    """Refuse one file of a run where it is none; one that is not there is none either.

    Raises:
        StoreError: it is a link, a pipe or a device.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise _make_refusal(path)


def _make_refusal(path: Path) -> StoreError:
    if path.is_symlink():
        instead = "put what it leads to in its place"
        return StoreError(f"{path}: is a link, and links in a run's folder are not followed; {instead}")
    return StoreError(f"{path}: is no file, and nothing else is read in a run's folder; remove it")


def _scan(folder: Path) -> "Iterator[os.DirEntry[str]]":
    """Yield what is in a folder, by name; what cannot be looked into holds nothing that can be read."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    yield from found
