"""Archives of traces, unpacked for a test."""

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of ours into a folder."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            opened.extractall(folder, filter="data")
        else:
            opened.extractall(folder)
