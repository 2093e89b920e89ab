"""A number that appears in two places is the same number: every place of ``PLACES`` against ``dtbench report --json``.

A place gives what it shows by (cell, quantity): words as they are spelled (``"23.7"``, in ms or percent), which must be
the document's number rounded to as many decimals; or a float in ns or as a fraction, which must be that number. To add
a place, write a function and put it into the list with the quantities that it must show.
"""

import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import dtbench
from dtbench.cli.report import report
from dtbench.report.event_files.publish import publish
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.page import sweep
from dtbench.report.page.page import Chart, Tiles
from dtbench.report.tb_plugin.overview import make_overview
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.store.layout import RunFolder
from tests.report.shown import board_cell, facts_of, markdown_block, markdown_run, table_of, terminal_run

RESULTS = Path(__file__).parents[2] / "results"
MS = 1_000_000

STEP, EXPOSED, HIDDEN_SHARE, EXPOSED_SHARE = "step time", "exposed comm", "hidden share", "exposed share of step"
GRADIENT, UNSHARD = "gradient wait", "unshard wait"
TABLE: Final = (STEP, EXPOSED, HIDDEN_SHARE, GRADIENT)
FRACTIONS: Final = (HIDDEN_SHARE, EXPOSED_SHARE)

Shown = Mapping[tuple[str, str], str | float]
"""What a place shows, by cell and quantity."""


@dataclass(frozen=True)
class Run:
    """One run, as each place gets at it."""

    folder: Path

    @cached_property
    def loaded(self) -> RunReport:
        return dtbench.load_run(self.folder)

    @property
    def names(self) -> list[str]:
        return [cell.name for cell in self.loaded.summary.cells]


@pytest.fixture(scope="module", params=["example", "example_sweep"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with its plots and event files."""
    folder = tmp_path_factory.mktemp("results") / "scenario" / "run"
    shutil.copytree(RESULTS / str(request.param), folder)
    data = read_run_data(folder)
    publish(data, summarize_data(data))
    return Run(folder)


@pytest.fixture(scope="module")
def document(run: Run) -> Mapping[tuple[str, str], float]:
    """Return the numbers of ``--json``, in ns or as fractions; what no rank has is left out."""
    with redirect_stdout(io.StringIO()) as printed:
        report(str(run.folder), Path("nowhere"), as_json=True)
    found: dict[tuple[str, str], float] = {}
    for cell in json.loads(printed.getvalue())["cells"]:
        waits = {row["purpose"]: row["wait_ns"] for row in cell["purposes"]}
        exposed = [row["exposed_comm_ns"] for row in cell["ranks"]]
        numbers = {
            STEP: cell["step_time"]["median"],
            EXPOSED: sum(exposed) / len(exposed),
            HIDDEN_SHARE: cell["hidden_fraction"],
            EXPOSED_SHARE: cell["exposed_step_fraction"],
            GRADIENT: waits["grad_reduce"],
            **({UNSHARD: waits["unshard"]} if "unshard" in waits else {}),
        }
        found |= {(cell["name"], quantity): float(number) for quantity, number in numbers.items()}
    return found


def terminal_table(run: Run) -> Shown:
    """Read the table of all cells on a terminal that is wide enough for it."""
    console = Console(width=400, highlight=False)
    with console.capture() as capture:
        console.print(terminal_run(run.loaded.summary))
    lines = capture.get().splitlines()
    start = next(at for at, text in enumerate(lines) if text.startswith("All cells, per step"))
    rows = [line.split() for line in lines[start:] if line.split()[-1:] == ["passed"]]
    columns = [one.header for one in sweep.sweep_quantities(run.loaded.summary)]
    return _by_column(run, columns, [_join_units(row[1:]) for row in rows])


def _join_units(words: list[str]) -> list[str]:
    """Put ``4.49 k`` and ``69.9 %`` together again."""
    joined: list[str] = []
    for word in words:
        if word in ("k", "M", "%"):
            joined[-1] = f"{joined[-1]} {word}"
        else:
            joined.append(word)
    return joined


def terminal_cells(run: Run) -> Shown:
    """Read the sentence on what is exposed in each cell's own part."""
    console = Console(width=400, highlight=False)
    with console.capture() as capture:
        console.print(terminal_run(run.loaded.summary))
    pattern = re.compile(r"^exposed +([\d.]+) ms of a profiled step \(([\d.]+) %\)", re.MULTILINE)
    found = zip(run.names, pattern.findall(capture.get()), strict=True)
    return dict(_exposed_words(found))


def notebook_words(run: Run) -> Shown:
    """Read what a notebook says, and what ``print`` does."""
    pattern = r"([\w.-]+): exposed ([\d.]+) ms of a profiled step \(([\d.]+) %\)"
    html, printed = (re.findall(pattern, text) for text in (unescape(run.loaded._repr_html_()), str(run.loaded)))
    assert html == printed
    return dict(_exposed_words((name, (time, share)) for name, time, share in html))


def _exposed_words(found: Iterator[tuple[str, tuple[str, str]]]) -> Iterator[tuple[tuple[str, str], str]]:
    for name, (time, share) in found:
        yield (name, EXPOSED), time
        yield (name, EXPOSED_SHARE), share


def notebook_table(run: Run) -> Shown:
    tables = re.findall(r"<table.*?</table>", run.loaded._repr_html_(), re.DOTALL)
    (html,) = (table for table in tables if ">step<br>time<" in table)
    columns = [unescape(header).replace("<br>", " ") for header in re.findall(r"<th[^>]*>(.*?)</th>", html)]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)][1:]
    return _by_column(run, columns, rows)


def html_page_table(run: Run) -> Shown:
    """Read the exact values of the table of all cells in the file that ``--html`` writes."""
    from tests.report.html_page.conftest import PageFile

    table = PageFile(_html_page(run)).table("cells", "cells")
    return {
        (name, title): float(str(value))
        for name, row in zip(run.names, table.rows, strict=True)
        for title, (words, value) in zip(table.titles, row, strict=True)
        if title in (*TABLE, UNSHARD) and words != "none"
    }


def html_page_cells(run: Run) -> Shown:
    """Read the exact values of the tiles of each cell and of the bars of its ranks there."""
    from tests.report.html_page.conftest import PageFile

    page = PageFile(_html_page(run))
    found: dict[tuple[str, str], float] = {}
    for name in run.names:
        part = f"cell:{name}"
        for quantity in (STEP, HIDDEN_SHARE, GRADIENT):
            found[name, quantity] = float(str(page.tiles[part, quantity][1]))
        found[name, EXPOSED_SHARE] = float(str(page.tiles[part, "exposed share"][1]))
        bars = [float(str(parts["exposed_comm_ns"])) for of, parts in page.bars if of == part]
        found[name, EXPOSED] = sum(bars) / len(bars)
    return found


def _html_page(run: Run) -> str:
    from dtbench.report.notebook.page_file import run_document

    data = read_run_data(run.folder)
    return run_document(data, summarize_data(data))


def markdown_table(run: Run) -> Shown:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown_run(run.loaded.summary).splitlines()
        if line.startswith("|")
    ]
    start = next(at for at, row in enumerate(rows) if any(title.startswith(STEP) for title in row))
    header, _, *body = rows[start : start + len(run.names) + 2]
    return _by_column(run, header, body)


def _by_column(run: Run, columns: list[str], rows: list[list[str]]) -> Shown:
    """Return the words of the columns that are quantities, of each cell; ``none`` is no number."""
    named = zip(run.names, rows, strict=True)
    found = {
        (name, column): word.removesuffix(" %")
        for name, row in named
        for column, word in zip(columns, row, strict=True)
        if column in (*TABLE, UNSHARD)
    }
    return {key: word for key, word in found.items() if word != "none"}


def event_files(run: Run) -> Shown:
    tags = {
        STEP: ("summary/step_ms", MS),
        EXPOSED: ("summary/exposed_ms", MS),
        GRADIENT: ("summary/gradient_wait_ms", MS),
        UNSHARD: ("summary/unshard_wait_ms", MS),
        HIDDEN_SHARE: ("summary/hidden_fraction", 1),
        EXPOSED_SHARE: ("summary/exposed_step_fraction", 1),
    }
    found: dict[tuple[str, str], float] = {}
    for name in run.names:
        reader = EventAccumulator(str(RunFolder(run.folder).tensorboard / name))
        reader.Reload()
        there = set(reader.Tags()["scalars"])
        for quantity, (tag, unit) in tags.items():
            if tag in there:
                (event,) = reader.Scalars(tag)
                found[name, quantity] = event.value * unit
    return found


def tables(run: Run) -> Shown:
    """Compute them from the DataFrames, as a person in a notebook would."""
    found: dict[tuple[str, str], float] = {}
    for name, rows in run.loaded.overlap.groupby("cell"):
        found[str(name), EXPOSED_SHARE] = rows["exposed_comm_ns"].sum() / rows["step_ns"].sum()
        found[str(name), HIDDEN_SHARE] = rows["hidden_comm_ns"].sum() / rows["comm_ns"].sum()
    return found


def all_runs(run: Run) -> Shown:
    """Compute the step time from ``load_runs``: median over launches of the median over steps of the slowest rank."""
    steps = dtbench.load_runs(run.folder.parent.parent)
    measured = steps[steps["phase"] == "MEASURED"]
    slowest = measured.groupby(["cell", "launch", "step"], observed=True)["duration_ns"].max()
    medians = slowest.groupby(["cell", "launch"], observed=True).median().groupby("cell", observed=True).median()
    return {(str(name), STEP): float(time) for name, time in medians.items()}


def breakdown_plot(run: Run) -> Shown:
    """Measure the bars, one for each rank, in the order of cells."""
    bars = _bars(run.loaded.plot_breakdown().axes[0].patches, "exposed_comm_ns")
    ranks = [len(cell.ranks) for cell in run.loaded.summary.cells]
    found: dict[tuple[str, str], float] = {}
    for name, count in zip(run.names, ranks, strict=True):
        mine, bars = bars[:count], bars[count:]
        found[name, EXPOSED] = sum(bar.get_width() for bar in mine) / count * MS
    return found


def overlap_plot(run: Run) -> Shown:
    """Read each panel's title, and hold its bars against it."""
    found: dict[tuple[str, str], str | float] = {}
    for axes in run.loaded.plot_overlap().axes:
        pattern = r"(.+): ([\d.]+) % of the communication is hidden, ([\d.]+) ms of a step exposed \(([\d.]+) %\)"
        match = re.fullmatch(pattern, axes.get_title(loc="left"))
        assert match is not None
        name, hidden, exposed, share = match.groups()
        found |= {(name, HIDDEN_SHARE): hidden, (name, EXPOSED): exposed, (name, EXPOSED_SHARE): share}
        bars = [bar.get_height() for bar in _bars(axes.patches, "exposed_comm_ns")]
        assert sum(bars) / len(bars) == pytest.approx(float(exposed), rel=0.01)
    return found


def distribution_plot(run: Run) -> Shown:
    title = run.loaded.plot_step_distribution().axes[0].get_title(loc="left")
    found = re.findall(r"([\d.]+)( ms| s) in ([\w.-]+?)(?=[,;]|$)", title)
    return {(name, STEP): time + unit.replace(" ms", "") for time, unit, name in found}


def sweep_plot(run: Run) -> Shown:
    """Read the points of the line, or of the bars where no axis is a number."""
    axes = run.loaded.plot_sweep().axes
    lines = [line for panel in axes for line in panel.lines if str(line.get_gid()).startswith(("line", "measured"))]
    if len(axes) == 1:
        return {
            (name, STEP): float(np.asarray(line.get_xdata())[0]) * MS
            for name, line in zip(run.names, lines, strict=True)
        }
    found: dict[tuple[str, str], float] = {}
    for quantity, line in zip((STEP, EXPOSED), lines, strict=True):
        found |= {
            (name, quantity): float(y) * MS for name, y in zip(run.names, np.asarray(line.get_ydata()), strict=True)
        }
    return found


def tensorboard_table(run: Run) -> Shown:
    """Read the table of all cells on TensorBoard's tab."""
    part = make_overview(run.loaded.summary, None).page.find("cells")
    assert part is not None
    table = table_of(part, "cells")
    return _by_column(run, [column.plain_title for column in table.columns], [list(row) for row in table.words])


def tensorboard_cards(run: Run) -> Shown:
    """Read what the tab says of each cell in full: its answer, its tiles, and the bars of its ranks."""
    found: dict[tuple[str, str], str | float] = {}
    for name in run.names:
        card = board_cell(run.loaded.summary, name)
        answer = next(fact.words for fact in facts_of(card, "lead") if fact.label == "exposed")
        match = re.match(r"([\d.]+) ms of a profiled step \(([\d.]+) %\)", answer)
        assert match is not None
        block, chart = card.find("tiles"), card.find("breakdown")
        assert isinstance(block, Tiles)
        assert isinstance(chart, Chart)
        tiles = {tile.label: tile.words for tile in block.tiles}
        assert tiles["exposed share"] == f"{match[2]} %"
        found |= {(name, EXPOSED): match[1], (name, EXPOSED_SHARE): match[2]}
        found[name, HIDDEN_SHARE] = tiles["hidden share"].removesuffix(" %")
        at = [part.name for part in chart.parts].index("exposed comm")
        bars = [bar.lengths_ns[at] or 0 for bar in chart.bars]
        assert f"{sum(bars) / len(bars) / MS:.{len(match[1].partition('.')[2])}f}" == match[1]
    return found


def comparison(run: Run) -> Shown:
    """Take the step times of each cell against the first."""
    first, *others = run.names
    compared = {name: dtbench.compare(f"{run.folder}:{first}", f"{run.folder}:{name}") for name in others}
    found: dict[tuple[str, str], float] = {}
    for name, one in compared.items():
        step = one.metrics.iloc[0]
        assert step["metric"] == "step_time"
        found |= {(first, STEP): float(step["baseline"]), (name, STEP): float(step["candidate"])}
    return found


def _bars(patches: Iterable[object], gid: str) -> list[Rectangle]:
    return [patch for patch in patches if isinstance(patch, Rectangle) and patch.get_gid() == gid]


PLACES: Final[tuple[tuple[Callable[[Run], Shown], tuple[str, ...]], ...]] = (
    (terminal_table, TABLE),
    (terminal_cells, (EXPOSED, EXPOSED_SHARE)),
    (notebook_words, (EXPOSED, EXPOSED_SHARE)),
    (notebook_table, TABLE),
    (html_page_table, TABLE),
    (html_page_cells, (STEP, EXPOSED, GRADIENT, *FRACTIONS)),
    (markdown_table, TABLE),
    (event_files, (*TABLE, EXPOSED_SHARE)),
    (tables, FRACTIONS),
    (all_runs, (STEP,)),
    (breakdown_plot, (EXPOSED,)),
    (overlap_plot, (EXPOSED, *FRACTIONS)),
    (distribution_plot, (STEP,)),
    (sweep_plot, (STEP,)),
    (tensorboard_table, TABLE),
    (tensorboard_cards, (EXPOSED, *FRACTIONS)),
    (comparison, (STEP,)),
)
"""Where numbers appear, and what must appear there for every cell."""


@pytest.mark.parametrize(("place", "quantities"), PLACES, ids=[place.__name__ for place, _ in PLACES])
def test_a_number_is_the_same_wherever_it_appears(
    run: Run,
    document: Mapping[tuple[str, str], float],
    place: Callable[[Run], Shown],
    quantities: tuple[str, ...],
) -> None:
    shown = place(run)
    assert {(name, quantity) for name in run.names for quantity in quantities} <= set(shown)
    _hold_against(document, shown)


def _hold_against(document: Mapping[tuple[str, str], float], shown: Shown) -> None:
    for key, what in shown.items():
        exact = document[key] * (100 if key[1] in FRACTIONS else 1 / MS)
        if isinstance(what, str):
            number, seconds = what.removesuffix(" s"), what.endswith(" s")
            decimals = len(number.partition(".")[2])
            assert number == f"{exact / 1000 if seconds else exact:.{decimals}f}", key
        else:
            assert what == pytest.approx(document[key], rel=1e-6), key


ESTIMATES: Final = ("trace", "ablation", "waits")


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory, add_estimates: Callable[[Path], None]) -> Run:
    """Return the first run as if its ranks had run blocks of steps with and without communication."""
    folder = tmp_path_factory.mktemp("estimated") / "scenario" / "run"
    shutil.copytree(RESULTS / "example", folder)
    add_estimates(folder)
    data = read_run_data(folder)
    publish(data, summarize_data(data))
    return Run(folder)


def estimates_in_json(run: Run) -> Shown:
    with redirect_stdout(io.StringIO()) as printed:
        report(str(run.folder), Path("nowhere"), as_json=True)
    found: dict[tuple[str, str], float] = {}
    for cell in json.loads(printed.getvalue())["cells"]:
        mean = cell["exposure"]["rows"][0]
        found |= {
            (cell["name"], "waits" if one["estimate"] == "wait" else one["estimate"]): one["mean_ns"]
            for one in mean["estimates"]
        }
    return found


def estimates_on_the_terminal(run: Run) -> Shown:
    return _mean_rows(run, [line.split()[1::3] for line in _terminal_lines(run) if line.startswith("mean ")])


def _terminal_lines(run: Run) -> list[str]:
    console = Console(width=400, highlight=False)
    with console.capture() as capture:
        console.print(terminal_run(run.loaded.summary))
    return capture.get().splitlines()


def _mean_rows(run: Run, rows: list[list[str]]) -> Shown:
    return {
        (name, kind): word
        for name, row in zip(run.names, rows, strict=True)
        for kind, word in zip(ESTIMATES, row[:3], strict=True)
    }


def estimates_in_markdown(run: Run) -> Shown:
    tables = [markdown_block(cell, "estimates") for cell in run.loaded.summary.cells]
    rows = [next(line for line in text.splitlines() if line.startswith("| mean ")) for text in tables]
    return _mean_rows(run, [row.split()[3::4] for row in rows])


def estimates_in_event_files(run: Run) -> Shown:
    tags = {"trace": "exposed_ms", "ablation": "exposed_ablation_ms", "waits": "exposed_wait_ms"}
    found: dict[tuple[str, str], float] = {}
    for name in run.names:
        reader = EventAccumulator(str(RunFolder(run.folder).tensorboard / name))
        reader.Reload()
        found |= {(name, kind): reader.Scalars(f"summary/{tag}")[0].value * MS for kind, tag in tags.items()}
    return found


def estimates_on_tensorboards_tab(run: Run) -> Shown:
    cards = [board_cell(run.loaded.summary, name) for name in run.names]
    tables = [table_of(card, "estimates") for card in cards if card.find("estimates") is not None]
    return _mean_rows(run, [[word.partition(" ")[0] for word in table.words[0][1:]] for table in tables])


def estimates_in_a_data_frame(run: Run) -> Shown:
    means = run.loaded.estimates[run.loaded.estimates["rank"].isna()]
    return {
        (str(row["cell"]), "waits" if row["estimate"] == "wait" else str(row["estimate"])): float(row["mean_ns"])
        for _, row in means.iterrows()
    }


def estimates_in_a_comparison(run: Run) -> Shown:
    first, second = run.names
    metrics = dtbench.compare(f"{run.folder}:{first}", f"{run.folder}:{second}").metrics.set_index("metric")
    named = {"trace": "exposed_comm", "ablation": "exposed_ablation", "waits": "exposed_waits"}
    return {
        (name, kind): float(metrics[side][metric])
        for name, side in ((first, "baseline"), (second, "candidate"))
        for kind, metric in named.items()
    }


@pytest.mark.parametrize(
    "place",
    [
        estimates_on_the_terminal,
        estimates_in_markdown,
        estimates_in_event_files,
        estimates_on_tensorboards_tab,
        estimates_in_a_data_frame,
        estimates_in_a_comparison,
    ],
)
def test_an_estimate_is_the_same_wherever_it_appears(estimated: Run, place: Callable[[Run], Shown]) -> None:
    document = {key: float(number) for key, number in estimates_in_json(estimated).items() if key[1] != "logger"}
    assert len(document) == 3 * len(estimated.names)
    shown = {key: number for key, number in place(estimated).items() if key[1] != "logger"}  # which told nothing
    assert set(shown) == set(document)
    _hold_against(document, shown)


def test_the_traces_estimate_is_what_the_rest_of_the_report_calls_exposed(estimated: Run) -> None:
    for cell in estimated.loaded.summary.cells:
        assert cell.exposure is not None
        trace = cell.exposure.rows[0].estimates[0]
        assert trace.mean_ns == pytest.approx(sweep.exposed_ns(cell), abs=1)


def test_the_owners_bars_and_the_terminals_table_are_the_summarys_rows(run: Run) -> None:
    owners = run.loaded.owners
    rows = [(cell.name, row.exposed_ns) for cell in run.loaded.summary.cells for row in cell.owners]
    assert [(str(name), float(time)) for name, time in zip(owners["cell"], owners["exposed_ns"], strict=True)] == rows
    widths, drawn = [], 0.0
    for axes in run.loaded.plot_owners().axes:
        names = [label.get_text() for label in axes.get_yticklabels()]
        bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
        drawn += sum(bar.get_width() for bar in bars) * MS
        of_rows = (bar for bar in bars if not names[round(bar.get_y() + bar.get_height() / 2)].endswith(" more"))
        widths += [bar.get_width() * MS for bar in of_rows]
    assert drawn == pytest.approx(sum(time for _, time in rows))
    left = sorted((time for _, time in rows), reverse=True)  # the least are one more bar
    for width in sorted(widths, reverse=True):
        while left and left[0] > width * (1 + 1e-6):
            left.pop(0)
        assert left, "a bar is no row of the summary"
        assert left.pop(0) == pytest.approx(width)
    assert max(widths) == pytest.approx(max(time for _, time in rows))


def test_traces_say_the_same_in_words_html_tables_and_plots() -> None:
    traces = dtbench.read_trace(Path(__file__).parents[1] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz")
    mean_ns = traces.overlap["exposed_comm_ns"].mean()
    words = f"{mean_ns / MS:.1f} ms exposed ({100 * mean_ns / traces.overlap['step_ns'].mean():.1f} %)"
    assert words in str(traces)
    assert words in unescape(traces._repr_html_())
    assert traces.owners["exposed_ns"].sum() == pytest.approx(mean_ns)
    title = traces.plot_owners().axes[0].get_title(loc="left")
    assert title.endswith(f"of {mean_ns / MS:.1f} ms")
    assert f"{mean_ns / MS:.1f} ms of a step exposed" in traces.plot_overlap().axes[0].get_title(loc="left")
