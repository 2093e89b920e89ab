"""Scenarios as pages: those that a name can find, and what one of them would do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dtbench.base.units import format_bytes, format_count
from dtbench.plan.plan import Plan, count_wire_bytes
from dtbench.plan.rules.newer_knobs import find_newer
from dtbench.plan.traffic.planned import PlannedTraffic, wire_bytes
from dtbench.report.page.page import Cell, Column, Fact, Facts, Line, Page, Part, Prose, Row, Table, Tone, lines
from dtbench.scenario.catalog import ListedScenario
from dtbench.scenario.checks.check_words import describe_check
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.repeat import describe_repeat
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.executed import Executed, ExecutedCells, ExecutedLine
from dtbench.store.records.traffic import Traffic


def listed_page(listed: Sequence[ListedScenario]) -> Page:
    """Make the page of all scenarios by folder, what is wrong with broken ones below."""
    groups: dict[str, list[ListedScenario]] = {"Start here": [one for one in listed if one.entry.name == START]}
    for one in sorted(listed, key=lambda one: one.entry.folder):
        if one.entry.name != START:
            groups.setdefault(_name_folder(one), []).append(one)
    parts = [Part(title, "", (_listed_table(title, of_folder),)) for title, of_folder in groups.items() if of_folder]
    mistakes = [
        line
        for one in listed
        if one.error is not None
        for line in (Line(f"{one.entry.name} cannot run:", Tone.BAD), Line(one.error))
    ]
    more = Line("`dtbench check <scenario>` shows what it would do.")
    return Page(
        title="Scenarios",
        answer=(),
        parts=(*parts, Part("more", "", (Prose((*mistakes, more)),))),
    )


START: Final = "quickstart"
"""The scenario to start with."""


def _name_folder(listed: ListedScenario) -> str:
    """Name the folder that a scenario lies in: ``ddp (./scenarios)``."""
    entry = listed.entry
    return f"{entry.folder} ({entry.origin.value})" if entry.folder else entry.origin.value


def _listed_table(title: str, listed: Sequence[ListedScenario]) -> Table:
    columns = tuple(map(Column, ("scenario", "question")))
    return Table(title, columns, [(one.entry.name, _describe_listed(one)) for one in listed], key="scenarios")


def _describe_listed(scenario: ListedScenario) -> str:
    question = scenario.question or "(no question on line 1)"
    if scenario.error is not None:
        return f"{question} (broken, see below)"
    if scenario.entry.hidden_by is not None:
        return f"{question} (overridden by {scenario.entry.hidden_by}, which has the same name)"
    return question


def plans_page(
    file: ScenarioFile, plans: Mapping[str, Plan], takes: str, executed: ExecutedCells | None = None
) -> Page:
    """Make the page of what a scenario would do.

    Args:
        file: the scenario.
        plans: of each of its cells, by name.
        takes: how long a run of it takes.
        executed: a step of rank 0 of each cell; None: not asked for.
    """
    devices = sorted({f"{plan.device.value} ({plan.backend})" for plan in plans.values()})
    tokens = list(dict.fromkeys(format_count(plan.tokens_per_step) for plan in plans.values()))
    notes = (note for plan in plans.values() for note in plan.notes)
    needs = (newer.says for cell in file.cells for newer in find_newer(cell.scenario))
    parts = (
        Part("cells", "", (_cells_table(file, plans),)),
        Part("traffic", "", tuple(_traffic_blocks(plans))),
        *([] if executed is None else [Part("executed", "", (_executed_table(executed),))]),
        Part("claims", "", (Facts(tuple(_claims(file)), key="claims"),)),
    )
    return Page(
        title=file.name,
        question=file.question,
        facts=(
            Fact("device", f"Device: {', '.join(devices)}; {' or '.join(tokens)} tokens per step"),
            Fact("time", takes),
        ),
        answer=(),
        parts=parts,
        notes=lines(dict.fromkeys((*notes, *needs))),
    )


def _cells_table(file: ScenarioFile, plans: Mapping[str, Plan]) -> Table:
    columns = (
        Column("cell"),
        Column("ranks", is_number=True),
        Column("mesh"),
        Column("parameters", is_number=True),
        Column("state/rank", is_number=True),
        Column("wire/device", is_number=True),
    )
    scenarios = {cell.name: cell.scenario for cell in file.cells}
    rows = [_cell_row(name, scenarios[name], plan) for name, plan in plans.items()]
    note = Line("state: weights, gradients and optimizer; activations and buffers come on top")
    return Table("", columns, rows, (note,), key="cells")


def _cell_row(name: str, scenario: Scenario, plan: Plan) -> Row:
    return (
        name,
        Cell(str(plan.ranks), value=plan.ranks),
        " x ".join(f"{axis.name.value} {axis.size}" for axis in plan.mesh),
        "unknown" if plan.parameters is None else Cell(format_count(plan.parameters), value=plan.parameters),
        _size_or_unknown(plan.state_bytes),
        _size_or_unknown(count_wire_bytes(scenario, plan)),
    )


def _size_or_unknown(size_bytes: int | None) -> str | Cell:
    return "unknown" if size_bytes is None else _size(size_bytes)


def _size(size_bytes: int) -> Cell:
    return Cell(format_bytes(size_bytes), value=size_bytes)


def _traffic_blocks(plans: Mapping[str, Plan]) -> Iterator[Prose | Table]:
    """Yield what crosses the wire, and of which cells it is not known yet."""
    unknown = [name for name, plan in plans.items() if plan.traffic is None]
    if unknown:
        what = "what crosses the wire is computed once your model is built, and checked in the report."
        yield Prose((Line(f"Cell {', '.join(unknown)}: {what}"),))
    if len(unknown) == len(plans):
        return
    if all(plan.ranks == 1 for plan in plans.values()):
        alone = "Nothing has to cross a wire: every cell is a single rank, its collectives have one member."
        yield Prose((Line(alone),))
    elif any(plan.traffic for plan in plans.values()):
        yield _traffic_table(plans)


def _traffic_table(plans: Mapping[str, Plan]) -> Table:
    columns = (
        Column("cell"),
        Column("purpose"),
        Column("collective"),
        Column("axis"),
        Column("count", is_number=True),
        Column("size", is_number=True),
        Column("wire", is_number=True),
    )
    rows = [row for name, plan in plans.items() for row in _traffic_rows(name, plan)]
    note = Line("size: bytes as nccl-tests counts them; wire: what each device sends, by ring algorithms")
    return Table("Planned traffic per device and step", columns, rows, (note,), key="traffic")


def _traffic_rows(name: str, plan: Plan) -> Iterator[Row]:
    sizes = {axis.name: axis.size for axis in plan.mesh}
    for part in plan.traffic or ():
        yield (
            name,
            part.purpose.value,
            part.operation.value,
            part.axis.value,
            Cell(str(part.count), value=part.count),
            _size(part.size_bytes),
            _size(wire_bytes(part, sizes[part.axis])),
        )


def _executed_table(executed: ExecutedCells) -> Table:
    """Return what rank 0 issued in a step, against the plan of what was executed."""
    columns = (
        Column("cell"),
        Column("purpose"),
        Column("collective"),
        Column("axis"),
        *(Column(title, is_number=True) for title in ("count", "planned", "size", "planned")),
        Column("as planned"),
    )
    rows = [_executed_row(name, one, line) for name, one in executed.steps.items() for line in one.lines]
    return Table(
        "Executed: a step of rank 0, of which every collective is recorded and none moves anything",
        columns,
        rows,
        tuple(_say_executed(executed)),
        key="executed",
    )


def _executed_row(name: str, one: Executed, line: ExecutedLine) -> Row:
    issued, planned = line.issued, line.planned
    if one.plan.traffic is None:
        said: str | Cell = "no formula"
    else:
        said = Cell("yes", Tone.GOOD) if line.is_planned else Cell("NO", Tone.BAD)
    return (
        name,
        line.purpose.value,
        line.operation.value,
        "-" if line.axis is None else line.axis.value,
        *(
            "-" if part is None else Cell(words(part), value=getattr(part, key))
            for key, words in (("count", _spell_count), ("size_bytes", _spell_size))
            for part in (issued, planned)
        ),
        said,
    )


def _spell_count(part: Traffic | PlannedTraffic) -> str:
    return str(part.count)


def _spell_size(part: Traffic | PlannedTraffic) -> str:
    return format_bytes(part.size_bytes)


def _say_executed(executed: ExecutedCells) -> Iterator[Line]:
    """Say what was made smaller than the scenario, and which cells issued what no plan says."""
    alike: dict[str, list[str]] = {}
    for name, one in executed.steps.items():
        smaller = f", made smaller ({', '.join(one.cut)}): `planned` is of that" if one.cut else ""
        alike.setdefault(f"executed on a CPU, at {one.plan.ranks} ranks{smaller}", []).append(name)
    for words, names in alike.items():
        yield Line(f"{name_some(names)}: {words}")
    for name, reason in executed.refused.items():
        yield Line(f"`{name}` is not executed, as it cannot be on a CPU: {reason}", Tone.WARNING)
    if executed.unlike:
        yield Line(f"NOT AS PLANNED: {name_some(executed.unlike)}", Tone.BAD)


def _claims(file: ScenarioFile) -> Iterator[Fact]:
    """Yield what the file claims, and on how many launches that is judged where a rule finds the number."""
    functions = file.checklist.functions
    if functions:
        yield Fact("Must be called", ", ".join(functions))
    yield from (Fact("Check", describe_check(check)) for check in file.checklist.checks)
    repeat = file.cells[0].scenario.repeat
    if not isinstance(repeat, int):
        yield Fact("repeat", f"auto takes {describe_repeat(repeat)}.")
