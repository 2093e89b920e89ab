"""What looks at a machine's GPUs mean for the steps of its ranks: who else had them, and what held them back."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import Phase
from dtbench.machine.core_use import UseSample
from dtbench.machine.disturbance import DISTURBED
from dtbench.machine.gpu_use import GpuSample
from dtbench.store.records.run import HeldBack, UsedGpu

Floats = NDArray[np.float64]

_MOST_NAMED: Final = 3


def find_gpus_taken(samples: Sequence[UseSample]) -> Floats:
    """Return what others had of the GPU of which they had most, shape ``(samples,)``; 0 where it is not told."""
    shares = [max((gpu.taken or 0.0 for gpu in one.gpus), default=0.0) for one in samples]
    return np.array(shares, dtype=np.float64)


def name_gpu_takers(samples: Sequence[UseSample], phase: Phase, inside_ns: Floats) -> tuple[UsedGpu, ...]:
    """Return who had most of the ranks' GPUs, most first.

    Args:
        samples: looks at one machine.
        phase: of the steps.
        inside_ns: shape ``(samples,)``, how much of the time of each look lies in the steps; not all 0.
    """
    found: dict[tuple[int, int, str | None], float] = defaultdict(float)
    for weight, gpu in _weigh(samples, inside_ns):
        for other in gpu.others:
            found[gpu.index, other.pid, other.name] += weight * (other.share or 0.0)
    named = [
        UsedGpu(phase=phase, pid=pid, name=name, gpu=gpu, share=share)
        for (gpu, pid, name), share in sorted(found.items(), key=lambda item: -item[1])[:_MOST_NAMED]
    ]
    return tuple(one for one in named if one.share >= DISTURBED)


def find_held_back(samples: Sequence[UseSample], inside_ns: Floats) -> tuple[HeldBack, ...]:
    """Return what kept the clocks of the ranks' GPUs low, longest first.

    Args:
        samples: looks at one machine.
        inside_ns: shape ``(samples,)``, how much of the time of each look lies in steps.
    """
    found: dict[tuple[int, str], list[tuple[float, GpuSample]]] = defaultdict(list)
    for weight, gpu in _weigh(samples, inside_ns):
        for why in gpu.held_back or ():
            found[gpu.index, why].append((weight, gpu))
    told = [
        HeldBack(
            gpu=index,
            why=why,
            share=min(1.0, sum(weight for weight, _gpu in seen)),
            clock_mhz=_mean_clock(seen),
            most_clock_mhz=seen[0][1].most_clock_mhz,
        )
        for (index, why), seen in found.items()
    ]
    return tuple(sorted(told, key=lambda one: -one.share))


def find_unseen(samples: Sequence[UseSample]) -> tuple[str, ...]:
    """Say of which GPUs it is not known who had them, and why, as clauses; empty where it is known of all."""
    if not any(one.gpus for one in samples):
        return ("the driver lists no rank on any of them, as where it numbers processes outside of this container",)
    untold = sorted({gpu.index for one in samples for gpu in one.gpus if gpu.taken is None})
    return tuple(f"the driver does not tell how much of GPU {index} each process had" for index in untold)


def _weigh(samples: Sequence[UseSample], inside_ns: Floats) -> Iterator[tuple[float, GpuSample]]:
    """Yield each look at a GPU with its part of the time of the steps."""
    for weight, sample in zip((inside_ns / max(1.0, inside_ns.sum())).tolist(), samples, strict=True):
        for gpu in sample.gpus if weight else ():
            yield weight, gpu


def _mean_clock(seen: Sequence[tuple[float, GpuSample]]) -> float | None:
    told = [(weight, gpu.clock_mhz) for weight, gpu in seen if gpu.clock_mhz is not None]
    return sum(weight * mhz for weight, mhz in told) / sum(weight for weight, _mhz in told) if told else None
