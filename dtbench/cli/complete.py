"""What a shell offers at ``dtbench run <Tab>``: scenarios, runs, cells, fields (``dtbench --install-completion``).

A shell calls these at every press of the key: whatever is wrong, nothing is offered and nothing is said.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import typer

_Offer = Callable[[typer.Context, str], Iterator[str]]


def _silent(offer: _Offer) -> Callable[[typer.Context, str], list[str]]:
    """Offer what begins with what is typed, each once."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [one for one in dict.fromkeys(offer(ctx, incomplete)) if one.startswith(incomplete)]
        except Exception:  # noqa: BLE001  it would be printed into the line that a person types
            return []

    complete.__doc__ = offer.__doc__
    return complete


@_silent
def complete_scenario(_ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer the scenarios that a name can find."""
    from dtbench.scenario.catalog import read_catalog

    yield from (entry.name for entry in read_catalog())


@_silent
def complete_run(ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer the scenarios that have runs, then the runs' ids, newest first."""
    from dtbench.store.walk import find_runs

    runs = find_runs(Path(ctx.params.get("results") or "results"))[::-1]
    yield from (run.parent.name for run in runs)
    yield from (run.name for run in runs)


@_silent
def complete_ran(ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer the scenarios that have runs."""
    from dtbench.store.walk import find_runs

    yield from (run.parent.name for run in find_runs(Path(ctx.params.get("results") or "results")))


@_silent
def complete_run_or_scenario(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Offer runs, then scenarios."""
    yield from complete_run(ctx, incomplete)
    yield from complete_scenario(ctx, incomplete)


@_silent
def complete_link(_ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer the links that vendors publish figures of."""
    from dtbench.runs.scaling.links import LINKS

    yield from LINKS


@_silent
def complete_side(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Offer what can be compared: saved baselines, runs, and cells of a run behind its colon."""
    from dtbench.store.find_run import find_run
    from dtbench.store.read import find_baselines, read_run

    results = Path(ctx.params.get("results") or "results")
    named, colon, _ = incomplete.rpartition(":")
    if colon:
        yield from (f"{named}:{cell.name}" for cell in read_run(find_run(named, results)).cells)
        return
    yield from find_baselines(results)
    yield from complete_run(ctx, incomplete)


@_silent
def complete_cell(ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer the cells of the scenario, or of the run, that stands before."""
    named = next(iter(ctx.args), None)  # while a line is typed, what belongs to no option is here
    if "scenario" in ctx.params:
        from dtbench.scenario.catalog import open_scenario

        yield from (cell.name for cell in open_scenario(named or "").cells)
        return
    from dtbench.store.find_run import find_run
    from dtbench.store.read import read_run

    run = find_run(named, Path(ctx.params.get("results") or "results"))
    yield from (cell.name for cell in read_run(run).cells)


@_silent
def complete_field(_ctx: typer.Context, _incomplete: str) -> Iterator[str]:
    """Offer every field of a scenario that holds a value, up to the ``=``."""
    from dtbench.scenario.schema.scenario import Scenario
    from dtbench.scenario.sweeps.axes import list_fields

    yield from (f"{path}=" for path, _ in list_fields(Scenario, ()))
