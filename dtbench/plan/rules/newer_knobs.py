"""What only newer tested versions of torch have of what a scenario may ask for, and what a version takes by default.

``tests/worker/test_receipts.py`` and ``test_owners.py`` hold the table against the installed torch, nightly against
each version: a knob is there from its first version on, and not before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dtbench.base.torch_versions import GRADIENTS_KEEP_THEIR_DTYPE, read_torch_release
from dtbench.scenario.schema.scenario import Ddp, Fsdp2, Scenario


@dataclass(frozen=True)
class Newer:
    """Something that came into torch after the first tested version; maybe after the last one, too.

    Attributes:
        knob: field of a scenario, dotted.
        first: the first version that has it, major and minor.
        applies: whether a scenario asks for it.
        words: what it is where the field itself is older; None: the field.
    """

    knob: str
    first: tuple[int, int]
    applies: Callable[[Scenario], bool]
    words: str | None = None

    def describe(self) -> str:
        """Say what needs which version, as in ``parallel.batched_grad_copy needs torch 2.12 or newer``."""
        return f"{self.words or self.knob} needs torch {'.'.join(map(str, self.first))} or newer"


def find_newer(scenario: Scenario) -> Iterator[Newer]:
    """Give what the scenario asks for that not every tested torch has."""
    return (newer for newer in NEWER if newer.applies(scenario))


def find_lacking(scenario: Scenario, torch: str) -> Iterator[str]:
    """Give a sentence for everything that the scenario asks for and that this version of torch does not have."""
    for newer in find_newer(scenario):
        if read_torch_release(torch) < newer.first:
            yield f"{newer.describe()}, and this is {torch}; leave it out, or use a newer torch"


def spell_defaults(scenario: Scenario, torch: str | None) -> Scenario:
    """Return the scenario with what a version of torch takes for a knob that is left out, where versions differ.

    Args:
        scenario: as asked.
        torch: version of its ranks; None: not known, and taken for one before 2.15.
    """
    parallel = scenario.parallel
    if torch is None or read_torch_release(torch) < GRADIENTS_KEEP_THEIR_DTYPE or not isinstance(parallel, Fsdp2):
        return scenario
    policy = parallel.mixed_precision
    spelled = policy.model_copy(update={"reduce_dtype": policy.reduce_dtype or scenario.precision.dtype})
    return scenario.model_copy(update={"parallel": parallel.model_copy(update={"mixed_precision": spelled})})


def _newer(kind: type[Ddp] | type[Fsdp2], name: str, first: tuple[int, int]) -> Newer:
    """Give the row of a field of a strategy, which is asked for where it is not at its default."""
    default = kind.model_fields[name].default

    def applies(scenario: Scenario) -> bool:
        return isinstance(scenario.parallel, kind) and getattr(scenario.parallel, name) != default

    return Newer(f"parallel.{name}", first, applies)


def _delays_in_fractions(scenario: Scenario) -> bool:
    parallel = scenario.parallel
    if not isinstance(parallel, Ddp) or not parallel.delay_all_reduce:
        return False
    caps = (parallel.bucket_cap_mb, *(parallel.bucket_cap_mb_list or ()))
    return any(cap is not None and not cap.is_integer() for cap in caps)


NEWER = (
    _newer(Ddp, "batched_grad_copy", (2, 12)),
    Newer(
        "parallel.bucket_cap_mb",
        (2, 12),
        _delays_in_fractions,
        words="a bucket cap that is no whole number of MiB, beside parallel.delay_all_reduce,",
    ),
    _newer(Fsdp2, "separate_reduce_scatter_group", (2, 13)),
    _newer(Fsdp2, "reduce_scatter_max_input_buffers", (2, 13)),
    _newer(Fsdp2, "reduce_scatter_unused_params", (2, 13)),
    _newer(Fsdp2, "symmetric_memory", (2, 13)),
    _newer(Ddp, "lazy_bucket_allocation", (2, 15)),
    _newer(Ddp, "manual_backward_finalization", (2, 15)),
    Newer(
        "parallel.mixed_precision.keep_dtype",
        (2, 15),
        lambda scenario: isinstance(scenario.parallel, Fsdp2) and bool(scenario.parallel.mixed_precision.keep_dtype),
    ),
    _newer(Fsdp2, "keep_unsharded_storage", (2, 15)),
    _newer(Fsdp2, "manual_backward_finalization", (2, 15)),
)
