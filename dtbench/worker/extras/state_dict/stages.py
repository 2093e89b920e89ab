"""What each stage does: one call of torch's public functions, what is prepared for it, and how its result is judged.

The optimizer's state is taken and loaded by ``get_optimizer_state_dict`` and ``set_optimizer_state_dict``, which want
the model beside it. Two call private functions: ``stage_shared``, since torch 2.13 asks for ``share_memory`` nowhere,
and ``pre_load``.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor import Shard as SingleShard
from torch.distributed._shard.sharded_tensor import ShardedTensor, init_from_local_shards
from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.store.records.state import StageMismatch
from dtbench.worker.extras.state_dict.leaves import (
    Kept,
    find_mismatches,
    find_mismatches_in_whole,
    keep,
    read_leaf,
    walk,
)

_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by their bytes."""


@dataclass(frozen=True)
class TrainingState:
    """A model and its optimizer, and how torch is asked for the state of one of them.

    Attributes:
        parameters: what the optimizer updates.
        optimizer: None where only the model's state is asked for.
        strict: loads refuse keys that are missing or not expected.
    """

    model: nn.Module
    parameters: tuple[nn.Parameter, ...]
    optimizer: torch.optim.Optimizer | None
    strict: bool

    def take(self, part: StatePart, **options: bool) -> dict[str, Any]:
        """Take a part's state out."""
        asked = StateDictOptions(strict=self.strict, **options)
        if part is StatePart.MODEL:
            return dict(get_model_state_dict(self.model, options=asked))
        return dict(get_optimizer_state_dict(self.model, self._the_optimizer, options=asked))

    def put(self, part: StatePart, state: dict[str, Any], **options: bool) -> None:
        """Put a part's state back."""
        asked = StateDictOptions(strict=self.strict, **options)
        if part is StatePart.MODEL:
            set_model_state_dict(self.model, state, options=asked)
        else:
            set_optimizer_state_dict(self.model, self._the_optimizer, state, options=asked)

    def spoil(self, part: StatePart) -> None:
        """Overwrite all values of a part, so that a load which leaves one out is seen."""
        tensors = self.parameters if part is StatePart.MODEL else tuple(self._optimizer_tensors())
        for tensor in tensors:
            for own in read_leaf(tensor).parts:
                own.fill_(float("nan") if own.is_floating_point() else -1)

    @contextmanager
    def change_weights(self) -> Iterator[None]:
        """Let each weight differ in its lowest bit meanwhile: no step is another for it, and a late copy shows it."""
        self._flip_weights()
        try:
            yield
        finally:
            self._flip_weights()

    def _flip_weights(self) -> None:
        for own in (own for parameter in self.parameters for own in read_leaf(parameter).parts):
            if own.is_floating_point():
                own.view(_BITS[own.element_size()]).bitwise_xor_(1)

    def find_spoilt(self) -> list[str]:
        """Name the model's parameters of which this rank holds nothing but NaN, as ``spoil`` leaves them."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [
            names.get(id(parameter), f"parameter {place}")
            for place, parameter in enumerate(self.parameters)
            if any(_holds_only_nan(own, parameter) for own in read_leaf(parameter).parts)
        ]

    def _optimizer_tensors(self) -> list[Tensor]:
        values = (value for state in self._the_optimizer.state.values() for value in state.values())
        return [value for value in values if isinstance(value, Tensor)]

    @property
    def _the_optimizer(self) -> torch.optim.Optimizer:
        assert self.optimizer is not None, "plans refuse the state of an optimizer that is not there"
        return self.optimizer


def _holds_only_nan(own: Tensor, parameter: nn.Parameter) -> bool:
    """Tell whether a rank's own part has values, what FSDP1 pads its flat tensors with aside, and all are NaN."""
    padding = getattr(parameter, "_shard_numel_padded", 0)
    return own.numel() > padding and bool(own.isnan().all())


@dataclass
class Setting:
    """What all stages of one part start from.

    Attributes:
        own: what torch gives of this rank's part, as its own tensors: loads start from it.
        kept: the same as bits.
        folder: where checkpoints of this part go.
        staged: host copies that a pinned or shared stage goes on using.
    """

    training: TrainingState
    part: StatePart
    own: dict[str, Any]
    kept: Kept
    folder: Path
    staged: dict[Stage, Any] = field(default_factory=dict)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """All of the state, on every rank (collective, the first time)."""
        whole: dict[str, Any] = copy_tensors(self.training.take(self.part, full_state_dict=True))
        return whole


def make_setting(training: TrainingState, part: StatePart, folder: Path) -> Setting:
    """Take a part's state out (collective)."""
    own = copy_tensors(training.take(part))
    return Setting(training, part, own, keep(own), folder)


def copy_tensors(state: Any) -> Any:
    """Return a state of the same keys with tensors and containers of its own.

    What the model does later does not show in it; torch takes keys out of a state that it loads, and an optimizer goes
    on using its tensors.
    """
    if isinstance(state, Mapping):
        return {key: copy_tensors(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copy_tensors(value) for value in state)
    if isinstance(state, ShardedTensor):
        return copy.deepcopy(state)
    return state.detach().clone() if isinstance(state, Tensor) else state


def make_target(state: Any) -> Any:
    """Return a state of the same keys and shapes to read into; a value that nobody writes is seen."""
    target = copy_tensors(state)
    for _, value in walk(target):
        for part in read_leaf(value).parts:
            part.fill_(-1)
    return target


def count_file_bytes(folder: Path) -> int:
    """Return the bytes of all files of a checkpoint, of all ranks together."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class StageWork:
    """One stage of one part.

    Attributes:
        prepare: done before each round, untimed; gives what the call takes.
        call: what is timed.
        check: names what came out wrong, given the call's result (collective); None: there was nothing to compare.
        files: where the stage leaves files, or reads them.
    """

    prepare: Callable[[], Any]
    call: Callable[[Any], Any]
    check: Callable[[Any], list[StageMismatch] | None]
    files: Path | None = None


def make_work(stage: Stage, at: Setting) -> StageWork:
    """Return what a stage does."""
    return _MAKERS[stage](stage, at)


def _nothing() -> None:
    return None


_OPTIONS: Final[Mapping[Stage, Mapping[str, bool]]] = {
    Stage.SHARD: {},
    Stage.OFFLOAD: {"cpu_offload": True},
    Stage.GATHER: {"full_state_dict": True},
    Stage.GATHER_OFFLOAD: {"full_state_dict": True, "cpu_offload": True},
    Stage.FLATTEN: {"flatten_optimizer_state_dict": True},
    Stage.LOAD: {},
    Stage.DISTRIBUTE: {"full_state_dict": True},
    Stage.BROADCAST: {"full_state_dict": True, "broadcast_from_rank0": True},
    Stage.UNFLATTEN: {"flatten_optimizer_state_dict": True},
}
"""Of ``StateDictOptions``, by stage."""


def _take(stage: Stage, at: Setting) -> StageWork:
    """Take the state out; its values must be where the model has them."""
    kept_whole = keep(at.whole) if stage is Stage.GATHER_OFFLOAD else {}

    def check(state: dict[str, Any]) -> list[StageMismatch] | None:
        match stage:
            case Stage.GATHER:
                return find_mismatches_in_whole(at.own, state)
            case Stage.GATHER_OFFLOAD:
                return find_mismatches(kept_whole if dist.get_rank() == 0 else {}, state)
            case Stage.FLATTEN:
                return _find_flat_mismatches(at.kept, state)
            case _:
                return find_mismatches(at.kept, state)

    return StageWork(_nothing, lambda _nothing: at.training.take(at.part, **_OPTIONS[stage]), check)


def _find_flat_mismatches(kept: Kept, flat: Mapping[str, Any]) -> list[StageMismatch] | None:
    """Compare tensors only: torch spells the groups' options once for each parameter there. None: there are none."""
    tensors = {key: leaf for key, leaf in kept.items() if leaf.parts}
    found = {key: value for key, value in flat.items() if read_leaf(value).parts}
    return find_mismatches(tensors, found) if tensors or found else None


def _put(stage: Stage, at: Setting) -> StageWork:
    """Put the state back over spoilt values; then the model must hold what it held."""
    options = _OPTIONS[stage]

    def prepare() -> Any:
        at.training.spoil(at.part)
        match stage:
            case Stage.LOAD:
                return copy_tensors(at.own)
            case Stage.UNFLATTEN:
                return copy_tensors(at.staged[stage])
            case Stage.BROADCAST if dist.get_rank() != 0:
                return {}
            case _:
                return copy_tensors(at.whole)

    has_lost = at.training.find_spoilt() if at.part is StatePart.MODEL else []

    if stage in (Stage.DISTRIBUTE, Stage.BROADCAST):
        _ = at.whole  # taken on every rank before the state is spoilt
    if stage is Stage.UNFLATTEN:
        at.staged[stage] = copy_tensors(at.training.take(at.part, **options))
    return StageWork(
        prepare,
        lambda state: at.training.put(at.part, state, **options),
        lambda _result: _find_unloaded(at, has_lost),
    )


def _find_unloaded(at: Setting, has_lost: Collection[str]) -> list[StageMismatch]:
    """Compare what the model holds after a load, also of parameters that its state leaves out.

    Args:
        at: of the stage.
        has_lost: parameters that held nothing but NaN before.
    """
    found = find_mismatches(at.kept, at.training.take(at.part))
    if found or at.part is not StatePart.MODEL:
        return found
    left_out = [key for key in at.training.find_spoilt() if key not in has_lost]
    return [StageMismatch(key=key, words="not in the state that is loaded") for key in left_out]


def _stage(stage: Stage, at: Setting) -> StageWork:
    """Copy the state to host memory; a pinned or shared copy is made once and written again in each round."""
    check = lambda staged: find_mismatches(at.kept, staged)  # noqa: E731 - the same for all three
    if stage is Stage.STAGE_SHARED:
        return StageWork(lambda: at.training.take(at.part), lambda state: _copy_to_shared(at, state), check)
    stager = BlockingAsyncStager(cache_staged_state_dict=stage is Stage.STAGE_PINNED)
    return StageWork(lambda: at.training.take(at.part), stager.stage, check)


def _copy_to_shared(at: Setting, state: dict[str, Any]) -> dict[str, Any]:
    if Stage.STAGE_SHARED not in at.staged:
        at.staged[Stage.STAGE_SHARED] = _create_cpu_state_dict(state, share_memory=True)
    return _copy_state_dict(state, at.staged[Stage.STAGE_SHARED])


def _save(_stage: Stage, at: Setting) -> StageWork:
    """Write the state with torch's distributed checkpoint; nothing is compared: what it wrote is judged by ``read``."""

    def call(state: dict[str, Any]) -> None:
        dcp.save(state, checkpoint_id=at.folder)

    return StageWork(lambda: at.training.take(at.part), call, lambda _nothing: None, files=at.folder)


def _read(_stage: Stage, at: Setting) -> StageWork:
    """Read the files into tensors of the same shapes."""

    def call(target: dict[str, Any]) -> dict[str, Any]:
        dcp.load(target, checkpoint_id=at.folder)
        return target

    return StageWork(
        lambda: make_target(at.own), call, lambda target: find_mismatches(at.kept, target), files=at.folder
    )


def _pre_load(_stage: Stage, at: Setting) -> StageWork:
    """Let FSDP1's extension unpack a ``ShardedTensor`` of each parameter: this rank's part as one shard of many."""
    own = {key: part for key, value in walk(at.own) for part in read_leaf(value).parts}
    kept, sharded = keep(own), {key: _shard_over_ranks(part) for key, part in own.items()}
    model: Any = at.training.model
    unpack = model._fsdp_extension.pre_load_state_dict_transform

    def call(_nothing: None) -> dict[str, Tensor]:
        return {key: unpack(tensor)[1][0].tensor for key, tensor in sharded.items()}

    return StageWork(_nothing, call, lambda found: find_mismatches(kept, found))


def _shard_over_ranks(part: Tensor) -> ShardedTensor:
    """Return the tensor that stacks this part of every rank, one below the other (collective)."""
    rank, (rows, *rest) = dist.get_rank(), part.shape
    all_rows: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(all_rows, rows)
    shard = SingleShard.from_tensor_and_offsets(part, [sum(all_rows[:rank]), *(0 for _ in rest)], rank)
    return init_from_local_shards([shard], sum(all_rows), *rest)


_MAKERS: Final[Mapping[Stage, Callable[[Stage, Setting], StageWork]]] = {
    **dict.fromkeys((Stage.SHARD, Stage.OFFLOAD, Stage.GATHER, Stage.GATHER_OFFLOAD, Stage.FLATTEN), _take),
    **dict.fromkeys((Stage.STAGE, Stage.STAGE_PINNED, Stage.STAGE_SHARED), _stage),
    Stage.SAVE: _save,
    Stage.READ: _read,
    Stage.PRE_LOAD: _pre_load,
    **dict.fromkeys((Stage.LOAD, Stage.DISTRIBUTE, Stage.BROADCAST, Stage.UNFLATTEN), _put),
}
