"""Signals to the launcher at random moments: ``python -m tests.faults.signals --count 100`` goes on where it stopped.

Each run has one rank and two launches. Whatever stops it, what had ended well stays as it is, ``--resume`` runs the
rest, and nothing is left running or lying about.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from dtbench.base.errors import StoreError
from dtbench.store.journal import read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_launch
from dtbench.store.records.run import RunStatus
from tests.faults.campaign import NETWORKS
from tests.faults.rows import go_on

ROWS: Final = Path(__file__).with_name("signals.jsonl")
TAG: Final = "DTBENCH_TEST_TRY"
LONGEST_S: Final = 14.0
"""About as long as a run takes; signals come at any moment of it."""
LAUNCHES: Final = 2
BEFORE: Final = "before the first launch"


@dataclass(frozen=True)
class Way:
    """A way to stop a command: what is sent, and which exit codes it may end with (0: it had ended)."""

    send: Callable[["subprocess.Popen[bytes]"], None]
    exit_codes: tuple[int, ...]
    is_under_nohup: bool = False


def _send(*numbers: signal.Signals, apart_s: float = 0.3) -> Callable[["subprocess.Popen[bytes]"], None]:
    def send(process: "subprocess.Popen[bytes]") -> None:
        for place, number in enumerate(numbers):
            time.sleep(apart_s if place else 0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    return send


WAYS: Final[Mapping[str, Way]] = {
    "SIGINT": Way(_send(signal.SIGINT), (130,)),
    "SIGTERM": Way(_send(signal.SIGTERM), (143,)),
    "SIGHUP": Way(_send(signal.SIGHUP), (129,)),
    "SIGINT twice": Way(_send(signal.SIGINT, signal.SIGINT), (130,)),
    "SIGINT eight times": Way(_send(*[signal.SIGINT] * 8, apart_s=0.08), (130,)),
    "SIGINT, SIGTERM": Way(_send(signal.SIGINT, signal.SIGTERM, apart_s=0.05), (130,)),
    "SIGQUIT": Way(_send(signal.SIGQUIT), (-signal.SIGQUIT,)),
    "SIGKILL": Way(_send(signal.SIGKILL), (-signal.SIGKILL,)),
    "SIGHUP under nohup": Way(_send(signal.SIGHUP), (), is_under_nohup=True),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one try; ``wrong``: what should not have."""

    number: int
    way: str
    after_s: float
    phase: str
    exit_code: int
    complete: int
    resumed: int
    wrong: tuple[str, ...]


def write_scenario(folder: Path, *, ranks: int = 1, network: str = "real", has_reference: bool = False) -> Path:
    """Write a scenario of two short launches."""
    fields = {
        "schema_version": 1,
        "device": "cpu",
        "model": {"kind": "mlp", "layers": 2, "dim": 32, "hidden_dim": 64},
        "data": {"global_batch": 8, "sequence_length": 8},
        "parallel": {"kind": "ddp", "replicas": ranks},
        "network": NETWORKS[network],
        "correctness": {"enabled": has_reference},
        "measure": {"warmup": {"min_steps": 8, "max_steps": 8}, "measured_steps": 8, "profiled_steps": 2},
        "repeat": LAUNCHES,
    }
    path = folder / "stopped.yaml"
    path.write_text("# What stops it?\n" + json.dumps(fields), encoding="utf-8")
    return path


def stop_once(number: int, folder: Path) -> Outcome:
    """Stop a run, look at what it left, and go on with it."""
    dice = random.Random(number)
    name = list(WAYS)[number % len(WAYS)]
    way, after_s = WAYS[name], round(dice.uniform(0.2, LONGEST_S), 2)
    scratch, results = folder / "tmp", folder / "results"
    scratch.mkdir()
    tag = f"{os.getpid()}-{number}"
    environment = {**os.environ, "TMPDIR": str(scratch), TAG: tag, "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-P", "-m", "dtbench", "run", str(write_scenario(folder)), "--results", str(results)]
    nohup = ["nohup"] if way.is_under_nohup else []
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [*nohup, *run], env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        phase = find_phase(results) if process.poll() is None else "ended"
        way.send(process)
        exit_code = process.wait(600)  # a whole run where it ignores the signal, on a machine with other work
    wrong = [f"left running: {one}" for one in wait_for_none(tag)]
    wrong += [f"left lying: {path.name}" for path in scratch.iterdir()]
    early = [128 - code for code in way.exit_codes] if phase == BEFORE else []  # Python itself starts or ends
    well = () if way.exit_codes and phase.startswith(("starting", "stepping")) else (0, 8)  # 8: a check says no
    if exit_code not in (*well, *way.exit_codes, *early):
        wrong.append(f"exit code {exit_code}: {(folder / 'said').read_text(errors='replace')[-300:]}")
    before = {launch: fingerprint(launch) for launch in find_complete(results)}
    ended_well = [launch for launch in find_launches(results) if launch.rank_record(0).exists()]
    wrong += [
        f"{launch.path.name} had all its results and is not complete"
        for launch in ended_well
        if launch not in before and name not in ("SIGKILL", "SIGQUIT")
    ]
    resumed = subprocess.run(
        [*run, "--resume"], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    is_over = "no unfinished run" in resumed.stderr
    if resumed.returncode not in (0, 8) and not is_over:
        wrong.append(f"--resume ended with {resumed.returncode}: {resumed.stderr[-300:]}")
    after = find_complete(results)
    wrong += [f"{launch.path.name} is not as it was" for launch, told in before.items() if fingerprint(launch) != told]
    if find_runs(results) and len(after) != LAUNCHES:
        wrong.append(f"{len(after)} of {LAUNCHES} launches are complete in the end")
    return Outcome(number, name, after_s, phase, exit_code, len(before), len(after) - len(before), tuple(wrong))


def find_runs(results: Path) -> list[Path]:
    """Return the runs that have begun."""
    return list(results.glob("*/*/run.json"))


def find_launches(results: Path) -> list[LaunchFolder]:
    """Return the launches that have begun."""
    return [LaunchFolder(path) for path in sorted(results.glob("*/*/cells/*/launch*"))]


def find_complete(results: Path) -> list[LaunchFolder]:
    """Return the launches that say that they are complete."""
    found = []
    for launch in find_launches(results):
        with suppress(StoreError):
            if read_launch(launch).status is RunStatus.COMPLETE:
                found.append(launch)
    return found


def fingerprint(launch: LaunchFolder) -> str:
    """Tell what a launch measured: its record, its steps, what its rank found."""
    digest = hashlib.sha256()
    for path in (launch.launch, launch.steps, launch.rank_record(0)):
        digest.update(path.read_bytes() if path.exists() else b"-")
    return digest.hexdigest()


def find_phase(results: Path) -> str:
    """Say where the run was, by its newest launch."""
    launches = find_launches(results)
    if not launches:
        return BEFORE
    launch = launches[-1]
    if launch.launch.exists():
        return "between launches or analysing"
    with suppress(StoreError, OSError):
        view = read_journal(launch.journal(0))
        return "starting" if view is None else f"{view.state.name.lower()} {view.phase or ''}".strip()
    return "starting"


def wait_for_none(tag: str, timeout_s: float = 60) -> list[str]:
    """Return what still runs of a try after a while: a rank that still imports torch notices after that who is gone."""
    end_s = time.monotonic() + timeout_s
    while (left := list(_find_tagged(tag))) and time.monotonic() < end_s:
        time.sleep(0.1)
    return left


def _find_tagged(tag: str) -> Iterator[str]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(TAG) == tag:
                yield " ".join(process.cmdline())[-80:]


def main() -> None:
    """Make the tries that have no row yet."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # not ignored by the commands, though this one may be

    def attempt(number: int) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="dtbench-signals-") as folder:
            return stop_once(number, Path(folder))

    go_on(__doc__, attempt, count=100, rows=ROWS)


if __name__ == "__main__":
    main()
