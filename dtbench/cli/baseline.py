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
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save it as this JSON file, to commit or to cache: `dtbench compare FILE RUN` takes it.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a baseline of this name, or this file.")] = False,
) -> None:
    """Save the numbers of a run, a cell, or traces as a baseline.

    It holds what a comparison needs: the numbers of every launch, collectives, receipts and environment; no traces.
    """
    from dtbench.comparison.reading.baselines import save_baseline
    from dtbench.store.layout import baseline_file
    from dtbench.store.read import find_baselines

    named = run if cell is None else f"{run}:{cell}"
    if to is not None:
        _refuse_place(to, may_replace=replace)
    elif not replace and name in find_baselines(results):
        raise typer.BadParameter(f"there is a baseline `{name}`; --replace replaces it, or choose another name")
    saved = save_baseline(name, named, results=results, to=to)
    place = baseline_file(results, name) if to is None else to
    print_line(f"saved {count_launches(len(saved.launches))} of {saved.labels[0]} as {place}")
    for note in saved.notes:
        print_line(f"Note: {note}")
    print_line(f"compare with it: dtbench compare {spell_word(name if to is None else to)} <run>")


def _refuse_place(to: Path, *, may_replace: bool) -> None:
    """Refuse to save over what is no baseline, or over one that nobody says may be replaced.

    Raises:
        BadParameter: a file of another kind is named, a folder, or what is there.
    """
    from dtbench.store.read import is_baseline_file

    if to.suffix.lower() != ".json":
        raise typer.BadParameter(f"a baseline is a JSON file; call it {to.name}.json, say", param_hint="--to")
    if to.is_dir():
        raise typer.BadParameter(f"{to} is a folder; name a file in it, say {to / 'main.json'}", param_hint="--to")
    if not to.exists():
        return
    if to.stat().st_size and not is_baseline_file(to):
        raise typer.BadParameter(f"{to} is there, and no baseline; name another file", param_hint="--to")
    if not may_replace:
        raise typer.BadParameter(f"{to} is there; --replace replaces it, or name another file", param_hint="--to")


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
