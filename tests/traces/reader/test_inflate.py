"""Unzipping: two inflaters, one answer."""

import gzip
import io
import itertools
import random

import pytest

from dtbench.traces.reader import inflate
from dtbench.traces.reader.inflate import Chunks


@pytest.mark.skipif(not hasattr(inflate._ISAL, "decompressobj"), reason="isal is not made for this machine")
def test_both_inflaters_give_the_same_text_of_any_damaged_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(zipped: bytes, chunk_bytes: int) -> tuple[bytes, bool, bool]:
        chunks = Chunks(io.BytesIO(zipped), chunk_bytes)
        return b"".join(chunks), chunks.is_cut, chunks.is_altered

    draw = random.Random(7)
    text = b"".join(b'{"ph": "X", "ts": %d},\n' % draw.randrange(10**9) for _ in range(3000))
    whole = gzip.compress(text) + gzip.compress(text[::-1])
    damaged = [whole, whole + bytes(20)]
    for _ in range(150):
        cut, at = draw.randrange(len(whole)), draw.randrange(len(whole))
        damaged += [whole[:cut], whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1 :]]
    fast = [unpack(one, size) for one, size in zip(damaged, itertools.cycle([100, 4096, 1 << 20]), strict=False)]
    monkeypatch.setattr(inflate, "_ISAL", None)
    safe = [unpack(one, size) for one, size in zip(damaged, itertools.cycle([100, 4096, 1 << 20]), strict=False)]
    assert fast == safe
    assert fast[0] == (text + text[::-1], False, False)
    assert any(is_cut for _, is_cut, _ in fast)
    assert any(is_altered for _, _, is_altered in fast)
