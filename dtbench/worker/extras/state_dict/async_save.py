"""What saving and loading cost the training steps around them: steps before and after a load, and beside a save.

::

    before      step step step │ load of all parts │ first step │ step step        after
    alone       step step step
    beside      async_save: stages, returns │ step step step │ the rest of the save
                └ blocked ┘     └── written by a thread meanwhile ──┘        in rounds, alone and beside in turns

Steps train with a learning rate of 0, and weights are put back afterwards. While a save goes on each weight differs in
its lowest bit, as if a step had changed it: a save that copies later than at its call shows that.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from dtbench.base.vocabulary import DeviceKind
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.state import StateStepsRecord
from dtbench.worker.extras.state_dict.leaves import Kept, find_mismatches, keep
from dtbench.worker.extras.state_dict.stages import TrainingState, copy_tensors, count_file_bytes, make_target
from dtbench.worker.machine.accelerator import settle


@dataclass
class _Save:
    """One asynchronous save, and the steps that ran beside it."""

    blocked_ns: int
    beside_ns: list[int]
    in_flight: int
    saved_ns: int
    mismatched: int


@dataclass(frozen=True)
class AsyncSaveCost:
    """A rank that trains around loads and saves.

    Attributes:
        train: runs one training step.
        folder: where checkpoints go; all ranks see it.
    """

    asked: StateDict
    training: TrainingState
    train: Callable[[], object]
    folder: Path
    device: torch.device

    def run(self) -> StateStepsRecord:
        """Time steps around a load, then in turns alone and beside a save (collective)."""
        before_ns = self._train_steps()
        load_ns = self._time(self._load)
        first_ns, *after_ns = self._train_steps()
        group = dist.new_group() if self.device.type == DeviceKind.CPU else dist.new_group(backend="gloo")
        alone_ns: list[int] = []
        saves: list[_Save] = []
        for place in range(self.asked.rounds):
            alone_ns += self._train_steps()
            saves.append(self._save(self.folder / f"async{place}", group))
        return StateStepsRecord(
            before_ns=tuple(before_ns),
            load_ns=load_ns,
            first_ns=first_ns,
            after_ns=tuple(after_ns),
            alone_ns=tuple(alone_ns),
            blocked_ns=tuple(one.blocked_ns for one in saves),
            beside_ns=tuple(duration_ns for one in saves for duration_ns in one.beside_ns),
            in_flight=sum(one.in_flight for one in saves),
            saved_ns=tuple(one.saved_ns for one in saves),
            file_bytes=count_file_bytes(self.folder / "async0"),
            mismatched=sum(one.mismatched for one in saves),
        )

    def _load(self) -> None:
        for part in self.asked.parts:
            self.training.put(part, copy_tensors(self.training.take(part)))

    def _train_steps(self) -> list[int]:
        dist.barrier()
        return [self._time(self.train) for _ in range(self.asked.steps)]

    def _time(self, act: Callable[[], object]) -> int:
        settle(self.device)
        start_ns = time.perf_counter_ns()
        act()
        settle(self.device)
        return time.perf_counter_ns() - start_ns

    def _save(self, folder: Path, group: Any) -> _Save:
        """Save all parts on a group of their own, so that no collective of a save comes between those of a step."""
        state = {str(part): self.training.take(part) for part in self.asked.parts}
        kept = keep(state)
        dist.barrier()
        start_ns = time.perf_counter_ns()
        future: Future[Any] = dcp.async_save(state, checkpoint_id=folder, process_group=group)
        blocked_ns = time.perf_counter_ns() - start_ns
        ended_ns: list[int] = []
        future.add_done_callback(lambda _: ended_ns.append(time.perf_counter_ns()))
        beside_ns: list[int] = []
        in_flight = 0
        with self.training.change_weights():
            for _ in range(self.asked.steps):
                in_flight += not future.done()
                beside_ns.append(self._time(self.train))
            future.result()
        mismatched = self._count_mismatches(state, kept, folder)
        return _Save(blocked_ns, beside_ns, in_flight, ended_ns[0] - start_ns, mismatched)

    def _count_mismatches(self, state: dict[str, Any], kept: Kept, folder: Path) -> int:
        """Read what was saved: steps beside it must not show in it (collective)."""
        target = make_target(state)
        dcp.load(target, checkpoint_id=folder)
        return len(find_mismatches(kept, target))
