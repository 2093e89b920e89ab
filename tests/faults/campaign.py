"""Faults by the hundred: ``python -m tests.faults.campaign --count 300`` goes on where it stopped, a row a fault.

A row's number says everything about its fault: kind, phase, strategy, network, rank and moment. Ranks are forked from
a process that has imported torch, every eighth launch starts fresh ones.
"""

import contextlib
import io
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from dtbench.cli.main import main as dtbench
from dtbench.launch import local, watch
from dtbench.launch.forked.servers import serve_forks
from dtbench.store.finish import gather_steps
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_launch, read_rank_records, read_steps
from tests.faults.faulty_rank import FATES, PHASES, SENTENCE
from tests.faults.rows import go_on

HERE: Final = Path(__file__).parent
ROWS: Final = HERE / "outcomes.jsonl"
STRATEGIES: Final = {
    "ddp": {"kind": "ddp", "replicas": 2},
    "fsdp1": {"kind": "fsdp1", "shards": 2},
    "fsdp2_tp": {"kind": "fsdp2", "shards": 1, "tensor": 2},
}
NETWORKS: Final = {
    "link": {"kind": "emulated", "latency_us": 500.0, "bandwidth_gb_per_s": 1.0},
    "real": {"kind": "real"},
}
SAID: Final = {
    "kill": "killed by SIGKILL",
    "stop": "was stopped by a signal or a debugger",
    "raise": "raised",
    "exit 3": "left with exit code 3",
    "exit 0": "left without an error before its work was done",
    "segfault": "killed by SIGSEGV",
    "abort": "killed by SIGABRT",
    "memory": "",  # an exception, or what torch's libraries make of one
}
FRESH_EVERY: Final = 8
STALL_S: Final = 3
"""Of a rank that is stopped; the steps take some tens of milliseconds."""


@dataclass(frozen=True)
class Fault:
    """One fault; ``delay_ms``: from when its rank comes into the phase."""

    number: int
    kind: str
    phase: str
    strategy: str
    network: str
    rank: int
    delay_ms: float
    is_fresh: bool

    @classmethod
    def draw(cls, number: int) -> "Fault":
        """Return the fault of a number, the same each time."""
        dice = random.Random(number)
        kinds, phases = list(FATES), list(PHASES)
        return cls(
            number=number,
            kind=kinds[number % len(kinds)],
            phase=phases[number // len(kinds) % len(phases)],
            strategy=dice.choice(list(STRATEGIES)),
            network=dice.choice(list(NETWORKS)),
            rank=dice.randrange(2),
            delay_ms=round(dice.uniform(0, 40), 1),
            is_fresh=number % FRESH_EVERY == FRESH_EVERY - 1,
        )

    @property
    def spec(self) -> str:
        """What ``faulty_rank.py`` is told."""
        return f"{self.kind}:{self.phase}:{self.rank}:{self.delay_ms}"


@dataclass(frozen=True)
class Outcome:
    """What came of a fault, and what was wrong with that; ``named``: ranks that ``sentence`` names."""

    fault: Fault
    exit_code: int
    status: str
    named: tuple[int, ...]
    what: str
    sentence: str
    kept_steps: int
    took_s: float
    wrong: tuple[str, ...]
    was_met: bool


def write_scenario(folder: Path, fault: Fault) -> Path:
    """Write the scenario of a fault: some seconds of short steps."""
    stages = {"rounds": 1, "stages": ["shard", "gather", "save", "read", "load"]}
    fields = {
        "schema_version": 1,
        "device": "cpu",
        "model": {"kind": "mlp", "layers": 4, "dim": 64, "hidden_dim": 256},
        "data": {"global_batch": 32, "sequence_length": 32},
        "parallel": STRATEGIES[fault.strategy],
        "network": NETWORKS[fault.network],
        "correctness": {"enabled": False},
        "measure": {
            "warmup": {"min_steps": 8, "max_steps": 8},
            "measured_steps": 8,
            "profiled_steps": 3,
            "exposure": ["trace", "wait"] if fault.phase == "estimating" else ["trace"],
            "stall_timeout_s": STALL_S,
        },
        **({"state_dict": stages} if fault.phase == "stage" else {}),
    }
    path = folder / "faulty.yaml"
    path.write_text("# What if?\n" + json.dumps(fields), encoding="utf-8")
    return path


def meet(fault: Fault, prefix: Sequence[str], folder: Path) -> Outcome:
    """Run a launch into its fault, and judge what came of it."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    servers = set(find_children())
    worker = (sys.executable, str(HERE / "faulty_rank.py"), fault.spec)
    began_s = time.monotonic()
    with replaced(local, "WORKER", (*prefix, *worker)), replaced(tempfile, "tempdir", str(scratch)):
        exit_code, said = run_command("run", str(write_scenario(folder, fault)), "--results", str(folder / "results"))
    took_s = time.monotonic() - began_s
    left = [_name(pid) for pid in set(find_children()) - servers]
    left += [f"file {path.name}" for path in scratch.iterdir()]
    (launch,) = map(LaunchFolder, (folder / "results").glob("*/*/cells/*/launch0"))
    return judge(fault, launch, exit_code, said, left=left, took_s=took_s)


def judge(
    fault: Fault, launch: LaunchFolder, exit_code: int, said: str, *, left: Sequence[str], took_s: float
) -> Outcome:
    """Hold what came of a fault against what should have."""
    record = read_launch(launch)
    failures = record.failures
    named = tuple(int(rank) for rank in re.findall(r"rank (\d+) [^;\n]*?, last seen", record.reason or ""))
    named = named or tuple(failure.rank for failure in failures[:1])
    mine = next((failure.what for failure in failures if failure.rank == fault.rank), "")
    rows = _find_stages_told(launch)
    named = named or rows
    mine = mine or (SAID["raise"] if fault.rank in rows else "")
    was_met = bool(failures or rows)
    journalled, kept = len(gather_steps(launch, ranks=range(2))), len(read_steps(launch))
    wrong = [f"left behind: {what}" for what in left]
    if was_met and fault.rank not in named:
        wrong.append(f"blamed {named} for what rank {fault.rank} met")
    if was_met and not mine.startswith(SAID[fault.kind]):
        wrong.append(f"said of it: {mine!r}")
    if not was_met and fault.kind != "memory":
        wrong.append("nothing was said")
    if kept != journalled:
        wrong.append(f"{journalled} steps were measured and {kept} kept")
    failed = record.status != "complete"
    if exit_code not in ((4,) if failed else (0, 8)):
        wrong.append(f"exit code {exit_code} of a launch that is {record.status}")
    if "bug in dtbench" in said:
        wrong.append("said to be a bug in dtbench")
    return Outcome(
        fault=fault,
        exit_code=exit_code,
        status=str(record.status),
        named=named,
        what=mine,
        sentence=(record.reason or "").partition("\n")[0],
        kept_steps=kept,
        took_s=round(took_s, 1),
        wrong=tuple(wrong),
        was_met=was_met,
    )


def _find_stages_told(launch: LaunchFolder) -> tuple[int, ...]:
    """Return the ranks whose stage ended with the planted error: that is a row, and the launch does not fail."""
    return tuple(
        one.rank
        for one in read_rank_records(launch)
        if any(SENTENCE in (stage.raised or "") for stage in one.extras.stages)
    )


def run_command(*arguments: str) -> tuple[int, str]:
    """Run the command in this process; gives its exit code and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            dtbench(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
            return code, out.getvalue()
    return 0, out.getvalue()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Let a name stand for something else meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def find_children() -> Iterator[int]:
    """Yield the processes that this one has started and that live."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


def _name(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return f"process {' '.join(psutil.Process(pid).cmdline())[-80:]}"
    return "process"


def main() -> None:
    """Meet the faults that have no row yet."""
    watch.PATIENT_TIMEOUT_NS = 2 * STALL_S * 1_000_000_000  # ranks start from a fork, and their model is small
    with serve_forks() as prefix:

        def attempt(number: int) -> Outcome:
            fault = Fault.draw(number)
            with tempfile.TemporaryDirectory(prefix="dtbench-faults-") as folder:
                return meet(fault, () if fault.is_fresh else prefix, Path(folder))

        go_on(__doc__, attempt, count=300, rows=ROWS)


if __name__ == "__main__":
    main()
