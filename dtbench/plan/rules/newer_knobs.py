"""What only newer tested versions of torch have of what a scenario may ask for, and what a version takes by default.

``tests/worker/test_receipts.py`` and ``test_owners.py`` hold the table against the installed torch, nightly against
each version: a knob is there from its first version on, and not before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dtbench.base.torch_versions import GRADIENTS_KEEP_THEIR_DTYPE, read_torch_release
from dtbench.plan.rules.rule import Case, Rule
from dtbench.scenario.schema.scenario import Ddp, Fsdp2, Scenario


@dataclass(frozen=True, kw_only=True)
class Newer(Rule):
    """Something that came into torch after the first tested version; maybe after the last one, too.

    Attributes:
        knob: field of a scenario, dotted.
        applies: whether a scenario asks for it.
        words: what it is where the field itself is older; None: the field.
    """

    knob: str
    applies: Callable[[Scenario], bool]
    words: str | None

    @property
    def first(self) -> tuple[int, int]:
        """The first version that has it, major and minor."""
        assert self.until is not None
        return self.until


def find_newer(scenario: Scenario) -> Iterator[Newer]:
    """Return what the scenario asks for that not every tested torch has."""
    return (newer for newer in NEWER if newer.applies(scenario))


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


def _field(kind: type[Ddp] | type[Fsdp2], name: str, first: tuple[int, int]) -> Newer:
    """Return the row of a field of a strategy, which is asked for where it is not at its default."""
    default = kind.model_fields[name].default

    def applies(scenario: Scenario) -> bool:
        return isinstance(scenario.parallel, kind) and getattr(scenario.parallel, name) != default

    return _newer(f"parallel.{name}", first, applies, of=kind.__name__)


def _newer(
    knob: str, first: tuple[int, int], applies: Callable[[Scenario], bool], *, of: str, words: str | None = None
) -> Newer:
    says = f"{words or knob} needs torch {'.'.join(map(str, first))} or newer"

    def test(case: Case) -> Iterator[str]:
        if applies(case.scenario):
            yield f"{says}, and this is {case.torch}; leave it out, or use a newer torch"

    return Newer(
        name=f"{of}: {knob} needs a newer torch",
        says=says,
        test=test,
        needs=frozenset({"torch"}),
        until=first,
        knob=knob,
        applies=applies,
        words=words,
    )


def _delays_in_fractions(scenario: Scenario) -> bool:
    parallel = scenario.parallel
    if not isinstance(parallel, Ddp) or not parallel.delay_all_reduce:
        return False
    caps = (parallel.bucket_cap_mb, *(parallel.bucket_cap_mb_list or ()))
    return any(cap is not None and not cap.is_integer() for cap in caps)


def _keeps_dtype(scenario: Scenario) -> bool:
    return isinstance(scenario.parallel, Fsdp2) and bool(scenario.parallel.mixed_precision.keep_dtype)


_FRACTION = "a bucket cap that is no whole number of MiB, beside parallel.delay_all_reduce,"

NEWER = (
    _field(Ddp, "batched_grad_copy", (2, 12)),
    _newer("parallel.bucket_cap_mb", (2, 12), _delays_in_fractions, of="Ddp", words=_FRACTION),
    _field(Fsdp2, "separate_reduce_scatter_group", (2, 13)),
    _field(Fsdp2, "reduce_scatter_max_input_buffers", (2, 13)),
    _field(Fsdp2, "reduce_scatter_unused_params", (2, 13)),
    _field(Fsdp2, "symmetric_memory", (2, 13)),
    _field(Ddp, "lazy_bucket_allocation", (2, 15)),
    _field(Ddp, "manual_backward_finalization", (2, 15)),
    _newer("parallel.mixed_precision.keep_dtype", (2, 15), _keeps_dtype, of="Fsdp2"),
    _field(Fsdp2, "keep_unsharded_storage", (2, 15)),
    _field(Fsdp2, "manual_backward_finalization", (2, 15)),
)
