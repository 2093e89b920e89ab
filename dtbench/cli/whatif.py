"""``dtbench whatif``: what would change the steps of a run, or of anyone's traces, and by how much."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dtbench.cli.complete import complete_run
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.open_report import ChosenSteps, StepRange, are_all_traces, parse_steps, refuse_for_runs
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer
from dtbench.cli.scenario_file import leave_scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.proof.claims import Claim
    from dtbench.proof.proven import Proven
    from dtbench.report.documents.what_if import Asked
    from dtbench.scenario.load import ScenarioFile
    from dtbench.scenario.schema.scenario import Scenario


def whatif(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | TRACE...]",
            help="A run's folder or id, a scenario, `latest`; or traces of one job, folders or archives of them. "
            "Left out: the latest run.",
            autocompletion=complete_run,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="CHANGE",
            help="`hidden: OWNER`, `hidden: all`, `apart: OWNER`, `link: x2`, `bandwidth: x2`, `latency: x0.5`, `no "
            "straggler`, `no overlap tax`, `host: x0` or `kernel: NAME x2`; of a run also settings of its scenario, "
            "`parallel.bucket_cap_mb=1`. Again for one more, asked by itself. Left out: what applies.",
        ),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="Of a run, this cell alone.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    steps: ChosenSteps = None,
    step_range: StepRange = None,
    prove: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Run the first N settings, each beside the unchanged cell, and print what was said beside what they "
            "took: those of `--change`, or those that are said to save most.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the scenario with the first setting changed, to run it yourself."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Replay the profiled steps with something changed: what would make them shorter, and by how much at most.

    A replay knows how long everything took, and what had to wait for what. It must give the unchanged steps first:
    where it is off by more than 3 %, nothing is said. Over an emulated link other settings are told, too, by the closed
    form of the step, with what its blocks were found to compute. What is said was not run; `--prove` runs settings.
    """
    refuse_page_place(html)
    if prove is not None or write is not None:
        refuse_for_runs(steps=steps, range=step_range)
        _go_on(targets or ["latest"], changes or (), cell, results, Further(prove, write, html, as_json=as_json))
        return
    from dtbench.report.documents.what_if import document
    from dtbench.report.page.settings_part import Settings
    from dtbench.report.page.what_if_page import what_if_page

    asked = _ask(targets or ["latest"], changes or (), cell, results, steps, step_range)
    settings = Settings(asked.settings, asked.settings_refused)
    page = what_if_page(asked.source, asked.cells, asked.refused, asked.doubts, settings, asked.remarks)
    write_answer(html, page)
    print_json(document(asked)) if as_json else print_answer(page)


class Further(NamedTuple):
    """What is done with settings after they were asked.

    Attributes:
        prove: how many are run; None: none.
        write: where the changed scenario goes; None: nowhere.
        html: where the page goes.
        as_json: one document is printed.
    """

    prove: int | None
    write: Path | None
    html: Path | None
    as_json: bool


def _go_on(named: "Sequence[str]", changes: "Sequence[str]", cell: str | None, results: Path, further: Further) -> None:
    """Write, or run, what was said of a run's settings.

    Raises:
        BadParameter: they are traces, or changes of a graph, which nothing can run; or a file would be replaced.
        PredictionError: there is no setting to go on with.
        LaunchError: a rank failed.
    """
    from dtbench.base.errors import PredictionError
    from dtbench.proof.claims import choose_claims, write_proof
    from dtbench.report.notebook.what_if import ask_settings
    from dtbench.runs.run import summarize_run
    from dtbench.scenario.sweeps.sweep import point_to
    from dtbench.store.find_run import find_run
    from dtbench.store.read import read_run
    from dtbench.store.records.run import CellRecord

    _refuse_to_go_on(named, changes, further)
    run = find_run(None if named[0] == "latest" else named[0], results, print_aside)
    summary = summarize_run(run)
    names = [one.name for one in summary.cells]
    if cell is not None and cell not in names:
        raise typer.BadParameter(f"the run has no cell `{cell}`; {point_to(cell, names)}")
    told, refused = ask_settings(summary, changes, cell)
    scenarios = {  # as they were run: a summary hides what nobody should read
        one.name: one.scenario
        for one in read_run(run).cells
        if isinstance(one, CellRecord) and cell in (None, one.name)
    }
    claims, left_out = choose_claims(told, further.prove or 1, scenarios=scenarios, asked=changes)
    if not claims:
        why = left_out or [f"{name}: {reason}" for name, reason in refused.items()] or ["nothing is said to help"]
        raise PredictionError("; ".join(why))
    for words in (*left_out, *(f"{name}: nothing was said before: {why}" for name, why in refused.items())):
        print_aside(words)
    if further.write is not None:
        _write(scenarios[claims[0].cell], summary.name, claims[0], further.write)
    if further.prove is not None:
        launches = max(len(one.launches) for one in summary.cells)
        _prove(write_proof(run, summary.name, scenarios, claims, launches), claims, results, further)


def _refuse_to_go_on(named: "Sequence[str]", changes: "Sequence[str]", further: Further) -> None:
    """Refuse what cannot be run or written.

    Raises:
        BadParameter: says what, and why.
    """
    from dtbench.runs.settings.forecast import is_setting

    if further.prove is None and (further.html is not None or further.as_json):
        raise typer.BadParameter("--write leaves a scenario alone: --html and --json are of --prove")
    if further.prove is None and len(changes) > 1:
        raise typer.BadParameter("--write leaves one changed scenario: give one --change, `FIELD=VALUE + FIELD=VALUE`")
    if further.write is not None and further.write.exists():
        raise typer.BadParameter(f"{further.write} is there already, and is not replaced", param_hint="--write")
    if are_all_traces(named) or len(named) > 1:
        raise typer.BadParameter("--prove and --write are for one run: of traces there is no scenario to run")
    if others := [change for change in changes if not is_setting(change)]:
        raise typer.BadParameter(
            f"`{others[0]}` is no setting of a scenario, so nothing can run it; settings are `parallel.FIELD=VALUE` "
            "and `network.FIELD=VALUE`"
        )


def _write(scenario: "Scenario", name: str, claim: "Claim", path: Path) -> None:
    from dtbench.runs.settings.forecast import apply_change

    question = f"What does {claim.change} do to {claim.cell} of {name}?"
    leave_scenario(path, apply_change(scenario, claim.change), question, f"{claim.cell} with {claim.change}")


def _prove(file: "ScenarioFile", claims: "Sequence[Claim]", results: Path, further: Further) -> None:
    """Run, and hold against it what was said; of a run of which a part failed what there is.

    Raises:
        LaunchError: a rank failed.
        CheckError: nothing of it can be judged.
    """
    from dtbench.base.errors import CheckError, LaunchError
    from dtbench.cli.run import RunRequest, train

    try:
        run = train(RunRequest(file, file.name, results, None, resume=False, caller=""))
    except LaunchError as error:
        if error.folder is not None:
            _show_proof(error.folder, claims, further)
        raise
    if not any(one.is_judged for one in _show_proof(run, claims, further)):
        raise CheckError("the run finished, but nothing follows from it: see above")


def _show_proof(run: Path, claims: "Sequence[Claim]", further: Further) -> "Sequence[Proven]":
    from dtbench.proof.document import Proof
    from dtbench.proof.document import document as proof_document
    from dtbench.proof.page import proof_page
    from dtbench.proof.proven import read_proof
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data

    data = read_run_data(run)
    summary = summarize_data(data)
    publish(data, summary)
    proven = read_proof(summary, claims)
    page = proof_page(str(run), proven)
    write_answer(further.html, page)
    print_json(proof_document(Proof(str(run), proven))) if further.as_json else print_answer(page)
    return proven


def _ask(
    named: "Sequence[str]",
    changes: "Sequence[str]",
    cell: str | None,
    results: Path,
    steps: str | None,
    step_range: str | None,
) -> "Asked":
    """Ask traces, or a run.

    Raises:
        BadParameter: options do not belong together.
    """
    from dtbench.report.notebook.what_if import ask_run, ask_traces
    from dtbench.store.find_run import find_run
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import analyze_traces

    if are_all_traces(named):
        if cell is not None:
            raise typer.BadParameter("traces have no cells", param_hint="--cell")
        window = find_range(parse_steps(steps))
        traces = analyze_traces(map(Path, named), steps=window, step_range=step_range or "")
        return ask_traces(traces, changes, ", ".join(named))
    if len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    refuse_for_runs(steps=steps, range=step_range)
    run = find_run(None if named[0] == "latest" else named[0], results, print_aside)
    return ask_run(run, changes, cell)
