"""What a rank trains: the model that a scenario names, before any parallelism, and its step with the optimizer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import torch

from dtbench.scenario.schema.model import Custom, Mlp, Timed, Transformer
from dtbench.scenario.schema.scenario import Scenario
from dtbench.worker.loop.train import Observed, TrainStep
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.models.custom import build_custom
from dtbench.worker.models.mlp import build_mlp
from dtbench.worker.models.optimizer import make_optimizer
from dtbench.worker.models.options import BlockOptions
from dtbench.worker.models.timed import build_timed
from dtbench.worker.models.transformer import build_transformer
from dtbench.worker.parallelize.parallelized import Parallelized
from dtbench.worker.recording.recorder import Recorder


def make_model(scenario: Scenario, device: torch.device, folders: Sequence[str] = (), rank: int = 0) -> BuiltModel:
    """Build the model before any parallelism; values come from the seed, equal on every rank.

    ``folders`` are where a person's own module is looked for; ``rank`` decides only what a timed block takes.
    """
    built = _build(scenario, device, folders, rank)
    return replace(built, options=BlockOptions(scenario.model, built.module, built.blocks))


def _build(scenario: Scenario, device: torch.device, folders: Sequence[str], rank: int) -> BuiltModel:
    model = scenario.model
    match model:
        case Transformer():
            return build_transformer(model, scenario, device)
        case Mlp():
            return build_mlp(model, scenario, device)
        case Timed():
            return build_timed(model, scenario, device, rank)
        case Custom():
            return build_custom(model, scenario, device, folders)
        case _:
            assert_never(model)


def make_train_step(scenario: Scenario, parallel: Parallelized, built: BuiltModel, recorder: Recorder) -> TrainStep:
    """Put optimizer, autocast and clipping around a model, parallel or not."""
    autocast = scenario.precision.autocast
    needs_optimizer = parallel.inner_optimizer is None
    return TrainStep(
        parallel=parallel,
        built=built,
        optimizer=make_optimizer(scenario.optimizer, parallel.parameters) if needs_optimizer else None,
        recorder=recorder,
        autocast=None if autocast is None else getattr(torch, autocast),
        clip_norm=scenario.gradient_clip_norm,
        micro_batches=scenario.accumulation.micro_batches,
        observed=Observed(),
    )
