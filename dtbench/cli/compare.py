"""``dtbench compare``: runs, cells, baselines or traces against each other."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.base.errors import DtbenchError
from dtbench.cli.complete import complete_side
from dtbench.cli.console import (
    print_answer,
    print_aside,
    print_block,
    print_brief,
    print_facts,
    print_json,
    print_line,
    print_markdown,
    print_notes,
    print_prose,
)
from dtbench.cli.page_file import (
    AsMarkdown,
    HtmlFile,
    InFull,
    JunitFile,
    refuse_junit_place,
    refuse_page_place,
    refuse_two_forms,
    write_page,
)

if TYPE_CHECKING:
    from dtbench.comparison.comparison import Comparison
    from dtbench.comparison.gate import Bound, Gate

MOST_IN_FULL = 3
"""Comparisons that are told in full; of more, only their sentences are."""


def read_percent(typed: object) -> float:
    """Read ``2`` or ``2%``.

    Raises:
        BadParameter: it is no number from 0.
    """
    try:
        percent = float(str(typed).strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent < float("inf"):
        raise typer.BadParameter(f"`{typed}` is no percentage; write 2 or 2%")
    return percent


def compare(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="BASELINE [CANDIDATE...]",
            help="A run's folder or id, or a scenario for its latest run; `RUN:CELL`, or a cell's folder; a quoted "
            "pattern, `'quickstart/2026*:ddp'`, for the launches of all runs that match; a saved baseline's name or "
            "file; or traces of one job, a file, folder or archive. One run alone: its cells against its first.",
            autocompletion=complete_side,
        ),
    ],
    results: Annotated[Path, typer.Option(help="Folder of all runs and baselines.")] = Path("results"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; of several candidates a list.")
    ] = False,
    as_markdown: AsMarkdown = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BOUND",
            help="Fail where a change is established and beyond a bound: 'step_time > 3%', 'tokens_per_second < -3%', "
            "'exposed\\[unshard] > 5 ms', 'exposed\\[layers.3] > 20%', 'mechanism changed'. May be repeated.",
        ),
    ] = None,
    pass_unestablished: Annotated[
        bool,
        typer.Option(
            "--pass-unestablished", help="Let a bound pass that launches neither exceed nor keep for sure; it is told."
        ),
    ] = False,
    threshold: Annotated[
        float,
        typer.Option(metavar="PERCENT", parser=read_percent, help="Changes below it do not matter to you."),
    ] = 1.0,
    force: Annotated[
        bool, typer.Option("--force", help="Compare although processors, devices, torch or variables differ.")
    ] = False,
    full: InFull = False,
    html: HtmlFile = None,
    junit: JunitFile = None,
) -> None:
    """Compare: what was done differently first, then what it cost, by statistics over launches.

    Four launches of each are needed to tell a difference: --set repeat=4.
    Cells of one scenario take turns, so compare variations as cells.
    A name is a path (of a baseline's file, too), else a saved baseline, else a scenario or a run's id.

    Exit codes:
    0   compared, and every bound is kept for sure, or --pass-unestablished
    2   wrong arguments, or a bound that cannot be read
    5   a trace cannot be read
    6   there is no such run, or it cannot be read
    9   cannot be compared: unlike environments without --force, or no launch to trust
    10  a bound is exceeded
    11  none is exceeded, but one is not established: its interval reaches beyond the bound; or it cannot be judged

    In JSON times are nanoseconds, ratios fractions, an unknown number is "NaN".
    """
    from dtbench.traces.garbage import without_collection

    refuse_page_place(html)
    refuse_junit_place(junit)
    refuse_two_forms(as_json=as_json, as_markdown=as_markdown)
    bounds = read_bounds(fail_if or [])
    with without_collection(), _told_in(junit, named):
        from dtbench.comparison.run import compare_all

        comparisons = compare_all(
            named, results=results, force=force, threshold=threshold / 100, asked=_find_asked(bounds)
        )
    gate = _judge(bounds, comparisons, passes_unestablished=pass_unestablished)
    write_page(html, lambda: _make_document(comparisons, gate))
    _write_junit(junit, comparisons, gate)
    if as_json:
        _print_document(comparisons, gate)
    elif as_markdown:
        _print_markdown(comparisons, gate)
    else:
        print_comparisons(comparisons, gate, full=full)
    fail_as_asked(gate)


@contextmanager
def _told_in(junit: Path | None, named: Sequence[str]) -> Iterator[None]:
    """Write why nothing was compared, where JUnit XML is asked for, before the error goes on."""
    try:
        yield
    except DtbenchError as error:
        if junit is not None:
            from dtbench.report.render.junit import list_refused, write_junit
            from dtbench.store.write import write_text

            write_text(junit, write_junit(list_refused(named, error)))
        raise


def _write_junit(junit: Path | None, comparisons: "Sequence[Comparison]", gate: "Gate | None") -> None:
    if junit is None:
        return
    from dtbench.report.render.junit import list_cases, write_junit
    from dtbench.store.write import write_text

    write_text(junit, write_junit(list_cases(comparisons, gate)))
    print_aside(f"Wrote {junit}")


def read_bounds(typed: Sequence[str]) -> "list[Bound]":
    """Read what ``--fail-if`` says.

    Raises:
        BadParameter: one cannot be read, or is on no number that there is.
    """
    if not typed:
        return []
    from dtbench.comparison.gate import BoundError, read_bound

    try:
        return [read_bound(one) for one in typed]
    except BoundError as error:
        raise typer.BadParameter(str(error), param_hint="--fail-if") from error


def _find_asked(bounds: "Sequence[Bound]") -> "frozenset[str]":
    """Return the owners that bounds may be on."""
    return frozenset(bound.subject for bound in bounds)


def _judge(
    bounds: "Sequence[Bound]", comparisons: "Sequence[Comparison]", *, passes_unestablished: bool
) -> "Gate | None":
    if not bounds:
        return None
    from dtbench.comparison.gate import BoundError, Gate, check_subjects, judge

    try:
        check_subjects(bounds, comparisons)
    except BoundError as error:
        raise typer.BadParameter(str(error), param_hint="--fail-if") from error
    judgements = tuple(judge(bound, comparison) for comparison in comparisons for bound in bounds)
    return Gate(judgements, comparisons[0].left_out, passes_unestablished)


def fail_as_asked(gate: "Gate | None") -> None:
    """Exit as the bounds ask.

    Raises:
        GateError: one is exceeded.
        UndecidedError: none is, but one is not established, or cannot be judged.
    """
    if gate is None:
        return
    from dtbench.base.errors import GateError, UndecidedError

    if gate.exceeded:
        raise GateError("\n".join([*gate.exceeded, *gate.undecided]))
    if gate.undecided:
        raise UndecidedError("\n".join(gate.undecided))


def _make_document(comparisons: "Sequence[Comparison]", gate: "Gate | None") -> str:
    from dtbench.report.notebook.page_file import comparisons_document

    return comparisons_document(comparisons, gate)


def _print_markdown(comparisons: "Sequence[Comparison]", gate: "Gate | None") -> None:
    from dtbench.report.page.comparison_page import comparisons_page

    print_markdown(comparisons_page(comparisons, gate))


def _print_document(comparisons: "Sequence[Comparison]", gate: "Gate | None") -> None:
    from dtbench.report.documents.comparison import document

    print_json(document(comparisons, () if gate is None else gate.judgements))


def print_comparisons(comparisons: "Sequence[Comparison]", gate: "Gate | None" = None, *, full: bool = False) -> None:
    """Print what was left out, then comparisons: one on a screen, a few in full, else a sentence each below a table.

    What became of bounds stands with the answer of one, above the table of several.
    """
    from dtbench.report.page.bounds import bounds_facts
    from dtbench.report.page.brief.comparison import comparison_brief
    from dtbench.report.page.comparison_page import comparison_page, left_out_facts, summary_table
    from dtbench.report.page.page import show_all

    print_facts(left_out_facts(comparisons))
    if len(comparisons) > 1:
        for facts in bounds_facts(gate):
            print_block(facts)
        print_block(summary_table(comparisons))
        print_line()
    if len(comparisons) == 1:
        if full:
            print_answer(show_all(comparison_page(comparisons[0], gate)))
            print_line()
        else:
            print_brief(comparison_brief(comparisons[0], gate))
    elif len(comparisons) > MOST_IN_FULL or not full:
        _print_sentences(comparisons)
        print_prose("Name two of them for what was done differently, and all metrics; --json has everything.")
    else:
        for comparison in comparisons:
            print_answer(show_all(comparison_page(comparison)))
            print_line()


def _print_sentences(comparisons: "Sequence[Comparison]") -> None:
    """Print the sentence of each comparison with its notes, below the notes that all of them have."""
    from dtbench.report.page.comparison_page import comparison_page

    pages = [comparison_page(comparison) for comparison in comparisons]
    common = [note for note in pages[0].notes if all(note in page.notes for page in pages)]
    print_notes(common)
    for comparison, page in zip(comparisons, pages, strict=True):
        print_prose(f"{comparison.candidate.label}: {comparison.sentence}")
        print_notes([note for note in page.notes if note not in common])
