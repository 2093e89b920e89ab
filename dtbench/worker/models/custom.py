"""A person's own model as dtbench trains it: units found, batches watched, outputs turned into a loss."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import Purpose
from dtbench.plan.plan import Plan, find_silent_axes
from dtbench.plan.rules.newer_knobs import spell_defaults
from dtbench.plan.traffic.formula import find_own_purposes, plan_traffic
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import PlannedTraffic
from dtbench.scenario.schema.model import Custom
from dtbench.scenario.schema.scenario import Ddp, Scenario
from dtbench.store.records.traffic import ExpectedTraffic
from dtbench.training_model import TrainingModel
from dtbench.worker.dtypes import to_dtype
from dtbench.worker.models.batches import find_tensors
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.models.factory import call_factory, describe


def build_custom(settings: Custom, scenario: Scenario, device: torch.device, folders: Sequence[str]) -> BuiltModel:
    """Call the factory with everything seeded, move the module and cast its parameters (buffers keep their dtypes).

    Raises:
        PlanError: with a sentence, when the factory or what it gave cannot be used.
    """
    torch.manual_seed(scenario.seed)
    random.seed(scenario.seed)
    model = call_factory(settings, folders)
    module = model.module.to(device).train()
    for parameter in module.parameters():
        parameter.data = parameter.data.to(to_dtype(scenario.precision.dtype))
    if scenario.parallel.tensor > 1:
        _check_tensor_plan(model)
    plan = model.tensor_plan
    return BuiltModel(
        module=module,
        blocks=find_units(model),
        make_batch=_watch_rows(model.make_batch),
        compute_output=model.forward or call_by_content,
        compute_loss=model.loss or find_loss,
        tensor_styles=None if plan is None else lambda _options: plan,
        sequence_witness=None,
        weights=None,
    )


def find_units(model: TrainingModel) -> tuple[str, ...]:
    """Return the FQNs of the FSDP units: instances of ``shard_by``, or members of the largest ``nn.ModuleList``.

    Raises:
        PlanError: ``shard_by`` fits nothing, or units lie inside each other.
    """
    named = dict(model.module.named_modules())
    if not model.shard_by:
        lists = {name: part for name, part in named.items() if isinstance(part, nn.ModuleList) and len(part)}
        largest = max(lists, key=lambda name: sum(item.numel() for item in lists[name].parameters()), default=None)
        return () if largest is None else tuple(f"{largest}.{index}" for index in range(len(lists[largest])))
    units = tuple(name for name, part in named.items() if name and isinstance(part, model.shard_by))
    if not units:
        names = ", ".join(kind.__name__ for kind in model.shard_by)
        raise PlanError(f"TrainingModel.shard_by: the module has no part of {names}")
    for outer in units:
        inner = next((name for name in units if name.startswith(f"{outer}.")), None)
        if inner is not None:
            raise PlanError(f"TrainingModel.shard_by: `{inner}` lies inside `{outer}`; give the classes of one level")
    return units


def call_by_content(module: nn.Module, batch: Any) -> Any:
    """Call the module on a batch: a mapping by name, a tuple or list in order, anything else as it is."""
    match batch:
        case Mapping():
            return module(**batch)
        case tuple() | list():
            return module(*batch)
        case _:
            return module(batch)


def find_loss(output: Any, _batch: Any) -> Tensor:
    """Return ``output.loss``, or an output that is a single number.

    Raises:
        PlanError: there is neither.
    """
    loss = output if isinstance(output, Tensor) else getattr(output, "loss", None)
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return loss
    what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(output).__name__}"
    raise PlanError(f"the model gave {what}, which is no loss; give the factory's TrainingModel a `loss`")


def require_no_dropout(module: nn.Module) -> None:
    """Refuse to compare a model with the single process when its ranks draw random numbers of their own.

    Raises:
        PlanError: names the layers.
    """
    drops = [name for name, part in module.named_modules() if isinstance(part, _DropoutNd) and part.p > 0]
    if drops:
        raise PlanError(
            f"the model has dropout ({', '.join(drops[:3])}{', ...' if len(drops) > 3 else ''}): ranks drop other "
            "values than the single process that results are compared with; build it with p=0, or set "
            "correctness.enabled=false"
        )


def expect_traffic(
    module: nn.Module, blocks: Sequence[str], scenario: Scenario, plan: Plan
) -> tuple[ExpectedTraffic, ...]:
    """Return what the formulas say of unsharding and gradient reduction, given a plain module's parameters.

    Nothing for a tensor axis or frozen parameters, nor for what functions of a person's own do. Of DDP only bytes: its
    buckets depend on the order of gradients.
    """
    parameters = tuple(_list_parameters(module, blocks))
    if scenario.parallel.tensor > 1 or not all(parameter.requires_grad for parameter in module.parameters()):
        return ()
    traffic = plan_traffic(
        spell_defaults(scenario, torch.__version__), parameters, find_silent_axes(plan.device, plan.mesh)
    )
    found = []
    own = find_own_purposes(scenario)
    for purpose in (one for one in (Purpose.UNSHARD, Purpose.GRAD_REDUCE) if one not in own):
        mine = [item for item in traffic if item.purpose is purpose]
        count = None if isinstance(scenario.parallel, Ddp) and mine else sum(item.count for item in mine)
        size_bytes = sum(item.size_bytes for item in mine)
        found.append(ExpectedTraffic(purpose=purpose, count=count, size_bytes=size_bytes))
    return tuple(found)


def expect_bytes(traffic: tuple[PlannedTraffic, ...], purpose: Purpose) -> tuple[ExpectedTraffic, ...]:
    """Return a plan's bytes of a purpose without its count, where gradients come in an order of their own."""
    mine = [item for item in traffic if item.purpose is purpose]
    size_bytes = sum(item.size_bytes for item in mine)
    return (ExpectedTraffic(purpose=purpose, count=None, size_bytes=size_bytes),) if mine else ()


def _list_parameters(module: nn.Module, blocks: Sequence[str]) -> Iterator[Parameter]:
    for name, parameter in module.named_parameters():
        unit = next((block for block in blocks if name.startswith(f"{block}.")), "")
        yield Parameter(name, tuple(parameter.shape), unit, None)


def _check_tensor_plan(model: TrainingModel) -> None:
    if model.tensor_plan is None:
        raise PlanError("parallel.tensor is above 1, but the factory's TrainingModel has no `tensor_plan`; give it one")
    names = [name for name, _ in model.module.named_modules()]
    for pattern in model.tensor_plan:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise PlanError(f"TrainingModel.tensor_plan: no module is called `{pattern}`")


def _watch_rows(make_batch: Callable[[torch.Generator, int], Any]) -> Callable[[torch.Generator, int], Any]:
    """Refuse batches whose tensors do not have the rows on dim 0."""

    def make(generator: torch.Generator, rows: int) -> Any:
        try:
            batch = make_batch(generator, rows)
        except Exception as error:  # whatever a person's code raises
            raise PlanError(f"TrainingModel.make_batch raised {describe(error)}") from error
        shapes = [tuple(tensor.shape) for tensor in find_tensors(batch)]
        if not shapes:
            raise PlanError(f"TrainingModel.make_batch gave a {type(batch).__name__} without tensors")
        wrong = [shape for shape in shapes if not shape or shape[0] != rows]
        if wrong:
            raise PlanError(f"TrainingModel.make_batch was asked for {rows} rows on dim 0 and gave shape {wrong[0]}")
        return batch

    return make
