"""The tab Overview: a run's cells, of each the answer first, in the words and numbers of the terminal's report."""

from collections.abc import Iterator
from dataclasses import dataclass

from dtbench.base.units import count_things, format_bytes, format_fraction, format_ns
from dtbench.base.vocabulary import Purpose, StageOutcome
from dtbench.report.page import sentences, stages, sweep
from dtbench.report.page.canary import canary_words
from dtbench.report.page.cell_rows import mark_owners, mark_purposes, mark_ranks, owner_rows, purpose_times, sum_causes
from dtbench.report.render.sweep_table import WAIT_EXPLAINED
from dtbench.report.render.text import SHARES_EXPLAINED
from dtbench.report.tb_plugin.estimates import CellEstimates, make_estimates
from dtbench.report.tb_plugin.shapes import HIDDEN, Chart, Fact, Table, Tile, Tone, headers, step_bar, step_parts
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import RunStatus
from dtbench.traces.known_part import name_part


@dataclass(frozen=True)
class CellCard:
    """One cell; ``answer`` leads it."""

    name: str
    title: str
    status: str
    check: Fact
    problem: str | None
    answer: str
    advice: tuple[str, ...]
    estimates: CellEstimates | None
    tiles: tuple[Tile, ...]
    chart: Chart | None
    owners: Table | None
    purposes: Table | None
    stages: Table | None
    stage_facts: tuple[Fact, ...]
    overlap_facts: tuple[Fact, ...]
    step_facts: tuple[Fact, ...]
    checks: tuple[Fact, ...]


@dataclass(frozen=True)
class OverviewDocument:
    """A run: which, how it ended, its cells against each other, and those that are told in full."""

    title: str
    run_id: str
    question: str
    place: str
    status: str
    problem: str | None
    facts: tuple[Fact, ...]
    sweep: Table | None
    finding: str
    cells: tuple[CellCard, ...]
    cells_left: int


def make_overview(summary: RunSummary, cell: str | None) -> OverviewDocument:
    """Give the overview; of more cells than a person reads, ``cell`` says which is told in full."""
    is_few = len(summary.cells) <= sweep.MOST_CELLS
    chosen = summary.cells if is_few else [one for one in summary.cells if one.name == cell] or summary.cells[:1]
    return OverviewDocument(
        title=summary.name,
        run_id=summary.run_id,
        question=summary.question,
        place=f"{summary.device} on {summary.host}, torch {summary.torch}",
        status=summary.status.value,
        problem=sentences.status_sentence("This run", summary.status, summary.reason),
        facts=tuple(_run_facts(summary)),
        sweep=_sweep_table(summary) if len(summary.cells) > 1 else None,
        finding=sweep.finding(summary) if len(summary.cells) > 1 else "",
        cells=tuple(_make_card(one) for one in chosen),
        cells_left=len(summary.cells) - len(chosen),
    )


def _run_facts(summary: RunSummary) -> Iterator[Fact]:
    for override in summary.overrides:
        yield Fact("set", override)
    resumed = sentences.resumed_sentence(len(summary.resumed_unix_ns))
    if resumed is not None:
        yield Fact("resumed", resumed, Tone.WARNING)
    yield from (Fact(about, words, Tone.WARNING) for about, words in sentences.run_warnings(summary))
    if len(summary.cells) > sweep.MOST_CELLS:
        for note in sweep.note_sentences(summary):
            yield Fact("note", note)


def _sweep_table(summary: RunSummary) -> Table:
    axes, columns = sweep.find_axes(summary), sweep.sweep_columns(summary)
    names = [axis.name for axis in axes]
    has_names = names == ["cell"]
    lead = [] if has_names else ["cell"]
    rows = tuple(
        (
            *([] if has_names else [cell.name]),
            *(axis.values[place] for axis in axes),
            *(column.words[place] for column in columns),
        )
        for place, cell in enumerate(summary.cells)
    )
    constant = sweep.constant_words(summary)
    in_all = [f"in all cells: {constant}"] if constant else []
    said = [*sweep.mark_lines(summary), *in_all, sweep.scope_words(summary)]
    return Table(
        title="All cells, per step; times in ms",
        columns=headers([*lead, *names, *(column.header for column in columns)], text=len(lead) + len(names)),
        rows=rows,
        keys=tuple(cell.name for cell in summary.cells),
        note="; ".join(said),
    )


def _make_card(cell: CellSummary) -> CellCard:
    return CellCard(
        name=cell.name,
        title=f"{sentences.parallel_words(cell)} {sentences.backend_words(cell)}",
        status=cell.status.value,
        check=Fact("check", sentences.check_word(cell), _check_tone(cell)),
        problem=sentences.status_sentence("This cell", cell.status, cell.reason),
        answer=_answer(cell),
        advice=tuple(sentences.advice_sentences(cell)),
        estimates=make_estimates(cell),
        tiles=tuple(_tiles(cell)),
        chart=_chart(cell),
        owners=_owner_table(cell),
        purposes=_purpose_table(cell),
        stages=_stage_table(cell),
        stage_facts=tuple(_stage_facts(cell)),
        overlap_facts=tuple(_overlap_facts(cell)),
        step_facts=tuple(_step_facts(cell)),
        checks=tuple(_check_facts(cell)),
    )


def _check_tone(cell: CellSummary) -> Tone:
    if cell.status is RunStatus.RUNNING:
        return Tone.WARNING
    return Tone.GOOD if sentences.is_trusted(cell) else Tone.BAD


def _answer(cell: CellSummary) -> str:
    answer = sentences.answer_sentence(cell)
    if answer is None:
        return f"Exposed communication: {sentences.wait_sentence(cell, Purpose.GRAD_REDUCE)}"
    return f"Exposed: {answer}"


def _tiles(cell: CellSummary) -> Iterator[Tile]:
    step = cell.step_time
    timed = name_part(cell.timed_part)
    interval = f"95 % interval {sentences.range_words(step.low, step.high)} {sentences.launches_words(cell)}"
    yield Tile("step time", format_ns(step.median), f"{timed}{interval}")
    scope = "".join(f"{words}; " for words in (sentences.throughput_scope(cell),) if words)
    yield Tile("throughput", sentences.throughput_word(cell), f"{timed}{scope}MFU {sentences.utilization_words(cell)}")
    part = name_part(cell.part)
    shown = sentences.bound_below(cell, format_fraction(cell.exposed_step_fraction))
    yield Tile("exposed share", shown, f"{part}of the step, communication alone")
    yield Tile("hidden share", format_fraction(cell.hidden_fraction), f"{part}of communication, beside compute")
    for label, purpose in (("gradient wait", Purpose.GRAD_REDUCE), ("unshard wait", Purpose.UNSHARD)):
        word = sentences.wait_word(cell, purpose)
        yield Tile(label, word, sentences.wait_sentence(cell, purpose).replace(word, "", 1).lstrip(" ,:"))


def _chart(cell: CellSummary) -> Chart | None:
    if not cell.ranks:
        return None
    idle = sentences.idle_word(cell)
    parts = step_parts(idle)
    marks = mark_ranks(cell.ranks)
    rows = [(marks.mark(f"rank {row.rank}", row.part), row.model_dump()) for row in cell.ranks]
    added = f"step = compute + exposed comm + exposed copy + {idle}; {SHARES_EXPLAINED}"
    return Chart(
        title="Where a profiled step went, mean of each rank",
        parts=parts,
        bars=tuple(step_bar(label, row, parts) for label, row in rows),
        below=HIDDEN,
        note="; ".join([*sentences.least_sentences(cell), *marks.lines, added]),
    )


def _owner_table(cell: CellSummary) -> Table | None:
    if not cell.owners:
        return None
    return Table(
        title="Exposed communication by owner and cause, per step and rank; times in ms",
        columns=headers(("owner", "collective", "purpose", "cause", "exposed", "share"), text=4),
        rows=tuple(owner_rows(cell)),
        note="; ".join([*sentences.least_sentences(cell), *mark_owners(cell).lines, sum_causes(cell)]),
    )


_POSSIBLE = "possible?: whether it can be hidden here, see below"


def _purpose_table(cell: CellSummary) -> Table | None:
    if not cell.purposes:
        return None
    names = ("purpose", "count", "size", "plan", "comm", "hidden", "exposed", "wait", "hidden share", "possible?")
    return Table(
        title="Communication by purpose, per step and rank; times in ms",
        columns=headers(names),
        rows=tuple(
            (
                row.purpose.value,
                str(row.count),
                format_bytes(row.size_bytes),
                sentences.plan_word(row),
                *purpose_times(cell, row),
                sentences.overlap_word(row),
            )
            for row in cell.purposes
        ),
        note="; ".join(
            [*sentences.least_sentences(cell), *mark_purposes(cell).lines, f"{_POSSIBLE}; {WAIT_EXPLAINED}"]
        ),
    )


def _stage_table(cell: CellSummary) -> Table | None:
    if not cell.stages:
        return None
    section = stages.stages_section(cell)
    rows = tuple(tuple(row) for row in section.rows)
    return Table(title=section.title, columns=headers(stages.plain_titles(section)), rows=rows)


def _stage_facts(cell: CellSummary) -> Iterator[Fact]:
    for row in cell.stages:
        tone = _STAGE_TONES.get(row.outcome, Tone.BAD)
        yield from (Fact(f"{row.part}: {row.stage}", sentence, tone) for sentence in stages.outcome_sentences(row))
        differs = stages.traffic_sentence(row)
        if differs is not None:
            yield Fact(f"{row.part}: {row.stage}", differs, Tone.BAD)
    yield from (Fact("training", sentence, Tone.PLAIN) for sentence in stages.step_sentences(cell.state_steps))
    saved = stages.saved_sentence(cell.state_steps)
    if saved is not None:
        yield Fact("training", saved, Tone.BAD)


_STAGE_TONES = {
    StageOutcome.EQUAL: Tone.GOOD,
    **dict.fromkeys((StageOutcome.BROKEN, StageOutcome.NOT_COMPARED), Tone.WARNING),
}


def _overlap_facts(cell: CellSummary) -> Iterator[Fact]:
    by_reason: dict[str, list[str]] = {}
    for row in cell.purposes:
        if row.overlap_reason:
            by_reason.setdefault(sentences.overlap_sentence(row), []).append(row.purpose.value)
    for reason, names in by_reason.items():
        yield Fact(", ".join(names), reason)


def _step_facts(cell: CellSummary) -> Iterator[Fact]:
    yield Fact("step time", sentences.step_time_words(cell))
    if len(cell.launches) > 1:
        yield Fact("launches", ", ".join(format_ns(median) for median in cell.launch_medians_ns) + " (medians)")
    yield Fact("profiler", sentences.profiler_words(cell))
    yield Fact("first step", sentences.first_step_words(cell))
    yield Fact("memory peak", sentences.memory_words(cell))
    yield Fact("CPU time", sentences.cpu_time_words(cell))
    if (words := sentences.compilation_words(cell)) is not None:
        yield Fact("compiling", words)


def _check_facts(cell: CellSummary) -> Iterator[Fact]:
    """Give what speaks against the numbers first, then what was verified, then what must be known."""
    yield from _receipt_facts(cell, ReceiptOutcome.DISAGREES, "receipt disagrees", Tone.BAD)
    for row in cell.purposes:
        if row.matches_plan is False:
            got = f"got {row.count} with {format_bytes(row.size_bytes)}"
            yield Fact("differs from plan", f"{row.purpose.value}: {sentences.plan_word(row)}, {got}", Tone.BAD)
    yield Fact("correctness", sentences.correctness_words(cell), _correctness_tone(cell))
    yield from _canary_facts(cell)
    yield from _prediction_facts(cell)
    yield from _receipt_facts(cell, ReceiptOutcome.NO_EFFECT, "no effect here", Tone.WARNING)
    yield Fact("receipts", sentences.agreeing_words(cell))
    yield _warmup_fact(cell)
    yield from _unread_facts(cell)
    for note in sentences.cell_notes(cell):
        yield Fact("note", note)


def _canary_facts(cell: CellSummary) -> Iterator[Fact]:
    if cell.canary is not None:
        tones = {None: Tone.WARNING, True: Tone.GOOD, False: Tone.BAD}
        yield Fact("canary", canary_words(cell.canary), tones[cell.canary.passed])


def _prediction_facts(cell: CellSummary) -> Iterator[Fact]:
    if cell.prediction is not None:
        tones = {None: Tone.WARNING, True: Tone.GOOD, False: Tone.BAD}
        yield Fact("prediction", cell.prediction.sentence, tones[cell.prediction.is_inside])


def _receipt_facts(cell: CellSummary, outcome: ReceiptOutcome, label: str, tone: Tone) -> Iterator[Fact]:
    for receipt in cell.receipts:
        if receipt.outcome is outcome:
            yield Fact(label, sentences.receipt_words(receipt), tone)


def _unread_facts(cell: CellSummary) -> Iterator[Fact]:
    if cell.unread_events:
        counted = f"{cell.unread_events} trace events could not be read; no number counts them"
        yield Fact("unread", counted, Tone.WARNING)
    if cell.unknown_names:
        named = ", ".join(f"{name} ({count})" for name, count in cell.unknown_names)
        yield Fact("unknown", f"device events that no rule knows: {named}", Tone.WARNING)


def _correctness_tone(cell: CellSummary) -> Tone:
    if cell.correctness is None:
        return Tone.WARNING
    return Tone.GOOD if cell.correctness.passed else Tone.BAD


def _warmup_fact(cell: CellSummary) -> Fact:
    if cell.warmup is None:
        return Fact("warm-up", "n/a: no record says that it ended", Tone.WARNING)
    words = f"settled after {count_things(cell.warmup.steps, 'step')}: {cell.warmup.reason}"
    return Fact("warm-up", words) if cell.warmup.settled else Fact("warm-up", f"NOT {words}", Tone.WARNING)
