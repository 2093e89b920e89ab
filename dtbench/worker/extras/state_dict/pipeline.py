"""Takes each part of a training state through the stages that a scenario asks for, in rounds, on every rank.

::

    one round of a stage    prepare │ barrier │ call: timed, its collectives counted │ compare

    first pass              each stage in turn: once untimed, once timed, once while memory is sampled
    each further pass       each stage in turn: once timed

A stage's timed rounds lie a whole pass apart: a burst of other work, of some seconds, spoils one of them and not all.
All ranks run the same rounds. A stage that raises is the last one: nobody knows what it left behind, and no collective
runs after it.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
import torch.distributed as dist

from dtbench.base.vocabulary import Arm, DeviceKind, Region, Stage, StatePart
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.journal import JournalWriter
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import ENDED_IN_STAGE, StageMemory, StageMismatch, StageRecord
from dtbench.store.write import write_record
from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.extras.state_dict.leaves import MOST_MISMATCHES, count_bytes
from dtbench.worker.extras.state_dict.memory import MemoryWatch
from dtbench.worker.extras.state_dict.rank_guard import RankGuard, StageRaisedError, StageStuckError
from dtbench.worker.extras.state_dict.stages import (
    Setting,
    StageWork,
    TrainingState,
    count_file_bytes,
    make_setting,
    make_work,
)
from dtbench.worker.machine.accelerator import settle
from dtbench.worker.network.carrier import OBJECT_CALLS, Carrier
from dtbench.worker.recording.recorder import Issue, Recorder, summarize_issues

_UNHEARD_OF: Final = f"{ENDED_IN_STAGE} (torch {torch.__version__})"


@dataclass(frozen=True)
class ProvisionalRecord:
    """What a rank's record will be if the stage that it goes into kills it: on disk before, as nobody writes it after.

    ``dtbench.launch.killed`` makes the rank's record of it.

    Attributes:
        path: where it is kept.
        record: of a rank that trained, without any stage.
    """

    path: Path
    record: RankRecord

    def enter(self, earlier: Sequence[StageRecord], part: StatePart, stage: Stage, words: str = _UNHEARD_OF) -> None:
        """Write down that this stage was the last, and what torch said in it, once it has."""
        last = StageRecord(stage=stage, part=part, raised=words)
        write_record(self.path, self.record.with_stages((*earlier, last)))

    def leave(self) -> None:
        """All stages are over, or one raised: what comes is written by the rank itself."""
        self.path.unlink(missing_ok=True)


@dataclass
class Round:
    """What one round left behind.

    Attributes:
        state_bytes: of the tensors that this rank gave or was given.
        mismatches: None where nothing was compared.
    """

    duration_ns: int
    wait_ns: int
    issues: tuple[Issue, ...]
    state_bytes: int
    mismatches: list[StageMismatch] | None


@dataclass(frozen=True)
class _Taken:
    """A stage that has gone through its first pass.

    Attributes:
        untimed: the first round, and the one in which memory was sampled.
        rounds: the timed ones so far, one of each pass.
    """

    stage: Stage
    setting: Setting
    work: StageWork
    untimed: tuple[Round, ...]
    rounds: list[Round]
    memory: StageMemory


@dataclass(frozen=True)
class Pipeline:
    """A rank that takes states through stages.

    Attributes:
        folder: where checkpoints go, each part's in one of its own; all ranks see it.
        device: of the model.
        say: told of each stage.
        guard: the ranks of the launch.
        carrier: of this rank's collectives.
        provisional: told of each stage before it.
        numbers: of steps: a stage's rounds follow those that trained.
    """

    asked: StateDict
    training: TrainingState
    folder: Path
    device: torch.device
    recorder: Recorder
    journal: JournalWriter
    say: Callable[[str, str], None]
    guard: RankGuard
    carrier: Carrier
    provisional: ProvisionalRecord
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _waits: WaitClock = field(default_factory=WaitClock)

    def run(self) -> tuple[StageRecord, ...]:
        """Run every stage of every part, up to one that raises (collective)."""
        records: list[StageRecord] = []
        with telling_objects(self.recorder), self._watching_waits():
            for part in self.asked.parts:
                records += self._run_part(part, records)
                if self.carrier.is_abandoned:
                    break
        self.recorder.enter(None)
        self.provisional.leave()
        return tuple(records)

    @contextmanager
    def _watching_waits(self) -> Iterator[None]:
        """Sum what the host waits for collectives; on a device it does not, only streams do."""
        if self.device.type != DeviceKind.CPU:
            yield
            return
        with mock.patch.multiple(self.carrier, arm=Arm.FULL, tell=self._waits.note), self._waits.installed():
            yield

    def _run_part(self, part: StatePart, earlier: list[StageRecord]) -> list[StageRecord]:
        taken: dict[Stage, _Taken] = {}
        for _ in range(self.asked.rounds):
            for stage in self.asked.find_stages(part):
                self.say("state dict", f"{stage} of the {part}")
                self._begin()
                others = [self._make_record(one, part) for name, one in taken.items() if name is not stage]
                self.guard.do(partial(self.provisional.enter, (*earlier, *others), part, stage))
                try:
                    if stage in taken:
                        taken[stage].rounds.append(self._run_round(taken[stage].work))
                    else:
                        taken[stage] = self._take(stage, part, next(iter(taken.values()), None))
                except StageRaisedError as error:
                    self.carrier.is_abandoned = True
                    return [*others, StageRecord(stage=stage, part=part, raised=error.words)]
                except StageStuckError as error:
                    self.provisional.enter((*earlier, *others), part, stage, words=str(error))
                    raise
        return [self._make_record(one, part) for one in taken.values()]

    def _take(self, stage: Stage, part: StatePart, before: "_Taken | None") -> "_Taken":
        """Run a stage's first rounds; all stages of a part share the setting of the first."""
        make = partial(make_setting, self.training, part, self.folder / part)
        setting = self.guard.do(make) if before is None else before.setting
        work = self.guard.do(partial(make_work, stage, setting))
        untimed, timed = self._run_round(work), self._run_round(work)
        memory = MemoryWatch(self.device)
        last = self._run_round(work, memory)
        return _Taken(stage, setting, work, untimed=(untimed, last), rounds=[timed], memory=memory.read())

    def _make_record(self, taken: "_Taken", part: StatePart) -> StageRecord:
        rounds, work = taken.rounds, taken.work
        issues = rounds[-1].issues
        compared = [one.mismatches for one in (*taken.untimed, *rounds) if one.mismatches is not None]
        mismatches = {found.key: found for one in compared for found in one}
        return StageRecord(
            stage=taken.stage,
            part=part,
            duration_ns=tuple(one.duration_ns for one in rounds),
            wait_ns=() if self.device.type != DeviceKind.CPU else tuple(one.wait_ns for one in rounds),
            state_bytes=rounds[-1].state_bytes,
            traffic=summarize_issues(_of_tensors(issues)),
            traffic_is_stable=len({_of_tensors(one.issues) for one in rounds}) == 1,
            object_collectives=sum(issue.is_object for issue in issues),
            object_bytes=sum(issue.size_bytes for issue in issues if issue.is_object),
            file_bytes=None if work.files is None else count_file_bytes(work.files),
            memory=taken.memory,
            mismatched=len(mismatches) if compared else None,
            mismatches=tuple(mismatches.values())[:MOST_MISMATCHES],
        )

    def _begin(self) -> None:
        self.journal.enter_step(None, next(self.numbers), time.time_ns())
        self.recorder.begin_step()
        self.recorder.enter(Region.STATE_DICT)

    def _run_round(self, work: StageWork, memory: MemoryWatch | None = None) -> Round:
        self._begin()
        given = self.guard.do(work.prepare)
        if memory is not None:
            memory.return_free_memory()
        dist.barrier()
        settle(self.device)
        self.recorder.begin_step()
        self._waits.begin_step()
        duration_ns, result = self.guard.do(lambda: self._time(work, given, memory))
        wait_ns = sum(self._waits.end_step().values())
        self.carrier.check()
        issues = self.recorder.step_issues()
        mismatches = self.guard.do(lambda: work.check(result))
        self.recorder.enter(None)
        return Round(duration_ns, wait_ns, issues, count_bytes(given if result is None else result), mismatches)

    def _time(self, work: StageWork, given: object, memory: MemoryWatch | None) -> tuple[int, object]:
        with nullcontext() if memory is None else memory.watching():
            start_ns = time.perf_counter_ns()
            result = work.call(given)
            settle(self.device)
            return time.perf_counter_ns() - start_ns, result


def _of_tensors(issues: tuple[Issue, ...]) -> tuple[Issue, ...]:
    return tuple(issue for issue in issues if not issue.is_object)


@contextmanager
def telling_objects(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder which collectives carry Python objects: no formula says what pickle makes of them."""
    with ExitStack() as patches:
        for home in (dist, dist.distributed_c10d):
            for name in OBJECT_CALLS:
                patches.enter_context(mock.patch.object(home, name, _marked(recorder, getattr(home, name))))
        yield


def _marked(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    def exchange(*args: Any, **kwargs: Any) -> Any:
        before, recorder.is_object = recorder.is_object, True
        try:
            return original(*args, **kwargs)
        finally:
            recorder.is_object = before

    return exchange
