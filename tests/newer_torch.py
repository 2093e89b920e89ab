"""What only the newer of the supported torches have: elsewhere tests of it are skipped, with the reason."""

from typing import Final

import pytest

from dtbench.base.torch_versions import read_torch_release
from dtbench.plan.rules.newer_knobs import NEWER
from dtbench.plan.rules.refusals import REFUSALS
from dtbench.plan.rules.table import RULES

FIRST_TORCH: Final = {newer.knob: newer.first for newer in NEWER if newer.words is None}
"""Knobs of the schema by the first torch that has them."""

FRACTIONS_BESIDE_DELAYED: Final = next(newer.first for newer in NEWER if newer.words is not None)
FSDP1_OFFLOADS_WHAT_IT_GATHERS: Final = (2, 14)


def torch_version() -> tuple[int, int]:
    """Return major and minor version of the installed torch."""
    import torch

    return read_torch_release(torch.__version__)


def skip_where_torch_lacks(knob: str) -> None:
    """Skip the running test where the installed torch has no such knob; most knobs are in every supported torch."""
    first = FIRST_TORCH.get(knob, (0, 0))
    if torch_version() < first:
        pytest.skip(f"{knob} is new in torch {first[0]}.{first[1]}")


def plan_what_torch_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans be made of what torch is known to get wrong."""
    monkeypatch.setattr("dtbench.plan.plan.RULES", [rule for rule in RULES if rule not in REFUSALS])
