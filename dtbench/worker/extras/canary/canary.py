"""Looks for missing waits: "faster" because nobody waits must not pass.

::

    ... PROFILED, arms | plain | NaN | large |  alike: no missing wait
                                             |  not: | plain | parts alone ... |  which part was read too early
                         no delay  |---------|  results come when somebody waits, poison until then

The ordinary check of the first steps cannot see a wait that is missing where the collective happens to be faster than
whoever reads its result. Here it never is: see ``dtbench.worker.network.deferred``. All steps are the same step: the
same batch, weights and random numbers, and a learning rate of 0. They are in no phase and in no table.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from dtbench.base.errors import CheckError, DtbenchError
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.plan import Plan
from dtbench.store.records.canary import CanaryResult, MissedWait
from dtbench.worker.extras.canary.narrow import Group, describe_group, find_smallest
from dtbench.worker.extras.canary.trial import Difference, Trial, compare_trials, read_gradients, read_part, worst_of
from dtbench.worker.extras.extra import Finding, Trained
from dtbench.worker.extras.still_steps import StillState, hold_weights
from dtbench.worker.loop.correctness import find_tolerances
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.models.batches import Batch
from dtbench.worker.network.carrier import carry_objects
from dtbench.worker.network.deferred import CollectiveKey, DeferredResults, Poison
from dtbench.worker.recording.recorder import Recorder

DELAY_STEPS: Final = 2
"""Where nobody can see who waits, results arrive after this many plain steps: later than the step's last reader."""
LEAST_DELAY_NS: Final = 50 * NS_PER_MS


def find_obstacle(plan: Plan) -> str | None:
    """Say why no rank of a plan can be tried; None: it can."""
    if plan.device is DeviceKind.CUDA:
        return "on CUDA it is streams that wait, which these steps do not see"
    return "a single rank has nobody to wait for" if plan.ranks < 2 else None


def look_for_missing_waits(trained: Trained) -> Finding | None:
    """Run the steps; None where nobody asked for them. Collective; weights and buffers stay as they are.

    Raises:
        CheckError: a step could not compute with poison, as when an index was read too early.
    """
    at, step = trained.at, trained.step
    if not at.scenario.wants_canary:
        return None
    obstacle = find_obstacle(at.plan)
    if obstacle is not None:
        return Finding(_untold(obstacle))
    at.say("looking for missing waits", f"{1 + len(Poison)} steps")
    state = StillState(step)
    canary = _Canary(trained, trained.batches.make(trained.first), state, find_tolerances(at.scenario))
    with hold_weights(step), carry_objects(at.carrier), _naming(step, at.recorder):
        try:
            return Finding(canary.run())
        finally:
            state.restore()


def _untold(reason: str) -> CanaryResult:
    return CanaryResult(
        passed=None, steps=0, collectives=0, is_equal=None, loss_error=math.nan, gradient_error=math.nan, reason=reason
    )


@contextmanager
def _naming(step: TrainStep, recorder: Recorder) -> Iterator[None]:
    """Let the recorder know whose collectives are, as in PROFILED steps, and forget it again."""
    before, kept = recorder.is_naming, len(recorder.owned)
    recorder.is_naming = True
    try:
        with step.parallel.watch_owners(recorder):
            yield
    finally:
        recorder.is_naming = before
        del recorder.owned[kept:]


@dataclass
class _Canary:
    """A step that is run again and again.

    Attributes:
        state: that every step starts from.
        tolerances: of losses and of gradients.
        forgotten: collectives of all trials that nobody ever waited for.
    """

    trained: Trained
    batch: Batch
    state: StillState
    tolerances: tuple[float, float]
    forgotten: set[CollectiveKey] = field(default_factory=set)

    def run(self) -> CanaryResult:
        """Compare poisoned steps with a plain one; where they differ find out by what."""
        plain = self._try(None)
        if self._is_true_anywhere(not plain.is_finite):
            return _untold("a step without any delay has numbers that are none: training has diverged")
        delay_ns = max(LEAST_DELAY_NS, DELAY_STEPS * plain.duration_ns)
        trials = [self._try(self._defer(poison, delay_ns)) for poison in Poison]
        seen = trials[0].seen
        if not self._is_true_anywhere(bool(seen)):
            return _untold("nothing is exchanged between ranks")
        found = worst_of(compare_trials(trial, plain) for trial in trials)
        missed: tuple[MissedWait, ...] = ()
        if failed := self._is_true_anywhere(not found.is_within(self.tolerances)):
            again = compare_trials(self._try(None), plain)
            if self._is_true_anywhere(not again.is_within(self.tolerances)):
                return _untold(_describe_unrepeatable(again))
            missed = self._find_missed(plain, seen, delay_ns)
        return CanaryResult(
            passed=not failed,
            steps=len(trials),
            collectives=len(seen),
            is_equal=found.is_equal,
            loss_error=found.loss,
            gradient_error=found.gradient,
            missed=missed,
        )

    def _find_missed(self, plain: Trial, seen: Group, delay_ns: int) -> tuple[MissedWait, ...]:
        """Poison parts alone: rank 0 says which, so that all ranks try the same."""
        shared: list[Group] = [seen]
        dist.broadcast_object_list(shared, src=0, device=torch.device("cpu"))

        def fails(group: Group) -> bool:
            trial = self._try(self._defer(Poison.NAN, delay_ns, frozenset(group).__contains__))
            return self._is_true_anywhere(not compare_trials(trial, plain).is_within(self.tolerances))

        groups = find_smallest(shared[0], fails) if shared[0] else []
        return tuple(describe_group(group, frozenset(self.forgotten)) for group in groups)

    def _defer(
        self, poison: Poison, delay_ns: int, is_deferred: Callable[[CollectiveKey], bool] | None = None
    ) -> DeferredResults:
        recorder = self.trained.at.recorder
        deferred = DeferredResults(poison, delay_ns, find_unit=lambda: recorder.unit)
        return deferred if is_deferred is None else replace(deferred, is_deferred=is_deferred)

    def _try(self, deferred: DeferredResults | None) -> Trial:
        """Run the step from its state, its collectives deferred or as ever, and see how it ends."""
        at, gradients = self.trained.at, list[Tensor | None]()
        self.state.restore()
        at.journal.enter_step(None, self.trained.first, time.time_ns())
        at.recorder.begin_step()
        dist.barrier()
        at.carrier.poison = None if deferred is None else deferred.carry
        start_ns = time.perf_counter_ns()
        try:
            loss = float(self._watched(gradients).run(self.batch, lambda: gradients.extend(self._read_gradients())))
            gradients += [read_part(norm) for norm in (self.trained.step.observed.gradient_norm,) if norm is not None]
        except DtbenchError:
            raise
        except Exception as error:
            if deferred is None:
                raise
            raise CheckError(
                f"with poison in place of results that have not arrived, a step raised {error!r}: something reads a "
                "collective's result before it is done, or cannot stand NaN; correctness.canary=false leaves such "
                "steps out"
            ) from error
        finally:
            at.carrier.poison = None
        duration_ns = time.perf_counter_ns() - start_ns
        forgotten = () if deferred is None else deferred.finish()
        self.forgotten.update(forgotten)
        return Trial(
            loss=loss,
            gradients=tuple(gradients),
            duration_ns=duration_ns,
            seen=() if deferred is None else tuple(deferred.seen),
            forgotten=frozenset(forgotten),
        )

    def _read_gradients(self) -> Iterator[Tensor | None]:
        return read_gradients(self.trained.step.parallel.parameters)

    def _watched(self, gradients: list[Tensor | None]) -> TrainStep:
        """Return the step with gradients read again after clipping: at a learning rate of 0 nothing else shows them."""
        parallel = self.trained.step.parallel

        def clip(max_norm: float) -> Tensor:
            norm = parallel.clip(max_norm)
            gradients.extend(self._read_gradients())
            return norm

        return replace(self.trained.step, parallel=replace(parallel, clip=clip))

    @staticmethod
    def _is_true_anywhere(fact: bool) -> bool:  # noqa: FBT001 - a fact, not a mode
        flag = torch.tensor(float(fact))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)


def _describe_unrepeatable(again: Difference) -> str:
    return (
        f"two equal steps without any delay differ (loss {again.loss:.1e}, gradient {again.gradient:.1e}): this model "
        "does not repeat itself"
    )
