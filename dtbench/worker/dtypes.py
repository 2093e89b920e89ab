"""Scenario words for torch's dtypes and back."""

import torch

from dtbench.scenario.schema.scenario import DtypeName


def to_dtype(name: DtypeName | None) -> torch.dtype | None:
    """Return torch's dtype; None stays None: no cast."""
    return None if name is None else getattr(torch, name)


def dtype_name(dtype: torch.dtype | None) -> str | None:
    """Return the scenario's word for a dtype, such as ``bfloat16``."""
    return None if dtype is None else str(dtype).removeprefix("torch.")
