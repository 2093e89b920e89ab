"""The loop over phases, with a fake clock and a log in place of training."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.vocabulary import Axis, Operation, Phase, Region
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.journal import JournalWriter, read_journal
from dtbench.store.records.rank import WarmupEnd
from dtbench.store.records.traffic import Owned
from dtbench.worker.loop.clock import Reading
from dtbench.worker.loop.steps import PhaseResult, Phases, StepLoop, make_timing
from dtbench.worker.recording.recorder import Recorder, find_medians, summarize_issues


class FakeClock:
    """Step n takes n + 1 ns on the host, and twice that on the device if there is one."""

    def __init__(self, has_device: bool) -> None:
        self._has_device, self._steps, self._pending = has_device, 0, 0

    def start(self) -> None:
        self._steps += 1
        self._pending += 1

    def stop(self) -> Reading:
        return Reading(start_ns=1000 * self._steps, duration_ns=self._steps, cpu_ns=7)

    def settle(self) -> list[int] | None:
        first, self._pending = self._steps - self._pending + 1, 0
        return [2 * step for step in range(first, self._steps + 1)] if self._has_device else None


@pytest.mark.parametrize("has_device", [False, True])
def test_phases_run_in_order_and_never_mix(tmp_path: Path, scenario: Callable[..., Scenario], has_device: bool) -> None:
    plan = make_plan(scenario(measure={"measured_steps": 5, "profiled_steps": 2}), Machine(cpu_cores=2, cuda_devices=0))
    log: list[Any] = []

    @contextmanager
    def capture() -> Any:
        log.append("profiler on")
        yield
        log.append("profiler off")

    def train(step: int) -> Any:
        log.append(step)
        return torch.tensor(float(step))

    path = tmp_path / "journal"
    with JournalWriter(path, rank=0, pid=1, capacity=20) as journal:
        journal.begin(1)
        loop = StepLoop(Recorder(), journal, FakeClock(has_device), lambda _steps: None, train)
        end = WarmupEnd(steps=3, settled=True, reason="")
        phases = Phases(
            plan, loop, lambda _ns, issues: end if len(log) == 3 else None, lambda *_: None, capture, lambda *_: False
        )
        assert phases.warm_up(0, PhaseResult()) == end
        phases.measure(3)
        phases.profile(8)
        view = read_journal(path)
    assert log == [0, 1, 2, 3, 4, 5, 6, 7, "profiler on", 10, 8, 9, "profiler off"]
    assert view is not None
    assert [(t.step, t.phase) for t in view.timings] == (
        [(s, Phase.WARMUP) for s in (0, 1, 2)]
        + [(s, Phase.MEASURED) for s in range(3, 8)]
        + [(8, Phase.PROFILED), (9, Phase.PROFILED)]
    )
    times = [t.duration_ns for t in view.timings]
    assert times == [(2 if has_device else 1) * step for step in range(1, 11)], "the profiler's start is not timed"


def test_a_phase_that_others_left_nothing_of_is_run_again_and_only_the_last_is_kept(
    tmp_path: Path, scenario: Callable[..., Scenario]
) -> None:
    plan = make_plan(scenario(measure={"measured_steps": 4, "profiled_steps": 2}), Machine(cpu_cores=2, cuda_devices=0))
    log: list[Any] = []
    asked: list[tuple[list[float], int]] = []
    answers = iter((True, True, False, True, False))

    def wants_again(stolen_fractions: Sequence[float], took_ns: int) -> bool:
        asked.append((list(stolen_fractions), took_ns))
        return next(answers)

    @contextmanager
    def capture() -> Any:
        log.append("profiler on")
        yield

    recorder, clock = Recorder(), FakeClock(has_device=False)

    def train(step: int) -> Any:
        log.append(step)
        recorder.owned.append(Owned(group="0", seq=len(log), owner="a"))
        return torch.tensor(float(len(log)))

    path = tmp_path / "journal"
    with JournalWriter(path, rank=0, pid=1, capacity=20) as journal:
        journal.begin(1)
        loop = StepLoop(recorder, journal, clock, lambda _steps: None, train)
        phases = Phases(plan, loop, lambda *_: None, lambda *_: None, capture, wants_again)
        measured = phases.measure(0)
        between = read_journal(path)
        profiled = phases.profile(4)
        view = read_journal(path)
    assert log == [0, 1, 2, 3] * 3 + ["profiler on", 6, 4, 5] * 2
    assert between is not None
    assert view is not None
    assert [t.duration_ns for t in between.timings] == measured.durations_ns == [9, 10, 11, 12]
    assert [(t.step, t.phase, t.duration_ns) for t in view.timings] == [
        *((step, Phase.MEASURED, 9 + step) for step in range(4)),
        (4, Phase.PROFILED, 15),
        (5, Phase.PROFILED, 16),
    ]
    assert [float(loss) for loss in (*measured.losses, *profiled.losses)] == [9, 10, 11, 12, 19, 20]
    assert [took_ns for _, took_ns in asked] == [10, 26, 42, 27, 31]
    assert {len(stolen_fractions) for stolen_fractions, _ in asked} == {2, 4}
    assert [one.seq for one in recorder.owned] == [9, 10, 11, 12, 18, 19, 20]


def test_buckets_are_counted_anew_in_every_backward() -> None:
    recorder = Recorder(axes={"0": Axis.REPLICATE})
    owners = []
    for _ in range(2):
        recorder.begin_step()
        recorder.enter(Region.BACKWARD)
        for integer in (False, True, False):
            owners.append(recorder.issue("0", Operation.ALL_REDUCE, 8, is_async=True, is_integer=integer).owner)
    assert owners == ["bucket 0", "unused-parameter map", "bucket 1"] * 2
    (row,) = summarize_issues(recorder.step_issues())
    assert (row.count, row.size_bytes, row.count_async) == (3, 24, 3)


def test_regions_are_timed_step_by_step_with_all_micro_batches_together() -> None:
    clock = iter((0, 10, 30, 31, 33, 40, 1_000, 1_005, 1_006))
    recorder = Recorder(now_ns=lambda: next(clock))
    steps = []
    for regions in (
        (Region.FORWARD, Region.BACKWARD, Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER, None),
        (Region.FORWARD, Region.OPTIMIZER, None),
    ):
        recorder.begin_step()
        for region in regions:
            recorder.enter(region)
        steps.append(recorder.step_regions())
    first = {Region.FORWARD: 10 + 1, Region.BACKWARD: 20 + 2, Region.OPTIMIZER: 7}
    assert steps == [first, {Region.FORWARD: 5, Region.OPTIMIZER: 1}]
    assert find_medians(steps) == {Region.FORWARD: 8, Region.BACKWARD: 22, Region.OPTIMIZER: 4}


def test_a_journal_outlives_its_writer_and_says_where_the_rank_was(tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    writer = JournalWriter(path, rank=3, pid=42, capacity=4)
    assert read_journal(path) is None
    writer.begin(500)
    writer.enter_step(Phase.MEASURED, 17, 1000)
    writer.beat(Region.BACKWARD, 2000)
    writer.count_issue()
    view = read_journal(path)
    assert view is not None
    assert (view.rank, view.pid, view.step, view.phase, view.region) == (3, 42, 17, Phase.MEASURED, Region.BACKWARD)
    assert (view.beat_unix_ns, view.issued, view.timings) == (2000, 1, ())


def test_a_journal_keeps_what_others_had_in_a_step(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with JournalWriter(path, rank=0, pid=1, capacity=3) as journal:
        journal.begin(1)
        for step, stolen_fraction in enumerate((0.0, 0.25, math.nan)):
            journal.finish_step(make_timing(step, Phase.MEASURED, Reading(5, 6, 7, stolen_fraction)))
    view = read_journal(path)
    assert view is not None
    assert [t.stolen_fraction for t in view.timings] == pytest.approx([0.0, 0.25, math.nan], nan_ok=True)
    assert {(t.start_ns, t.duration_ns, t.cpu_ns) for t in view.timings} == {(5, 6, 7)}


def test_regions_are_those_of_steps_that_others_left_alone() -> None:
    regions = [{Region.FORWARD: time_ns} for time_ns in (1, 2, 90, 3)]
    result = PhaseResult(regions=regions, stolen_fractions=[0.0, 0.0, 0.4, math.nan])
    assert result.find_undisturbed_regions() == [regions[0], regions[1], regions[3]]


def test_a_missing_journal_is_a_rank_that_has_not_begun(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none") is None


_WRITER = """
import itertools, pathlib, sys
from dtbench.store.journal import JournalWriter
from dtbench.base.vocabulary import Phase, Region
journal = JournalWriter(pathlib.Path(sys.argv[1]), rank=0, pid=1, capacity=1)
journal.begin(10**18)
print("begun", flush=True)
for step in itertools.count(1):
    journal.enter_step(Phase.MEASURED, step, 10**18 + step)
    journal.beat(Region.FORWARD, 10**18 + step)
"""


def test_a_reader_never_sees_half_a_word(tmp_path: Path) -> None:
    # struct.pack_into clears its target first: written with it, one read in five saw a beat of 0
    path = tmp_path / "journal"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        views = [read_journal(path) for _ in range(20_000)]
        writer.kill()
    assert all(view is not None and view.beat_unix_ns >= 10**18 for view in views)
