"""``dtbench coverage``: which functions of torch under study ran, by which scenario, how often and how long."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_json
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.runs.function_coverage import Evidence, FunctionCoverage
    from dtbench.scenario.load import ScenarioFile
    from dtbench.store.records.run import CellRecord

_WAYS = ("measure.probes=true", "measure.line_coverage=true")
"""What each scenario is run with, one run each: tracing must not see probes, nor slow what they time."""


def coverage(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Runs with probes or traced lines: folders, ids or scenarios (their latest). Left out: all such runs "
            "in the folder of results. With --run, scenarios to run first.",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run these scenarios first, once with probes and once traced.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="With --run, override one field of every scenario."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Show for every function of the files under study whether it ran, and what it cost.

    It ran when the interpreter's own tracing saw a line of its body in a launch that finished; probes say how often and
    how long. In JSON times are nanoseconds, null where nobody measured. Exit code 4: a scenario of --run failed; 8:
    tracing and probes disagree.
    """
    refuse_page_place(html)
    from dataclasses import replace

    from dtbench.runs.function_coverage import cover

    if run and not targets:
        raise typer.BadParameter("--run needs scenarios to run; `dtbench list` shows them")
    if sets and not run:
        raise typer.BadParameter("--set changes what --run runs; finished runs are as they are")
    failures: list[str] = []
    paths = _run_all(targets or [], sets or [], results, failures) if run else _find_runs(targets, results)
    left_out: list[str] = []
    found = cover(_read_all(paths, left_out, must_have=targets is not None))
    found = replace(found, notes=(*found.notes, *(f"a run is left out: {reason}" for reason in left_out)))
    _show(found, paths, html, as_json=as_json)
    _refuse(found, failures)


def _find_runs(targets: list[str] | None, results: Path) -> list[Path]:
    from dtbench.store.find_run import find_run
    from dtbench.store.walk import find_runs

    return find_runs(results) if targets is None else [find_run(target, results) for target in targets]


def _read_all(paths: "Sequence[Path]", left_out: list[str], *, must_have: bool) -> "list[Evidence]":
    """Read the evidence of runs; ``left_out`` takes why one that nobody named cannot be read.

    Raises:
        StoreError: a run that was named has none, or none of all has.
    """
    from dtbench.base.errors import StoreError
    from dtbench.runs.function_coverage import read_evidence

    found: list[Evidence] = []
    for path in paths:
        try:
            evidence = read_evidence(path)
        except StoreError as error:
            if must_have:
                raise
            left_out.append(str(error))
            continue
        if must_have and not evidence:
            raise StoreError(
                f"{path}: this run has neither probes nor traced lines; run its scenario with --set "
                f"{_WAYS[0]} and with --set {_WAYS[1]}, or let `dtbench coverage --run` do both"
            )
        found += evidence
    if not found:
        raise StoreError(
            "no run here has probes or traced lines; `dtbench coverage --run <scenario>` makes both, or name another "
            "folder with --results"
        )
    return found


def _run_all(names: "Sequence[str]", sets: "Sequence[str]", results: Path, failures: list[str]) -> list[Path]:
    """Run each scenario in both ways, one run each; a launch that fails is told at the end and stops nothing."""
    from dtbench.cli.forks import Forks
    from dtbench.launch.cells import plan_cells
    from dtbench.launch.machine import read_machine
    from dtbench.scenario.catalog import open_scenario

    machine = read_machine()
    files = [open_scenario(name, ["repeat=1", *sets, way]) for name in names for way in _WAYS]
    planned = [(file, plan_cells(file, machine)) for file in files]  # all mistakes before anything runs
    paths: list[Path] = []
    with Forks() as forks:
        for file, cells in planned:
            paths += _run_one(file, cells, forks.find_prefix(file), results, failures)
    return paths


def _run_one(
    file: "ScenarioFile",
    cells: "tuple[CellRecord, ...]",
    prefix: tuple[str, ...],
    results: Path,
    failures: list[str],
) -> list[Path]:
    from dtbench.base.errors import LaunchError
    from dtbench.cli.progress import observe
    from dtbench.launch.local import WORKER
    from dtbench.launch.run import ThisMachine, run_scenario

    folders: list[Path] = []
    with observe(folders.append) as observer:
        try:
            run_scenario(file, cells, results, observer=observer, engine=ThisMachine((*prefix, *WORKER)))
        except LaunchError as error:
            failures.append(str(error))
    return folders


def _show(found: "FunctionCoverage", paths: "Sequence[Path]", html: Path | None, *, as_json: bool) -> None:
    """Print what was found, and write its page where one is asked for."""
    from dtbench.report.documents.coverage import document
    from dtbench.report.page.coverage_page import coverage_page

    page = coverage_page(found)
    write_answer(html, page)
    print_json(document(found, paths)) if as_json else print_answer(page)


def _refuse(found: "FunctionCoverage", failures: "Sequence[str]") -> None:
    """Refuse to end well.

    Raises:
        LaunchError: a scenario of --run failed.
        CheckError: lines and probes disagree.
    """
    from dtbench.base.errors import CheckError, LaunchError

    if failures:
        raise LaunchError("\n".join(failures))
    wrong = [f"{row.name}: {remark}" for row in found.functions for remark in row.remarks[: row.disagreements]]
    if wrong:
        raise CheckError("tracing and probes disagree, do not trust these counts:\n" + "\n".join(wrong))
