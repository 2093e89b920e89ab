"""``dtbench selftest``: known situations on real ranks, and whether dtbench names them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer

_MORE_TRIES = 2
"""For rows that failed only where other virtual machines had the machine: they say nothing of dtbench."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtbench.launch.wait_budget import WaitBudget
    from dtbench.plan.plan import Plan
    from dtbench.selftest.records import RowOutcome, SelftestRecord


def selftest(
    seed: Annotated[
        int, typer.Option(min=0, help="Of the numbers: costs of link and layers, how many ranks, which is slow.")
    ] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ROW", help="Run only this row, such as tail. May be repeated.")
    ] = None,
    tries: Annotated[
        int, typer.Option(min=1, help="How often a row may fail: what a busy machine spoils passes when tried again.")
    ] = 2,
    max_wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long in all to wait for other virtual machines of the host."),
    ] = 300.0,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every check as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Inject known situations and check what dtbench says of each: minutes, two cores, no GPU.

    Each row trains a timed model over an emulated link, so that its answer is known beforehand: cause and owner of what
    is exposed, three estimates of it, and the step time are held against what was injected.
    Exit code 12: a row failed each of its tries. In JSON times are integer nanoseconds.
    """
    refuse_page_place(html)
    from dtbench.cli.forks import Forks
    from dtbench.launch.local import WORKER
    from dtbench.launch.wait_budget import WaitBudget
    from dtbench.selftest.run import plan_selftest, run_selftest, try_again

    planned = plan_selftest(seed, only or ())
    with Forks() as forks:
        waits = WaitBudget(max_wait, print_aside)
        worker = (*forks.find_prefix(planned.file), *WORKER)
        record = _watch(partial(run_selftest, planned, results, worker=worker), waits)
        left, more = tries - 1, _MORE_TRIES if tries > 1 else 0
        while not record.passed and (left or more):
            if more and all(row.disturbed for row in record.rows if not row.passed):
                more -= 1  # nobody has failed
            elif left:
                left -= 1
            else:
                break
            record = _watch(partial(try_again, record, results, worker=worker), waits)
    unpublished = _publish(Path(record.run))
    _show(record, html, as_json=as_json)
    _refuse(record)
    if unpublished is not None:
        raise unpublished


def _watch(run: "Callable[..., SelftestRecord]", budget: "WaitBudget") -> "SelftestRecord":
    """Run with progress on standard error, each launch when the machine is left alone, as long as the budget lasts.

    Stopped, it says where the rows are that were judged before.
    """
    from dtbench.cli.progress import observe
    from dtbench.selftest.page import result_word
    from dtbench.store.layout import RunFolder

    folders: list[Path] = []
    with observe(folders.append) as screen:

        def on_row(row: "RowOutcome") -> None:
            print_aside(f"row {row.row}: {result_word(row)}")

        def on_launch(cell: str, index: int | None, plan: "Plan") -> None:
            budget.wait()
            screen.on_launch(cell, index, plan)

        try:
            return run(observer=replace(screen, on_launch=on_launch), on_row=on_row)
        except KeyboardInterrupt:
            judged = [file for file in (RunFolder(folder).selftest for folder in folders) if file.exists()]
            screen.on_stop(f"rows that were judged before are in {judged[0]}" if judged else "no row was judged")
            raise


def _publish(run: Path) -> Exception | None:
    """Write what `dtbench report` and TensorBoard show of any run; gives what went wrong."""
    from dtbench.base.errors import StoreError
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data

    try:
        data = read_run_data(run)
        publish(data, summarize_data(data))
    except StoreError as error:
        return error
    return None


def _show(record: "SelftestRecord", html: Path | None, *, as_json: bool) -> None:
    """Print what was found, and write its page where one is asked for."""
    from dtbench.selftest.document import document
    from dtbench.selftest.page import selftest_page

    page = selftest_page(record)
    write_answer(html, page)
    print_json(document(record)) if as_json else print_answer(page)


def _refuse(record: "SelftestRecord") -> None:
    """Refuse to end well when a row failed.

    Raises:
        SelftestError: names each such row.
    """
    from dtbench.base.errors import SelftestError

    failed = [row.row for row in record.rows if not row.passed]
    if failed:
        raise SelftestError(
            f"{len(failed)} of {len(record.rows)} rows failed: {', '.join(failed)}; the reasons are above"
        )
