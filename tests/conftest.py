"""Small scenarios and real launches for tests that need them.

A rank spends most of a small launch on importing torch. So ``launch`` forks its ranks from a process that has imported
the worker: for tests of what ranks compute, send and record. ``launch_fresh`` starts them as a user's start: for tests
of how ranks start, fail and end (all of ``launch/``), of variables and interpreters, and for one honest run of each
strategy. What tests start by themselves (``dtbench run``, torchrun) is fresh, too.
"""

import hashlib
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dtbench.base.units import format_fraction
from dtbench.machine.core_use import CoreWatch, UseSample
from dtbench.machine.disturbance import DISTURBED
from dtbench.machine.processes import count_cores
from dtbench.machine.stolen_time import StolenTime
from dtbench.plan.plan import Machine, make_plan, plan_reference
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.rank import CorrectnessResult, RankRecord
from dtbench.store.records.run import LaunchRecord, WorkerOrder

TIMED_TRIES = 3
"""How often a timed test may be tried."""

hypothesis.settings.register_profile("dtbench", deadline=None)  # on a shared machine an example may take any time
hypothesis.settings.load_profile("dtbench")

MUCH_DISTURBED_FRACTION = 0.1
"""Above, the next try of a timed test is as hopeless."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so does what it starts; commands that are tested must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark a test's parameters as thorough but for those that ``quick`` names; a timed test may be tried thrice.

    Other guests of a shared machine take up to a tenth of its time for minutes; what is wrong is so every time.

    Raises:
        UsageError: it names one that the test does not have.
    """
    named, found = dict[str, set[str]](), defaultdict[str, set[str]](set)
    for item in items:
        if item.get_closest_marker("timed") is not None:
            item.add_marker(pytest.mark.flaky(reruns=TIMED_TRIES - 1, reruns_delay=10, only_rerun="."))
        quick = item.get_closest_marker("quick")
        if quick is None or not isinstance(item, pytest.Function):
            continue
        test = item.nodeid.partition("[")[0]
        named[test] = set(quick.args)
        found[test].add(item.callspec.id)
        if item.callspec.id not in quick.args:
            item.add_marker(pytest.mark.thorough)
    unknown = [f"{test}[{name}]" for test, names in named.items() for name in sorted(names - found[test])]
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"quick names what is not there: {', '.join(unknown)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures start servers and wait for them."""
    with _telling_disturbance(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Tests start ranks, browsers and commands, and wait for them."""
    with _telling_disturbance(item):
        return (yield)


class Others:
    """What others have of this machine from when it is made: its other guests, and where asked, other processes.

    To look at all processes takes a millisecond, too long for each of thousands of tests.
    """

    def __init__(self, *, sees_processes: bool) -> None:
        self._stolen = StolenTime()
        self._watch = CoreWatch() if sees_processes else None
        self._look()

    def describe(self) -> tuple[str, float]:
        """Say who took how much, and give it as a fraction of all cores; 0 where nobody took any."""
        stolen, sample = self._stolen.read_fraction() or 0.0, self._look()
        taken = 0.0
        if sample is not None:
            length_ns = sample.end_ns - sample.start_ns
            fought_for_ns = min(sample.others_ns, length_ns if sample.pressure_ns is None else sample.pressure_ns)
            taken = fought_for_ns / (length_ns * count_cores())
        who = "processes" if taken > stolen else "guests"
        return f"other {who} of this machine took {format_fraction(max(stolen, taken))} of it", max(stolen, taken)

    def _look(self) -> UseSample | None:
        return None if self._watch is None else self._watch.look(())


@contextmanager
def _telling_disturbance(item: pytest.Item) -> Iterator[None]:
    """Where a test fails while others have the machine, say so: it is tried again.

    A timed test that fails thus at its last try is skipped, with the share of the machine that was gone and with what
    failed: times of a machine that others use are no evidence. Where much is gone it is not tried again: that would
    take as long and say as little. A quiet machine excuses nothing.
    """
    others = Others(sees_processes=any(item.get_closest_marker(name) for name in ("ranks", "timed")))
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        told, taken = others.describe()
        if taken < DISTURBED:
            raise
        lost = f"{told} meanwhile"
        was_last = getattr(item, "execution_count", TIMED_TRIES) >= TIMED_TRIES
        if item.get_closest_marker("timed") and (was_last or taken >= MUCH_DISTURBED_FRACTION):
            pytest.skip(f"{lost}, and it failed: {str(error).partition(chr(10))[0]}")
        raise DisturbedError(lost) from error


class DisturbedError(Exception):
    """A test failed on a machine that gave part of its time to others; the cause says what failed."""


SMALL: dict[str, Any] = {
    "schema_version": 1,
    "device": "cpu",
    "model": {
        "kind": "transformer",
        "layers": 2,
        "dim": 64,
        "heads": 4,
        "kv_heads": 2,
        "ffn_dim": 96,
        "vocab_size": 250,
    },
    "data": {"global_batch": 8, "sequence_length": 32},
    "parallel": {"kind": "ddp", "replicas": 2},
    "measure": {
        "warmup": {"min_steps": 8, "max_steps": 8},
        "measured_steps": 4,
        "profiled_steps": 1,
        "stall_timeout_s": 60,
    },
}


def make_scenario(**sections: Any) -> Scenario:
    """Return the small scenario with sections replaced, or merged where both are mappings without a kind."""
    fields = dict(SMALL)
    for name, section in sections.items():
        before = fields.get(name)
        merges = isinstance(before, dict) and isinstance(section, dict) and "kind" not in section
        fields[name] = {**before, **section} if merges and before is not None else section
    return Scenario.model_validate_json(json.dumps(fields))


@pytest.fixture
def scenario() -> Callable[..., Scenario]:
    return make_scenario


@dataclass(frozen=True)
class Launched:
    """A finished launch, read back."""

    folder: LaunchFolder

    def rank(self, rank: int = 0) -> RankRecord:
        return RankRecord.model_validate_json(self.folder.rank_record(rank).read_bytes())

    @property
    def record(self) -> LaunchRecord:
        return LaunchRecord.model_validate_json(self.folder.launch.read_bytes())

    @property
    def correctness(self) -> CorrectnessResult:
        result = self.rank().correctness
        assert result is not None
        return result

    @property
    def canary(self) -> CanaryResult:
        """What rank 0 found; all ranks agree whether it passed."""
        results = [
            self.rank(rank).extras.canary for rank in range(len(list(self.folder.path.glob("ranks/rank*.json"))))
        ]
        first = results[0]
        assert first is not None
        assert {result.passed for result in results if result is not None} == {first.passed}
        assert None not in results
        return first

    @property
    def traffic(self) -> Mapping[tuple[str, str, str], tuple[int, int]]:
        rows = self.rank().traffic
        return {(str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in rows}


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of single-process results; scenarios that train the same share one."""
    return tmp_path_factory.mktemp("references")


@pytest.fixture(scope="session")
def forked() -> Iterator[tuple[str, ...]]:
    """Yield what goes before a rank's command for it to be forked; see ``dtbench/launch/forked/server.py``."""
    pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
    from dtbench.launch.forked.servers import can_fork, serve_forks

    if not can_fork():
        yield ()
        return
    with serve_forks() as command:
        yield command


@pytest.fixture
def launch(tmp_path: Path, references: Path, forked: tuple[str, ...]) -> Callable[..., Launched]:
    """Run a scenario's reference and one launch with forked ranks; ``fault`` runs the faulty worker instead."""
    return partial(_launch, tmp_path, references, forked)


@pytest.fixture
def launch_fresh(tmp_path: Path, references: Path) -> Callable[..., Launched]:
    """Do as ``launch``, with ranks that start as a user's do: each a fresh process that imports all by itself."""
    return partial(_launch, tmp_path, references, ())


def _launch(
    tmp_path: Path, references: Path, prefix: tuple[str, ...], scenario: Scenario, fault: str | None = None
) -> Launched:
    from dtbench.launch.local import WORKER, launch_ranks

    assert not (prefix and (scenario.env or scenario.python)), "what imports read has been read; use launch_fresh"
    plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
    reference_scenario, reference_plan = plan_reference(scenario, plan)
    key = hashlib.sha256(reference_scenario.model_dump_json(exclude={"measure"}).encode()).hexdigest()[:16]
    reference, folder = LaunchFolder(references / key), LaunchFolder(tmp_path / "launch0")
    order = WorkerOrder(
        cell="cell",
        index=0,
        scenario=scenario,
        plan=plan,
        folder=str(folder.path),
        reference=str(reference.reference_data) if scenario.correctness.enabled else None,
        is_reference=False,
        import_folders=(str(Path(__file__).parent / "worker"),),
        launched_unix_ns=time.time_ns(),
    )
    if scenario.correctness.enabled and not reference.reference_data.exists():
        changes = {
            "scenario": reference_scenario,
            "plan": reference_plan,
            "folder": str(reference.path),
            "reference": None,
        }
        single = order.model_copy(update={**changes, "is_reference": True})
        launch_ranks(single, reference, on_look=lambda _ranks: None, worker=(*prefix, *WORKER))
    worker: Sequence[str] = WORKER
    if fault is not None:
        worker = (sys.executable, str(Path(__file__).parent / "worker" / "faulty_worker.py"), fault)
    launch_ranks(order, folder, on_look=lambda _ranks: None, worker=(*prefix, *worker))
    return Launched(folder)
