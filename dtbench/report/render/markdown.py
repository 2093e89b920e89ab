"""The report as Markdown, for TensorBoard's text page and for pasting into a pull request."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from dtbench.base.units import count_things, format_bytes
from dtbench.report.page import estimates, sentences, stages, sweep
from dtbench.report.page.canary import canary_words
from dtbench.report.page.cell_rows import mark_owners, owner_rows
from dtbench.report.page.checklist import answer_line, checks_section
from dtbench.report.page.visible import spell_controls
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.checks import ChecksSummary
from dtbench.store.records.run import Environment

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]|#>~])")


def summary_markdown(summary: RunSummary) -> str:
    """Give a run in short: its question, one row per cell, and the two waits of each where they are few."""
    blocks = [f"# {escape_markdown(summary.name)} {escape_markdown(summary.run_id)}", escape_markdown(summary.question)]
    how_it_ended = sentences.status_sentence("This run", summary.status, summary.reason)
    if how_it_ended is not None:
        blocks.append(f"**{escape_markdown(how_it_ended)}**")
    resumed = sentences.resumed_sentence(len(summary.resumed_unix_ns))
    if resumed is not None:
        blocks.append(resumed)
    blocks += [escape_markdown(words) for _, words in sentences.run_warnings(summary)]
    if summary.repeat_end is not None:
        blocks.append(escape_markdown(summary.repeat_end))
    if summary.checks is not None:
        blocks += checklist_markdown(summary.checks)
    blocks += [sweep_markdown(summary), *(escape_markdown(line) for line in sweep.mark_lines(summary))]
    if len(summary.cells) > 1:
        constant = sweep.constant_words(summary)
        words = [
            sweep.finding(summary),
            *([f"in all cells: {constant}"] if constant else []),
            sweep.scope_words(summary),
        ]
        blocks += [escape_markdown(sentence) for sentence in words]
    is_short = len(summary.cells) <= sweep.MOST_CELLS
    if not is_short:
        blocks += [f"- {escape_markdown(note)}" for note in sweep.note_sentences(summary)]
    told = [cell for cell in summary.cells if is_short or not sentences.is_trusted(cell)]
    blocks += [_cell_block(cell) for cell in told[: sweep.MOST_CELLS]]
    blocks.append(escape_markdown(f"{summary.device} on {summary.host}, torch {summary.torch}"))
    return "\n\n".join(blocks) + "\n"


def checklist_markdown(checks: ChecksSummary) -> list[str]:
    """Give the answer, every check with its outcome and figure, and on how many launches they were judged."""
    section = checks_section(checks)
    table = markdown_table([column.title for column in section.columns], section.rows)
    return [f"**{escape_markdown(answer_line(checks))}**", table, *(escape_markdown(note) for note in section.notes)]


def sweep_markdown(summary: RunSummary) -> str:
    """Give the cells against each other, one row each; times in ms."""
    axes, columns = sweep.find_axes(summary), sweep.sweep_columns(summary)
    headers = [*(escape_markdown(axis.name) for axis in axes), *(_with_unit(column.header) for column in columns)]
    rows = (
        [*(axis.values[place] for axis in axes), *(column.words[place] for column in columns)]
        for place in range(len(summary.cells))
    )
    return markdown_table(headers, rows)


def _with_unit(header: str) -> str:
    is_time = header in ("step time", "95 % interval", "gradient wait", "unshard wait", "exposed comm")
    return f"{header}, ms" if is_time else header


def _cell_block(cell: CellSummary) -> str:
    lines = [
        *(f"{label}: {words}" for label, words in sentences.lead_waits(cell)),
        *(f"{label}: {words}" for label, words in estimates.lead_rows(cell)),
        f"step time: {sentences.step_time_words(cell)}",
        f"results: {sentences.correctness_words(cell)}",
        *(f"canary: {canary_words(result)}" for result in (cell.canary,) if result is not None),
        *(f"prediction: {held.sentence}" for held in (cell.prediction,) if held is not None),
        *(f"plan: {words}" for words in (sentences.plan_words(cell),) if words is not None),
        *(f"note: {note}" for note in sentences.cell_notes(cell)),
    ]
    how_it_ended = sentences.status_sentence("this cell", cell.status, cell.reason)
    if how_it_ended is not None:
        lines.insert(0, how_it_ended)
    return f"## {escape_markdown(cell.name)}\n\n" + "\n".join(f"- {escape_markdown(line)}" for line in lines)


def receipts_markdown(cell: CellSummary) -> str:
    """Give every knob of a cell: asked, got, outcome."""
    rows = ((knob.knob, knob.asked, knob.got, knob.outcome.value, knob.note) for knob in cell.receipts)
    return markdown_table(("knob", "asked", "got", "outcome", "note"), rows)


def owners_markdown(cell: CellSummary) -> str:
    """Give whose communication was exposed and why, and what would change the largest causes; times in ms."""
    table = markdown_table(("owner", "collective", "purpose", "cause", "exposed, ms", "share"), owner_rows(cell))
    told = (*sentences.least_sentences(cell), *mark_owners(cell).lines, *sentences.advice_sentences(cell))
    answer = sentences.answer_sentence(cell)
    lead = [f"Exposed: {escape_markdown(answer)}"] if answer is not None else []
    return "\n\n".join([*lead, table, *(escape_markdown(line) for line in told)])


def estimates_markdown(cell: CellSummary) -> str:
    """Give exposed communication as estimated several ways, and what does not agree; empty where nobody asked."""
    if cell.exposure is None:
        return ""
    section = estimates.estimates_section(cell.exposure)
    return "\n\n".join(
        [
            *(escape_markdown(f"{label}: {words}") for label, words in estimates.lead_rows(cell)),
            escape_markdown(section.title),
            markdown_table([escape_markdown(column.title) for column in section.columns], section.rows),
            *(f"- {escape_markdown(line)}" for line in estimates.dispute_sentences(cell.exposure)),
            *(escape_markdown(note) for note in section.notes),
        ]
    )


def stages_markdown(cell: CellSummary) -> str:
    """Give what became of the training state; empty where it went through no stages."""
    if not cell.stages:
        return ""
    section = stages.stages_section(cell)
    told = stages.all_sentences(cell)
    headers = [escape_markdown(column) for column in stages.plain_titles(section)]
    rows = [[escape_markdown(word) for word in row] for row in section.rows]
    lines = [f"- {escape_markdown(sentence)}" for sentence in told]
    return "\n\n".join([section.title, markdown_table(headers, rows), *(["\n".join(lines)] if lines else [])])


def environment_markdown(environment: Environment) -> str:
    """Give the machine and the software of a run."""
    cores = count_things(environment.cores, "core")
    rows = [
        ("host", environment.host),
        ("system", environment.system),
        ("processor", f"{environment.processor}, {cores}, {format_bytes(environment.memory_bytes)}"),
        ("python", environment.python),
        ("torch", environment.torch),
        *([("HIP", environment.hip)] if environment.hip else [("CUDA", environment.cuda or "none")]),
        ("RCCL" if environment.hip else "NCCL", environment.nccl or "none"),
        *(("device", f"{device.name}, {format_bytes(device.memory_bytes)}") for device in environment.devices),
        *environment.packages.items(),
        *environment.variables.items(),
        *(("note", note) for note in environment.notes),
    ]
    return markdown_table(("what", "value"), rows)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a table whose cells read as written, whatever characters they hold."""
    lines = [headers, ["---"] * len(headers), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_markdown(words: str) -> str:
    r"""Give words that Markdown shows as they are, on one line.

    >>> escape_markdown("a|b [c]")
    'a\\|b \\[c\\]'
    """
    one_line = " ".join(spell_controls(words).split()).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", one_line).replace("<", "&lt;")
