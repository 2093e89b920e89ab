"""``dtbench catalogue``: every scenario that has checks, one after another, and what each answers."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.base.commands import spell_command
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.forks import Forks
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.plan.plan import Machine
    from dtbench.report.page.catalogue_page import Catalogue, CatalogueRow
    from dtbench.scenario.load import ScenarioFile
    from dtbench.store.records.checks import CatalogueRecord, FinishedScenario


def catalogue(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Scenarios to run; left out: all that have checks."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a catalogue that was stopped: what is finished stays.")
    ] = False,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Launches of each cell; left out: as each file says, mostly one.")
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="Run nothing: show what would run, and what cannot.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Record the outcomes in this folder of scenarios, and make its README.md."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    html: HtmlFile = None,
) -> None:
    """Run every scenario that has checks and can run here, and show what each answers.

    On Linux the ranks of single launches on CPU are forked from a process that has imported torch, unless their start
    is what is measured; with --repeat each is a process of its own, as in `dtbench run`.
    Ctrl-C loses nothing that is finished; --resume goes on. Exit code 8: a check did not pass; 4: a launch failed.
    """
    refuse_page_place(html)
    files = _choose(names or [], repeat)
    rows = (
        _list(files)
        if only_list
        else _run_all(files, results, _spell_command(names, results, repeat, write), resume=resume)
    )
    runs = [Path(row.run) for row in rows if row.run is not None]
    if write is not None:
        _write(write, runs)
    _show(_gather(rows, runs, only_list=only_list), html, as_json=as_json)
    if not only_list:
        _refuse(rows)


@dataclass(frozen=True)
class _Chosen:
    """A scenario; ``obstacle`` says why it cannot run here, else it is None and the file is there."""

    name: str
    question: str
    file: "ScenarioFile | None"
    obstacle: str | None


def _choose(names: "Sequence[str]", repeat: int | None) -> "list[_Chosen]":
    """Return the scenarios that were named, or all that have checks; broken ones with what is wrong.

    Raises:
        ScenarioError: one that was named is unknown, wrong, or has no checks.
    """
    from dtbench.base.errors import ScenarioError
    from dtbench.launch.machine import read_machine
    from dtbench.scenario.catalog import list_scenarios, open_scenario

    overrides = [] if repeat is None else [f"repeat={repeat}"]
    machine = read_machine()
    if names:
        files = [open_scenario(name, overrides) for name in names]
        idle = [file.name for file in files if file.checklist.is_empty]
        if idle:
            raise ScenarioError(f"{', '.join(idle)}: no `checks:` there, so nothing to judge; `dtbench run` runs it")
        return [_plan(file, machine) for file in files]
    chosen = []
    for listed in list_scenarios():
        if listed.entry.hidden_by is not None:
            continue
        if listed.error is not None:
            broken = listed.error.splitlines()[0]
            chosen.append(_Chosen(listed.entry.name, listed.question or "", None, f"the file is wrong: {broken}"))
            continue
        file = open_scenario(str(listed.entry.path), overrides)
        if not file.checklist.is_empty:
            chosen.append(_plan(file, machine))
    return chosen


def _plan(file: "ScenarioFile", machine: "Machine") -> _Chosen:
    from dtbench.base.errors import PlanError
    from dtbench.launch.cells import plan_cells

    try:
        plan_cells(file, machine)
    except PlanError as error:
        return _Chosen(file.name, file.question, file, f"cannot run here: {str(error).splitlines()[0]}")
    return _Chosen(file.name, file.question, file, None)


def _list(chosen: "Sequence[_Chosen]") -> "list[CatalogueRow]":
    from dtbench.report.page.catalogue_page import CAN_RUN, CatalogueRow

    return [CatalogueRow(one.name, one.question, None, one.obstacle or CAN_RUN) for one in chosen]


def _spell_command(names: "Sequence[str] | None", results: Path, repeat: int | None, write: Path | None) -> str:
    """Return the command that goes on with this catalogue."""
    where = [] if results == Path("results") else ["--results", str(results)]
    often = [] if repeat is None else ["--repeat", str(repeat)]
    recorded = [] if write is None else ["--write", str(write)]
    return spell_command("dtbench", "catalogue", *(names or []), *where, *often, *recorded, "--resume")


def _run_all(chosen: "Sequence[_Chosen]", results: Path, command: str, *, resume: bool) -> "list[CatalogueRow]":
    """Run what can run, one after another; each that ends is noted, so that a stopped catalogue can go on."""
    from dtbench.report.page.catalogue_page import CatalogueRow
    from dtbench.store.layout import catalogue_file
    from dtbench.store.records.checks import CatalogueRecord, FinishedScenario
    from dtbench.store.write import write_record

    before = _find_before(results) if resume else None
    state = before or CatalogueRecord(started_unix_ns=time.time_ns(), finished=())
    write_record(catalogue_file(results), state)
    runnable = [one for one in chosen if one.obstacle is None]
    rows: list[CatalogueRow] = []
    with Forks() as forks:
        for one in chosen:
            if one.file is None or one.obstacle is not None:
                rows.append(CatalogueRow(one.name, one.question, None, one.obstacle or ""))
                continue
            place = f"[{runnable.index(one) + 1} of {len(runnable)}] {one.name}"
            found = _find_finished(state, one.file)
            print_aside(f"{place}: {one.question if found is None else 'finished before'}")
            try:
                done = found or _run_one(one.file, results, state, command, forks)
            except KeyboardInterrupt:
                print_aside(
                    f"{runnable.index(one)} of {len(runnable)} scenarios are done and stay; `{command}` goes on"
                )
                raise
            if isinstance(done, FinishedScenario):
                state = state.model_copy(update={"finished": (*_without(state, one.name), done)})
                write_record(catalogue_file(results), state)
            rows.append(_judge(one, done))
    _publish(rows)
    return rows


def _publish(rows: "Sequence[CatalogueRow]") -> None:
    """Draw what people look at, when nothing is measured any more: it would take the cores of the next scenario."""
    from dtbench.report.event_files.publish_runs import publish_runs

    runs = [Path(row.run) for row in rows if row.run is not None]
    if runs:
        print_aside(f"drawing pictures and TensorBoard files of {len(runs)} runs")
    for sentence in publish_runs(runs):
        print_aside(sentence)


def _without(state: "CatalogueRecord", name: str) -> "tuple[FinishedScenario, ...]":
    return tuple(one for one in state.finished if one.scenario != name)


def _find_before(results: Path) -> "CatalogueRecord":
    """Return how far the catalogue came that is to be gone on with.

    Raises:
        StoreError: there was none, or its file is broken.
    """
    from dtbench.base.errors import StoreError
    from dtbench.store.read import read_catalogue

    before = read_catalogue(results)
    if before is None:
        raise StoreError(f"{results}: no catalogue was begun here; without --resume one starts")
    return before


def _find_finished(state: "CatalogueRecord", file: "ScenarioFile") -> "FinishedScenario | None":
    """Return the run of a scenario that this catalogue finished; None also where the file has changed since."""
    from dtbench.launch.resume import is_same_experiment

    found = next((one for one in state.finished if one.scenario == file.name), None)
    return found if found is not None and is_same_experiment(Path(found.run), file) else None


def _run_one(
    file: "ScenarioFile", results: Path, state: "CatalogueRecord", command: str, forks: Forks
) -> "FinishedScenario | str":
    """Run one scenario, or what a stopped run of this catalogue lacks; gives a sentence where a launch failed."""
    from dtbench.base.errors import LaunchError, StoreError
    from dtbench.cli.run import RunRequest, train
    from dtbench.store.records.checks import FinishedScenario

    anew = RunRequest(file, file.name, results, None, resume=False, caller=command, prefix=forks.find_prefix(file))
    unfinished = _find_stopped(file, results, state)
    started = time.monotonic_ns()
    try:
        if unfinished is None:
            folder = train(anew)
        else:
            try:
                folder = train(replace(anew, unfinished=str(unfinished), resume=True))
            except StoreError as refusal:  # another machine, another torch
                print_aside(f"{refusal}: it starts anew")
                folder = train(anew)
    except LaunchError as error:
        return str(error)
    return FinishedScenario(scenario=file.name, run=str(folder), duration_ns=time.monotonic_ns() - started)


def _find_stopped(file: "ScenarioFile", results: Path, state: "CatalogueRecord") -> Path | None:
    """Return the run of a scenario that this catalogue began and did not finish."""
    from dtbench.launch.resume import find_unfinished, is_same_experiment
    from dtbench.store.read import read_run

    found = find_unfinished(results, file.name)
    if found is None or not is_same_experiment(found, file):
        return None
    return found if read_run(found).started_unix_ns >= state.started_unix_ns else None


def _judge(chosen: _Chosen, done: "FinishedScenario | str") -> "CatalogueRow":
    """Return the row of a scenario, and write down what became of its checks."""
    from dtbench.base.errors import StoreError
    from dtbench.report.event_files.publish import publish_checks
    from dtbench.report.page.catalogue_page import CatalogueRow, judge_run
    from dtbench.runs.run import summarize_run
    from dtbench.store.records.checks import CheckOutcome
    from dtbench.store.records.run import tell_reason_in_a_line

    if isinstance(done, str):
        told = f"FAILED: {tell_reason_in_a_line(done)}"
        return CatalogueRow(chosen.name, chosen.question, CheckOutcome.NOT_JUDGED, told)
    try:
        summary = summarize_run(Path(done.run))
    except StoreError as error:
        told = f"FAILED: its run cannot be read: {error}; without the folder {done.run}, --resume runs it again"
        return CatalogueRow(chosen.name, chosen.question, CheckOutcome.NOT_JUDGED, told)
    publish_checks(summary)
    row = judge_run(summary, done.duration_ns)
    print_aside(f"{chosen.name}: {row.outcome}: {row.told}")
    return row


def _gather(rows: "Sequence[CatalogueRow]", runs: "Sequence[Path]", *, only_list: bool) -> "Catalogue":
    from dtbench.report.page.catalogue_page import Catalogue

    return Catalogue(tuple(rows), *_sum_up_coverage(runs), is_only_listed=only_list)


def _show(found: "Catalogue", html: Path | None, *, as_json: bool) -> None:
    """Print what was found, and write its page where one is asked for."""
    from dtbench.report.documents.catalogue import document
    from dtbench.report.page.catalogue_page import catalogue_page

    page = catalogue_page(found)
    write_answer(html, page)
    print_json(document(found)) if as_json else print_answer(page)


def _sum_up_coverage(runs: "Sequence[Path]") -> tuple[str | None, tuple[str, ...]]:
    """Say how many functions under study these runs' probes saw, and what is to be known of it; None: they had none."""
    from dtbench.report.page.coverage_page import sum_up
    from dtbench.runs.function_coverage import cover, read_evidence

    evidence = [one for run in runs for one in read_evidence(run)]
    if not evidence:
        return None, ()
    found = cover(evidence)
    return f"{sum_up(found.functions)} (as probes saw them)", found.notes


def _write(folder: Path, runs: "Sequence[Path]") -> None:
    """Record what the runs came to beside the scenarios of a folder, and make its page anew.

    Raises:
        ScenarioError: the folder holds no scenario, or a wrong one.
    """
    from dtbench.report.render.scenario_page import record_outcomes, write_page

    record_outcomes(folder, runs)
    write_page(folder)


def _refuse(rows: "Sequence[CatalogueRow]") -> None:
    """Refuse to end well where a scenario did not pass.

    Raises:
        CheckError: a check did not pass; names each such scenario.
        LaunchError: no check failed, and a scenario could not be run to its end.
    """
    from dtbench.base.errors import CheckError, LaunchError
    from dtbench.store.records.checks import CheckOutcome

    wrong = [row for row in rows if row.outcome not in (None, CheckOutcome.PASSED)]
    unmeasured = [row.scenario for row in wrong if row.run is None]
    failed = [row.scenario for row in wrong if row.run is not None]
    if failed:
        more = f"; could not be run to their end: {', '.join(unmeasured)}" if unmeasured else ""
        raise CheckError(f"checks did not pass: {', '.join(failed)}{more}; `dtbench report <scenario>` says why")
    if unmeasured:
        raise LaunchError(f"could not be run to their end: {', '.join(unmeasured)}; --resume tries these again")
