"""What the standard dashboards of TensorBoard show of a run, written without torch and without TensorFlow.

::

    tb/                          text: summary, environment; images: step_breakdown,
                                 exposed_owners, sweep; HParams: the experiment
      <cell>/                    scalars: summary/..., exposed_ms_by_owner/<owner> <collective>; text: receipts, owners,
                                 estimates; HParams: a session
      <cell>/  or, with several launches, <cell>/launch<k>/
                                 scalars: step_ms/<phase>, cpu_ms/<phase>, tokens_per_second, hidden_ms/<purpose>,
                                 exposed_ms/<purpose>, wait_ms/<purpose>; image: step_times
      <cell>/                    scalar: loss, by step of the first launch

Scalars are named by their unit; a number that could not be computed is left out, and so is one that is only a bound, or
says where communication went in some PROFILED steps alone: a curve can say neither "at least" nor of which steps it is.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from dtbench.base.units import NS_PER_MS, NS_PER_S
from dtbench.base.vocabulary import Phase, Purpose
from dtbench.report.event_files.files import Tagged, image, replace_folder, scalar, text, write_events
from dtbench.report.event_files.hparams import METRICS, experiment, session
from dtbench.report.page import sweep
from dtbench.report.page.cell_page import cell_part
from dtbench.report.page.estimates import estimate_numbers
from dtbench.report.page.run_page import run_page
from dtbench.report.plots.names import (
    MOST_CELLS,
    figure_png,
    plot_step_times,
)
from dtbench.report.plots.pictures import draw_pictures
from dtbench.report.render.markdown import block_markdown, environment_markdown, page_markdown, receipts_markdown
from dtbench.report.words import causes, sentences
from dtbench.report.words.settings import Settings, find_settings
from dtbench.runs.reading.undisturbed import keep_finished, keep_steps
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.rank import WARMUP_LOSSES
from dtbench.store.records.run import Environment

_BYTES_PER_MIB = 1024 * 1024
_MOST_OWNERS = 10
"""Owners of a cell that get a scalar each."""


def write_tensorboard(
    summary: RunSummary,
    folder: Path,
    *,
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    environment: Environment | None,
    pictures: Mapping[str, bytes] | None = None,
) -> None:
    """Make the event files of a run anew; what was in ``folder`` is replaced as a whole, never half.

    Args:
        summary: the run.
        folder: ``tb`` of the run folder.
        steps: columns ``cell``, ``launch`` and those of the table ``steps``; where it has ``is_left_out``,
            such steps are in the pictures only.
        purposes: columns ``cell``, ``launch`` and those of the table ``purposes``.
        environment: of the run; None where it was not recorded.
        pictures: of the run, from ``draw_pictures``; None: they are drawn here.
    """

    def write(unfinished: Path) -> None:
        shown = draw_pictures(summary) if pictures is None else pictures
        write_events(unfinished, _run_values(summary, environment, shown))
        settings = find_settings(summary.cells) if len(summary.cells) > 1 else {}
        draw = _step_image if len(summary.cells) <= MOST_CELLS else _no_image
        for cell in summary.cells:
            of_launches = _split_launches(cell, _rows_of(steps, cell), _rows_of(purposes, cell), draw)
            _write_cell(cell, unfinished / cell.name, _all_cell_values(cell, settings, steps), of_launches)

    replace_folder(folder, write)


def write_cell(
    cell: CellSummary, folder: Path, *, steps: pd.DataFrame, purposes: pd.DataFrame, settings: Settings
) -> None:
    """Make the event files of one cell anew, while the run goes on; without images, which the whole run gets.

    Args:
        cell: what is known of it by now.
        folder: ``tb`` of the run folder.
        steps: as ``write_tensorboard`` has it.
        purposes: as ``write_tensorboard`` has it.
        settings: of all cells that there will be; empty where there is only one.
    """
    if settings and not folder.exists():
        replace_folder(folder, lambda unfinished: write_events(unfinished, [(0, experiment(settings, METRICS))]))
    of_launches = _split_launches(cell, _rows_of(steps, cell), _rows_of(purposes, cell), _no_image)
    of_cell = _all_cell_values(cell, settings, steps)
    replace_folder(folder / cell.name, lambda unfinished: _write_cell(cell, unfinished, of_cell, of_launches))


def _rows_of(table: pd.DataFrame, cell: CellSummary) -> pd.DataFrame:
    return table[table["cell"] == cell.name]


def _write_cell(
    cell: CellSummary, folder: Path, of_cell: list[Tagged], of_launches: Mapping[int, list[Tagged]]
) -> None:
    if max(len(cell.launches), len(of_launches)) <= 1:
        write_events(folder, [*of_cell, *(value for values in of_launches.values() for value in values)])
        return
    write_events(folder, of_cell)
    for launch, values in of_launches.items():
        write_events(folder / f"launch{launch}", values)


def _split_launches(
    cell: CellSummary, steps: pd.DataFrame, purposes: pd.DataFrame, draw: Callable[[pd.DataFrame], Iterator[Tagged]]
) -> dict[int, list[Tagged]]:
    """Return what each launch of a cell measured, by its index."""
    values = {}
    for launch in sorted(steps["launch"].unique()):
        own = steps[steps["launch"] == launch]
        kept, of_purposes = keep_steps(own), purposes[purposes["launch"] == launch]
        values[int(launch)] = [*_launch_values(cell, kept, of_purposes), *draw(own)]
    return values


def _all_cell_values(cell: CellSummary, settings: Settings, steps: pd.DataFrame) -> list[Tagged]:
    """Return what is said of a cell over its launches."""
    sessions = [(0, value) for value in session(cell, settings)] if settings else []
    return [*_cell_values(cell), *sessions, *_loss_values(cell, _rows_of(steps, cell))]


def _run_values(summary: RunSummary, environment: Environment | None, pictures: Mapping[str, bytes]) -> list[Tagged]:
    values = [(0, text("summary", page_markdown(run_page(summary))))]
    values += [(0, image(tag, png)) for tag, png in pictures.items()]
    if len(summary.cells) > 1:
        known = {tag for cell in summary.cells for tag in _cell_numbers(cell)}
        values.append((0, experiment(find_settings(summary.cells), [one for one in METRICS if one[0] in known])))
    if environment is not None:
        values.append((0, text("environment", environment_markdown(environment))))
    return values


def _cell_values(cell: CellSummary) -> Iterator[Tagged]:
    for tag, number in _cell_numbers(cell).items():
        yield 0, scalar(tag, number)
    yield 0, text("receipts", receipts_markdown(cell))
    part = cell_part(cell)
    for tag in ("owners", "stages", "estimates"):
        told = [block_markdown(block) for block in part.blocks if block.key.partition(":")[0] == tag]
        if told:
            yield 0, text(tag, "\n\n".join(told))


def _cell_numbers(cell: CellSummary) -> dict[str, float]:
    """Return the numbers of the report by tag, to compare cells and runs in one chart.

    Those that are known, of all steps and ranks of the launches that there are.
    """
    has_lost_steps = cell.timed_part is not None and cell.timed_part.steps < cell.timed_part.of_steps
    numbers = {
        **({} if has_lost_steps else _time_numbers(cell)),
        **({} if cell.is_least or cell.rank_doubts else _communication_numbers(cell)),
        **({} if cell.rank_doubts else estimate_numbers(cell)),
        **({} if cell.records_part else _record_numbers(cell)),
    }
    return {tag: number for tag, number in numbers.items() if not math.isnan(number)}


def _time_numbers(cell: CellSummary) -> dict[str, float]:
    return {
        "summary/step_ms": cell.step_time.median / NS_PER_MS,
        "summary/tokens_per_second": cell.tokens_per_second,
        "summary/profiler_cost": cell.profiler_cost.median,
        "summary/cpu_ms": cell.cpu_ns_per_step / NS_PER_MS,
        "summary/model_flops_utilization": cell.model_flops_utilization,
    }


def _record_numbers(cell: CellSummary) -> dict[str, float]:
    """Return what records of ranks tell."""
    first_ms = cell.time_to_first_step_ns / NS_PER_MS if cell.first_step_part is None else math.nan
    return {"summary/time_to_first_step_ms": first_ms, **_memory_numbers(cell), **_correctness_numbers(cell)}


def _communication_numbers(cell: CellSummary) -> dict[str, float]:
    """Return what is read off collectives, all of which were seen to run, where it is known of all steps."""
    waits = {"summary/gradient_wait_ms": Purpose.GRAD_REDUCE, "summary/unshard_wait_ms": Purpose.UNSHARD}
    unsure = {row.purpose for row in cell.purposes if row.is_wait_least or row.wait_part}
    numbers = {tag: sentences.wait_ns(cell, one) / NS_PER_MS for tag, one in waits.items() if one not in unsure}
    if cell.part is None:
        numbers |= {
            "summary/exposed_ms": sweep.exposed_ns(cell) / NS_PER_MS,
            "summary/hidden_fraction": cell.hidden_fraction,
            "summary/exposed_step_fraction": cell.exposed_step_fraction,
        }
    return numbers | _owner_numbers(cell)


def _memory_numbers(cell: CellSummary) -> dict[str, float]:
    if cell.memory is None:
        return {}
    peaks = {
        "summary/peak_host_mib": cell.memory.rss_peak_bytes,
        "summary/peak_allocated_mib": cell.memory.allocated_peak_bytes,
        "summary/peak_reserved_mib": cell.memory.reserved_peak_bytes,
    }
    return {tag: peak / _BYTES_PER_MIB for tag, peak in peaks.items() if peak is not None}


def _correctness_numbers(cell: CellSummary) -> dict[str, float]:
    """Return how far results are from the single process's, relative."""
    if cell.correctness is None:
        return {}
    return {
        "correctness/loss_error": cell.correctness.loss_error,
        "correctness/gradient_error": cell.correctness.gradient_error,
    }


def _owner_numbers(cell: CellSummary) -> dict[str, float]:
    """Return the exposed time of the owners that have most of it, over all causes, per step and rank.

    Of an owner that is known in some steps alone there is none.
    """
    exposed_ns: dict[str, int] = {}
    unsure: set[str] = set()
    for row in cell.owners:
        owner = causes.spell_owner(row.owner) if row.owner else causes.UNATTRIBUTED
        tag = f"exposed_ms_by_owner/{owner} {causes.name_operation(row.operation)}"
        exposed_ns[tag] = exposed_ns.get(tag, 0) + row.exposed_ns
        unsure |= {tag} if row.part else set()
    largest = sorted(exposed_ns.items(), key=lambda item: -item[1])[:_MOST_OWNERS]
    return {tag: owner_ns / NS_PER_MS for tag, owner_ns in largest if tag not in unsure}


def _loss_values(cell: CellSummary, steps: pd.DataFrame) -> Iterator[Tagged]:
    """Yield the losses at the steps that they were recorded in, see ``RankRecord.losses``.

    None where they are not of all ranks, or a step or a loss is lost: which of them it had is not known.
    """
    first = steps[steps["launch"] == steps["launch"].min()]
    every = first["step"].unique()
    if cell.records_part is not None or len(every) != 1 + first["step"].max():
        return
    numbers = {phase: sorted(first.loc[first["phase"] == phase.value, "step"].unique()) for phase in Phase}
    recorded = [*numbers[Phase.WARMUP][:WARMUP_LOSSES], *numbers[Phase.MEASURED], *numbers[Phase.PROFILED]]
    for step, loss in zip(recorded, cell.losses, strict=True) if len(recorded) == len(cell.losses) else ():
        if not math.isnan(loss):
            yield int(step), scalar("loss", loss)


def _launch_values(cell: CellSummary, steps: pd.DataFrame, purposes: pd.DataFrame) -> Iterator[Tagged]:
    yield from _step_values(keep_finished(steps, cell.plan.ranks), cell.plan.tokens_per_step)
    is_of_all = purposes["rank"].nunique() >= cell.plan.ranks
    if is_of_all and not cell.is_least and not cell.rank_doubts:  # a rank's rows of a purpose may be lost as a whole
        yield from _purpose_values(purposes)


def _step_image(steps: pd.DataFrame) -> Iterator[Tagged]:
    if not steps.empty:
        yield 0, image("step_times", figure_png(plot_step_times(steps)))


def _no_image(_steps: pd.DataFrame) -> Iterator[Tagged]:
    """Draw nothing: of a hundred cells nobody looks at each, and drawing takes longer than all the rest."""
    yield from ()


def _step_values(steps: pd.DataFrame, tokens_per_step: int | None) -> Iterator[Tagged]:
    """Yield the slowest rank's time of every step, the median CPU time, tokens per second of MEASURED steps only."""
    for phase in Phase:
        cpu_ns = steps[steps["phase"] == phase.value].groupby("step")["cpu_ns"].median()
        for step, time_ns in zip(cpu_ns.index, cpu_ns, strict=True):
            yield int(step), scalar(f"cpu_ms/{phase.value}", time_ns / NS_PER_MS)
        slowest = steps[steps["phase"] == phase.value].groupby("step", as_index=False)["duration_ns"].max()
        for step, duration_ns in zip(slowest["step"], slowest["duration_ns"], strict=True):
            yield int(step), scalar(f"step_ms/{phase.value}", duration_ns / NS_PER_MS)
            if phase is Phase.MEASURED and tokens_per_step is not None:
                yield int(step), scalar("tokens_per_second", tokens_per_step * NS_PER_S / duration_ns)


def _purpose_values(purposes: pd.DataFrame) -> Iterator[Tagged]:
    """Yield hidden, exposed and wait of every profiled step: the median over ranks.

    None where it is not known of some rank, or the wait is at least that: of the other ranks it may be another.
    """
    key = [purposes["purpose"], purposes["step"]]
    ranks = purposes.groupby(key)["rank"].transform("nunique")
    is_lost = ranks < ranks.groupby(purposes["purpose"]).transform("max")
    is_least = purposes["is_wait_least"].astype("boolean").fillna(value=False).astype("bool")
    for column, tag in (("hidden_ns", "hidden_ms"), ("exposed_ns", "exposed_ms"), ("wait_ns", "wait_ms")):
        is_unsure = purposes[column].isna() | is_lost | (is_least & (column == "wait_ns"))
        rows = purposes[~is_unsure.groupby(key).transform("any")]
        medians = rows.groupby(["purpose", "step"], as_index=False)[column].median()
        for purpose, step, time_ns in zip(medians["purpose"], medians["step"], medians[column], strict=True):
            yield int(step), scalar(f"{tag}/{purpose}", time_ns / NS_PER_MS)
