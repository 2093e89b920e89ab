"""One step of rank 0 where no other rank is, held against the plan of what was executed."""

from collections.abc import Mapping
from dataclasses import dataclass

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.plan import Plan
from dtbench.plan.traffic.planned import PlannedTraffic
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.fake_step import FakeStep
from dtbench.store.records.traffic import Traffic


@dataclass(frozen=True)
class ExecutedLine:
    """One (purpose, axis, operation): what the plan says, and what was issued; None: nothing."""

    purpose: Purpose
    axis: Axis | None
    operation: Operation
    planned: PlannedTraffic | None
    issued: Traffic | None

    @property
    def is_planned(self) -> bool:
        """It is issued as often and with as many bytes as planned."""
        if self.planned is None or self.issued is None:
            return False
        return (self.planned.count, self.planned.size_bytes) == (self.issued.count, self.issued.size_bytes)


@dataclass(frozen=True)
class Executed:
    """A step of rank 0 held against its plan.

    Attributes:
        scenario: as executed.
        plan: of that.
        cut: what was made smaller, each in words.
        step: what it issued.
    """

    scenario: Scenario
    plan: Plan
    cut: tuple[str, ...]
    step: FakeStep

    @property
    def lines(self) -> tuple[ExecutedLine, ...]:
        """Every kind of collective that is planned or was issued."""
        planned: dict[tuple[Purpose, Axis | None, Operation], PlannedTraffic] = {
            (one.purpose, one.axis, one.operation): one for one in self.plan.traffic or ()
        }
        issued = {(one.purpose, one.axis, one.operation): one for one in self.step.traffic}
        keys = dict.fromkeys((*planned, *issued))
        return tuple(ExecutedLine(*key, planned.get(key), issued.get(key)) for key in keys)

    @property
    def is_planned(self) -> bool | None:
        """All is issued as planned; None: no formula says what must be."""
        return None if self.plan.traffic is None else all(line.is_planned for line in self.lines)


@dataclass(frozen=True)
class ExecutedCells:
    """Cells of a scenario of which a step was executed, by name.

    Attributes:
        steps: of those that were.
        refused: why others cannot be on a CPU, each in a sentence.
    """

    steps: Mapping[str, Executed]
    refused: Mapping[str, str]

    @property
    def unlike(self) -> list[str]:
        """Cells that issued something else than planned."""
        return [name for name, one in self.steps.items() if one.is_planned is False]
