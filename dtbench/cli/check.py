"""``dtbench check``: what a scenario would do, without doing it."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_block, print_json, print_line, print_table
from dtbench.report.page.page import Column, Table, Tone

if TYPE_CHECKING:
    from dtbench.plan.plan import Plan
    from dtbench.scenario.load import ScenarioFile


def check(
    scenario: Annotated[str, typer.Argument(help="A name from `dtbench list`, or a file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change a field, as in `--set model.layers=2`; can be repeated."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Check a scenario without running it, and show the plan of each of its cells.

    Plans need no GPU: a scenario for eight of them can be checked on a laptop.
    """
    from dtbench.scenario.catalog import open_scenario

    file = open_scenario(scenario, overrides or [])
    plans = _plan_cells(file)
    if as_json:
        _print_document(file, plans)
    else:
        _print_plans(file, plans)


def _plan_cells(file: "ScenarioFile") -> "dict[str, Plan]":
    """Return the plan of every cell, or one error that tells what is wrong with each."""
    from dtbench.base.errors import PlanError
    from dtbench.plan.plan import plan_for_check
    from dtbench.scenario.schema.repeat import find_mixed_repeat

    plans: dict[str, Plan] = {}
    refusals: list[str] = []
    for cell in file.cells:
        try:
            plans[cell.name] = plan_for_check(cell.scenario)
        except PlanError as refusal:
            refusals.append(f"Cell `{cell.name}` of {file.name}: {refusal}")
        python = cell.scenario.python
        if python is not None and shutil.which(python) is None:
            refusals.append(
                f"Cell `{cell.name}` of {file.name}: python: {python} is no program here; is the path right?"
            )
    mixed = find_mixed_repeat({cell.name: cell.scenario.repeat for cell in file.cells})
    refusals += [] if mixed is None else [f"{file.name}: {mixed}"]
    if refusals:
        raise PlanError("\n".join(refusals))
    return plans


def _print_document(file: "ScenarioFile", plans: "dict[str, Plan]") -> None:
    from dtbench.report.documents.plans import CheckedScenario, document

    print_json(document(CheckedScenario(file, plans)))


def _print_plans(file: "ScenarioFile", plans: "dict[str, Plan]") -> None:
    from dtbench.base.units import format_bytes, format_count
    from dtbench.plan.plan import count_wire_bytes
    from dtbench.scenario.schema.repeat import describe_repeat

    print_line(file.question, tone=Tone.STRONG)
    devices = sorted({f"{plan.device.value} ({plan.backend})" for plan in plans.values()})
    tokens = list(dict.fromkeys(format_count(plan.tokens_per_step) for plan in plans.values()))
    print_line(f"Device: {', '.join(devices)}; {' or '.join(tokens)} tokens per step")
    rows = []
    scenarios = {cell.name: cell.scenario for cell in file.cells}
    for name, plan in plans.items():
        wire = count_wire_bytes(scenarios[name], plan)
        rows.append(
            (
                name,
                str(plan.ranks),
                _describe_mesh(plan),
                "unknown" if plan.parameters is None else format_count(plan.parameters),
                "unknown" if plan.state_bytes is None else format_bytes(plan.state_bytes),
                "unknown" if wire is None else format_bytes(wire),
            )
        )
    print_table(
        [
            Column("cell"),
            Column("ranks", is_number=True),
            Column("mesh"),
            Column("parameters", is_number=True),
            Column("state/rank", is_number=True),
            Column("wire/device", is_number=True),
        ],
        rows,
    )
    print_line("state: weights, gradients and optimizer; activations and buffers come on top")
    _print_traffic(plans)
    _print_checklist(file)
    repeat = file.cells[0].scenario.repeat
    if not isinstance(repeat, int):
        print_line(f"repeat: auto takes {describe_repeat(repeat)}.")
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        print_line(f"Note: {note}")
    _print_needs(file)


def _print_needs(file: "ScenarioFile") -> None:
    """Say what not every torch that dtbench supports can do: the one that will run this is not asked."""
    from dtbench.plan.rules.newer_knobs import find_newer

    for need in dict.fromkeys(newer.says for cell in file.cells for newer in find_newer(cell.scenario)):
        print_line(f"Note: {need}")


def _print_checklist(file: "ScenarioFile") -> None:
    from dtbench.scenario.checks.check_words import describe_check

    functions = file.checklist.functions
    if functions:
        print_line(f"Must be called: {', '.join(functions)}")
    for check in file.checklist.checks:
        print_line(f"Check: {describe_check(check)}")


def _print_traffic(plans: "dict[str, Plan]") -> None:
    from dtbench.base.units import format_bytes
    from dtbench.plan.traffic.planned import wire_bytes

    unknown = [name for name, plan in plans.items() if plan.traffic is None]
    if unknown:
        names = ", ".join(unknown)
        print_line(
            f"Cell {names}: what crosses the wire is computed once your model is built, and checked in the report."
        )
    if len(unknown) == len(plans):
        return
    if all(plan.ranks == 1 for plan in plans.values()):
        print_line("Nothing has to cross a wire: every cell is a single rank, its collectives have one member.")
        return
    if not any(plan.traffic for plan in plans.values()):
        return
    print_block(
        Table(
            "Planned traffic per device and step",
            [
                Column("cell"),
                Column("purpose"),
                Column("collective"),
                Column("axis"),
                Column("count", is_number=True),
                Column("size", is_number=True),
                Column("wire", is_number=True),
            ],
            [
                (
                    name,
                    part.purpose.value,
                    part.operation.value,
                    part.axis.value,
                    str(part.count),
                    format_bytes(part.size_bytes),
                    format_bytes(wire_bytes(part, size)),
                )
                for name, plan in plans.items()
                for part in plan.traffic or ()
                for size in (next(axis.size for axis in plan.mesh if axis.name is part.axis),)
            ],
        ),
    )
    print_line("size: bytes as nccl-tests counts them; wire: what each device sends, by ring algorithms")


def _describe_mesh(plan: "Plan") -> str:
    """Return the axes as ``shard 2 x tensor 2``."""
    return " x ".join(f"{axis.name.value} {axis.size}" for axis in plan.mesh)
