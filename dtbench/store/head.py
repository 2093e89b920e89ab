"""The top of ``run.json``: what lists of thousands of runs need of each, everything else skipped unread.

No record is imported here: these take longer than a list of a thousand runs.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from dtbench.base.errors import StoreError
from dtbench.store.layout import RunFolder
from dtbench.store.links import refuse_link


class CellHead(msgspec.Struct, frozen=True):
    """One cell and its launches."""

    name: str
    launches: tuple[int, ...]


class RunHead(msgspec.Struct, frozen=True):
    """What identifies a run; ``name`` is the scenario's."""

    format_version: Literal[1]  # as in store/records/run.py
    name: str
    run_id: str
    question: str
    status: Literal["running", "complete", "failed"]
    started_unix_ns: int
    cells: tuple[CellHead, ...]
    prepared: bool = False


class _CommitHead(msgspec.Struct, frozen=True):
    revision: str


class EnvironmentHead(msgspec.Struct, frozen=True):
    """Where a run ran, and the commit of its user's code; None: it is in no repository, or was not looked for."""

    host: str = ""
    commit: _CommitHead | None = None


_H = TypeVar("_H", RunHead, EnvironmentHead)


def read_head(path: Path) -> RunHead:
    """Read the top of the record of the run in a folder.

    Raises:
        StoreError: there is none, it is broken, a link, or another version wrote it.
    """
    return _read(RunFolder(path).run, RunHead)


def read_environment_head(path: Path) -> EnvironmentHead:
    """Read where the run in a folder ran; of one that did not write it, nothing.

    Raises:
        StoreError: it is broken, or a link.
    """
    file = RunFolder(path).environment
    return _read(file, EnvironmentHead) if file.exists() else EnvironmentHead()


def _read(file: Path, head: type[_H]) -> _H:
    refuse_link(file)
    try:
        return msgspec.json.decode(file.read_bytes(), type=head)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: cannot be read ({error})") from error
