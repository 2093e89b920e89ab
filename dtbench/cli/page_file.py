"""An answer in another form: ``--full``, ``--markdown``, and what ``--html FILE`` writes, where that may lie."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtbench.report.page.page import Page

HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the answer as one HTML file, too, which any browser shows offline: tables to sort and filter, "
        "plots, the timeline where it is small. A file that is there is replaced.",
    ),
]
"""The option of every command that can write one."""

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request or an issue.")]
"""The option of every command that can print it."""

JunitFile = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Write JUnit XML, too, for a CI system: a case for each bound, or for each comparison without any. A file "
        "that is there is replaced.",
    ),
]
"""The option of a command that a CI job asks."""

InFull = Annotated[bool, typer.Option("--full", help="Print everything; without it, what fits one screen.")]
"""The option of every command whose answer is longer than a screen."""

_ENDINGS = (".html", ".htm")


def refuse_two_forms(*, as_json: bool, as_markdown: bool) -> None:
    """Refuse to print an answer twice.

    Raises:
        BadParameter: both are asked for.
    """
    if as_json and as_markdown:
        raise typer.BadParameter("give --json or --markdown, not both")


def refuse_page_place(path: Path | None) -> None:
    """Refuse to write where no page can lie, before anything is read.

    Raises:
        BadParameter: a folder is named, one that is not there, or a file of another kind.
    """
    _refuse_place(path, _ENDINGS, "the page is an HTML file")


def refuse_junit_place(path: Path | None) -> None:
    """Refuse to write where no JUnit XML can lie; raises as ``refuse_page_place``."""
    _refuse_place(path, (".xml",), "JUnit is an XML file")


def _refuse_place(path: Path | None, endings: tuple[str, ...], kind: str) -> None:
    if path is None:
        return
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it, say {path / f'report{endings[0]}'}")
    if path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{kind}; call it {path.name}{endings[0]}, say")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent} to write {path.name} into; make it first")


def write_page(path: Path | None, make: "Callable[[], str]") -> None:
    """Make a page and write it, where one is asked for; say on standard error where it lies.

    Raises:
        StoreError: the disk is full or the file cannot be written.
    """
    if path is None:
        return
    from dtbench.base.units import format_bytes
    from dtbench.store.write import write_text

    write_text(path, make())
    print_aside(f"Wrote {path} ({format_bytes(path.stat().st_size)}); any browser opens it, offline too")


def write_answer(path: Path | None, page: "Page") -> None:
    """Write an answer that has neither plots nor a timeline, as ``write_page`` does."""

    def make() -> str:
        from dtbench.report.render.html_page import page_document

        return page_document(page)

    write_page(path, make)
