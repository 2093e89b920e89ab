"""Peak arithmetic of accelerators, for model FLOP/s utilization; NaN for anything that is not in the table."""

import math
import re
from typing import Final, NamedTuple


class Peak(NamedTuple):
    """Dense peaks of one accelerator, FLOP/s; ``half`` is for float16, ``single`` for float32 without TF32."""

    half: float
    bfloat16: float
    single: float


# The first name that is a word of a device's name (an A1000 is no A100).
# Sources: NVIDIA's data sheets of V100, A100, H100, H200, GH200, HGX B200 (one of eight) and GB200 NVL72 (one of 72);
# dense, that is half of the figures "with sparsity"; AMD's data sheet of MI300X.
_PEAKS: Final[tuple[tuple[str, Peak], ...]] = (
    ("GB200", Peak(2500e12, 2500e12, 80e12)),
    ("GH200", Peak(990e12, 990e12, 67e12)),
    ("B200", Peak(2250e12, 2250e12, 75e12)),
    ("H200", Peak(989e12, 989e12, 67e12)),
    ("H100 PCIe", Peak(756e12, 756e12, 51e12)),
    ("H100 NVL", Peak(835e12, 835e12, 60e12)),
    ("H100", Peak(989e12, 989e12, 67e12)),
    ("A100", Peak(312e12, 312e12, 19.5e12)),
    ("MI300X", Peak(1307.4e12, 1307.4e12, 163.4e12)),
    ("V100", Peak(125e12, math.nan, 15.7e12)),
)


def peak_flops(device: str, dtype: str) -> float:
    """Return the dense peak of a device for a dtype (``float32``, ``bfloat16``, ``float16``), FLOP/s; NaN: unknown."""
    peak = next((peak for name, peak in _PEAKS if re.search(rf"\b{name}\b", device)), None)
    if peak is None:
        return math.nan
    return {"float16": peak.half, "bfloat16": peak.bfloat16, "float32": peak.single}.get(dtype, math.nan)
