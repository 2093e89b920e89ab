"""``dtbench history``: a number over runs, commits or days, and where its level changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dtbench.cli.compare import fail_as_asked, read_bounds, read_percent
from dtbench.cli.complete import complete_ran
from dtbench.cli.console import print_answer, print_aside, print_json, print_markdown
from dtbench.cli.page_file import AsMarkdown, HtmlFile, InFull, refuse_page_place, refuse_two_forms, write_page
from dtbench.cli.plot import refuse_picture_place

if TYPE_CHECKING:
    from dtbench.comparison.gate import Bound, Gate
    from dtbench.comparison.history.history import History

_POINTS: Final = ("run", "commit", "torch", "date")


def history(
    scenario: Annotated[
        str | None,
        typer.Argument(help="Whose runs; left out: of the only scenario that has some.", autocompletion=complete_ran),
    ] = None,
    cell: Annotated[
        str | None, typer.Option(help="Which cell of it; left out: the only one of the newest run.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Of which number, as --fail-if names it: step_time, exposed_comm, 'exposed\\[unshard]', ...; "
            "left out: that of --fail-if, else step_time.",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(metavar="POINT", help="What a point is: run, commit (of your code), torch (a build), or date."),
    ] = "run",
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs that began then or later: 2026-01-31, 90d, 12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs that began then or before: 2026-01-31T12:00, 30d.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Only runs on this machine.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BOUND",
            help="Fail where the last change that matters is beyond a bound: 'step_time > 3%', 'exposed_comm > 5 ms'. "
            "May be repeated.",
        ),
    ] = None,
    pass_unestablished: Annotated[
        bool,
        typer.Option("--pass-unestablished", help="Let a bound pass of which the runs do not tell whether it is kept."),
    ] = False,
    threshold: Annotated[
        float,
        typer.Option(metavar="PERCENT", parser=read_percent, help="Changes below it do not matter to you."),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
    as_markdown: AsMarkdown = False,
    full: InFull = False,
    html: HtmlFile = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it, too: PNG, SVG or PDF, as its ending says; replaced."),
    ] = None,
) -> None:
    """Show a number of one cell over its runs, and where its level changed: between which two, by how much.

    A change is one that a test of all places at once finds: of 100 histories without one, one has a false alarm.
    Twelve points are needed, and four behind a change.
    Compared are runs of the same scenario on machines like the newest run's; others are counted first.

    Exit codes:
    0   shown, and every bound is kept, or --pass-unestablished
    2   wrong arguments, or a bound that cannot be read
    6   there is no such run, or none can be read
    9   there are several scenarios or cells, and none is named
    10  the last change that matters is beyond a bound
    11  it is not, but a bound is not established: the change's interval reaches beyond it, or, without one, so large a
        change need not have been seen; or there are too few points

    In JSON times are nanoseconds, ratios fractions, an unknown number is "NaN".
    """
    from dtbench.cli.moments import read_moment

    refuse_page_place(html)
    refuse_picture_place(plot, "--plot")
    refuse_two_forms(as_json=as_json, as_markdown=as_markdown)
    if by not in _POINTS:
        raise typer.BadParameter(f"`{by}` is none of {', '.join(_POINTS)}", param_hint="--by")
    moments = [None if typed is None else read_moment(typed) for typed in (since, until)]
    bounds = read_bounds(fail_if or [])
    chosen = _choose_metric(metric, bounds)
    from dtbench.comparison.history.history import By, make_history
    from dtbench.comparison.run_list import Wanted

    wanted = Wanted(scenario=scenario, cell=cell, since_unix_ns=moments[0], until_unix_ns=moments[1], host=host)
    found = make_history(results, wanted, chosen, By(by), threshold / 100)
    gate = _judge(bounds, found, passes_unestablished=pass_unestablished)
    write_page(html, lambda: _make_document(found, gate))
    _draw(plot, found)
    if as_json:
        from dtbench.report.documents.history import document

        print_json(document(found, () if gate is None else gate.judgements))
    else:
        _print(found, gate, as_markdown=as_markdown, full=full)
    fail_as_asked(gate)


def _choose_metric(typed: str | None, bounds: "Sequence[Bound]") -> tuple[str, str]:
    """Return the number that is asked for.

    Raises:
        BadParameter: there is none of the name, or a bound is on another.
    """
    from dtbench.comparison.gate import BoundError, read_metric

    named = [(bound.metric or "", bound.subject) for bound in bounds]
    try:
        chosen = read_metric(typed) if typed is not None else named[0] if named else ("step_time", "")
    except BoundError as error:
        raise typer.BadParameter(str(error), param_hint="--metric") from error
    for bound, of in zip(bounds, named, strict=True):
        if bound.metric is None or of != chosen:
            raise typer.BadParameter(
                f"`{bound.typed}` is not on the number of this history, {_spell(chosen)}; ask for each by itself",
                param_hint="--fail-if",
            )
    return chosen


def _spell(metric: tuple[str, str]) -> str:
    """Spell a number as a person types it."""
    name, subject = metric
    return f"{name}[{subject}]" if subject else name


def _judge(bounds: "Sequence[Bound]", found: "History", *, passes_unestablished: bool) -> "Gate | None":
    if not bounds:
        return None
    from dtbench.comparison.gate import Gate
    from dtbench.comparison.history.judge import judge_history

    return Gate(tuple(judge_history(bound, found) for bound in bounds), (), passes_unestablished)


def _make_document(found: "History", gate: "Gate | None") -> str:
    from dtbench.report.notebook.page_file import history_document

    return history_document(found, gate)


def _draw(path: Path | None, found: "History") -> None:
    if path is None:
        return
    from dtbench.report.plots.names import plot_history, save_figure

    save_figure(plot_history(found), path)
    print_aside(f"Wrote {path}")


def _print(found: "History", gate: "Gate | None", *, as_markdown: bool, full: bool) -> None:
    from dtbench.report.page.history_page import history_page
    from dtbench.report.page.page import show_all

    page = history_page(found, gate)
    if as_markdown:
        print_markdown(page)
        return
    print_answer(show_all(page) if full else page)
