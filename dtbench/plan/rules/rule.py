"""A row of a table of reasons why something cannot be done, and the one reader of such tables.

Why a scenario cannot run is ``dtbench.plan.rules.table.RULES``; why its step has no closed form,
``dtbench.prediction.obstacles.OBSTACLES``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from dtbench.base.torch_versions import read_torch_release
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.ddp import Ddp
from dtbench.scenario.schema.scenario import Fsdp1, Fsdp2, Scenario

EVERYWHERE = frozenset(DeviceKind)
ON_CPU = frozenset({DeviceKind.CPU})
ON_CUDA = frozenset({DeviceKind.CUDA})

Fact = Literal["torch", "cuda_devices", "memory_bytes", "nodes"]
Strategy = TypeVar("Strategy", Ddp, Fsdp1, Fsdp2)


@dataclass(frozen=True)
class Case:
    """A scenario, and what is known of where its ranks will run.

    Attributes:
        scenario: as asked.
        device: on which its ranks compute.
        torch: version of theirs; None: not known.
        cuda_devices: of the machine; None: not asked.
        memory_bytes: of the host; None: not asked.
        nodes: that share the ranks, each with such devices and memory; None: one machine, this one.
    """

    scenario: Scenario
    device: DeviceKind
    torch: str | None = None
    cuda_devices: int | None = None
    memory_bytes: int | None = None
    nodes: int | None = None

    @property
    def ranks(self) -> int:
        """How many processes train."""
        return count_data_ranks(self.scenario.parallel) * self.scenario.parallel.tensor

    @property
    def ranks_per_node(self) -> int:
        """How many of them share one machine; where nodes do not divide them, those of the fullest."""
        return -(-self.ranks // count_nodes(self.ranks, self.nodes))


@dataclass(frozen=True)
class Rule:
    """What must hold, or else a sentence says what does not, and what would.

    Attributes:
        name: no other rule has it.
        says: what must hold, or what happens where it does not, in a line.
        test: gives the sentences of a case, each with what would work; none: it holds.
        devices: where it is asked.
        needs: what of the machine must be known to ask.
        until: first version of torch, major and minor, from which on it is not asked; None: all are. Where the version
            is not known it is asked, unless ``needs`` says otherwise.
        instead: fields, dotted, that make the scenario work, where these are always the same.
    """

    name: str
    says: str
    test: Callable[[Case], Iterable[str]]
    devices: frozenset[DeviceKind] = EVERYWHERE
    needs: frozenset[Fact] = frozenset()
    until: tuple[int, int] | None = None
    instead: Mapping[str, str] = field(default_factory=dict)

    def is_asked(self, case: Case) -> bool:
        """Tell whether it applies there, and enough is known."""
        if case.device not in self.devices or any(getattr(case, fact) is None for fact in self.needs):
            return False
        return self.until is None or case.torch is None or read_torch_release(case.torch) < self.until


def count_nodes(ranks: int, nodes: int | None) -> int:
    """Return how many nodes have ranks: all that are there; of fewer ranks, the first ones have one each."""
    return 1 if nodes is None else min(ranks, nodes)


def make_rule_of(
    strategy: type[Strategy], name: str, says: str, check: Callable[[Scenario, Strategy], Iterable[str]]
) -> Rule:
    """Return the row of a check that is about scenarios of one strategy alone."""

    def test(case: Case) -> Iterable[str]:
        parallel = case.scenario.parallel
        return check(case.scenario, parallel) if isinstance(parallel, strategy) else ()

    return Rule(f"{strategy.__name__.lower()}: {name}", says, test)


def find_reasons(rules: Iterable[Rule], case: Case) -> Iterator[str]:
    """Return every sentence of every rule that does not hold, in the order of the table."""
    return (sentence for rule in rules if rule.is_asked(case) for sentence in rule.test(case))
