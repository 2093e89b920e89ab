"""The least that reading a trace can cost: inflate it once, and parse its text once with simdjson.

``python -m tests.benchmarks.parse_reference TRACE`` prints ``{"inflate", "inflate_s", "parse_s"}``, CPU seconds inside
one process, start-up not counted. Inflating streams through one small buffer and keeps nothing; ``isal`` does it where
it is installed, which makes the limit stricter than zlib, and a plain file is only read. The parse builds simdjson's
DOM of the whole text and is the second one, when its memory is there already.
"""

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simdjson

_BUFFER_BYTES = 256 * 1024  # in the second-level cache; 64 KiB and 1 MiB are slower


def find_inflate(path: str) -> tuple[str, Callable[..., Any]]:
    """Return the fastest inflate that is installed, and its name."""
    with Path(path).open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return "none", open
    try:
        from isal import igzip
    except ImportError:
        return "zlib", gzip.open
    return "isal", igzip.open


def main() -> None:
    """Time both and print."""
    path = sys.argv[1]
    name, unpack = find_inflate(path)
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    start_s = time.process_time()
    with unpack(path, "rb") as file:
        while file.readinto(buffer):
            pass
    inflate_s = time.process_time() - start_s
    with unpack(path, "rb") as file:
        text = file.read()
    parser = simdjson.Parser()
    parse_s = 0.0
    for _ in range(2):
        start_s = time.process_time()
        document = parser.parse(text)
        parse_s = time.process_time() - start_s
        del document  # the parser's memory is free for the next
    print(json.dumps({"inflate": name, "inflate_s": inflate_s, "parse_s": parse_s}))


if __name__ == "__main__":
    main()
