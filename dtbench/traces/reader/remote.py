"""Traces in a store that a URL names (`s3://`, `gs://`, `hf://`): copied here first, and read like any others.

fsspec and the package of the store open them; both are loaded where such a name is given, and not before. A copy, and
not a stream: a trace is looked at before it is read, in processes of their own, and an archive in several places.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from dtbench.base.errors import MissingError, TraceError
from dtbench.traces.reader.source import TraceSource

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_MARK: Final = "://"
_PACKAGES: Final = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}
_EXTRA: Final = "pip install 'dtbench[remote]' has what opens s3://, gs:// and hf://"
_DEEPEST: Final = 5


def is_remote(name: str) -> bool:
    """Tell whether a name is a URL, and no path."""
    return _MARK in name


@dataclass(frozen=True)
class Copied:
    """What a person named, as paths.

    Attributes:
        paths: in that order.
        urls: of those that are copies, what they are copies of.
    """

    paths: tuple[Path, ...]
    urls: Mapping[Path, str] = field(default_factory=dict)

    def name(self, source: TraceSource) -> TraceSource:
        """Return a trace that messages call by its URL where it lies in a copy."""
        for copy, url in self.urls.items():
            if source.path.is_relative_to(copy):
                return replace(source, url="/".join((url.rstrip("/"), *source.path.relative_to(copy).parts)))
        return source


@contextmanager
def copy_remote(names: Sequence[str]) -> Iterator[Copied]:
    """Give the paths of traces, folders and archives, those that URLs name copied into a folder that goes at the end.

    Raises:
        MissingError: a package that opens one is not installed.
        TraceError: one cannot be opened, or there is nothing.
    """
    if not any(map(is_remote, names)):
        yield Copied(tuple(map(Path, names)))
        return
    with TemporaryDirectory(prefix="dtbench_remote_") as folder:
        paths = [_copy(name, Path(folder).resolve()) if is_remote(name) else Path(name) for name in names]
        yield Copied(tuple(paths), {path: name for path, name in zip(paths, names, strict=True) if is_remote(name)})


def _copy(url: str, folder: Path) -> Path:
    """Copy what a URL names to where its own name says, below a folder."""
    protocol, _, place = url.partition(_MARK)
    there = folder / f"{protocol}:" / PurePosixPath(place.strip("/") or protocol)
    system, root = _open(url)
    try:
        found = sorted(system.find(root, maxdepth=_DEEPEST))
        for one in found:
            _copy_file(system, one, _stay_inside(folder, there / PurePosixPath(one).relative_to(root), url))
    except (TraceError, MemoryError):
        raise
    except Exception as error:  # each store raises what it likes: no access, no such bucket, no network
        what = f"{type(error).__name__}: {error}"
        raise TraceError(f"{url}: cannot be read ({what}); check the name and who may read it") from error
    if not found:
        raise TraceError(f"{url}: there is no such file, and nothing below it; check the name")
    return there


def _stay_inside(folder: Path, there: Path, url: str) -> Path:
    """Return where a copy lies; a name in a store may be any text.

    Raises:
        TraceError: that is outside the folder of copies.
    """
    if not there.resolve().is_relative_to(folder):
        raise TraceError(f"{url}: names a place above its store; write it without ..")
    return there


def _copy_file(system: "AbstractFileSystem", place: str, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    with system.open(place, "rb") as source, there.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _open(url: str) -> tuple["AbstractFileSystem", str]:
    """Return the store of a URL, and the place in it.

    Raises:
        MissingError: nothing here opens it.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingError(f"{url}: fsspec, which opens such names, is not installed; {_EXTRA}") from error
    protocol = url.partition(_MARK)[0]
    try:
        system, place = url_to_fs(url)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        what = f"{package} is not installed; {_EXTRA}" if package else f"a package is missing ({error})"
        raise MissingError(f"{url}: cannot be opened: {what}") from error
    except ValueError as error:
        what = "copy the traces here, and give their folder"
        raise TraceError(f"{url}: nothing opens `{protocol}://` ({error}); {what}") from error
    return system, place
