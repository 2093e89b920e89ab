"""A disk that is full from the nth page or file on: ``python -m tests.faults.disk_full`` goes on where it stopped.

The results of each try lie on a small disk of its own, in memory. Wherever it is full, the command says so, what had
ended well stays as it is, nothing lies about, and with room ``--resume`` or the same command ends well.
"""

import contextlib
import ctypes
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.launch import local
from dtbench.launch.forked.servers import serve_forks
from dtbench.store.layout import LaunchFolder
from tests.faults.campaign import NETWORKS, find_children, replaced, run_command
from tests.faults.rows import go_on
from tests.faults.signals import LAUNCHES, find_complete, find_runs, fingerprint, write_scenario

ROWS: Final = Path(__file__).with_name("disk_full.jsonl")
PAGE: Final = 4096
ROOMY: Final = "size=1g,nr_inodes=100k"
FULL: Final = os.strerror(28)
MOST_PAGES, MOST_FILES = 520, 130
"""A whole run needs about as much; two in three tries count pages, the third counts files and folders."""
_MS_REMOUNT, _MNT_DETACH = 32, 2


@dataclass(frozen=True)
class Try:
    """What the disk has room for; ``has_scratch``: temporary files of everybody lie there, too."""

    number: int
    pages: int | None
    files: int | None
    ranks: int
    network: str
    has_reference: bool
    has_scratch: bool

    @classmethod
    def draw(cls, number: int) -> "Try":
        """Return the try of a number, the same each time."""
        dice = random.Random(number)
        files = dice.randint(2, MOST_FILES) if number % 3 == 2 else None
        pages = None if files else dice.randint(1, MOST_PAGES)
        return cls(
            number=number,
            pages=pages,
            files=files,
            ranks=dice.choice((1, 2)),
            network=dice.choice(list(NETWORKS)),
            has_reference=dice.random() < 0.25,
            has_scratch=dice.random() < 0.25,
        )

    @property
    def options(self) -> str:
        """As ``mount`` takes it."""
        size = f"size={self.pages * PAGE}" if self.pages else "size=1g"
        return f"{size},nr_inodes={self.files or '100k'}"


@dataclass(frozen=True)
class Outcome:
    """What came of one try; ``wrong``: what should not have."""

    what: Try
    exit_code: int
    complete: int
    was_resumed: bool
    took_s: float
    wrong: tuple[str, ...]


def can_mount() -> bool:
    """Tell whether this process may mount a small disk."""
    if sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder), ROOMY):
                return True
        except OSError:
            return False


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Let a folder be a disk in memory."""
    _mount(folder, options)
    try:
        yield
    finally:
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(folder), _MNT_DETACH)


def make_room(folder: Path, options: str = ROOMY) -> None:
    """Let a small disk be as large as anybody needs, or as ``options`` say."""
    _mount(folder, options, _MS_REMOUNT)


def _mount(folder: Path, options: str, flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(flags), options.encode()):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(folder))


def fill_once(what: Try, folder: Path, prefix: Sequence[str]) -> Outcome:
    """Run into a full disk, look at what is left, make room, and go on."""
    began_s = time.monotonic()
    disk, scratch = folder / "disk", folder / "tmp"
    disk.mkdir()
    scratch.mkdir()
    wanted = write_scenario(folder, ranks=what.ranks, network=what.network, has_reference=what.has_reference)
    results, command = disk / "results", ("run", str(wanted), "--results", str(disk / "results"))
    worker = (*prefix, *local.WORKER)
    with small_disk(disk, what.options), replaced(local, "WORKER", worker):
        with replaced(tempfile, "tempdir", str(disk if what.has_scratch else scratch)):
            servers = set(find_children())
            exit_code, said = run_command(*command)
        wrong = [f"left running: {pid}" for pid in set(find_children()) - servers]
        wrong += judge(exit_code, said)
        wrong += [f"left lying: {path}" for path in find_leftovers(disk, scratch, results)]
        complete = {launch: fingerprint(launch) for launch in find_complete(results)}
        wrong += [f"reading: {words}" for words in judge_reading(results)]
        make_room(disk)
        was_resumed = bool(find_runs(results)) and exit_code not in (0, 8)
        code, words = run_command(*command, *(["--resume"] if was_resumed else []))
        if "no unfinished run" in words or "nothing is left to do" in words:
            code, words = run_command(*command)
        if code not in (0, 8):
            wrong.append(f"with room: exit code {code}: {words[-2000:]}")
        wrong += [
            f"{launch.path.name} is not as it was" for launch, old in complete.items() if fingerprint(launch) != old
        ]
        wrong += [
            f"with room, {run} lacks {one}"
            for run in sorted(find_runs(results))[-1:]
            for one in find_missing(run.parent)
        ]
        wrong += [f"left lying at last: {path}" for path in find_leftovers(disk, scratch, results)]
    took_s = round(time.monotonic() - began_s, 1)
    return Outcome(what, exit_code, len(complete), was_resumed, took_s, tuple(wrong))


def judge(exit_code: int, said: str) -> list[str]:
    """Hold what a command said on a full disk against what it should."""
    wrong = []
    if exit_code not in (0, 1, 4, 6, 8):
        wrong.append(f"exit code {exit_code}")
    if exit_code not in (0, 8) and FULL not in said:
        wrong.append(f"does not say that the disk is full: {said[-2000:]}")
    wrong += [f"says {bad}" for bad in ("bug in dtbench", "Traceback") if bad in said]
    return wrong


def judge_reading(results: Path) -> list[str]:
    """Say what is wrong with what a report of it says."""
    code, said = run_command("report", "--json", "--results", str(results))
    wrong = [f"says {bad}" for bad in ("bug in dtbench", "Traceback") if bad in said]
    if code == 0:
        told = json.loads(said[said.index("{") :])
        whole = [LaunchFolder(path) for path in Path(told["path"]).glob("cells/*/launch*")]
        if told["status"] == "complete" and len(set(whole) & set(find_complete(results))) < LAUNCHES:
            wrong.append("a run is called complete that is not")
    elif code not in (6, 8):
        wrong.append(f"exit code {code}: {said[-2000:]}")
    return wrong


def find_leftovers(disk: Path, scratch: Path, results: Path) -> list[str]:
    """Return files that nobody will ever read, and that keep a disk full."""
    lying = [str(path.relative_to(scratch)) for path in scratch.rglob("*")]
    lying += [str(path.relative_to(disk)) for path in disk.iterdir() if path != results]
    return lying + [str(path.relative_to(disk)) for path in results.rglob("*") if re.search(r"\.tmp(\.d)?$", path.name)]


def find_missing(run: Path) -> list[str]:
    """Return what a run that ended well has, and this one lacks."""
    launches = [LaunchFolder(path) for path in sorted(run.glob("cells/*/launch*"))]
    lacking = [] if len(launches) == LAUNCHES else [f"{LAUNCHES - len(launches)} launches"]
    lacking += [f"{one.path.name} complete" for one in launches if one not in find_complete(run.parent.parent)]
    wanted = [run / "env.json", run / "step_breakdown.png", run / "tb"]
    wanted += [path for one in launches for path in (one.overlap, one.steps)]
    lacking += [path.name for path in wanted if not path.exists()]
    return lacking + [f"a trace of {one.path.name}" for one in launches if not one.find_traces()]


def main() -> None:
    """Make the tries that have no row yet."""
    with serve_forks() as prefix:

        def attempt(number: int) -> Outcome:
            with tempfile.TemporaryDirectory(prefix="dtbench-disk-") as folder:
                return fill_once(Try.draw(number), Path(folder), prefix)

        go_on(__doc__, attempt, count=200, rows=ROWS)


if __name__ == "__main__":
    main()
