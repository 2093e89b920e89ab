"""The mlp with blocks of known cost: its parameters, cuts and results, and compute that takes a given time."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from dtbench.scenario.schema.model import Mlp as MlpSettings
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.scenario import Scenario
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.models.known_cost import KnownCost, enter_block, leave_block, make_pause
from dtbench.worker.models.mlp import Block, build_mlp


class TimedBlock(Block):
    """The mlp's block, which takes a given time."""

    def __init__(self, settings: MlpSettings, cost: KnownCost, fqn: str) -> None:
        super().__init__(settings)
        self._cost, self._fqn = cost, fqn

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, sequence, dim) to the same shape."""
        start_ns = time.thread_time_ns()  # not the wall's time: tensor parallelism communicates in between
        y = super().forward(enter_block(x, self._cost, self._fqn))
        return leave_block(y, self._cost, self._fqn, time.thread_time_ns() - start_ns)


def build_timed(settings: Timed, scenario: Scenario, device: torch.device, rank: int) -> BuiltModel:
    """Build the model as ``build_mlp`` does, for one rank: another one may be slower."""
    cost = KnownCost(settings, rank, make_pause(device))
    built = build_mlp(settings.mlp, scenario, device, lambda sizes, place: TimedBlock(sizes, cost, f"layers.{place}"))
    return replace(built, known_cost=cost)
