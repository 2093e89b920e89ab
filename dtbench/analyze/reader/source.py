"""Where the bytes of one trace are: a file, or a member of an archive."""

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dtbench.errors import TraceError


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

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open its bytes as they are stored, perhaps gzipped.

        Raises:
            TraceError: it cannot be opened.
        """
        try:
            if self.member is None:
                with self.path.open("rb") as stream:
                    yield stream
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as zipped, zipped.open(self.member) as member:
                    yield member
            else:
                with tarfile.open(self.path, "r|*") as archive:  # one pass: no way back in a packed archive
                    yield _open_tar_member(archive, self.member)
        except OSError as error:
            raise TraceError(f"{self.label}: cannot be opened ({error.strerror or error}); check the name") from error
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, KeyError) as error:
            raise TraceError(f"{self.label}: the archive is damaged ({error}); copy it again") from error


def _open_tar_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    for member in archive:
        if member.name == name and (stream := archive.extractfile(member)) is not None:
            return stream
    raise KeyError(name)
