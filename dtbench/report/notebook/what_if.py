"""What would change the steps of a run or of traces: asked for a command line and for notebooks alike."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pandas as pd

from dtbench.base.columns import ANY, Column, Table, Unit
from dtbench.base.errors import PredictionError, StoreError
from dtbench.replay.changes.parse import parse_change
from dtbench.replay.read import Recorded, read_graph
from dtbench.replay.what_if import Answer, WhatIf, ask
from dtbench.report.documents.what_if import Asked
from dtbench.report.page.what_if_page import name_change, spell_left_out
from dtbench.report.words.sentences import doubts_of_cells
from dtbench.report.words.trace_words import remark_lines, why_not_judged
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.replayed import find_measured, read_launches
from dtbench.runs.run import summarize_data
from dtbench.runs.settings.forecast import SETTING, Forecast, SettingAnswer, forecast_cell, is_setting
from dtbench.runs.summary import RunSummary
from dtbench.scenario.sweeps.sweep import point_to
from dtbench.store.read import read_run
from dtbench.traces.job.trace_set import TraceSet


class _Told(NamedTuple):
    """One change: a replay's, or a setting's."""

    cell: str
    step_ns: float
    answer: Answer | SettingAnswer
    doubt: str


def _tell_all(asked: Asked) -> Iterator[_Told]:
    for cell, one in asked.cells.items():
        yield from (_Told(cell, one.step_ns, answer, asked.doubts.get(cell, "")) for answer in one.answers)
    for cell, forecast in asked.settings.items():
        yield from (_Told(cell, forecast.step_ns, answer, "") for answer in forecast.answers)


def _replayed(row: _Told) -> Answer | None:
    return row.answer if isinstance(row.answer, Answer) else None


def _forecast(row: _Told) -> SettingAnswer | None:
    return row.answer if isinstance(row.answer, SettingAnswer) else None


def _name(row: _Told) -> str:
    return row.answer.change if isinstance(row.answer, SettingAnswer) else row.answer.change.name


WHAT_IF: Final = Table[Asked, None, _Told](
    name="what_if",
    doc="What would change it: one row per cell and change, largest saving first, replays before settings; not run.",
    find=lambda asked: ((None, told) for told in _tell_all(asked)),
    keys=(),
    columns=(
        Column("cell", "str", None, "of a run; empty: traces", lambda row: row.cell),
        Column("change", "str", None, "as `--change` takes it", _name),
        Column(
            "kind",
            "str",
            None,
            "what kind of change; `setting`: of the scenario, whose step is a MEASURED one",
            lambda row: SETTING if (one := _replayed(row)) is None else str(one.change.kind),
        ),
        Column(
            "what",
            "str",
            None,
            "the same in the words of reports",
            lambda row: _name(row) if (one := _replayed(row)) is None else name_change(one.change),
        ),
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
            lambda row: row.answer.saving_ns / row.step_ns,
            least=ANY,
        ),
        Column(
            "lowest_ns",
            "Int64",
            Unit.NS,
            "the least of any step; NA of settings",
            lambda row: None if (one := _replayed(row)) is None else one.lowest_ns,
            least=ANY,
        ),
        Column(
            "highest_ns",
            "Int64",
            Unit.NS,
            "the most of any step; NA of settings",
            lambda row: None if (one := _replayed(row)) is None else one.highest_ns,
            least=ANY,
        ),
        Column(
            "off_ns",
            "Float64",
            Unit.NS,
            "by how much the replay of the unchanged steps is off: the saving is known no better; NA of settings",
            lambda row: None if (one := _replayed(row)) is None else one.off_ns,
        ),
        Column(
            "low_ns",
            "Float64",
            Unit.NS,
            "of settings, lower end of the 90 % interval of the saving; NA of replays, and of one launch",
            lambda row: None if (one := _forecast(row)) is None else one.low_ns,
            least=ANY,
        ),
        Column(
            "high_ns",
            "Float64",
            Unit.NS,
            "its upper end",
            lambda row: None if (one := _forecast(row)) is None else one.high_ns,
            least=ANY,
        ),
        Column(
            "own_ns",
            "Float64",
            Unit.NS,
            "what is hidden takes so long in a step, without waiting for other ranks; NA of other changes",
            lambda row: None if (one := _replayed(row)) is None else one.own_ns,
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
            "mean of the replayed steps, each the slowest rank's; of settings of the MEASURED ones",
            lambda row: row.step_ns,
        ),
    ),
)


def tabulate(asked: Asked) -> pd.DataFrame:
    """Return the table ``what_if``; ``attrs["left_out"]`` says of what it has no row, and why, each a sentence."""
    table = WHAT_IF.tabulate(asked)
    not_told = {f"settings of {name}": why for name, why in asked.settings_refused.items()}
    table.attrs["left_out"] = spell_left_out({**asked.refused, **not_told}, asked.remarks)
    return table


def ask_traces(traces: TraceSet, changes: Sequence[str] = (), source: str = "") -> Asked:
    """Ask anyone's traces.

    Args:
        traces: of one job.
        changes: as ``--change`` takes them; empty: what may apply.
        source: what they are called.

    Raises:
        PredictionError: they do not tell enough, the unchanged replay does not fit, or a change does not apply.
    """
    if settings := [change for change in changes if is_setting(change)]:
        raise PredictionError(f"`{settings[0]}` is a setting of a scenario, and traces have none; ask a run")
    doubt, remarks = why_not_judged(traces), remark_lines(traces)
    return Asked(
        source,
        {"": _ask([read_graph(traces)], changes)},
        {},
        {} if doubt is None else {"": doubt},
        remarks={"": remarks} if remarks else {},
    )


def ask_run(run: Path, changes: Sequence[str] = (), cell: str | None = None) -> Asked:
    """Ask each cell of a run: its launches that have traces, and the closed form of its settings.

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
    data = read_run_data(run)
    summary = summarize_data(data)
    launches = {of.cell.name: of.launches for of in data.cells}
    cells = {one.name: one for one in summary.cells}
    settings = [change for change in changes if is_setting(change)]
    others = [change for change in changes if change not in settings]
    found, refused, remarks = dict[str, WhatIf](), dict[str, str](), dict[str, tuple[str, ...]]()
    for name in (names if cell is None else [cell]) if others or not changes else ():
        try:
            recorded, left_out = read_launches(launches.get(name, ()))
            measured_ns = find_measured(cells.get(name), recorded)
            found[name] = _ask([*recorded.values()], others, measured_ns)
            refused |= {f"{name}, launch {launch}": why for launch, why in left_out.items()}
            said = (line for one in recorded.values() for line in remark_lines(one.traces))
            remarks[name] = tuple(dict.fromkeys(said))
        except PredictionError as error:
            refused[name] = str(error)
    asks_settings = settings or not changes
    forecasts, settings_refused = ask_settings(summary, settings, cell) if asks_settings else ({}, {})
    if not found and not forecasts:
        why = refused if refused else settings_refused
        raise PredictionError("; ".join(f"{name}: {reason}" for name, reason in why.items()))
    return Asked(str(run), found, refused, doubts_of_cells(summary.cells), forecasts, settings_refused, remarks)


def ask_settings(
    summary: RunSummary, settings: Sequence[str] = (), cell: str | None = None
) -> tuple[dict[str, Forecast], dict[str, str]]:
    """Return what other settings would do to each cell of a run, and why nothing is said of the others.

    Args:
        summary: of the run.
        settings: as ``--change`` takes them; empty: what may apply.
        cell: this cell alone; None: all.
    """
    found, refused = dict[str, Forecast](), dict[str, str]()
    for one in summary.cells:
        if cell in (None, one.name):
            try:
                found[one.name] = forecast_cell(one, settings or None)
            except PredictionError as error:
                refused[one.name] = str(error)
    return found, refused


def _ask(recorded: Sequence[Recorded], changes: Sequence[str], measured_ns: Sequence[float] = ()) -> WhatIf:
    parsed = [parse_change(text, recorded[0].graph) for text in changes] if changes else None
    return ask(recorded, parsed, measured_ns=measured_ns)
