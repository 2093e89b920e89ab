"""``dtbench baseline``: numbers of a run under a name, to compare with long after the run is gone."""

from pathlib import Path
from typing import Annotated

import typer

from dtbench.base.commands import spell_word
from dtbench.base.units import count_launches
from dtbench.cli.console import print_block, print_line
from dtbench.report.page.page import Column, Table

_Results = Annotated[Path, typer.Option(help="Folder of all runs and baselines.")]


def make_group() -> typer.Typer:
    """Return the verbs of ``dtbench baseline``."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Keep the numbers of a run under a name: `dtbench compare NAME RUN` works when the run is gone.",
    )
    for name, function in (("save", save), ("list", list_baselines), ("remove", remove)):
        group.command(name)(function)
    return group


def save(
    name: Annotated[str, typer.Argument(help="Of the baseline: letters, digits, `_`, `-` and `.`.")],
    run: Annotated[str, typer.Argument(help="What `dtbench compare` takes: a run, `RUN:CELL`, a pattern, traces.")],
    cell: Annotated[str | None, typer.Option(help="Cell of the run, where it has several.")] = None,
    results: _Results = Path("results"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace a baseline of this name.")] = False,
) -> None:
    """Save the numbers of a run, a cell, or traces as a baseline.

    It holds what a comparison needs: the numbers of every launch, collectives, receipts and environment; no traces.
    """
    from dtbench.comparison.reading.baselines import save_baseline
    from dtbench.store.layout import baseline_file
    from dtbench.store.read import find_baselines

    named = run if cell is None else f"{run}:{cell}"
    if not replace and name in find_baselines(results):
        raise typer.BadParameter(f"there is a baseline `{name}`; --replace replaces it, or choose another name")
    saved = save_baseline(name, named, results=results)
    print_line(f"saved {count_launches(len(saved.launches))} of {saved.labels[0]} as {baseline_file(results, name)}")
    for note in saved.notes:
        print_line(f"Note: {note}")
    print_line(f"compare with it: dtbench compare {spell_word(name)} <run>")


def list_baselines(results: _Results = Path("results")) -> None:
    """List all saved baselines."""
    from dtbench.comparison.reading.baselines import describe_baselines

    rows = describe_baselines(results)
    if not rows:
        print_line(f"{results}: no baselines here; save one with `dtbench baseline save NAME RUN`")
        return
    headers = ("name", "of", "launches", "step time", "torch", "host")
    columns = [Column(header, is_number=header in ("launches", "step time")) for header in headers]
    shown = [(row.name, row.of, row.launches, row.step_time, row.torch, row.host) for row in rows]
    print_block(Table("", columns, shown))
    for row in rows:
        for doubt in row.doubts:
            print_line(f"Note: {row.name}: {doubt}")


def remove(
    name: Annotated[str, typer.Argument(help="Of the baseline.")],
    results: _Results = Path("results"),
) -> None:
    """Remove a saved baseline; runs stay as they are."""
    from dtbench.comparison.reading.baselines import remove_baseline

    remove_baseline(name, results)
    print_line(f"removed the baseline {name}")
