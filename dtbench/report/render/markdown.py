"""A page as Markdown, for TensorBoard's text page and for a pull request: what is folded is a ``<details>``."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from dtbench.base.units import count_things, format_bytes
from dtbench.report.page.page import (
    Block,
    Chart,
    Facts,
    Line,
    Page,
    Part,
    Picture,
    Prose,
    Table,
    Tiles,
    Tone,
)
from dtbench.report.render.html import escape_html
from dtbench.report.words.visible import spell_controls
from dtbench.runs.summary import CellSummary
from dtbench.store.records.run import Environment

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]|#>~])")

MOST_CHARACTERS: Final = 65_000
"""Of a comment on GitHub, which takes 65,536 ("body is too long"), with room for a line of a person's own."""

_FOR_LAST_LINE: Final = 400


def page_markdown(page: Page) -> str:
    """Return a page whose parts say its answer, as those of a run do."""
    blocks = [
        f"# {escape_markdown(page.title)} {escape_markdown(page.aside)}",
        escape_markdown(page.question),
        *([] if page.problem is None else [_line(page.problem)]),
        *(escape_markdown(fact.words) for fact in page.facts),
        *(part_markdown(part) for part in page.parts),
        escape_markdown(page.place),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def answer_markdown(page: Page) -> str:
    """Return a page whose answer stands for itself: the answer, warnings, parts, and what else must be known."""
    answer, *basis = page.answer
    warnings = [note for note in page.notes if note.tone is Tone.WARNING]
    others = [*basis, *(note for note in page.notes if note.tone is not Tone.WARNING)]
    blocks = [
        *(f"> {escape_markdown(fact.words)}" for fact in page.facts),
        f"**{escape_markdown(answer.words)}**",
        *(f"> {escape_markdown(note.words)}" for note in warnings),
        *(part_markdown(part, is_short=True) for part in page.parts),
        "\n".join(f"- {escape_markdown(line.words)}" for line in others),
    ]
    return "\n\n".join(block for block in blocks if block)


def answer_markdown_within(page: Page, most: int = MOST_CHARACTERS) -> str:
    """Return the same in at most so many characters: what has no room is left out, the last part first, and counted."""
    whole = answer_markdown(page)
    if len(whole) <= most:
        return whole
    bare = answer_markdown(replace(page, parts=()))
    room = most - _FOR_LAST_LINE
    ends = accumulate((len(part_markdown(part, is_short=True)) + 2 for part in page.parts), initial=len(bare))
    shown = max(0, sum(end <= room for end in ends) - 1)
    words = answer_markdown(replace(page, parts=page.parts[:shown]))
    left_out = [count_things(len(page.parts) - shown, "part")] if shown < len(page.parts) else []
    if len(words) > room:
        words = words[:room].rpartition("\n")[0]
        left_out.append("notes")
    told = f"{' and '.join(left_out)} left out, as a comment takes no more"
    return f"{words}\n\n> {told}; `--html FILE` and `--json` have everything"


def part_markdown(part: Part, *, is_short: bool = False) -> str:
    """Return one part, below its title; short: the first rows of its tables, as a pull request has little room."""
    blocks = [_untitle(block, part.heading) for block in part.blocks] if part.is_folded else part.blocks
    inside = "\n\n".join(words for block in blocks if (words := block_markdown(block, is_short=is_short)))
    if part.is_folded:
        return f"<details><summary>{escape_html(part.heading)}</summary>\n\n{inside}\n\n</details>"
    head = [f"## {escape_markdown(part.title)}"] if part.title else []
    head += [escape_markdown(part.aside)] if part.aside else []
    return "\n\n".join([*head, *([inside] if inside else [])])


def _untitle(block: Block, said: str) -> Block:
    """Return a block without the title that stands above it."""
    return replace(block, title="") if isinstance(block, Table | Facts) and block.title == said else block


def block_markdown(block: Block | None, *, is_short: bool = False) -> str:
    """Return one block; of a chart its table; empty for what only larger media show, and for none."""
    match block:
        case Prose():
            return "\n\n".join(map(_line, block.lines))
        case Facts():
            title = [f"**{escape_markdown(block.title)}**", ""] if block.title else []
            return "\n".join([*title, *(f"- {escape_markdown(fact.sentence)}" for fact in block.facts)])
        case Table():
            title = [f"**{escape_markdown(block.title)}**"] if block.title else []
            shown = replace(block, rows=block.first_rows, notes=block.first_notes) if is_short else block
            table = markdown_table([column.plain_title for column in shown.columns], shown.words)
            return "\n\n".join([*title, table, *map(escape_markdown, shown.said)])
        case Chart():
            return block_markdown(block.table, is_short=is_short)
        case Tiles() | Picture() | None:
            return ""


def _line(line: Line) -> str:
    words = escape_markdown(line.words)
    return f"**{words}**" if line.tone in (Tone.STRONG, Tone.BAD) else words


def receipts_markdown(cell: CellSummary) -> str:
    """Return every knob of a cell: asked, got, outcome."""
    rows = ((knob.knob, knob.asked, knob.got, knob.outcome.value, knob.note) for knob in cell.receipts)
    return markdown_table(("knob", "asked", "got", "outcome", "note"), rows)


def environment_markdown(environment: Environment) -> str:
    """Return the machine and the software of a run."""
    cores = count_things(environment.cores, "core")
    rows = [
        ("host", environment.host),
        *([("runner class", environment.runner_class)] if environment.runner_class else []),
        ("system", environment.system),
        ("processor", f"{environment.processor}, {cores}, {format_bytes(environment.memory_bytes)}"),
        ("python", environment.python),
        ("torch", environment.torch),
        ("torch's commit", environment.torch_git or "n/a"),
        ("commit of the code", "n/a" if environment.commit is None else environment.commit.words),
        *([("HIP", environment.hip)] if environment.hip else [("CUDA", environment.cuda or "none")]),
        ("RCCL" if environment.hip else "NCCL", environment.nccl or "none"),
        *(("device", f"{device.name}, {format_bytes(device.memory_bytes)}") for device in environment.devices),
        *environment.packages.items(),
        *environment.variables.items(),
        *(("note", note) for note in environment.notes),
    ]
    return markdown_table(("what", "value"), rows)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells read as written, whatever characters they hold."""
    head, *body = ([escape_markdown(words) for words in row] for row in (headers, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def escape_markdown(words: str) -> str:
    r"""Return words that Markdown shows as they are, on one line.

    >>> escape_markdown("a|b [c]")
    'a\\|b \\[c\\]'
    """
    one_line = " ".join(spell_controls(words).split()).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", one_line).replace("<", "&lt;")
