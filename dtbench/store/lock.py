"""One writer for each run: whoever starts its ranks holds its lock, and a process that dies lets go of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dtbench.errors import StoreError
from dtbench.store.layout import RunFolder


@contextmanager
def hold_run(folder: RunFolder) -> Iterator[None]:
    """Be the only process that writes a run, for as long as the context lasts.

    The lock is ``flock``'s: the kernel ends it with its process, however that ends. Where there is none (Windows,
    some network file systems), nobody is kept out.

    Raises:
        StoreError: another process is writing this run.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        yield
        return
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file = folder.lock.open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{folder.lock}: cannot be written ({error.strerror}); choose another --results") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read().strip() or "unknown"
            raise StoreError(
                f"{folder.path}: another process (pid {who}) is still writing this run; wait for it, or stop it"
            ) from error
        except OSError:  # a file system without locks: nobody is kept out there either
            yield
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_held(folder: RunFolder) -> bool:
    """Tell whether some process is writing a run."""
    if not folder.lock.exists():
        return False
    with suppress(StoreError), hold_run(folder):
        return False
    return True
