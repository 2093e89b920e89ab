"""Which other runs of dtbench use this machine: each leaves a note that it holds, in a folder that all users share.

The kernel lets go of a lock when its process ends, however that ends: a note that nobody holds is left over, and goes.
Where there are no locks (Windows), the process that a note names is looked for.
"""

import getpass
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import psutil
from pydantic import ValidationError

from dtbench.store.records.run import Neighbour

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_EVERYBODY: Final = 0o1777
"""As ``/tmp`` itself: everybody may leave a note and takes away only his own."""
_LONGEST: Final = 4096


def find_folder() -> Path:
    """Return where runs of all users leave their notes: ``TMPDIR`` is often one user's own."""
    shared = Path("/tmp")
    return (shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / "dtbench-runs"


@contextmanager
def announce(run: Path, folder: Path | None = None) -> Iterator[None]:
    """Let other runs on this machine know of this one, for as long as the context lasts.

    A folder that cannot be written is no reason not to run: nobody hears of it then.

    Args:
        run: its folder.
        folder: of all notes; None: ``find_folder``.
    """
    folder = find_folder() if folder is None else folder
    path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
    note = Neighbour(pid=os.getpid(), user=_find_user(), run=str(run))
    try:
        file = _create(path)
    except OSError:
        yield
        return
    with file:
        _hold(file)
        with suppress(OSError):
            file.write(note.model_dump_json())
            file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def find_neighbours(folder: Path | None = None) -> tuple[Neighbour, ...]:
    """Return the other processes that run scenarios on this machine now, in order of process id.

    Args:
        folder: of all notes; None: ``find_folder``.
    """
    folder = find_folder() if folder is None else folder
    found = {}
    with suppress(OSError):
        for path in sorted(folder.glob("*.json")):
            neighbour = _read(path)
            if neighbour is not None and neighbour.pid != os.getpid():
                found[neighbour.pid] = neighbour
    return tuple(found[pid] for pid in sorted(found))


def describe_neighbours(neighbours: Sequence[Neighbour]) -> str | None:
    """Return which other runs there were; None where there was none."""
    if not neighbours:
        return None
    named = [f"{one.run} of {one.user} (pid {one.pid})" for one in neighbours]
    are = "another run of dtbench was" if len(named) == 1 else f"{len(named)} other runs of dtbench were"
    return f"{are} on this machine: {', '.join(named)}; steps in which ranks had to wait for it are left out"


def _create(path: Path) -> IO[str]:
    with suppress(FileExistsError):
        path.parent.mkdir()
        path.parent.chmod(_EVERYBODY)
    return path.open("x", encoding="utf-8")


def _hold(file: IO[str]) -> None:
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)  # whoever looks at it lets go at once


def _read(path: Path) -> Neighbour | None:
    """Return who left a note; None for one that nobody stands behind any more, which goes where it may."""
    try:
        with path.open(encoding="utf-8") as file:
            is_held = _is_held(file)
            text = file.read(_LONGEST)
    except (OSError, UnicodeDecodeError):
        return None
    with suppress(ValidationError):
        neighbour = Neighbour.model_validate_json(text)
        if is_held if is_held is not None else psutil.pid_exists(neighbour.pid):
            return neighbour
    if is_held is False and text:  # an empty one is about to be held
        with suppress(OSError):
            path.unlink()
    return None


def _is_held(file: IO[str]) -> bool | None:
    """Tell whether the process that left a note lives; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number that no file gives a name to
        return str(os.getuid()) if hasattr(os, "getuid") else "somebody"
