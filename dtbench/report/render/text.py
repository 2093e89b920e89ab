"""The terminal report: a finished summary as rich renderables.

Every name from outside (cells, knobs, kernels, paths) travels as ``Text``, so ``[bold]`` in a name stays ``[bold]`` on
the screen. The functions return what can be printed; they never print. Laid out for 80 columns, and better with more.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table

from dtbench.base.commands import spell_command
from dtbench.base.units import count_things, format_bytes, format_fraction, format_ns
from dtbench.report.page import estimates, sentences, sweep
from dtbench.report.page.canary import canary_words
from dtbench.report.page.cell_rows import (
    mark_owners,
    mark_purposes,
    mark_ranks,
    owner_rows,
    purpose_times,
    sum_causes,
)
from dtbench.report.page.marks import Marks
from dtbench.report.render.checklist_text import render_checklist
from dtbench.report.render.estimates_text import render_estimates
from dtbench.report.render.gradient_waits_text import render_gradient_waits
from dtbench.report.render.plain_text import Plain
from dtbench.report.render.stages_text import render_stages
from dtbench.report.render.sweep_table import WAIT_EXPLAINED, headed_table, render_sweep
from dtbench.runs.summary import CellSummary, PurposeSummary, RunSummary
from dtbench.store.layout import RunFolder
from dtbench.store.records.rank import ReceiptOutcome

MOST_RANKS = 16
"""Rows of a per-rank table; ``--json`` has all."""

MOST_OWNERS = 8
"""Owners and causes that are shown; the rest is summed, ``--json`` has all."""

MOST_NAMES = 10
"""Unknown event names that are listed."""

SHARES_EXPLAINED = (
    "hidden share: how much of the communication ran beside compute; "
    "exposed share: how much of the step communication took alone"
)


def render_run(summary: RunSummary) -> RenderableType:
    """Give the whole report: head, the cells against each other, each cell where they are few."""
    parts: list[RenderableType] = [render_head(summary)]
    if summary.checks is not None:
        parts.append(render_checklist(summary.checks))
    if len(summary.cells) > 1:
        parts.append(render_sweep(summary))
    parts.extend(_render_cells(summary))
    return Group(*parts)


def render_head(summary: RunSummary) -> RenderableType:
    """Give which run this is, the question that it asks, and where it ran."""
    lines = [
        Plain.assemble((summary.name, "bold"), f" {summary.run_id}"),
        Plain(summary.question, style="italic"),
        Plain(f"{summary.device} on {summary.host}, torch {summary.torch}", style="dim"),
    ]
    lines += [Plain(f"--set {override}", style="dim") for override in summary.overrides]
    resumed = sentences.resumed_sentence(len(summary.resumed_unix_ns))
    if resumed is not None:
        lines.append(Plain(resumed, style="yellow"))
    lines += [Plain(words, style="yellow") for _, words in sentences.run_warnings(summary)]
    if summary.repeat_end is not None:
        lines.append(Plain(summary.repeat_end, style="dim"))
    how_it_ended = sentences.status_sentence("This run", summary.status, summary.reason)
    if how_it_ended is not None:
        lines.append(Plain(how_it_ended, style="bold red"))
    return Group(*lines, Plain())


def _render_cells(summary: RunSummary) -> Iterator[RenderableType]:
    """Give every cell in full where they are few, else those that must not be trusted, and how to see one."""
    if len(summary.cells) <= sweep.MOST_CELLS:
        yield from (render_cell(cell) for cell in summary.cells)
        return
    for note in sweep.note_sentences(summary):
        yield Plain(f"note: {note}")
    doubtful = [cell for cell in summary.cells if not sentences.is_trusted(cell)]
    yield from (render_cell(cell) for cell in doubtful[: sweep.MOST_CELLS])
    rest = len(doubtful) - sweep.MOST_CELLS
    if rest > 0:
        yield Plain(f"and {rest} more cells that must not be trusted: see the column check", style="bold red")


def render_cell(cell: CellSummary) -> RenderableType:
    """Give one cell: the two waits first, then the step, where it went, the purposes, and what speaks against them."""
    title = Plain.assemble((cell.name, "bold"), f"  {sentences.mesh_words(cell)} {sentences.backend_words(cell)}")
    head: list[RenderableType] = [Rule(title, align="left", style="dim"), *_status_lines(cell)]
    if not cell.launches:  # none can be read: what it did is not known, which is not that it did nothing
        return Group(*head, *(Plain(sentence) for sentence in [*cell.unreadable.values()][1:]), Plain())
    parts: list[RenderableType] = [*head, render_waits(cell), Plain(), render_step(cell)]
    if cell.ranks:
        parts += [Plain(), render_breakdown(cell)]
    if cell.exposure is not None and estimates.is_any_known(cell.exposure):
        parts += [Plain(), render_estimates(cell.exposure)]
    if cell.owners:
        parts += [Plain(), render_owners(cell)]
    if cell.gradient_waits:
        parts += [Plain(), render_gradient_waits(cell)]
    if cell.purposes:
        parts += [Plain(), render_purposes(cell)]
    if cell.stages:
        parts += [Plain(), render_stages(cell)]
    parts += [Plain(), render_checks(cell), Plain()]
    return Group(*parts)


def _status_lines(cell: CellSummary) -> Iterator[Plain]:
    how_it_ended = sentences.status_sentence("This cell", cell.status, cell.reason)
    if how_it_ended is not None:
        yield Plain(how_it_ended, style="bold red")


def render_waits(cell: CellSummary) -> RenderableType:
    """Give the lines that lead every report: the two waits, what is exposed, whose and why, and if estimates agree."""
    grid = _grid()
    for label, words in sentences.lead_waits(cell):
        grid.add_row(Plain(label, style="bold"), Plain(words, style="bold"))
    answer = sentences.answer_sentence(cell)
    if answer is not None:
        grid.add_row(Plain("exposed", style="bold"), Plain(answer, style="bold"))
    for label, words in estimates.lead_rows(cell):
        grid.add_row(Plain(label, style="bold"), Plain(words, style="bold"))
    return grid


def render_step(cell: CellSummary) -> RenderableType:
    """Give what a step costs: time, throughput, profiler, start, memory."""
    rows = [
        ("step time", sentences.step_time_words(cell)),
        ("throughput", f"{sentences.throughput_words(cell)}, MFU {sentences.utilization_words(cell)}"),
        ("profiler", sentences.profiler_words(cell)),
        ("first step", sentences.first_step_words(cell)),
        ("memory peak", sentences.memory_words(cell)),
        ("CPU time", sentences.cpu_time_words(cell)),
    ]
    if (words := sentences.compilation_words(cell)) is not None:
        rows.append(("compiling", words))
    if len(cell.launches) > 1:
        rows.insert(1, ("launches", ", ".join(format_ns(median) for median in cell.launch_medians_ns) + " (medians)"))
    if knobs := sentences.knob_words(cell):
        rows.insert(0, ("knobs", ", ".join(knobs)))
    grid = _grid()
    for label, words in rows:
        grid.add_row(label, Plain(words))
    return grid


def render_breakdown(cell: CellSummary) -> RenderableType:
    """Give where each rank's profiled step went; the four parts add up to the step."""
    idle = sentences.idle_word(cell)
    table = headed_table(
        "Where a profiled step went, ms",
        (
            "rank",
            "step",
            "compute",
            "exposed\ncomm",
            "exposed\ncopy",
            idle,
            "hidden share\nof comm",
            "exposed share\nof step",
        ),
    )
    decimals, marks = sentences.decimals_for(row.step_ns for row in cell.ranks), mark_ranks(cell.ranks[:MOST_RANKS])
    for row in cell.ranks[:MOST_RANKS]:
        parts_ns = (row.step_ns, row.compute_ns, row.exposed_comm_ns, row.exposed_copy_ns, row.idle_ns)
        table.add_row(
            marks.mark(str(row.rank), row.part),
            *(sentences.format_ms(part_ns, decimals) for part_ns in parts_ns),
            format_fraction(
                math.nan if cell.unseen_collectives else sentences.fraction_of(row.hidden_comm_ns, row.comm_ns)
            ),
            format_fraction(sentences.fraction_of(row.exposed_comm_ns, row.step_ns)),
        )
    parts: list[RenderableType] = [table, *_mark_lines(cell, marks)]
    if len(cell.ranks) > MOST_RANKS:
        parts.append(Plain(f"and {count_things(len(cell.ranks) - MOST_RANKS, 'more rank')}: see --json", style="dim"))
    parts.append(Plain(f"step = compute + exposed comm + exposed copy + {idle}; {SHARES_EXPLAINED}", style="dim"))
    return Group(*parts)


def render_owners(cell: CellSummary) -> RenderableType:
    """Give whose communication was exposed and why, and what would change the largest causes."""
    table = headed_table(
        "Exposed communication by owner and cause, per step and rank; times in ms",
        ("owner", "collective", "purpose", "cause", "exposed", "share"),
    )
    for column in table.columns[:4]:
        column.justify = "left"
    rows = sorted(cell.owners, key=lambda row: -row.exposed_ns)
    for words in owner_rows(cell)[:MOST_OWNERS]:
        table.add_row(*map(Plain, words))
    if len(rows) > MOST_OWNERS:
        total_ns, decimals = sum(row.exposed_ns for row in rows), sentences.decimals_for(row.exposed_ns for row in rows)
        rest_ns = sum(row.exposed_ns for row in rows[MOST_OWNERS:])
        figures = (sentences.format_ms(rest_ns, decimals), format_fraction(sentences.fraction_of(rest_ns, total_ns)))
        part = next((row.part for row in rows[MOST_OWNERS:] if row.part), None)
        more = (mark_owners(cell).mark(figure, part) for figure in figures)
        table.add_row(f"{len(rows) - MOST_OWNERS} more", "", "", "", *more)
    by_cause = [sum_causes(cell)] if len(rows) > MOST_OWNERS else []
    told = (*by_cause, *sentences.advice_sentences(cell))
    return Group(table, *_mark_lines(cell, mark_owners(cell)), *(Plain(line, style="dim") for line in told))


def _mark_lines(cell: CellSummary, marks: Marks) -> Iterator[Plain]:
    """Say which numbers are bounds, and of what those with a mark are."""
    yield from (Plain(line, style="yellow") for line in (*sentences.least_sentences(cell), *marks.lines))


def render_purposes(cell: CellSummary) -> RenderableType:
    """Give what each purpose communicated, against the plan if any, and whether it could have been hidden here."""
    has_plan = sentences.plan_words(cell) is None
    table = headed_table(
        "Communication by purpose, per step and rank; times in ms",
        (
            "purpose",
            "count",
            "size",
            *(["plan"] if has_plan else []),
            "comm",
            "hidden",
            "exposed",
            "wait",
            "hidden\nshare",
            "overlap\npossible\nhere",
        ),
    )
    for row in cell.purposes:
        table.add_row(
            Plain(row.purpose.value),
            str(row.count),
            format_bytes(row.size_bytes),
            *([_plan_cell(row)] if has_plan else []),
            *purpose_times(cell, row),
            sentences.overlap_word(row),
        )
    below = (*_mark_lines(cell, mark_purposes(cell)), *_plan_lines(cell.purposes), *_overlap_lines(cell.purposes))
    return Group(table, *below, Plain(WAIT_EXPLAINED, style="dim"))


def _plan_cell(row: PurposeSummary) -> Plain:
    return Plain("DIFFERS", style="bold red") if row.matches_plan is False else Plain(sentences.plan_word(row))


def _plan_lines(purposes: tuple[PurposeSummary, ...]) -> Iterator[Plain]:
    for row in purposes:
        if row.matches_plan is False:
            is_same = (row.planned_count, row.planned_size_bytes) == (row.count, row.size_bytes)
            differ = ", other ranks or steps otherwise" if is_same else ""
            got = f"got {row.count} with {format_bytes(row.size_bytes)}{differ}"
            yield Plain(f"{row.purpose.value}: {sentences.plan_word(row)}, {got}", style="bold red")


def _overlap_lines(purposes: tuple[PurposeSummary, ...]) -> Iterator[Plain]:
    """List purposes with an equal reason together, so that each reason is read once."""
    by_reason: dict[str, list[str]] = {}
    for row in purposes:
        if row.overlap_reason:
            by_reason.setdefault(sentences.overlap_sentence(row), []).append(row.purpose.value)
    if by_reason:
        yield Plain("overlap possible here?", style="dim")
    for reason, names in by_reason.items():
        yield Plain.assemble(("  " + ", ".join(names), "bold"), f"  {reason}")


def render_checks(cell: CellSummary) -> RenderableType:
    """Give what was verified and what a reader must know: results, receipts, warm-up, notes, what could not be read."""
    grid = _grid()
    for rows in (
        _plan_rows,
        _correctness_rows,
        _canary_rows,
        _prediction_rows,
        _receipt_rows,
        _warmup_rows,
        _unread_rows,
        _note_rows,
    ):
        for label, words in rows(cell):
            grid.add_row(label, words)
    return grid


def _plan_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    words = sentences.plan_words(cell)
    if words is not None:
        yield "plan", Plain(words)


def _correctness_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    style = "yellow" if cell.correctness is None else "green" if cell.correctness.passed else "bold red"
    yield "correctness", Plain(sentences.correctness_words(cell), style=style)


def _canary_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    if cell.canary is not None:
        styles = {None: "yellow", True: "green", False: "bold red"}
        yield "canary", Plain(canary_words(cell.canary), style=styles[cell.canary.passed])


def _prediction_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    prediction = cell.prediction
    if prediction is not None:
        styles = {None: "yellow", True: "green", False: "bold red"}
        yield "prediction", Plain(prediction.sentence, style=styles[prediction.is_inside])


def _receipt_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    if cell.scenario is None and not cell.receipts:
        return
    yield "receipts", Plain(sentences.agreeing_words(cell))
    for receipt in cell.receipts:
        if receipt.outcome is ReceiptOutcome.DISAGREES:
            yield "", Plain(f"DISAGREES  {sentences.receipt_words(receipt)}", style="bold red")
        elif receipt.outcome is ReceiptOutcome.NO_EFFECT:
            yield "", Plain(f"no effect here  {sentences.receipt_words(receipt)}", style="yellow")


def _warmup_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    if cell.warmup is None:
        yield "warm-up", Plain("n/a: no record says that it ended")
        return
    words = f"settled after {count_things(cell.warmup.steps, 'step')}: {cell.warmup.reason}"
    yield "warm-up", Plain(words) if cell.warmup.settled else Plain(f"NOT {words}", style="yellow")


def _unread_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    if cell.unread_events:
        yield (
            "unread",
            Plain(f"{cell.unread_events} trace events could not be read; no number counts them", style="yellow"),
        )
    if cell.unknown_names:
        named = ", ".join(f"{name} ({count})" for name, count in cell.unknown_names[:MOST_NAMES])
        rest = len(cell.unknown_names) - MOST_NAMES
        more = f" and {rest} more names" if rest > 0 else ""
        yield "unknown", Plain(f"device events that no rule knows: {named}{more}", style="yellow")


def _note_rows(cell: CellSummary) -> Iterator[tuple[str, Plain]]:
    for note in sentences.cell_notes(cell):
        yield "note", Plain(note)


def render_places(summary: RunSummary) -> Plain:
    """Give where the traces and the plot lie, and the commands that show more.

    Print it with ``soft_wrap=True``: a path that is broken or cropped cannot be copied.
    """
    folder = RunFolder(Path(summary.path))
    lines = [Plain("Look further", style="bold"), Plain(f"  run folder   {folder.path}")]
    if len(summary.cells) > sweep.MOST_CELLS:
        count = sum(len(cell.trace_paths) for cell in summary.cells)
        lines.append(Plain(f"  traces       cells/<cell>/launch<k>/traces ({count})"))
        command = spell_command("dtbench", "report", summary.path, "--cell", summary.cells[0].name)
        lines.append(Plain.assemble("  one cell     ", (command, "cyan")))
    for cell in summary.cells if len(summary.cells) <= sweep.MOST_CELLS else ():
        if cell.trace_paths:
            where = _inside(folder.path, os.path.commonpath([str(Path(path).parent) for path in cell.trace_paths]))
            lines.append(Plain(f"  traces       {where} ({len(cell.trace_paths)})"))
    drawn = (
        *(folder.sweep_plot, folder.breakdown_plot, folder.owners_plot),
        *(folder.stages_plot, folder.stage_memory_plot),
    )
    plots = [plot.name for plot in drawn if plot.exists()]
    if plots:
        lines.append(Plain(f"  {'plots' if len(plots) > 1 else 'plot '}        {', '.join(plots)}"))
    if folder.tensorboard.exists():
        lines.append(Plain.assemble("  TensorBoard  ", (spell_command("dtbench", "tensorboard", summary.path), "cyan")))
    elif any(cell.scenario is None and cell.trace_paths for cell in summary.cells):  # its ranks cannot draw
        lines.append(
            Plain.assemble(
                "  TensorBoard  ",
                (spell_command("dtbench", "analyze", summary.path), "cyan"),
                " makes it, and the plot",
            )
        )
    lines += [
        Plain.assemble("  all numbers  ", (spell_command("dtbench", "report", summary.path, "--json"), "cyan")),
    ]
    return Plain("\n").join(lines)


def _inside(folder: Path, path: str) -> str:
    """Give a path relative to the run folder where it lies inside."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def _grid() -> Table:
    """Give an empty grid of labels and words, aligned alike in every part of the report."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=len("gradient wait"))
    grid.add_column(overflow="fold")
    return grid
