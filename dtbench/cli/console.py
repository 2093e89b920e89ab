"""How the commands print: tables and notes for people on a terminal, one JSON document for programs."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from dtbench.report.page.page import (
    Block,
    Chart,
    Column,
    Fact,
    Facts,
    Line,
    Page,
    Picture,
    Prose,
    Row,
    Table,
    Tiles,
    Tone,
    as_line,
)
from dtbench.report.words.visible import spell_controls

MORE: Final = "--full: everything; --html FILE: one page to send; --json: all numbers"
"""Below every answer on one screen."""

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 160
"""Characters of a line of tables and reports in a pipe or a file: room for names, and not too wide for a log."""


def print_json(document: object) -> None:
    """Print one JSON document, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_long_json(document: Mapping[str, object], name: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Print one JSON document whose last key holds many rows, each on a line of its own, written as they come."""
    write = sys.stdout.write
    write(json.dumps(document, indent=2, allow_nan=False).removesuffix("\n}"))
    write(f",\n  {json.dumps(name)}: [")
    separator = "\n    "
    for row in rows:
        write(separator + json.dumps(row, allow_nan=False))
        separator = ",\n    "
    write("\n  ]\n}\n")


def make_console() -> "Console":
    """Return what prints tables and reports: as wide as the terminal, as ``COLUMNS`` says, or as a log may be."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, _PIPED_WIDTH)
    return console


def print_answer(page: Page) -> None:
    """Print a page whose answer stands for itself: its question, the answer, its parts, and what a reader must know."""
    _print_lines([Line(page.question, Tone.STRONG)] if page.question else [])
    print_facts(page.facts)
    _print_lines(page.answer)
    for part in page.parts:
        for block in part.blocks:
            print_block(block)
    if page.notes:
        print_line()
    print_notes(page.notes)


def print_brief(page: Page, *commands: str) -> None:
    """Print a page of one screen, its answer first, what shows everything, and the commands that are needed next."""
    from dtbench.report.render.terminal import render_part

    _print_lines(page.answer)
    print_line()
    for part in page.parts:
        make_console().print(render_part(part))
    print_more(commands)


def print_more(commands: Iterable[str]) -> None:
    """Print what shows everything, and commands, unbroken: one that is cropped cannot be copied."""
    from rich.console import Console

    from dtbench.report.render.terminal import render_commands

    Console(highlight=False, soft_wrap=True).print(render_commands(MORE, commands))


def print_markdown(page: Page) -> None:
    """Print the same as Markdown, as much of it as a comment takes."""
    from dtbench.report.render.markdown import answer_markdown_within

    print(answer_markdown_within(page))


def print_facts(facts: Iterable[Fact]) -> None:
    """Print what must be known before any number: words that stand without their label."""
    _print_lines(Line(fact.words, fact.tone) for fact in facts)


def print_notes(notes: Iterable[Line]) -> None:
    """Print what a reader must know."""
    _print_lines(note if note.tone is Tone.WARNING else Line(f"Note: {note.words}", note.tone) for note in notes)


def print_block(block: Block) -> None:
    """Print a table with its title and what stands below it, or sentences; of a chart its table."""
    match block:
        case Table():
            if block.title:
                print_line(f"\n{block.title}", tone=Tone.STRONG)
            print_table(block.columns, block.first_rows)
            _print_lines(map(as_line, block.first_notes))
        case Prose():
            _print_lines(block.lines)
        case Facts():
            _print_lines([Line(block.title, Tone.QUIET)] if block.title else [])
            _print_lines(Line(fact.sentence, fact.tone) for fact in block.facts)
        case Chart():
            if block.table is not None:
                print_block(block.table)
        case Tiles() | Picture():
            return


def _print_lines(lines: Iterable[Line]) -> None:
    for line in lines:
        print_prose(line.words, tone=line.tone)


def print_line(text: str = "", *, tone: Tone = Tone.PLAIN) -> None:
    """Print a line as it is: no markup, no wrapping, colour only on a terminal."""
    from rich.console import Console

    from dtbench.report.render.terminal import render_line

    Console(soft_wrap=True, highlight=False).print(render_line(Line(text, tone)))


def print_prose(text: str, *, tone: Tone = Tone.PLAIN) -> None:
    """Print sentences: wrapped between words on a terminal, in one line into a pipe, where ``grep`` finds them."""
    from rich.console import Console

    from dtbench.report.render.terminal import render_line

    console = Console(highlight=False)
    console.print(render_line(Line(text, tone)), soft_wrap=not console.is_terminal)


def print_aside(text: str) -> None:
    """Print what is going on to standard error, at once and as it is; nobody need read it."""
    with _unless_nobody_reads():
        print(spell_controls(text), file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print a refusal on standard error, in red; indented lines (source excerpts) keep their plain colour."""
    from rich.console import Console

    from dtbench.report.render.plain_text import Plain

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    with _unless_nobody_reads():
        for line in spell_controls(text).splitlines():
            console.print(Plain(line, style="" if line.startswith(" ") else "red"))


@contextmanager
def _unless_nobody_reads() -> Iterator[None]:
    """Write to standard error; once its reader has gone, to nowhere: no run ends for it, and no exit code changes."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):  # as rich makes of it
            raise
        send_to_nowhere(sys.stderr)


def send_to_nowhere(stream: TextIO) -> None:
    """Let what is not written yet, and all that follows, be lost: Python would fail on it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table: folded to the width of a terminal, ``COLUMNS``, or a log; cells are plain text."""
    from dtbench.report.render.terminal import make_table

    make_console().print(make_table(Table("", columns, rows), is_roomy=True))
