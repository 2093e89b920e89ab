"""One writer for each run: whoever starts its ranks holds its lock, and a process that dies lets go of it.

The lock file of a run from somebody else may be anything: it is opened through no link, under no second name, and what
is in it stays unless it is a process's number that stood there before.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from dtbench.base.errors import StoreError
from dtbench.store.layout import RunFolder

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NUMBER: Final = re.compile(rb"\d{0,20} *\n?")
_WIDTH: Final = 20
_CAREFUL: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def hold_run(folder: RunFolder) -> Iterator[None]:
    """Be the only process that writes a run, for as long as the context lasts.

    The lock is ``flock``'s: the kernel ends it with its process, however that ends. Where there is none (Windows,
    some network file systems), nobody is kept out.

    Raises:
        StoreError: another process is writing this run, or its lock is no file of its own.
    """
    if fcntl is None:
        yield
        return
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o644)
    except OSError as error:
        if folder.lock.is_symlink():
            raise StoreError(f"{folder.lock}: is a link, and nothing is written through it; remove it") from error
        raise StoreError(f"{folder.lock}: cannot be written ({error.strerror}); choose another --results") from error
    try:
        _refuse_other_names(folder, descriptor)
        before = os.pread(descriptor, _WIDTH + 2, 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = before.decode(errors="replace").strip() if _NUMBER.fullmatch(before) else ""
            raise StoreError(
                f"{folder.path}: another process (pid {who or 'unknown'}) is still writing this run; wait for it, or "
                "stop it"
            ) from error
        except OSError:  # a file system without locks: nobody is kept out there either
            yield
            return
        if _NUMBER.fullmatch(before):
            with suppress(OSError):  # a full disk: the lock holds without a name, too
                os.pwrite(descriptor, f"{os.getpid():<{_WIDTH}}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _refuse_other_names(folder: RunFolder, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise StoreError(f"{folder.lock}: is no file of its own, and nothing is written to it; remove it")


def is_held(folder: RunFolder) -> bool:
    """Tell whether some process is writing a run; changes nothing."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | _CAREFUL)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
