"""``dtbench plot``: one of the pictures that a notebook draws, as a file."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dtbench.cli.complete import complete_run
from dtbench.cli.console import print_aside
from dtbench.cli.open_report import ChosenSteps, StepRange, choose_kind, open_report

_ENDINGS: Final = (".png", ".svg", ".pdf")


def plot(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN | TRACES",
            help="A run's folder or id, a scenario, `latest`; or a file, folder or archive of traces.",
            autocompletion=complete_run,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            help="exposed, breakdown, owners, overlap, predicted, ranks, step_distribution, sweep, timeline or "
            "what_if; of traces some."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="PNG, SVG or PDF, as its ending says; replaced."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    steps: ChosenSteps = None,
    step_range: StepRange = None,
) -> None:
    """Draw one of the pictures that notebooks draw (`run.plot_owners()`), and write it to a file."""
    refuse_picture_place(output, "--output")
    from dtbench.report.notebook.plot_file import list_plots, save_plot
    from dtbench.scenario.mistakes import join_words
    from dtbench.scenario.sweeps.sweep import point_to

    names = list_plots(choose_kind([run]))
    if name is None:
        raise typer.BadParameter(f"say which picture: {join_words(names)}", param_hint="name")
    if name not in names:
        raise typer.BadParameter(f"there is no picture `{name}`; {point_to(name, names)}")
    if output is None:
        raise typer.BadParameter(f"say where to write it, for example `-o {name}.svg`", param_hint="--output")
    save_plot(open_report([run], results, steps=steps, step_range=step_range), name, output)
    print_aside(f"Wrote {output}")


def refuse_picture_place(output: Path | None, option: str) -> None:
    """Refuse to write where no picture can lie, before anything is read.

    Raises:
        BadParameter: it is no picture's name, or in a folder that is not there.
    """
    if output is None:
        return
    if output.suffix.lower() not in _ENDINGS:
        raise typer.BadParameter(f"{output}: a picture ends in .png, .svg or .pdf", param_hint=option)
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {output.parent} to write {output.name} into; make it first")
