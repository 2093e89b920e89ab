"""Small files that unpack to gigabytes: refused, or read as far as they hold events, within bounds of memory."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells how large a process was")

EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.0,"dur":5.0,"args":{"stream":7}},'
HEAD = b'{"schemaVersion": 1, "traceEvents": ['
MIB = 1 << 20
MOST_BYTES = 500 * MIB
READ = """
import sys
from pathlib import Path
from dtbench.analyze.reader import read_trace
from dtbench.errors import TraceError
try:
    trace = read_trace(Path(sys.argv[1]))
    print(len(trace.start_ns), trace.unread.is_truncated, dict(trace.unread.events))
except TraceError as error:
    print(error)
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(line.split()[1])
"""


def read(path: Path) -> tuple[str, int]:
    """Read a trace in a process of its own; gives what it says, and its largest size in bytes."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    said, size_kib = done.stdout.strip().rsplit("\n", 1)
    return said, int(size_kib) * 1024


def pack(path: Path, head: bytes, what: bytes, mib: int) -> Path:
    block = gzip.compress(what * (MIB // len(what)))
    path.write_bytes(gzip.compress(head) + block * mib + gzip.compress(b"{}]}"))
    assert path.stat().st_size < 2 * MIB
    return path


@pytest.mark.quick("blanks", "objects")
@pytest.mark.parametrize("what", [b" ", b"[],", b"{},", b"a"], ids=["blanks", "lists", "objects", "letters"])
def test_text_without_any_event_ends_at_a_limit(tmp_path: Path, what: bytes) -> None:
    said, used = read(pack(tmp_path / "rank0.json.gz", HEAD, what, 80))
    assert "no event in the first 64.0 MiB of it, or nothing but what is none" in said
    assert used < MOST_BYTES


@pytest.mark.quick("blanks")
@pytest.mark.parametrize("what", [b" ", b"[],", b"{},"], ids=["blanks", "lists", "objects"])
def test_what_was_read_before_such_text_stays_and_the_rest_is_counted(tmp_path: Path, what: bytes) -> None:
    said, used = read(pack(tmp_path / "rank0.json.gz", HEAD + EVENT, what, 400))
    assert said.startswith("1 True ")
    assert "none was looked for behind it" in said
    assert used < MOST_BYTES
