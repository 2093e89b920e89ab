"""Steps at other numbers of ranks: asked for a command line and for notebooks alike."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dtbench.base.columns import Column, Table, Unit
from dtbench.base.errors import PredictionError, StoreError
from dtbench.report.documents.predict import AskedWorlds
from dtbench.report.page.page import Picture
from dtbench.report.page.predict_page import AskedCurves
from dtbench.report.plots.page_pictures import picture_of
from dtbench.report.plots.predict import plot_predicted
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.scaling.curve import DEFAULT_WORLDS, Curve, Point, draw_curve
from dtbench.runs.scaling.links import Cluster, read_link
from dtbench.runs.scaling.subjects import Subjects, join_subjects, subjects_of_run
from dtbench.scenario.sweeps.sweep import point_to

_Row = tuple[str, Point]

PREDICTED: Final = Table[AskedWorlds, None, _Row](
    name="predicted",
    doc="Steps at other numbers of ranks: one row per cell and number; not run.",
    find=lambda asked: ((None, row) for row in _list_points(asked)),
    keys=(),
    columns=(
        Column("cell", "str", None, "of the run, or of a scenario", lambda row: row[0]),
        Column("world", "int64", Unit.COUNT, "ranks", lambda row: row[1].world),
        Column("step_ns", "float64", Unit.NS, "MEASURED step of the slowest rank", lambda row: row[1].step_ns),
        Column(
            "low_ns",
            "Float64",
            Unit.NS,
            "lower end of its 90 % interval; NA: nothing tells how much launches differ",
            lambda row: row[1].low_ns,
        ),
        Column("high_ns", "Float64", Unit.NS, "its upper end", lambda row: row[1].high_ns),
        Column(
            "host_ns",
            "Float64",
            Unit.NS,
            "of it the host's, skew left out; NA: not known, and taken as none",
            lambda row: None if row[1].host is None else row[1].host.time_ns,
        ),
        Column(
            "skew_ns",
            "Float64",
            Unit.NS,
            "of it, by how much the last of all ranks is later than the last of those whose host is known",
            lambda row: None if row[1].host is None else row[1].host.skew_ns,
        ),
        Column(
            "exposed_comm_ns",
            "int64",
            Unit.NS,
            "communication that no compute overlaps, on the slowest rank",
            lambda row: row[1].exposed_comm_ns,
        ),
        Column("collectives", "int64", Unit.COUNT, "that a rank issues in a step", lambda row: row[1].collectives),
        Column("size_bytes", "int64", Unit.BYTES, "of them, as nccl-tests counts it", lambda row: row[1].size_bytes),
        Column("wire_bytes", "Int64", Unit.BYTES, "what a rank sends in a step", lambda row: row[1].wire_bytes),
        Column(
            "state_bytes",
            "int64",
            Unit.BYTES,
            "weights, gradients and optimizer state of one rank",
            lambda row: row[1].state_bytes,
        ),
        Column("tokens", "int64", Unit.COUNT, "of a step, over all ranks", lambda row: row[1].tokens),
        Column(
            "extrapolated",
            "str",
            None,
            "in what it lies beyond all that predictions were ever held against; empty: in nothing",
            lambda row: "; ".join(row[1].beyond),
        ),
    ),
)


def _list_points(asked: AskedWorlds) -> Iterator[_Row]:
    for curve in asked.curves:
        yield from ((curve.subject.name, point) for point in curve.points)


def ask_worlds(
    sources: Mapping[str, Subjects], worlds: Sequence[int] = DEFAULT_WORLDS, cluster: Cluster | None = None
) -> AskedWorlds:
    """Ask cells for their steps at other numbers of ranks.

    Args:
        sources: cells by the run or scenario that they are of.
        worlds: numbers of ranks.
        cluster: where they are asked to run; None: over the link that each has.

    Raises:
        PredictionError: nothing can be said of any.
    """
    cluster = cluster or Cluster()
    subjects = join_subjects(sources)
    curves, refused = list[Curve](), dict(subjects.refused)
    for subject in subjects.found:
        try:
            curves.append(draw_curve(subject, worlds, cluster))
        except PredictionError as error:
            refused[subject.name] = str(error)
    if not curves:
        raise PredictionError("; ".join(f"{name}: {why}" for name, why in refused.items()))
    return AskedWorlds([*sources], sorted(set(worlds)), cluster, curves, refused)


def read_subjects(run: Path, cell: str | None = None) -> Subjects:
    """Return the cells of a run.

    Raises:
        StoreError: this is no run, or has no such cell.
    """
    data = read_run_data(run)
    names = [entry.name for entry in data.record.cells]
    if cell is not None and cell not in names:
        raise StoreError(f"there is no cell `{cell}`; {point_to(cell, names)}")
    return subjects_of_run(data, cell)


def make_cluster(link: str | None, between: str | None, nodes_of: int | None) -> Cluster:
    """Return where cells are asked to run.

    Raises:
        PredictionError: it is no link.
    """
    read = [None if text is None else read_link(text) for text in (link, between)]
    return Cluster(read[0], read[1], nodes_of)


def page_subject(asked: AskedWorlds) -> AskedCurves:
    """Return what a page is of."""
    return AskedCurves(", ".join(asked.sources), asked.curves, asked.refused, asked.cluster)


def predicted_pictures(asked: AskedWorlds) -> list[Picture]:
    """Return the plots of a page; a single number of ranks has none."""
    if all(len(curve.points) < 2 for curve in asked.curves):
        return []
    table = PREDICTED.tabulate(asked)
    key = "curve" if len(asked.curves) == 1 else "curves"
    return [picture_of(key, "predicted", "A step by number of ranks", lambda: plot_predicted(table))]
