"""TensorBoard event files of a run, written without torch and without TensorFlow.

::

    tb/                          text: summary, environment; images: step_breakdown,
                                 exposed_owners, sweep; HParams: the experiment
      <cell>/                    scalars: summary/...; text: receipts; HParams: a session
      <cell>/  or, with several launches, <cell>/launch<k>/
                                 scalars: step_ms/<phase>, tokens_per_second, hidden_ms/<purpose>, exposed_ms/<purpose>,
                                 wait_ms/<purpose>; image: step_times

Scalars are named by their unit; a number that could not be computed is left out. Only TensorBoard's protobufs and its
record framing are used: its ``summary`` functions need TensorFlow, and its event writer imports it where there is one.
"""

import math
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from dtbench.analyze.summary import CellSummary, RunSummary
from dtbench.report import sentences, sweep
from dtbench.report.hparams import experiment, find_settings, session
from dtbench.report.markdown import environment_markdown, receipts_markdown, summary_markdown
from dtbench.report.owner_table import tabulate_run_owners
from dtbench.report.plots import (
    MOST_CELLS,
    figure_png,
    plot_exposed_owners,
    plot_step_breakdown,
    plot_step_times,
)
from dtbench.report.sweep_plot import plot_sweep
from dtbench.store.records import Environment
from dtbench.units import NS_PER_MS, NS_PER_S
from dtbench.vocabulary import Phase, Purpose

_RGBA = 4
_Tagged = tuple[int, Summary.Value]
"""A step and what is said of it."""


def write_tensorboard(
    summary: RunSummary,
    folder: Path,
    *,
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    environment: Environment | None,
) -> None:
    """Make the event files of a run anew; what was in ``folder`` is replaced as a whole, never half.

    Args:
        summary: the run.
        folder: ``tb`` of the run folder.
        steps: columns ``cell``, ``launch`` and those of ``dtbench.analyze.tables.STEPS``.
        purposes: columns ``cell``, ``launch`` and those of ``dtbench.analyze.tables.PURPOSES``.
        environment: of the run; None where it was not recorded.
    """
    unfinished, replaced = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (unfinished, replaced):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        _write_events(unfinished, _run_values(summary, environment))
        settings = find_settings(summary) if len(summary.cells) > 1 else {}
        draw = _step_image if len(summary.cells) <= MOST_CELLS else _no_image
        for cell in summary.cells:
            of_cell = [*_cell_values(cell), *(_session_values(cell, settings) if settings else ())]
            of_launches = _split_launches(cell, _rows_of(steps, cell), _rows_of(purposes, cell), draw)
            _write_cell(unfinished / cell.name, of_cell, of_launches)
        if folder.exists():
            folder.rename(replaced)
        unfinished.rename(folder)
    finally:
        for leftover in (unfinished, replaced):
            shutil.rmtree(leftover, ignore_errors=True)


def _rows_of(table: pd.DataFrame, cell: CellSummary) -> pd.DataFrame:
    return table[table["cell"] == cell.name]


def _write_cell(folder: Path, of_cell: list[_Tagged], of_launches: Mapping[int, list[_Tagged]]) -> None:
    if len(of_launches) <= 1:
        _write_events(folder, [*of_cell, *(value for values in of_launches.values() for value in values)])
        return
    _write_events(folder, of_cell)
    for launch, values in of_launches.items():
        _write_events(folder / f"launch{launch}", values)


def _split_launches(
    cell: CellSummary, steps: pd.DataFrame, purposes: pd.DataFrame, draw: Callable[[pd.DataFrame], Iterator[_Tagged]]
) -> dict[int, list[_Tagged]]:
    """Give what each launch of a cell measured, by its index."""
    values = {}
    for launch in sorted(steps["launch"].unique()):
        own = steps[steps["launch"] == launch]
        values[int(launch)] = [*_launch_values(cell, own, purposes[purposes["launch"] == launch]), *draw(own)]
    return values


def _session_values(cell: CellSummary, settings: Mapping[str, Mapping[str, str]]) -> Iterator[_Tagged]:
    for value in session(cell, settings):
        yield 0, value


def _run_values(summary: RunSummary, environment: Environment | None) -> list[_Tagged]:
    values = [
        (0, _text("summary", summary_markdown(summary))),
        (0, _image("step_breakdown", figure_png(plot_step_breakdown(summary)))),
    ]
    if len(summary.cells) <= MOST_CELLS and any(cell.owners for cell in summary.cells):
        values.append((0, _image("exposed_owners", figure_png(plot_exposed_owners(tabulate_run_owners(summary))))))
    if len(summary.cells) > 1:
        values.append((0, _image("sweep", figure_png(plot_sweep(summary)))))
        values.append((0, experiment(find_settings(summary))))
    if environment is not None:
        values.append((0, _text("environment", environment_markdown(environment))))
    return values


def _cell_values(cell: CellSummary) -> Iterator[_Tagged]:
    """Give the numbers of the report, to compare cells and runs in one chart."""
    numbers = {
        "summary/step_ms": cell.step_time.median / NS_PER_MS,
        "summary/tokens_per_second": cell.tokens_per_second,
        "summary/gradient_wait_ms": sentences.wait_ns(cell, Purpose.GRAD_REDUCE) / NS_PER_MS,
        "summary/unshard_wait_ms": sentences.wait_ns(cell, Purpose.UNSHARD) / NS_PER_MS,
        "summary/exposed_ms": sweep.exposed_ns(cell) / NS_PER_MS,
        "summary/hidden_fraction": cell.hidden_fraction,
        "summary/exposed_step_fraction": cell.exposed_step_fraction,
        "summary/profiler_cost": cell.profiler_cost.median,
    }
    for tag, number in numbers.items():
        if not math.isnan(number):
            yield 0, _scalar(tag, number)
    yield 0, _text("receipts", receipts_markdown(cell))


def _launch_values(cell: CellSummary, steps: pd.DataFrame, purposes: pd.DataFrame) -> Iterator[_Tagged]:
    yield from _step_values(steps, cell.plan.tokens_per_step)
    yield from _purpose_values(purposes)


def _step_image(steps: pd.DataFrame) -> Iterator[_Tagged]:
    if not steps.empty:
        yield 0, _image("step_times", figure_png(plot_step_times(steps)))


def _no_image(_steps: pd.DataFrame) -> Iterator[_Tagged]:
    """Draw nothing: of a hundred cells nobody looks at each, and drawing takes longer than all the rest."""
    yield from ()


def _step_values(steps: pd.DataFrame, tokens_per_step: int | None) -> Iterator[_Tagged]:
    """Give the slowest rank's time of every step; tokens per second of MEASURED steps only."""
    for phase in Phase:
        slowest = steps[steps["phase"] == phase.value].groupby("step", as_index=False)["duration_ns"].max()
        for step, duration_ns in zip(slowest["step"], slowest["duration_ns"], strict=True):
            yield int(step), _scalar(f"step_ms/{phase.value}", duration_ns / NS_PER_MS)
            if phase is Phase.MEASURED and tokens_per_step is not None:
                yield int(step), _scalar("tokens_per_second", tokens_per_step * NS_PER_S / duration_ns)


def _purpose_values(purposes: pd.DataFrame) -> Iterator[_Tagged]:
    """Give hidden, exposed and wait of every profiled step: the median over ranks."""
    for column, tag in (("hidden_ns", "hidden_ms"), ("exposed_ns", "exposed_ms"), ("wait_ns", "wait_ms")):
        medians = purposes.groupby(["purpose", "step"], as_index=False)[column].median()
        for purpose, step, time_ns in zip(medians["purpose"], medians["step"], medians[column], strict=True):
            yield int(step), _scalar(f"{tag}/{purpose}", time_ns / NS_PER_MS)


def _scalar(tag: str, number: float) -> Summary.Value:
    return Summary.Value(tag=tag, simple_value=number)


def _image(tag: str, png: bytes) -> Summary.Value:
    """Wrap a PNG; its size stands in the first chunk, width and height at bytes 16 to 24 (PNG, RFC 2083, 11.2.1)."""
    width, height = struct.unpack(">II", png[16:24])
    image = Summary.Image(height=height, width=width, colorspace=_RGBA, encoded_image_string=png)
    return Summary.Value(tag=tag, image=image)


def _text(tag: str, markdown: str) -> Summary.Value:
    """Wrap Markdown as a string tensor of rank 0; of rank 1 TensorBoard would draw a table around it."""
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name="text"),
        data_class=DATA_CLASS_TENSOR,
    )
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[markdown.encode()])
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _write_events(folder: Path, values: list[_Tagged]) -> None:
    """Write one event file; its name carries the time, so that a running TensorBoard notices a rewrite."""
    folder.mkdir(parents=True, exist_ok=True)
    unix_ns = time.time_ns()
    wall_time = unix_ns / NS_PER_S
    with (folder / f"events.out.tfevents.{unix_ns}.dtbench").open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString())
        for step, value in values:
            event = Event(wall_time=wall_time, step=step, summary=Summary(value=[value]))
            records.write(event.SerializeToString())
