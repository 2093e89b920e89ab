"""The top of ``run.json``: what lists of thousands of runs need of each, everything else skipped unread.

No record is imported here: these take longer than a list of a thousand runs.
"""

from pathlib import Path
from typing import Literal

import msgspec

from dtbench.base.errors import StoreError
from dtbench.store.layout import RunFolder
from dtbench.store.links import refuse_link


class CellHead(msgspec.Struct, frozen=True):
    """One cell and its launches."""

    name: str
    launches: tuple[int, ...]


class RunHead(msgspec.Struct, frozen=True):
    """What identifies a run; ``name`` is the scenario's, ``status`` a word of ``RunStatus``."""

    format_version: Literal[1]  # as in store/records/run.py
    name: str
    run_id: str
    question: str
    status: str
    started_unix_ns: int
    cells: tuple[CellHead, ...]


def read_head(path: Path) -> RunHead:
    """Read the top of the record of the run in a folder.

    Raises:
        StoreError: there is none, it is broken, a link, or another version wrote it.
    """
    file = RunFolder(path).run
    refuse_link(file)
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunHead)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: cannot be read ({error})") from error
