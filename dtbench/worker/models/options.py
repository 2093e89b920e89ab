"""Activation checkpointing and ``torch.compile`` on a model's blocks, and what was seen of them.

Applied after the tensor axis has cut the model and before FSDP or DDP wrap it, as torchtitan does: a unit's parameters
are gathered once for its forward, and once for recomputation and backward together.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch._dynamo.utils as dynamo
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from dtbench.base.errors import MissingError, PlanError
from dtbench.base.units import NS_PER_S
from dtbench.scenario.schema.model import (
    ActivationCheckpointing,
    Compile,
    FullCheckpointing,
    ModelOptions,
    OperatorCheckpointing,
    SelectiveCheckpointing,
)
from dtbench.store.records.rank import Compilation, Receipt, ReceiptOutcome
from dtbench.worker.receipts import compare


@dataclass
class BlockOptions:
    """Checkpoints and compiles blocks of one model, and keeps the evidence.

    Attributes:
        recomputed: one entry once a checkpointed block was seen to run forward inside backward.
        saved: operators whose results checkpointing was seen to keep.
    """

    asked: ModelOptions
    module: nn.Module
    blocks: tuple[str, ...]
    recomputed: list[None] = field(default_factory=list)
    saved: set[object] = field(default_factory=set)

    def apply(self) -> None:
        """Wrap the checkpointed blocks, then compile, both in place.

        Raises:
            MissingError: inductor needs a C++ compiler on CPU, and there is none.
            PlanError: there is no such operator, or there are no blocks.
        """
        checkpointing, compiling = self.asked.activation_checkpointing, self.asked.compile
        if not self.blocks and (checkpointing is not None or (compiling is not None and compiling.what == "blocks")):
            raise PlanError("the model has no blocks to checkpoint or compile; give TrainingModel a `shard_by`")
        if checkpointing is not None:
            for fqn in self._chosen(checkpointing):
                self._checkpoint(fqn, checkpointing)
        if compiling is not None:
            _require_compiler(compiling, self.module)
            for part in [self.module] if compiling.what == "model" else map(self.module.get_submodule, self.blocks):
                part.compile(backend=compiling.backend, fullgraph=compiling.fullgraph, dynamic=compiling.dynamic)

    def _chosen(self, checkpointing: ActivationCheckpointing) -> tuple[str, ...]:
        step = checkpointing.every if isinstance(checkpointing, SelectiveCheckpointing) else 1
        return self.blocks[::step]

    def _checkpoint(self, fqn: str, checkpointing: ActivationCheckpointing) -> None:
        parent, _, name = fqn.rpartition(".")
        block = self.module.get_submodule(fqn)
        setattr(self.module.get_submodule(parent), name, checkpoint_wrapper(block, **self._context_of(checkpointing)))
        if self.asked.compile is None:  # a hook would end up in the compiled graph
            self._watch(block)

    def _watch(self, block: nn.Module) -> None:
        """Note the first forward that runs inside a backward, then look away."""

        def note(_module: nn.Module, _inputs: object) -> None:
            if torch._C._current_graph_task_id() != -1:
                self.recomputed.append(None)
                handle.remove()

        handle = block.register_forward_pre_hook(note)

    def read_receipts(self) -> Iterator[Receipt]:
        """Compare with the live modules, with recomputation as seen, and with what the compiler counted."""
        yield from self._checkpointing_receipts(self.asked.activation_checkpointing)
        yield from self._compile_receipts(self.asked.compile)

    def _checkpointing_receipts(self, asked: ActivationCheckpointing | None) -> Iterator[Receipt]:
        wrapped = [fqn for fqn in self.blocks if self._is_checkpointed(fqn)]
        if asked is None:
            yield compare("model.activation_checkpointing", None, f"{len(wrapped)} blocks" if wrapped else None)
            return
        chosen = self._chosen(asked)
        got = asked.kind if tuple(wrapped) == chosen and self._recomputes(len(chosen)) else f"{len(wrapped)} blocks"
        seen = f"{len(self.recomputed)} blocks recomputed in backward" if self.asked.compile is None else "compiled"
        yield compare("model.activation_checkpointing.kind", asked.kind, got, note=seen)
        match asked:
            case SelectiveCheckpointing(every=every):
                numbers = [self.blocks.index(fqn) for fqn in wrapped]
                got_every = numbers[1] - numbers[0] if len(numbers) > 1 else every
                yield compare("model.activation_checkpointing.every", every, got_every)
            case OperatorCheckpointing(save=save):
                yield self._saved_receipt(save)
            case FullCheckpointing():
                return

    def _context_of(self, checkpointing: ActivationCheckpointing) -> dict[str, Callable[[], Any]]:
        """Return what ``checkpoint`` is told to save; nothing for kinds that recompute whole blocks."""
        if not isinstance(checkpointing, OperatorCheckpointing):
            return {}
        wanted = frozenset(overload for name in checkpointing.save for overload in _find_operators(name))

        def choose(_context: object, operator: object, *_args: object, **_kwargs: object) -> CheckpointPolicy:
            if operator not in wanted:
                return CheckpointPolicy.PREFER_RECOMPUTE
            self.saved.add(operator)
            return CheckpointPolicy.MUST_SAVE

        return {"context_fn": partial(create_selective_checkpoint_contexts, choose)}

    def _saved_receipt(self, save: tuple[str, ...]) -> Receipt:
        """Compare with the operators that were really kept; one that no block runs has no effect."""
        kept = tuple(name for name in save if self.saved & set(_find_operators(name)))
        receipt = compare("model.activation_checkpointing.save", save, kept)
        if kept == save or not kept:
            return receipt
        idle = ", ".join(name for name in save if name not in kept)
        return receipt.model_copy(update={"outcome": ReceiptOutcome.NO_EFFECT, "note": f"no block runs {idle}"})

    def _is_checkpointed(self, fqn: str) -> bool:
        owner: Any = self.module
        for name in fqn.split("."):
            owner = getattr(owner, name)
        found = (owner, getattr(owner, "_fsdp_wrapped_module", None))
        return any(isinstance(part, CheckpointWrapper) for part in found)

    def _recomputes(self, blocks: int) -> bool:
        return self.asked.compile is not None or len(self.recomputed) == blocks

    def _compile_receipts(self, asked: Compile | None) -> Iterator[Receipt]:
        compiled = [name for name, part in self.module.named_modules() if part._compiled_call_impl is not None]
        if asked is None:
            yield compare("model.compile", None, f"{len(compiled)} modules" if compiled else None)
            return
        what = None if not compiled else "model" if "" in compiled else "blocks"
        yield compare("model.compile.what", asked.what, what if read_compilation().graphs else "no graph was compiled")
        yield compare("model.compile.backend", asked.backend, _backend_used())
        context = _compile_context(self.module.get_submodule(compiled[0])) if compiled else None
        breaks = f"{read_compilation().graph_breaks} graph breaks"
        yield compare("model.compile.fullgraph", asked.fullgraph, getattr(context, "fullgraph", None), note=breaks)
        yield compare("model.compile.dynamic", asked.dynamic, getattr(context, "_dynamic", "no context"))


def _compile_context(module: nn.Module) -> object | None:
    """Return the context that ``torch.compile`` put around a module's call, which keeps how it was asked to compile."""
    call: Any = module._compiled_call_impl
    cells = dict(zip(call.__code__.co_freevars, call.__closure__ or (), strict=True))
    return cells["self"].cell_contents if "self" in cells else None


def read_compilation() -> Compilation:
    """Return what torch's compiler has counted in this process."""
    counters, times = dynamo.counters, dynamo.compilation_time_metrics
    seconds = sum(sum(times.get(phase, ())) for phase in ("_compile.compile_inner", "backward._backward_impl"))
    again = [one for one in dynamo.get_compilation_metrics() if getattr(one, "recompile_reason", None)]
    return Compilation(
        graphs=counters["stats"]["unique_graphs"],
        recompiles=len(again),
        graph_breaks=sum(counters["graph_break"].values()),
        duration_ns=round(seconds * NS_PER_S),
    )


def _backend_used() -> str | None:
    """Say which backend ran by the traces that it leaves in torch's counters."""
    if dynamo.counters["inductor"]:
        return "inductor"
    if dynamo.counters["aot_autograd"]["total"]:
        return "aot_eager"
    return "eager" if dynamo.counters["stats"]["unique_graphs"] else None


def _require_compiler(compiling: Compile, module: nn.Module) -> None:
    is_elsewhere = any(parameter.device.type not in ("cpu", "meta") for parameter in module.parameters())
    on_cpu = not is_elsewhere and not torch.accelerator.is_available()
    compilers = (os.environ.get("CXX", "g++"), "g++", "clang++", "cl")
    if compiling.backend == "inductor" and on_cpu and not any(shutil.which(name) for name in compilers):
        raise MissingError(
            "model.compile.backend=inductor needs a C++ compiler on the CPU, and there is no g++ or clang++ here; "
            "install one, or use backend aot_eager"
        )


def _find_operators(name: str) -> Iterator[object]:
    """Yield all overloads of ``aten.mm``, or the one that ``aten.mm.default`` names.

    Raises:
        PlanError: torch has no such operator.
    """
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, torch._ops.OpOverload):
        yield found
    elif isinstance(found, torch._ops.OpOverloadPacket):
        yield from (getattr(found, overload) for overload in found.overloads())
    else:
        raise PlanError(f"model.activation_checkpointing.save: torch has no operator `{name}`; write it as `aten.mm`")
