"""The text of a trace in chunks, unzipped on the way: never the whole file in memory.

Gzip is told by its first bytes, not by the file's name. A stream that breaks off or is damaged gives what came before.

[Note: two inflaters] isal unpacks three times faster than zlib, but its state cannot be copied, and without that the
bytes before a damage are lost. So a file that can be read from its start again is unpacked by isal, and, should that
fail, from there by zlib, which skips what was given already.
"""

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, Final

_ISAL: Final[Any] = import_module("isal.isal_zlib") if find_spec("isal") else None  # not made for every machine

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and checksum
_ZIPPED_BYTES: Final = 1 << 16


class Chunks:
    """The text of one stream, chunk by chunk.

    Attributes:
        is_cut: the gzip stream ends early or cannot be unpacked to its end; known once all chunks were taken.
        is_altered: the checksum at the end of a gzip stream does not fit what was unpacked.
    """

    def __init__(self, stream: IO[bytes], chunk_bytes: int) -> None:
        self.is_cut = False
        self.is_altered = False
        self._stream = stream
        self._chunk_bytes = chunk_bytes

    def __iter__(self) -> Iterator[bytes]:
        first = self._stream.read(min(_ZIPPED_BYTES, self._chunk_bytes))
        if first.startswith(_GZIP_MAGIC) or first == _GZIP_MAGIC[:1]:
            yield from self._inflate(first)
            return
        while first:
            yield first
            first = self._stream.read(self._chunk_bytes)

    def _inflate(self, zipped: bytes) -> Iterator[bytes]:
        """Unpack by the fastest means. See [Note: two inflaters]."""
        if _ISAL is None or not self._stream.seekable():
            yield from self._inflate_safely(zipped)
            return
        given, start = 0, self._stream.tell() - len(zipped)
        try:
            for text in self._inflate_fast(zipped):
                given += len(text)
                yield text
        except _ISAL.error:
            self.is_cut = True
        if self.is_cut:
            self.is_cut = False
            self._stream.seek(start)
            yield from self._skip(given, self._inflate_safely(self._stream.read(_ZIPPED_BYTES)))

    @staticmethod
    def _skip(given: int, texts: Iterator[bytes]) -> Iterator[bytes]:
        for text in texts:
            if given < len(text):
                yield text[given:]
            given = max(0, given - len(text))

    def _inflate_fast(self, zipped: bytes) -> Iterator[bytes]:
        return self._unzip(zipped, _ISAL.decompressobj, lambda inflater, part, most: inflater.decompress(part, most))

    def _inflate_safely(self, zipped: bytes) -> Iterator[bytes]:
        try:
            yield from self._unzip(zipped, zlib.decompressobj, _decompress_or_salvage)
        except _DamageError as damage:
            yield damage.text
            self.is_altered, self.is_cut = damage.is_altered, not damage.is_altered

    def _unzip(
        self, zipped: bytes, start: Callable[[int], Any], decompress: Callable[[Any, bytes, int], bytes]
    ) -> Iterator[bytes]:
        """Unpack member after member; ``is_cut`` where the last has no end."""
        inflater = start(_GZIP)
        while zipped:
            text = decompress(inflater, zipped, self._chunk_bytes)
            if text:
                yield text
            if inflater.eof:
                zipped = inflater.unused_data or self._stream.read(_ZIPPED_BYTES)
                if not zipped.startswith(_GZIP_MAGIC):  # padding after the last member
                    return
                inflater = start(_GZIP)
                continue
            zipped = inflater.unconsumed_tail or self._stream.read(_ZIPPED_BYTES)
        self.is_cut = not inflater.eof
        if self.is_cut and (rest := inflater.flush()):  # unzipped, and held back for the sake of the chunk's size
            yield rest


class _DamageError(Exception):
    """What could be unpacked before a damage, and whether only the checksum is wrong."""

    def __init__(self, text: bytes, *, is_altered: bool) -> None:
        super().__init__()
        self.text = text
        self.is_altered = is_altered


def _decompress_or_salvage(inflater: "zlib._Decompress", zipped: bytes, most_bytes: int) -> bytes:
    before = inflater.copy()
    try:
        return inflater.decompress(zipped, most_bytes)
    except zlib.error as error:
        is_altered = "incorrect data check" in str(error) or "incorrect length check" in str(error)
        raise _DamageError(_salvage(before, zipped), is_altered=is_altered) from error


def _salvage(inflater: "zlib._Decompress", zipped: bytes) -> bytes:
    """Return all text before the damage: that of the longest part that can be unpacked; nothing where no byte can."""
    good, bad = 0, len(zipped) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            inflater.copy().decompress(zipped[:middle])
        except zlib.error:
            bad = middle
        else:
            good = middle
    return inflater.decompress(zipped[:good]) if good else b""
