"""What would change the steps of a run or of traces: asked for a command line and for notebooks alike."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dtbench.base.columns import ANY, Column, Table, Unit
from dtbench.base.errors import PredictionError, StoreError
from dtbench.base.units import count_things, is_or_are
from dtbench.base.vocabulary import Phase
from dtbench.replay.changes.parse import parse_change
from dtbench.replay.read import read_graph
from dtbench.replay.what_if import Answer, WhatIf, ask
from dtbench.report.documents.what_if import Asked
from dtbench.report.page.what_if_page import name_change
from dtbench.report.words.sentences import count_left_out, doubts_of_cells
from dtbench.report.words.trace_words import why_not_judged
from dtbench.runs.run import summarize_run
from dtbench.scenario.sweeps.sweep import point_to
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_run
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rows.launch_tables import read_launch_traces


class _Told(NamedTuple):
    cell: str
    one: WhatIf
    answer: Answer
    doubt: str


WHAT_IF: Final = Table[Asked, None, _Told](
    name="what_if",
    doc="What would change it: one row per cell and change, largest saving first; replayed, not run.",
    find=lambda asked: (
        (None, _Told(cell, one, answer, asked.doubts.get(cell, "")))
        for cell, one in asked.cells.items()
        for answer in one.answers
    ),
    keys=(),
    columns=(
        Column("cell", "str", None, "of a run; empty: traces", lambda row: row.cell),
        Column("change", "str", None, "as `--change` takes it", lambda row: row.answer.change.name),
        Column("kind", "str", None, "what kind of change", lambda row: str(row.answer.change.kind)),
        Column("what", "str", None, "the same in the words of reports", lambda row: name_change(row.answer.change)),
        Column(
            "saving_ns",
            "float64",
            Unit.NS,
            "by how much all steps together would be shorter, divided by their number; below 0: longer",
            lambda row: row.answer.saving_ns,
            least=ANY,
        ),
        Column(
            "saving_fraction",
            "float64",
            Unit.FRACTION,
            "the same, of a step",
            lambda row: row.answer.saving_ns / row.one.step_ns,
            least=ANY,
        ),
        Column("lowest_ns", "int64", Unit.NS, "the least of any step", lambda row: row.answer.lowest_ns, least=ANY),
        Column("highest_ns", "int64", Unit.NS, "the most of any step", lambda row: row.answer.highest_ns, least=ANY),
        Column(
            "own_ns",
            "Float64",
            Unit.NS,
            "what is hidden takes so long in a step, without waiting for other ranks; NA of other changes",
            lambda row: row.answer.own_ns,
        ),
        Column(
            "doubt",
            "str",
            None,
            "what speaks against these steps, so that nothing follows from them; empty: nothing does",
            lambda row: row.doubt,
        ),
        Column(
            "step_ns",
            "float64",
            Unit.NS,
            "mean of the replayed steps, each the slowest rank's",
            lambda row: row.one.step_ns,
        ),
    ),
)


def ask_traces(traces: TraceSet, changes: Sequence[str] = (), source: str = "") -> Asked:
    """Ask anyone's traces.

    Args:
        traces: of one job.
        changes: as ``--change`` takes them; empty: what may apply.
        source: what they are called.

    Raises:
        PredictionError: they do not tell enough, the unchanged replay does not fit, or a change does not apply.
    """
    doubt = why_not_judged(traces)
    return Asked(source, {"": _ask([traces], changes)}, {}, {} if doubt is None else {"": doubt})


def ask_run(run: Path, changes: Sequence[str] = (), cell: str | None = None) -> Asked:
    """Ask each cell of a run, over its launches that have traces.

    Args:
        run: its folder.
        changes: as ``--change`` takes them; empty: what may apply.
        cell: this cell alone; None: all.

    Raises:
        PredictionError: nothing can be said of any.
        StoreError: this is no run, or has no such cell.
    """
    names = [entry.name for entry in read_run(run).cells]
    if cell is not None and cell not in names:
        raise StoreError(f"there is no cell `{cell}`; {point_to(cell, names)}")
    found, refused = dict[str, WhatIf](), dict[str, str]()
    for name in names if cell is None else [cell]:
        try:
            found[name] = _ask(list(_read_launches(run, name)), changes)
        except PredictionError as error:
            refused[name] = str(error)
    if not found:
        raise PredictionError("; ".join(f"{name}: {why}" for name, why in refused.items()))
    cells = summarize_run(run).cells
    disturbed = {
        one.name: f"{count_things(count, 'PROFILED step')} of it {is_or_are(count)} replayed that others disturbed"
        for one in cells
        if (count := count_left_out([one], Phase.PROFILED))
    }
    return Asked(str(run), found, refused, {**disturbed, **doubts_of_cells(cells)})


def _read_launches(run: Path, cell: str) -> Iterator[TraceSet]:
    """Yield the traces of each launch of a cell that has any.

    Raises:
        PredictionError: none has.
    """
    folder = RunFolder(run)
    launches = next(entry.launches for entry in read_run(run).cells if entry.name == cell)
    with_traces = [folder.launch(cell, index) for index in launches if folder.launch(cell, index).find_traces()]
    if not with_traces:
        raise PredictionError("no trace of it is there (deleted, or none was written): run its scenario again")
    yield from (read_launch_traces(launch) for launch in with_traces)


def _ask(launches: Sequence[TraceSet], changes: Sequence[str]) -> WhatIf:
    recorded = [read_graph(one) for one in launches]
    return ask(recorded, [parse_change(text, recorded[0].graph) for text in changes] if changes else None)
