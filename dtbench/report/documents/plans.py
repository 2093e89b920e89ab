"""What a scenario would do, cell by cell, as one JSON document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.document import BYTES, FLAG, TEXT, ByName, Key, Many, OrNull, Schema, Shape, make_schema
from dtbench.base.record_schema import Typed
from dtbench.plan.plan import Plan, count_wire_bytes
from dtbench.plan.rules.newer_knobs import find_newer
from dtbench.scenario.checks.checklist import Check
from dtbench.scenario.load import Cell, ScenarioFile
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.executed import Executed, ExecutedCells
from dtbench.store.records.fake_step import FakeStep


@dataclass(frozen=True)
class CheckedScenario:
    """A scenario that can run, with the plan of each cell by name, and what was executed of each if anything was."""

    file: ScenarioFile
    plans: Mapping[str, Plan]
    executed: ExecutedCells | None = None


@dataclass(frozen=True)
class _PlannedCell:
    """One cell."""

    cell: Cell
    plan: Plan
    executed: Executed | None
    refused: str | None


_EXECUTED: Final = Shape[Executed](
    "Executed",
    "A step of rank 0 of all ranks, of which no other is there: what it issues, against the plan of what was executed.",
    (
        Key("scenario", Typed(Scenario), "as executed, its sizes cut", lambda one: one.scenario),
        Key("plan", Typed(Plan), "of that", lambda one: one.plan),
        Key("cut", Many(TEXT), "what was made smaller", lambda one: one.cut),
        Key(
            "is_planned",
            OrNull(FLAG),
            "all was issued as often and with as many bytes as planned; null: no formula says what must be",
            lambda one: one.is_planned,
        ),
        Key("step", Typed(FakeStep), "what the step issued, in its order", lambda one: one.step),
    ),
)
_CELL: Final = Shape[_PlannedCell](
    "PlannedCell",
    "One cell of a scenario, and what it would do.",
    (
        Key("name", TEXT, "its name", lambda one: one.cell.name),
        Key("coordinates", ByName(TEXT), "its value on each axis of a matrix", lambda one: one.cell.coordinates),
        Key("scenario", Typed(Scenario), "what it asks for, with every default", lambda one: one.cell.scenario),
        Key("plan", Typed(Plan), "what that means", lambda one: one.plan),
        Key(
            "wire_bytes",
            OrNull(BYTES),
            "what each device sends in a step; null: known only once your model is built, or by a function of yours",
            lambda one: count_wire_bytes(one.cell.scenario, one.plan),
        ),
        Key(
            "needs_torch",
            ByName(TEXT),
            "by knob the first torch that has it, of those that not every supported one has",
            lambda one: {newer.knob: ".".join(map(str, newer.first)) for newer in find_newer(one.cell.scenario)},
        ),
        Key("executed", OrNull(_EXECUTED), "by `--execute`; null: it was not, or cannot be", lambda one: one.executed),
        Key(
            "not_executed",
            OrNull(TEXT),
            "why it cannot be; null: nobody asked, or it is",
            lambda one: one.refused,
        ),
    ),
)


def _make_cell(checked: CheckedScenario, cell: Cell) -> _PlannedCell:
    done = checked.executed or ExecutedCells({}, {})
    return _PlannedCell(cell, checked.plans[cell.name], done.steps.get(cell.name), done.refused.get(cell.name))


_DOCUMENT: Final = Shape[CheckedScenario](
    "CheckedScenario",
    "A scenario, and what it would do.",
    (
        Key("name", TEXT, "its file's name without the ending", lambda one: one.file.name),
        Key("question", TEXT, "line 1 of the file", lambda one: one.file.question),
        Key("overrides", Many(TEXT), "every `--set`", lambda one: one.file.overrides),
        Key(
            "functions",
            Many(TEXT),
            "under study that must be called, by label",
            lambda one: one.file.checklist.functions,
        ),
        Key(
            "checks",
            Many(Typed(Check)),
            "what must hold for the answer to be true",
            lambda one: one.file.checklist.checks,
        ),
        Key(
            "answer",
            OrNull(TEXT),
            "with slots for numbers; null: the file has none",
            lambda one: one.file.checklist.answer,
        ),
        Key(
            "cells",
            Many(_CELL),
            "in the order of the file",
            lambda one: [_make_cell(one, cell) for cell in one.file.cells],
        ),
    ),
)


def document(checked: CheckedScenario) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(checked)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench check --json", _DOCUMENT)
