"""What a scenario would do, cell by cell, as one JSON document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.document import BYTES, TEXT, ByName, Key, Many, OrNull, Schema, Shape, make_schema
from dtbench.base.record_schema import Typed
from dtbench.plan.plan import Plan, count_wire_bytes
from dtbench.plan.rules.newer_knobs import find_newer
from dtbench.scenario.checks.checklist import Check
from dtbench.scenario.load import Cell, ScenarioFile
from dtbench.scenario.schema.scenario import Scenario


@dataclass(frozen=True)
class CheckedScenario:
    """A scenario that can run, with the plan of each cell by name."""

    file: ScenarioFile
    plans: Mapping[str, Plan]


@dataclass(frozen=True)
class _PlannedCell:
    """One cell."""

    cell: Cell
    plan: Plan


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
    ),
)
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
            lambda one: [_PlannedCell(cell, one.plans[cell.name]) for cell in one.file.cells],
        ),
    ),
)


def document(checked: CheckedScenario) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(checked)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench check --json", _DOCUMENT)
