"""torchtitan's own Trainer on CPU: its llama3, its parallelisms, its loop; only data and tokens are made here.

[Note: what does not run here] Of torchtitan 0.3.0 two calls, in whose place stands what they lead to:

* Its pipeline hands micro-batches to ``schedule.step(arg_mbs=, kwarg_mbs=, target_mbs=, ...)``, which torch 2.13 lacks:
  that splits a whole batch itself. ``step_given`` does what ``step`` does, but for splitting.
* Its context parallelism attends by ``flex_attention``, which has no backward on CPU, or by SDPA as DTensors, for whose
  kernels on CPU torch has no ring. ``GatheredAttention`` attends by plain products; torchtitan gathers its keys and
  values as it does flex_attention's: ``prepare_context_parallel_input`` shards inputs, labels and positions, then in
  each layer ``flex_cp_allgather(key, value, 1, group)``, whose backward is a reduce-scatter of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch

# torchtitan asks for an accelerator when it is imported, and takes CUDA where there is none.
with mock.patch("torch._utils._get_available_device_type", return_value="cpu"):
    from torchtitan.tools import utils  # noqa: F401 - asks

from torch.distributed.fsdp import FSDPModule
from torch.nn.attention import SDPBackend
from torchtitan.components import metrics
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import DeviceMemStats, MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed import utils as dist_utils
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.protocols.module import Module
from torchtitan.trainer import Trainer

LAYERS, SEQUENCE, BATCH = 2, 32, 4


class Tokens(BaseDataLoader):
    """Random tokens, the same in every run."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to say."""

    def __init__(self, config: Config, *, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any) -> None:
        self._rank, self._shape = dp_rank, (local_batch_size, seq_len + 1)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        generator = torch.Generator().manual_seed(self._rank)
        while True:
            tokens = torch.randint(0, 2048, self._shape, generator=generator)
            positions = torch.arange(self._shape[1] - 1).expand(self._shape[0], -1).clone()
            yield {"input": tokens[:, :-1].clone(), "positions": positions}, tokens[:, 1:].clone()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing is kept."""


class NoTokenizer(BaseTokenizer):
    """Data are tokens already."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to say."""

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return 2048


class NoDevice:
    """In place of what asks an accelerator for its memory."""

    device_name = "cpu"

    def get_peak_stats(self) -> DeviceMemStats:
        return DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self) -> None:
        """There are none."""


class GatheredAttention(FlexAttention):
    """Causal attention of this rank's part of a sequence to all of it; see [Note: what does not run here]."""

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        """Nothing to say: masks are made of places, and none is asked for."""

    def __init__(self, config: Config) -> None:
        Module.__init__(self)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> torch.Tensor:
        place = torch.distributed.get_rank() % (key.shape[1] // query.shape[1]) * query.shape[1]
        is_seen = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).tril(place)
        repeated = query.shape[2] // key.shape[2]
        key, value = (one.repeat_interleave(repeated, 2).transpose(1, 2) for one in (key, value))
        scores = query.transpose(1, 2) @ key.mT / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~is_seen, float("-inf")).softmax(-1)
        return (weights @ value).transpose(1, 2)


def step_given(
    schedule: Any, *, arg_mbs: Any, kwarg_mbs: Any, target_mbs: Any, losses: Any, loss_kwargs: Any, return_outputs: bool
) -> None:
    """Run a schedule of one stage over micro-batches that are given one by one; see [Note: what does not run here]."""
    schedule._stage.has_backward = schedule._has_backward
    schedule._stage.clear_runtime_states()
    schedule._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs)


def _leave_timeouts(**_: Any) -> None:
    """In place of what names a device to a barrier."""


def make_trainer(folder: str, steps: int, **parallelism: Any) -> Trainer:
    """Make torchtitan's trainer of a small llama3.

    Args:
        folder: for what torchtitan writes.
        steps: to train.
        parallelism: torchtitan's own settings.
    """
    metrics.build_device_memory_monitor = NoDevice
    dist_utils.set_pg_timeouts = _leave_timeouts
    ScaledDotProductAttention.sdpa_backends = [SDPBackend.MATH]
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:LAYERS]
    attends = GatheredAttention if parallelism.get("context_parallel_degree", 1) > 1 else ScaledDotProductAttention
    for layer in spec.model.layers:
        layer.attention.inner_attention = attends.Config()
    config = Trainer.Config(
        dump_folder=folder,
        model_spec=spec,
        tokenizer=NoTokenizer.Config(),
        dataloader=Tokens.Config(),
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),
        optimizer=default_adamw(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(
            local_batch_size=BATCH,
            seq_len=SEQUENCE,
            steps=steps,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        metrics=MetricsProcessor.Config(log_freq=1),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor", **parallelism),
        checkpoint=CheckpointManager.Config(enable=False),
        activation_checkpoint=None,
    )
    config.validator.enable = False
    config.debug.seed = 0
    config.debug.enable_structured_logging = False
    trainer: Trainer = config.build()
    if trainer.parallel_dims.pp_enabled:
        trainer.pp_schedule.step = partial(step_given, trainer.pp_schedule)
    for part in trainer.model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum of products
    return trainer
