"""A number that is a bound, or known of some steps alone, says so in every picture, sentence and scalar, or is none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from dtbench.base.vocabulary import Cause, Operation, Phase, Purpose
from dtbench.report.event_files.dashboards import write_tensorboard
from dtbench.report.notebook.loaded import RunReport, tabulate_run
from dtbench.report.page import sweep
from dtbench.report.page.cell_rows import owner_rows, rest_of_owners, sum_causes
from dtbench.report.page.page import words_of
from dtbench.report.plots.names import plot_exposed_owners, plot_step_breakdown
from dtbench.report.plots.pictures import plot_run_owners
from dtbench.report.plots.sweep_map import plot_sweep_map
from dtbench.report.words.doubts import NOT_ALL_OWNERS
from dtbench.report.words.sentences import advice_sentences, answer_sentence, lead_waits
from dtbench.runs.cell.summarize_cell import summarize_cell
from dtbench.runs.cell_numbers import find_number
from dtbench.runs.reading.cell_data import RunData
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.summary import CellSummary, OwnerSummary, RunSummary
from dtbench.scenario.checks.values import read_value
from dtbench.traces.known_part import KnownPart
from tests.report.shown import terminal_cell
from tests.report.test_event_files import scalars_of

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
MS = 1_000_000
PART = KnownPart(steps=15, of_steps=24)
MakeCell = Callable[..., CellSummary]
MakeRun = Callable[..., RunSummary]


def own(owner: str, exposed_ms: int, part: KnownPart | None = None) -> OwnerSummary:
    return OwnerSummary(
        owner=owner,
        operation=Operation.ALL_REDUCE,
        purpose=Purpose.GRAD_REDUCE,
        cause=Cause.TAIL,
        exposed_ns=exposed_ms * MS,
        owner_exposed_ns=exposed_ms * MS,
        part=part,
    )


def title(figure: Figure) -> str:
    return figure.axes[0].get_title(loc="left")


def texts(figure: Figure) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].texts]


def shown(cell: CellSummary) -> str:
    console = Console(width=300, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal_cell(cell))
    return capture.get()


@pytest.fixture
def mixed(make_ddp: MakeCell) -> CellSummary:
    """Of one owner all steps are known, of another some."""
    return make_ddp(update={"owners": (own("bucket 0", 8, PART), own("bucket 1", 4))})


def test_owners_of_different_steps_are_neither_summed_nor_shares_nor_ranked(mixed: CellSummary) -> None:
    why = "what owners left exposed is known of different steps"
    assert [words_of(row[5]) for row in owner_rows(mixed)] == ["n/a", "n/a"]
    assert words_of(rest_of_owners(mixed, 0)[4]) == "n/a"
    assert sum_causes(mixed) == f"by cause: n/a, {why}"
    assert f"whose most of it is, is not known: {why}" in (answer_sentence(mixed) or "")
    assert advice_sentences(mixed) == [NOT_ALL_OWNERS]
    assert f"shares n/a: {why}" in shown(mixed)
    for name in ("causes.tail.exposed_ns", "purposes.grad_reduce.causes.tail.exposed_ns"):
        assert pd.isna(find_number(mixed, read_value(name)))


def test_owners_of_the_same_steps_are(make_ddp: MakeCell) -> None:
    cell = make_ddp(update={"owners": (own("bucket 0", 8, PART), own("bucket 1", 4, PART))})
    assert [words_of(row[5]) for row in owner_rows(cell)] == ["66.7 %*", "33.3 %*"]
    assert sum_causes(cell).startswith(f"of {PART}: by cause: ")
    assert title(plot_exposed_owners_of(cell)) == (
        f"of {PART}: bucket 0's all-reduce leaves most exposed: 66.7 % of 12.0 ms"
    )


def plot_exposed_owners_of(cell: CellSummary) -> Figure:
    from dtbench.report.page.run_tables import OWNERS, OwnedRows

    return plot_exposed_owners(OWNERS.tabulate(OwnedRows(cell.owners)))


def test_the_picture_of_owners_marks_those_of_other_steps_and_sums_none(mixed: CellSummary, make_run: MakeRun) -> None:
    alone = plot_exposed_owners_of(mixed)
    assert title(alone) == "Which owner leaves most exposed is not told: they are known of different steps"
    assert texts(alone) == ["8.00 ms*", "4.00 ms"]
    assert f"* of {PART}: not known of the others" in alone.axes[0].get_xlabel()
    of_run = plot_run_owners(make_run(mixed))
    assert title(of_run).startswith("which owner leaves most exposed is not told")


def test_an_owner_of_whom_nothing_is_known_is_counted_and_takes_the_shares_of_the_others(tmp_path: Path) -> None:
    data = read_run_data(EXAMPLE).cells[0]
    launch = data.launches[0]
    table = launch.tables.collectives
    is_lost = table["owner"] == "bucket 3"
    lost = table.assign(exposed_ns=table["exposed_ns"].astype("Int64").mask(is_lost))
    tables = replace(launch.tables, tables={**launch.tables.tables, "collectives": lost})
    cell = summarize_cell(replace(data, launches=(replace(launch, tables=tables),)), "cpu")
    assert "bucket 3" not in {row.owner for row in cell.owners}
    assert cell.unknown_owners == 1
    assert {words_of(row[5]) for row in owner_rows(cell)} == {"n/a"}
    assert "what 1 more owner left exposed is not known" in (answer_sentence(cell) or "")
    assert summarize_cell(data, "cpu").unknown_owners == 0


def test_a_share_behind_a_bound_is_one(make_ddp: MakeCell) -> None:
    lost = make_ddp(update={"unseen_collectives": 2, "owners": (own("bucket 0", 8), own("bucket 1", 4))})
    assert "at least 11.5 ms of a profiled step (at least 7.9 %)" in (answer_sentence(lost) or "")
    assert dict(lead_waits(lost))["gradient wait"].endswith(" of a profiled step)")
    assert "(at least " in dict(lead_waits(lost))["gradient wait"]
    assert {words_of(row[5]) for row in owner_rows(lost)} == {"n/a"}
    assert "at least 7.9 %" in shown(lost)
    assert "(7.9 %)" in (answer_sentence(make_ddp()) or "")
    wait = make_ddp().purposes[0].model_copy(update={"is_wait_least": True})
    least = dict(lead_waits(make_ddp(update={"purposes": (wait,)})))["gradient wait"]
    assert least.startswith("at least 12.3 ms per step (at least ")


def test_an_owner_that_is_known_of_some_steps_is_no_point_of_a_curve(
    mixed: CellSummary, make_run: MakeRun, steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(mixed), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = scalars_of(tmp_path / "tb" / "ddp")
    assert {tag for tag in found if tag.startswith("exposed_ms_by_owner")} == {
        "exposed_ms_by_owner/bucket 1 all-reduce"
    }


@pytest.mark.parametrize(
    ("update", "absent"),
    [
        ({"part": PART}, ["summary/exposed_ms", "summary/hidden_fraction", "summary/exposed_step_fraction"]),
        ({"wait_part": PART}, ["summary/gradient_wait_ms"]),
    ],
)
def test_what_is_known_of_some_profiled_steps_is_no_point_of_a_curve(
    make_ddp: MakeCell,
    make_run: MakeRun,
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
    update: dict[str, KnownPart],
    absent: list[str],
) -> None:
    whole = make_ddp()
    if "wait_part" in update:
        cell = whole.model_copy(update={"purposes": (whole.purposes[0].model_copy(update=update),)})
    else:
        cell = whole.model_copy(update=update)
    for place, one in enumerate((whole, cell)):
        folder = tmp_path / str(place)
        write_tensorboard(make_run(one), folder, steps=steps, purposes=purposes, environment=None)
        found = scalars_of(folder / "ddp")
        assert {tag in found for tag in absent} == {one is whole}


@pytest.mark.parametrize("column", ["hidden_ns", "exposed_ns", "wait_ns"])
def test_a_median_over_some_ranks_is_no_point_of_a_curve(
    make_ddp: MakeCell,
    make_run: MakeRun,
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
    column: str,
) -> None:
    lost = purposes.assign(**{column: purposes[column].astype("Int64").mask(purposes["rank"] == 0)})
    tags = {f"{name.removesuffix('_ns')}_ms/grad_reduce" for name in ("hidden_ns", "exposed_ns", "wait_ns")}
    of_tables = {}
    for name, table in {"whole": purposes, "lost": lost, "a rank": purposes[purposes["rank"] == 0]}.items():
        folder = tmp_path / name
        write_tensorboard(make_run(make_ddp()), folder, steps=steps, purposes=table, environment=None)
        of_tables[name] = tags & set(scalars_of(folder / "ddp"))
    assert of_tables == {
        "whole": tags,
        "lost": tags - {f"{column.removesuffix('_ns')}_ms/grad_reduce"},
        "a rank": set(),
    }


def test_fields_of_a_map_say_what_is_a_bound_a_part_or_in_doubt(make_ddp: MakeCell, make_run: MakeRun) -> None:
    updates: list[dict[str, object]] = [{"unseen_collectives": 3}, {"part": PART}, {"timed_part": PART}, {}]
    cells = []
    for place in range(9):
        at = {"one": str(place // 3), "two": str(place % 3)}
        update = updates[min(place, 3)]
        cells.append(make_ddp(update={"name": f"c{place}", "coordinates": at, **update}))
    figure = plot_sweep_map(make_run(*cells))
    assert [text.get_text() for text in figure.axes[0].texts[:4]] == [
        "142 ms\nat least 11.5 ms exposed",
        "142 ms\n11.5 ms* exposed",
        "142 ms*\n11.5 ms exposed",
        "142 ms\n11.5 ms exposed",
    ]
    assert figure.get_supxlabel() == f"* of {PART}: not known of the others"
    (of_table,) = [one for one in sweep.sweep_quantities(make_run(*cells)) if one.header == "exposed comm"]
    assert of_table.words[:2] == ("at least 11.5", "11.5*")


def test_a_bound_is_neither_the_worst_cell_nor_the_best(make_ddp: MakeCell, make_run: MakeRun) -> None:
    cells = [
        make_ddp(update={"name": name, "exposed_step_fraction": share, "unseen_collectives": unseen})
        for name, share, unseen in (("a", 0.3, 0), ("b", 0.2, 0), ("c", 0.1, 4))
    ]
    words = title(plot_step_breakdown(make_run(*cells)))
    assert words == "Exposed communication takes 30.0 % of the step in a, 20.0 % in b, of 2 of 3 cells"
    both = title(plot_step_breakdown(make_run(cells[2], cells[2].model_copy(update={"name": "d"}))))
    assert both.startswith("Nothing is compared")


def leave_out(data: RunData, phase: Phase, count: int) -> RunReport:
    """Return a run of whose first cell others disturbed the first steps of a phase."""
    first = data.cells[0]
    launch = first.launches[0]
    numbers = sorted(launch.steps.loc[launch.steps["phase"] == phase.value, "step"].unique())[:count]
    names = ("steps", *launch.tables.tables)
    rows = {name: launch.find_table(name) for name in names if "step" in launch.find_table(name)}
    kept = {name: table[~table["step"].isin(numbers).fillna(value=False)] for name, table in rows.items()}
    others = {name: table[table["step"].isin(numbers).fillna(value=False)] for name, table in rows.items()}
    tables = replace(launch.tables, tables={**launch.tables.tables, **kept})
    less = replace(
        launch,
        steps=kept["steps"],
        tables=tables,
        left_out={phase: frozenset(map(int, numbers))},
        left_out_rows=others,
    )
    return tabulate_run(replace(data, cells=(replace(first, launches=(less,)), *data.cells[1:])))


def test_pictures_count_the_steps_that_others_disturbed() -> None:
    data = read_run_data(EXAMPLE)
    profiled, measured = leave_out(data, Phase.PROFILED, 2), leave_out(data, Phase.MEASURED, 3)
    assert "3 steps left out" in title(measured.plot_step_distribution())
    words = "; 2 PROFILED steps left out, which others disturbed"
    for figure in (profiled.plot_overlap(), profiled.plot_owners(), profiled.plot_breakdown()):
        assert words in figure.axes[-1].get_xlabel().replace("\n", " ")
    whole = tabulate_run(data)
    for figure in (whole.plot_overlap(), whole.plot_owners(), whole.plot_breakdown()):
        assert "left out" not in figure.axes[-1].get_xlabel()
    assert "left out" not in title(whole.plot_step_distribution())


def test_a_step_that_is_known_of_fewer_ranks_is_no_bar_beside_the_others() -> None:
    data = read_run_data(EXAMPLE)
    report = tabulate_run(data)
    table = report.overlap
    first = table["step"].min()
    lost = (table["cell"] == "ddp") & (table["step"] == first) & (table["rank"] == 0)
    some = table.assign(exposed_comm_ns=table["exposed_comm_ns"].astype("Int64").mask(lost))
    whole, part = (replace(report, overlap=one).plot_overlap() for one in (table, some))
    bars = [sum(bar.get_gid() == "exposed_comm_ns" for bar in one.axes[0].patches) for one in (whole, part)]
    assert bars == [3, 2]
    assert "1 step is not drawn: not known of every rank" in part.axes[-1].get_xlabel()
