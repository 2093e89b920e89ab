"""What only the newer of the supported torches have: elsewhere tests of it are skipped, with the reason."""

import re
from typing import Final

import pytest

FIRST_TORCH: Final = {
    "parallel.batched_grad_copy": (2, 12),
    "parallel.separate_reduce_scatter_group": (2, 13),
    "parallel.reduce_scatter_max_input_buffers": (2, 13),
}
"""Knobs of the schema by the first torch that has them."""

BROADCAST_BUFFERS_IS_A_PROPERTY: Final = (2, 13)
FRACTIONS_BESIDE_DELAYED: Final = (2, 12)


def torch_version() -> tuple[int, int]:
    """Give major and minor version of the installed torch."""
    import torch

    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return int(major), int(minor)


def skip_where_torch_lacks(knob: str) -> None:
    """Skip the running test where the installed torch has no such knob; most knobs are in every supported torch."""
    first = FIRST_TORCH.get(knob, (0, 0))
    if torch_version() < first:
        pytest.skip(f"{knob} is new in torch {first[0]}.{first[1]}")
