"""Where the bytes of one trace are: a file, or a member of an archive."""

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from dtbench.base.errors import TraceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

DAMAGED: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
"""What the standard library raises for archives that are damaged or packed in a way it does not know."""


@dataclass(frozen=True)
class TraceSource:
    """One trace, not opened yet.

    Attributes:
        path: the file that holds it.
        member: its name inside the archive that ``path`` is; None: the file itself.
        rank: as the name of the file says; None where it does not.
        extent: first byte and size of a member that lies unpacked in the archive; None: it must be looked for.
        url: of what ``path`` is a copy, which messages call it by; empty: it is none.
    """

    path: Path
    member: str | None = None
    rank: int | None = None
    extent: tuple[int, int] | None = None
    url: str = ""

    @property
    def label(self) -> str:
        """What messages call it."""
        where = self.url or str(self.path)
        return where if self.member is None else f"{where}/{self.member}"

    @property
    def name(self) -> str:
        """Its file name, or its place in the archive."""
        return self.path.name if self.member is None else self.member

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open its bytes as they are stored, perhaps gzipped.

        Raises:
            TraceError: it cannot be opened.
        """
        try:
            with ExitStack() as stack:
                yield self._open(stack)
        except OSError as error:
            raise TraceError(f"{self.label}: cannot be opened ({error.strerror or error}); check the name") from error
        except DAMAGED as error:
            raise TraceError(f"{self.label}: the archive is damaged ({error}); copy it again") from error

    def _open(self, stack: ExitStack) -> IO[bytes]:
        if self.member is None:
            return stack.enter_context(self.path.open("rb"))
        if self.extent is not None:
            return stack.enter_context(io.BufferedReader(_Extent(self.path, *self.extent)))
        if zipfile.is_zipfile(self.path):
            status = self.path.stat()
            zipped = _open_zip(self.path, status.st_mtime_ns, status.st_size, os.getpid())
            if self.member in zipped.NameToInfo:
                return stack.enter_context(open_zipped(zipped, self.member))
        else:
            # In one pass: there is no way back in a packed archive.
            archive = stack.enter_context(tarfile.open(self.path, "r|*"))  # noqa: SIM115 - the stack closes it
            for member in archive:
                if member.name == self.member and (stream := archive.extractfile(member)) is not None:
                    return stream
        raise TraceError(f"{self.label}: is not in the archive; check the name")


def open_zipped(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member; one that needs a password counts as packed in a way that is not known.

    Raises:
        NotImplementedError: it cannot be unpacked.
    """
    try:
        return archive.open(name)
    except RuntimeError as error:  # what zipfile raises for a password, and a parent of NotImplementedError
        raise NotImplementedError(str(error)) from error


@lru_cache(maxsize=1)
def _open_zip(path: Path, _modified_ns: int, _size: int, _pid: int) -> zipfile.ZipFile:
    """Open an archive and keep it: its list of members is read once, not once for each of them.

    A process that was forked opens it anew: it would share the place in the file.
    """
    return zipfile.ZipFile(path)


class _Extent(io.RawIOBase):
    """Some bytes of a file, read as a file."""

    def __init__(self, path: Path, first: int, size: int) -> None:
        self._file, self._left = path.open("rb", buffering=0), size
        self._file.seek(first)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view) if len(view) else 0
        self._left -= count or 0
        return count or 0

    def close(self) -> None:
        self._file.close()
        super().close()
