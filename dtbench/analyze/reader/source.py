"""Where the bytes of one trace are: a file, or a member of an archive."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dtbench.errors import TraceError

DAMAGED: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
"""What the standard library raises for archives that are damaged or packed in a way it does not know."""


@dataclass(frozen=True)
class TraceSource:
    """One trace, not opened yet.

    Attributes:
        path: the file that holds it.
        member: its name inside the archive that ``path`` is; None: the file itself.
        rank: as the name of the file says; None where it does not.
    """

    path: Path
    member: str | None = None
    rank: int | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

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
        if zipfile.is_zipfile(self.path):
            zipped = stack.enter_context(zipfile.ZipFile(self.path))
            if self.member in zipped.namelist():
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
