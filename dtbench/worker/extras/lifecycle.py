"""What is done to a live DDP model between steps, each call timed, and whether it trains afterwards as before.

One forward and backward on a fixed batch, without update, says how a model trains: its loss, and its gradients after
they are reduced. Every call is made several times; then the model (a copy, where a call gives one) is asked again.
"""

import contextlib
import copy
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Final, Literal

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as torch_ddp
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.units import format_ns
from dtbench.base.vocabulary import DeviceKind, Region
from dtbench.scenario.schema.ddp import Ddp
from dtbench.scenario.schema.ddp import LifecycleCall as CallName
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.lifecycle import LifecycleCall, LifecycleRecord
from dtbench.store.records.rank import Receipt
from dtbench.worker.extras.extra import Finding, Trained
from dtbench.worker.loop.correctness import find_tolerances, is_exact
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.models.batches import Batch
from dtbench.worker.receipts import compare

_TOLERANCE: Final = 1e-6
"""Largest relative difference of loss and gradients in float32, whose sums may be taken in another order: buckets are
rebuilt."""
_ROUNDS: Final = 20


@dataclass(frozen=True)
class Living:
    """A model at the end of training.

    Attributes:
        home_group: its process group.
        other_group: another one of the same ranks.
        sparse_rows: rows of each parameter with sparse gradients, by name.
        device: that its ranks compute on.
    """

    model: DistributedDataParallel
    home_group: dist.ProcessGroup
    other_group: dist.ProcessGroup
    sparse_rows: Mapping[str, int]
    device: DeviceKind


@dataclass(frozen=True)
class Act:
    """One call.

    Attributes:
        run: does it and gives the model to be asked afterwards.
        undo: what is done after that, untimed.
        trains: what becomes of the model it gives.
        raises: part of the error that torch is known to end with when that model is asked, on CPUs over gloo; None: it
            trains.
    """

    run: Callable[[Living], DistributedDataParallel]
    undo: Callable[[Living], None] = lambda _living: None
    trains: Literal["as before", "apart"] = "as before"
    raises: str | None = None


def _dump_variables(living: Living) -> DistributedDataParallel:
    with contextlib.redirect_stdout(io.StringIO()):
        torch_ddp._dump_DDP_relevant_env_vars()
    return living.model


def _read_logging_data(living: Living) -> DistributedDataParallel:
    living.model._get_ddp_logging_data()
    return living.model


def _set_sample_rate(living: Living) -> DistributedDataParallel:
    living.model._set_ddp_runtime_logging_sample_rate(100)  # torch's own
    return living.model


def _make_mistake(living: Living) -> DistributedDataParallel:
    """Ask for what DDP refuses."""
    with contextlib.suppress(ValueError):
        living.model._set_ddp_runtime_logging_sample_rate(0)
    return living.model


def _list_parameters(living: Living) -> DistributedDataParallel:
    assert list(DistributedDataParallel._get_data_parallel_params(living.model))
    return living.model


def _check_finalized(living: Living) -> DistributedDataParallel:
    living.model._check_reducer_finalized()
    return living.model


def _switch_mode(living: Living) -> DistributedDataParallel:
    living.model.eval()
    return living.model.train()


def _switch_broadcast(living: Living) -> DistributedDataParallel:
    before = living.model.broadcast_buffers
    for value in (not before, before):
        living.model.broadcast_buffers = value
    return living.model


def _copy(living: Living) -> DistributedDataParallel:
    with _default_group(living.model):
        return copy.deepcopy(living.model)


def _pickle(living: Living) -> DistributedDataParallel:
    file = io.BytesIO()
    with _default_group(living.model):
        torch.save(living.model, file)
    file.seek(0)
    loaded: DistributedDataParallel = torch.load(file, weights_only=False)
    return loaded


@contextlib.contextmanager
def _default_group(model: DistributedDataParallel) -> Iterator[None]:
    """Let a model whose group holds all ranks be taken for one of the default group, the only one that pickles."""
    before = model.process_group
    model.process_group = dist.group.WORLD
    try:
        yield
    finally:
        model.process_group = before


def _set_metadata(living: Living) -> DistributedDataParallel:
    """Tell a copy for each sparse gradient which rows any rank may have, here all.

    From then on torch 2.13 takes what the backend reduced for the dense values of those rows, which gloo's is not.
    """
    told = _copy(living)
    told._set_sparse_metadata({name: torch.arange(rows) for name, rows in living.sparse_rows.items()})
    return told


def _regroup(living: Living) -> DistributedDataParallel:
    living.model._update_process_group(living.other_group)
    return living.model


def _go_home(living: Living) -> None:
    living.model._update_process_group(living.home_group)


def _remove_hooks(living: Living) -> DistributedDataParallel:
    """Take the reducer's hooks off a copy: from then on it reduces nothing."""
    removed = _copy(living)
    removed._remove_autograd_hooks()
    return removed


ACTS: Final[Mapping[CallName, Act]] = MappingProxyType(
    {
        "env_vars": Act(_dump_variables),
        "logging_data": Act(_read_logging_data),
        "logging_sample_rate": Act(_set_sample_rate),
        "mistake": Act(_make_mistake),
        "data_parallel_params": Act(_list_parameters),
        "check_finalized": Act(_check_finalized),
        "train_and_eval": Act(_switch_mode),
        "broadcast_buffers": Act(_switch_broadcast),
        "deepcopy": Act(_copy),
        "pickle": Act(_pickle),
        "sparse_metadata": Act(_set_metadata, raises="layout Sparse"),
        "update_process_group": Act(_regroup, undo=_go_home),
        "remove_autograd_hooks": Act(_remove_hooks, trains="apart"),
    }
)


@dataclass(frozen=True)
class Look:
    """How a model trains: loss, and reduced gradients by FQN."""

    loss: float
    gradients: Mapping[str, Tensor]

    def differ(self, before: "Look") -> tuple[float, float]:
        """Return the relative differences of loss and gradients (2-norm of all), NaN where parameters differ."""
        loss_error = abs(self.loss - before.loss) / max(abs(before.loss), 1e-30)
        if self.gradients.keys() != before.gradients.keys():
            return loss_error, float("nan")
        squares = [
            ((gradient - before.gradients[name]).square().sum(), before.gradients[name].square().sum())
            for name, gradient in self.gradients.items()
        ]
        difference, norm = (float(torch.stack(part).sum().sqrt()) for part in zip(*squares, strict=True))
        return loss_error, difference / max(norm, 1e-30)


def look(model: DistributedDataParallel, step: TrainStep, batch: Batch) -> Look:
    """Run forward and backward (collective) and leave no gradient behind."""
    recorder, built = step.recorder, step.built
    recorder.enter(Region.FORWARD)
    loss = built.compute_loss(built.compute_output(model, batch.content), batch.content)
    recorder.enter(Region.BACKWARD)
    loss.backward()
    recorder.enter(None)
    gradients = {
        name: (parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad).double()
        for name, parameter in model.module.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad()
    return Look(float(loss.detach()), gradients)


def find_tolerance(scenario: Scenario) -> float:
    """Return the largest relative difference of a model that trains as before; below float32 what rounding allows."""
    return _TOLERANCE if is_exact(scenario) else find_tolerances(scenario)[1]


def run_lifecycle_calls(trained: Trained) -> Finding | None:
    """Make every call that ``parallel.lifecycle`` asks for, in its order (collective); None: it asks for none."""
    parallel = trained.at.scenario.parallel
    if not isinstance(parallel, Ddp) or not parallel.lifecycle:
        return None
    trained.at.say("living on", ", ".join(parallel.lifecycle))
    model = trained.step.parallel.model
    assert isinstance(model, DistributedDataParallel)
    rows = {
        f"{name}.weight": part.num_embeddings
        for name, part in model.module.named_modules()
        if isinstance(part, torch.nn.Embedding) and part.sparse
    }
    living = Living(model, model.process_group, dist.new_group(), rows, trained.at.plan.device)
    ask = partial(look, step=trained.step, batch=trained.batches.make(trained.first))
    before, tolerance = ask(model), find_tolerance(trained.at.scenario)
    calls = tuple(make_call(call, living, before, ask, tolerance) for call in parallel.lifecycle)
    return Finding(LifecycleRecord(calls=calls), (_make_receipt(calls, parallel),))


def make_call(
    call: CallName,
    living: Living,
    before: Look,
    ask: Callable[[DistributedDataParallel], Look],
    tolerance: float,
) -> LifecycleCall:
    """Make a call several times, and ask the model that it gives how it trains now (collective).

    Args:
        call: which.
        living: to which model.
        before: how it trained.
        ask: tells how a model trains.
        tolerance: largest relative difference of one that trains as before.
    """
    act, durations_ns = ACTS[call], []
    changed = living.model
    for _ in range(_ROUNDS):
        start_ns = time.perf_counter_ns()
        changed = act.run(living)
        durations_ns.append(time.perf_counter_ns() - start_ns)
    loss_error = gradient_error = math.nan
    error = None
    try:
        loss_error, gradient_error = ask(changed).differ(before)
    except RuntimeError as raised:
        if act.raises is None:
            raise
        error = str(raised)
    act.undo(living)
    if act.raises is not None and living.device is DeviceKind.CPU:
        passed = error is not None and act.raises in error
    else:
        is_apart = act.trains == "apart" and dist.get_world_size(living.home_group) > 1
        is_as_it_should = gradient_error > tolerance if is_apart else gradient_error <= tolerance  # NaN is neither
        passed = loss_error <= tolerance and is_as_it_should
    return LifecycleCall(
        call=call,
        duration_ns=tuple(durations_ns),
        loss_error=loss_error,
        gradient_error=gradient_error,
        error=None if error is None else error.partition("\n")[0],
        passed=passed,
    )


def _make_receipt(calls: Sequence[LifecycleCall], parallel: Ddp) -> Receipt:
    """Compare with the calls after which the model trained as it should."""
    passed = tuple(one.call for one in calls if one.passed)
    times = (
        f"{one.call} {format_ns(median(one.duration_ns))}{f' ({one.error})' if one.error else ''}" for one in calls
    )
    return compare("parallel.lifecycle", parallel.lifecycle, passed, note=", ".join(times))
