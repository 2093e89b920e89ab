"""What torch does otherwise by itself from a version on, where two sides ran on either side of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.torch_versions import GRADIENTS_KEEP_THEIR_DTYPE, read_torch_release
from dtbench.scenario.flat_fields import ABSENT
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.records.run import Environment


@dataclass(frozen=True)
class NewDefault:
    """Something that torch does otherwise where nobody asks for either.

    Attributes:
        name: what decides it: a switch of torch's, or a variable.
        first: the first version that does so, major and minor.
        words: what it does since then.
        source: the file of torch that says so.
        concerns: whether a side may do so; settings of a person's own loop do not say, so that it may.
    """

    name: str
    first: tuple[int, int]
    words: str
    source: str
    concerns: Callable[[Mapping[str, str], Environment], bool]

    def describe(self) -> str:
        """Say what is otherwise, as in ``from torch 2.14 on Inductor ...``."""
        return f"from torch {'.'.join(map(str, self.first))} on {self.words} ({self.name}, {self.source})"


def say_new_defaults(sides: Sequence[MeasuredSide]) -> Iterator[str]:
    """Say what torch does otherwise by default between the versions of two sides, as far as it concerns either."""
    known = [(side.settings or {}, side.environment) for side in sides if side.environment is not None]
    if len(known) < len(sides):
        return
    older, newer = sorted(read_torch_release(environment.torch) for _, environment in known)
    for default in NEW_DEFAULTS:
        if older < default.first <= newer and any(default.concerns(*side) for side in known):
            yield default.describe()


def _is_own_loop(settings: Mapping[str, str]) -> bool:
    return "model.kind" not in settings


def _is_compiled(settings: Mapping[str, str], _: Environment) -> bool:
    return _is_own_loop(settings) or any(field.startswith("model.compile.") for field in settings)


def _uses_gpus(settings: Mapping[str, str], environment: Environment) -> bool:
    return bool(environment.devices) and settings.get("device") != "cpu"


def _reduces_in_no_dtype_of_its_own(settings: Mapping[str, str], _: Environment) -> bool:
    """Tell whether FSDP2 may compute in another dtype than its parameters have, and reduces in none that is named."""
    if _is_own_loop(settings):
        return True
    policy = "parallel.mixed_precision"
    computed = settings.get(f"{policy}.param_dtype", ABSENT)
    return (
        settings.get("parallel.kind") == "fsdp2"
        and settings.get(f"{policy}.reduce_dtype", ABSENT) == ABSENT
        and computed not in (ABSENT, settings.get("precision.dtype"))
    )


NEW_DEFAULTS: Final = (
    NewDefault(
        "aten_distributed_optimizations.enable_simple_overlap",
        (2, 14),
        "Inductor moves collectives of compiled code earlier, and waits for them later, where no peak of memory grows",
        "torch/_inductor/config.py",
        _is_compiled,
    ),
    NewDefault(
        "MixedPrecisionPolicy.reduce_dtype",
        GRADIENTS_KEEP_THEIR_DTYPE,
        "FSDP2 reduces gradients in the dtype of their parameters, and no longer in that of the computation",
        "torch/distributed/fsdp/_fully_shard/_fsdp_api.py",
        _reduces_in_no_dtype_of_its_own,
    ),
    NewDefault(
        "TORCH_DIST_USE_NCCL2",
        (2, 15),
        "backend nccl is another engine, ProcessGroupNCCL2",
        "torch/distributed/distributed_c10d.py",
        _uses_gpus,
    ),
)
"""Found by holding torch 2.11, 2.13, 2.14 and 2.15 against each other (``dtbench doctor --torch``)."""
