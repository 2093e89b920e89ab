"""``dtbench predict``: from one small run to its step at other numbers of ranks, with a band."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dtbench.cli.complete import complete_link, complete_run_or_scenario
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.runs.scaling.subjects import Subjects

_ENDINGS: Final = (".yaml", ".yml")
_LATEST: Final = "latest"


def predict(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCENARIO | RUN...]",
            help="Runs (a folder or id, a scenario that was run, `latest`), which tell the host's time, or scenarios "
            "that were not. Of runs of one scenario with other numbers of ranks its host is fitted. Left out: the "
            "latest run.",
            autocompletion=complete_run_or_scenario,
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            metavar="RANKS,...",
            help="Numbers of ranks, `8,64,1024`. Left out: 8, 16 ... 4096.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="LINK",
            help="Another link: `x2`, `latency=5us,bandwidth=50GB/s`, or a published one, as `nvlink4` or `400G`.",
            autocompletion=complete_link,
        ),
    ] = None,
    nodes_of: Annotated[
        int | None, typer.Option("--nodes-of", min=1, metavar="K", help="So many ranks share a machine.")
    ] = None,
    between: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="The link between these machines.", autocompletion=complete_link),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="This cell alone.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Predict the step of a timed model at other numbers of ranks, over this link or another; nothing is run.

    Its step has a closed form, all but the host's time, which a run tells. Each rank keeps its rows; replicas of DDP
    and HSDP grow, or shards of FSDP. Several cells are set side by side: which layout for 64 ranks?
    """
    refuse_page_place(html)
    from dtbench.report.documents.predict import document
    from dtbench.report.notebook.predict import ask_worlds, make_cluster, page_subject, predicted_pictures
    from dtbench.report.page.predict_page import predict_page, predict_screen
    from dtbench.runs.scaling.curve import DEFAULT_WORLDS

    worlds = DEFAULT_WORLDS if world is None else _read_worlds(world)
    cluster = make_cluster(link, between, nodes_of)
    asked = ask_worlds(_read_all(targets or [_LATEST], cell, results), worlds, cluster)

    def make() -> str:
        from dtbench.report.render.html_page import page_document

        return page_document(predict_page(page_subject(asked)), predicted_pictures(asked))

    write_page(html, make)
    print_json(document(asked)) if as_json else print_answer(predict_screen(page_subject(asked)))


def _read_worlds(text: str) -> "Sequence[int]":
    """Read numbers of ranks.

    Raises:
        BadParameter: they are none.
    """
    from dtbench.plan.rules.machine import MOST_RANKS

    found = []
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdigit()) or not 1 <= int(word[:9]) <= MOST_RANKS or len(word) > 9:
            raise typer.BadParameter(
                f"`{word}` is no number of ranks from 1 to {MOST_RANKS}; say `8,64,1024`", param_hint="--world"
            )
        found.append(int(word))
    return found


def _read_all(named: "Sequence[str]", cell: str | None, results: Path) -> "dict[str, Subjects]":
    """Return the cells of everything that a person names.

    Raises:
        BadParameter: a scenario has no such cell.
        ScenarioError: there is neither a run nor a scenario of that name.
        StoreError: a run cannot be read, or has no such cell.
    """
    from dtbench.base.errors import StoreError
    from dtbench.report.notebook.predict import read_subjects
    from dtbench.store.find_run import find_run

    found: dict[str, Subjects] = {}
    for one in dict.fromkeys(named):
        if one.endswith(_ENDINGS):
            found[one] = _read_scenario(one, cell)
            continue
        try:
            run = find_run(None if one == _LATEST else one, results, print_aside)
        except StoreError:
            if one == _LATEST or "/" in one:
                raise
            found[one] = _read_scenario(one, cell)
        else:
            print_aside(f"{one}: the host's time is that of run {run}")
            found[one] = read_subjects(run, cell)
    return found


def _read_scenario(named: str, cell: str | None) -> "Subjects":
    from dtbench.runs.scaling.subjects import subjects_of_file
    from dtbench.scenario.catalog import open_scenario

    return subjects_of_file(open_scenario(named, only=() if cell is None else [cell]))
