"""The versions of torch: which dtbench was tested with, and how a version is read."""

from typing import Final

TESTED_TORCH = ((2, 11), (2, 16))
"""Versions of torch that dtbench was tested with, first included, last excluded; as the extra ``run`` asks for.

Closed, because private functions are wrapped, and these move between versions.
"""
GRADIENTS_KEEP_THEIR_DTYPE: Final = (2, 15)
"""From here on FSDP2 reduces, where nobody says in what, in the dtype of the parameters (``grad_dtype``).

Before, in that of its computation (``MixedPrecisionPolicy.reduce_dtype``).
"""


def is_tested_torch(version: str) -> bool:
    """Tell whether a version such as ``2.13.0+cpu`` is in the tested range."""
    return TESTED_TORCH[0] <= read_torch_release(version) < TESTED_TORCH[1]


def spell_tested_torch() -> str:
    """Spell the tested range as pip does: ``>=2.11,<2.16``."""
    first, last = (".".join(map(str, version)) for version in TESTED_TORCH)
    return f">={first},<{last}"


def read_torch_release(version: str) -> tuple[int, int]:
    """Return major and minor number of a version such as ``2.13.0+cpu``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
