"""``dtbench run``: train a scenario on real ranks, then show what was found."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_json, print_line
from dtbench.cli.report import print_report, to_document

if TYPE_CHECKING:
    from dtbench.analyze.summary import RunSummary
    from dtbench.errors import LaunchError
    from dtbench.scenario.load import ScenarioFile
    from dtbench.store.records import WorkerOrder


def run(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario (see `dtbench list`) or path of a file.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override one field, e.g. model.layers=2; recorded."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the orders, and print the torchrun commands that run them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
) -> None:
    """Train a scenario on real ranks, and show where each step went and which communication was not hidden.

    Makes a run folder with traces, tables, a plot and TensorBoard files. Exit code 4: a rank failed; 8: the run
    finished, but its results, its traffic or its knobs are not what they should be.
    """
    from dtbench.scenario.catalog import open_scenario

    file = open_scenario(scenario, sets or ())
    if prepare:
        _prepare(file, results, as_json=as_json)
        return
    from dtbench.errors import LaunchError

    try:
        folder = _run(file, results)
    except LaunchError as error:
        _show_what_there_is(error)
        raise
    _report(folder, as_json=as_json)


def _run(file: "ScenarioFile", results: Path) -> Path:
    from dtbench.cli.progress import observe
    from dtbench.launch.machine import read_machine
    from dtbench.launch.run import plan_cells, run_scenario

    cells = plan_cells(file, read_machine())
    folders: list[Path] = []
    with observe(folders.append) as observer:
        try:
            return run_scenario(file, cells, results, observer=observer).path
        except KeyboardInterrupt:
            observer.on_stop(f"what was measured before is in {folders[-1]}" if folders else "nothing was measured")
            raise


def _report(folder: Path, *, as_json: bool) -> None:
    """Analyse a run, write what is derived from it, and show it; also when there is no room left to write."""
    from dtbench.analyze.run import summarize_run
    from dtbench.errors import StoreError
    from dtbench.report.publish import publish

    summary = summarize_run(folder)
    unpublished: StoreError | None = None
    try:
        publish(summary)
    except StoreError as error:
        unpublished = error
    print_json(to_document(summary)) if as_json else print_report(summary)
    _check(summary)
    if unpublished is not None:
        raise unpublished


def _show_what_there_is(error: "LaunchError") -> None:
    """Report what a failed run did measure; the failure itself is told by the error."""
    from dtbench.errors import CheckError

    if error.folder is not None:
        with suppress(CheckError):  # the failure itself is the news
            _report(error.folder, as_json=False)


def _check(summary: "RunSummary") -> None:
    """Refuse to end well when a cell's numbers must not be trusted.

    Raises:
        CheckError: names each such cell and why.
    """
    from dtbench.errors import CheckError
    from dtbench.report.sentences import check_word, is_trusted

    wrong = [f"cell {cell.name}: {check_word(cell)}, see above" for cell in summary.cells if not is_trusted(cell)]
    if wrong:
        raise CheckError("the run finished, but do not trust its numbers:\n" + "\n".join(wrong))


def _prepare(file: "ScenarioFile", results: Path, *, as_json: bool) -> None:
    import shlex

    from dtbench.launch.machine import read_machine
    from dtbench.launch.run import Observer, plan_elsewhere, write_orders
    from dtbench.store.records import WorkerOrder

    folder, launches = write_orders(file, plan_elsewhere(file, read_machine()), results, observer=Observer())
    commands = [_torchrun(WorkerOrder.model_validate_json(one.order.read_bytes()), one.order) for one in launches]
    if as_json:
        print_json({"format_version": 1, "run": str(folder.path), "commands": commands})
        return
    print_line(f"# run these one after another, then: dtbench analyze {shlex.quote(str(folder.path))}")
    for command in commands:
        print_line(command)


def _torchrun(order: "WorkerOrder", path: Path) -> str:
    """Give the command that starts the ranks of one order, with the scenario's variables and interpreter."""
    import shlex

    variables = [f"{name}={shlex.quote(value)}" for name, value in order.scenario.env.items()]
    python = order.scenario.python
    torchrun = "torchrun" if python is None else f"{shlex.quote(python)} -m torch.distributed.run"
    ranks = f"--standalone --nproc-per-node {order.plan.ranks}"
    worker = f"-m dtbench.worker --order {shlex.quote(str(path))}"
    return " ".join(["PYTHONSAFEPATH=1", *variables, torchrun, ranks, worker])
