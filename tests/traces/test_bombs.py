"""Small files that unpack to gigabytes: refused, or read as far as they hold events, within bounds of memory."""

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.reader.find import find_traces

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells how large a process was")

EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.0,"dur":5.0,"args":{"stream":7}},'
HEAD = b'{"schemaVersion": 1, "traceEvents": ['
MIB = 1 << 20
MOST_BYTES = 500 * MIB
READ = """
import sys
from pathlib import Path
from dtbench.traces.reader import read_trace
from dtbench.base.errors import TraceError
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


MEMBERS = 20_000
MOST_S = 10
LIST = """
import resource, sys
from pathlib import Path
from dtbench.traces.reader.find import find_traces
from dtbench.base.errors import TraceError
try:
    found = find_traces(Path(sys.argv[1])).sources
    for source in (*found[:200], *found[-200:]):
        with source.open() as stream:
            assert stream.read().endswith(b"]}")
    print(len(found))
except TraceError as error:
    print(error)
used = resource.getrusage(resource.RUSAGE_SELF)
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(used.ru_utime + used.ru_stime, line.split()[1])
"""


def make_archive(path: Path, count: int, name: str) -> Path:
    trace = HEAD + EVENT[:-1] + b"]}"
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(name.format(number), trace)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for number in range(count):
            member = tarfile.TarInfo(name.format(number))
            member.size = len(trace)
            archive.addfile(member, io.BytesIO(trace))
    return path


@pytest.mark.quick("many.zip-rank{}.json", "many.tar-rank{}.json")
@pytest.mark.parametrize("name", ["rank{}.json", "{}.txt"])
@pytest.mark.parametrize("archive", ["many.zip", "many.tar", "many.tar.gz"])
def test_an_archive_of_many_members_is_listed_once(tmp_path: Path, archive: str, name: str) -> None:
    path = make_archive(tmp_path / archive, MEMBERS, name)
    done = subprocess.run([sys.executable, "-c", LIST, str(path)], capture_output=True, text=True, check=True)
    said, used = done.stdout.strip().rsplit("\n", 1)
    expected = "holds no trace" if name.endswith("txt") else "unpack it" if archive.endswith("gz") else str(MEMBERS)
    assert expected in said
    seconds, size_kib = map(float, used.split())
    assert seconds < MOST_S
    assert size_kib * 1024 < MOST_BYTES


@pytest.mark.parametrize("archive", ["some.zip", "some.tar"])
def test_the_list_of_an_archive_is_not_read_for_each_of_its_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    opened: list[object] = []

    def count(owner: object, name: str) -> None:
        whole = getattr(owner, name)

        def open_and_count(*words: object, **options: object) -> object:
            opened.append(words)
            return whole(*words, **options)

        monkeypatch.setattr(owner, name, open_and_count)

    path = make_archive(tmp_path / archive, 50, "rank{}.json")
    count(zipfile, "ZipFile")
    count(tarfile, "open")
    found = find_traces(path).sources
    for source in found:
        with source.open() as stream:
            assert stream.read().startswith(HEAD)
    assert len(found) == 50
    assert len(opened) <= 5


def test_a_packed_archive_of_many_traces_is_refused_and_of_some_is_read(tmp_path: Path) -> None:
    assert len(find_traces(make_archive(tmp_path / "some.tar.gz", 512, "rank{}.json")).sources) == 512
    with pytest.raises(TraceError, match=r"holds 513 traces, and to each .* unpack it, and give the folder"):
        find_traces(make_archive(tmp_path / "many.tar.gz", 513, "rank{}.json"))
