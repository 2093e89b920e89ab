"""One reading path: steps that others disturbed are out of every number, everywhere, and no table is read twice."""

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

import dtbench
from dtbench.base.units import NS_PER_MS, format_ns
from dtbench.base.vocabulary import Phase
from dtbench.cli.main import main
from dtbench.comparison.metrics import STEP_TIME
from dtbench.comparison.precision import read_step_times
from dtbench.comparison.reading.sides import read_sides
from dtbench.report.event_files.publish import publish
from dtbench.report.page.page import Cell, Page, Table
from dtbench.report.tb_plugin.answers import Answer, Answers
from dtbench.report.tb_plugin.run_list import RunList
from dtbench.report.tb_plugin.runs import LogDirectory
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data, summarize_run
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run
from dtbench.store.write import write_table
from dtbench.traces.rows.tables import TABLES
from tests.put_trace import put_trace

RESULTS = Path(__file__).parents[2] / "results"
TIMES_LONGER = 3
CELLS = {"ddp": 2, "fsdp2_tp": 4}
"""Ranks of each cell of the example."""

Disturbed = Mapping[str, Mapping[Phase, int]]
"""By cell and phase, how many steps others had the cores in."""

MEASURED_ONLY: Disturbed = {"ddp": {Phase.MEASURED: 5}}
BOTH_PHASES: Disturbed = {"ddp": {Phase.MEASURED: 2, Phase.PROFILED: 1}, "fsdp2_tp": {Phase.PROFILED: 2}}
LAST_RANK: Disturbed = {"fsdp2_tp": {Phase.MEASURED: 4}}


def disturb(run: Path, disturbed: Disturbed) -> None:
    """Let others have half of the cores in a cell's first steps of a phase, which then take three times as long.

    Beside DDP these are other virtual machines of the host, beside FSDP2 other processes.
    """
    for cell, counts in disturbed.items():
        folder = RunFolder(run).launch(cell, 0)
        steps = profile_more(folder)
        numbers = [
            number
            for phase, count in counts.items()
            for number in sorted(steps.loc[steps["phase"] == phase.value, "step"].unique())[:count]
        ]
        hit = steps["step"].isin(numbers)
        steps.loc[hit, "duration_ns"] *= TIMES_LONGER
        column = "stolen_fraction" if cell == "ddp" else "taken_fraction"
        steps[column] = 0.0
        steps.loc[hit & (steps["rank"] == steps["rank"].max()), column] = 0.5  # one rank's machine suffices
        write_table(folder.steps, steps)
        for name in ("overlap", "purposes", "groups", "collectives"):
            table = pd.read_parquet(folder.derived_table(name))
            moments = ("start_ns", "issue_ns", "end_ns")
            times = [column for column in table if str(column).endswith("_ns") and column not in moments]
            is_hit = table["step"].isin(numbers)
            if "end_ns" in table:
                table.loc[is_hit, "end_ns"] += (TIMES_LONGER - 1) * (table["end_ns"] - table["start_ns"])[is_hit]
            table.loc[is_hit, times] *= TIMES_LONGER
            write_table(folder.derived_table(name), table)


def profile_more(folder: LaunchFolder) -> pd.DataFrame:
    """Let a launch have twice as many PROFILED steps, so that some can be left out; gives its steps."""
    steps = pd.read_parquet(folder.steps)
    profiled = steps[steps["phase"] == Phase.PROFILED.value]
    more, numbers = profiled["step"].nunique(), set(profiled["step"])
    for path in sorted(folder.path.glob("*.parquet")):
        table = pd.read_parquet(path)
        if "step" in table:
            again = table[table["step"].isin(numbers)]
            write_table(path, pd.concat([table, again.assign(step=again["step"] + more)]))
    change_json(folder.path.parents[2] / "run.json", lambda run: _plan_more(run, folder.path.parent.name, more))
    for path in folder.rank_record(0).parent.glob("rank*.json"):
        change_json(path, lambda record: record["losses"].extend(record["losses"][-more:]))
    return pd.read_parquet(folder.steps)


def _plan_more(run: dict[str, Any], name: str, more: int) -> None:
    (cell,) = (cell for cell in run["cells"] if cell["name"] == name)
    cell["plan"]["profiled_steps"] += more


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture(params=[MEASURED_ONLY, BOTH_PHASES, LAST_RANK], ids=["measured", "both phases", "last rank"])
def disturbed(request: pytest.FixtureRequest) -> Disturbed:
    found: Disturbed = request.param
    return found


@pytest.fixture
def run(tmp_path: Path, disturbed: Disturbed) -> Path:
    folder = tmp_path / "results" / "quickstart" / "disturbed"
    shutil.copytree(RESULTS / "example", folder)
    disturb(folder, disturbed)
    return folder


def median_of(steps: pd.DataFrame, cell: str) -> float:
    """Return a cell's step time from a table of steps as a person would: the slowest rank's, median over MEASURED."""
    mine = steps[(steps["cell"] == cell) & (steps["phase"] == Phase.MEASURED.value)]
    return float(mine.groupby("step")["duration_ns"].max().median())


def test_a_step_time_is_the_same_wherever_it_is_asked_for(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = dtbench.load_run(run)
    command("report", "{run}", "--json")(run)
    document = {cell["name"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    publish_it(run)
    shown = tell_step_times(ask(open_board(tmp_path / "results"), "/overview", {"run": "quickstart/disturbed"}).page)
    command("report", "{run}", "--full")(run)
    printed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    command("report", "{run}")(run)
    screen = capsys.readouterr().out.splitlines()
    command("report", "{run}", "--html", str(tmp_path / "page.html"))(run)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.warns(UserWarning, match="left out"):
        many = dtbench.load_runs(tmp_path / "results")
    sides, precise = read_sides(str(run), tmp_path), read_step_times(RunFolder(run), _cells(run))
    for cell in loaded.summary.cells:
        told = {
            "steps": median_of(loaded.steps, cell.name),
            "runs": median_of(many, cell.name),
            "precision": precise[cell.name][0],
            "json": document[cell.name]["step_time"]["median"],
        }
        launches = sides[cell.name].launches
        assert bool(launches) == (not cell.disturbed), "others left fewer than half of the steps: nothing is compared"
        if launches:
            told["compared"] = next(one.value for one in launches[0].measurements if one.metric == STEP_TIME)
        words, told["tensorboard"] = shown[cell.name]
        told["html"] = find_step_time(page, cell.name, words)
        assert [cell.name, str(CELLS[cell.name]), words] in printed, "on the terminal, as in TensorBoard"
        assert words == f"{cell.step_time.median / NS_PER_MS:.1f}"
        bars = [line for line in screen if line.split()[:1] == [cell.name]]
        assert any(f" {format_ns(cell.step_time.median)} " in line for line in bars), "on one screen"
        assert told == dict.fromkeys(told, cell.step_time.median), cell.name
        shown_ms = read_scalar(run / "tb" / cell.name, "summary/step_ms")
        assert shown_ms == pytest.approx(cell.step_time.median / NS_PER_MS, rel=1e-6), "a float of 32 bits"
    trusted = [cell.name for cell in loaded.summary.cells if not cell.disturbed]
    if len(trusted) == len(CELLS):  # else nothing is compared
        change = dtbench.compare(*(f"{run}:{name}" for name in trusted), force=True).metrics.iloc[0]
        assert change["metric"] == STEP_TIME
        assert [change["baseline"], change["candidate"]] == [cell.step_time.median for cell in loaded.summary.cells]


def tell_step_times(page: Page) -> dict[str, tuple[str, float]]:
    """Return what the table of all cells says of a step time, in words and as a number of ns, by cell."""
    (part,) = (part for part in page.parts if part.key == "cells")
    (table,) = (block for block in part.blocks if isinstance(block, Table))
    place = [column.title for column in table.columns].index("step\ntime")
    times = [cell for row in table.rows if isinstance(cell := row[place], Cell)]
    return {key: (one.words, one.value or 0.0) for key, one in zip(table.row_keys, times, strict=True)}


def find_step_time(page: str, cell: str, words: str) -> float:
    """Return the number behind a cell's step time in the first table of a page in a file, where it stands in words."""
    row = page[page.index(f'<tr><td class="text tone-strong">{cell}</td>') :].partition("</tr>")[0]
    (value,) = re.findall(rf'data-value="([^"]*)">{re.escape(words)}<', row)
    return float(value)


def read_scalar(folder: Path, tag: str) -> float:
    """Return the one value of a tag in the event file of a folder."""
    (file,) = folder.glob("events.out.*")
    events = LegacyEventFileLoader(str(file)).Load()
    (found,) = (value for event in events for value in event.summary.value if value.tag == tag)
    return float(found.simple_value or found.tensor.float_val[0])


def _cells(run: Path) -> Any:
    return read_run(run).cells


def test_exposed_time_is_the_same_in_every_table_and_tab(run: Path, tmp_path: Path) -> None:
    loaded = dtbench.load_run(run)
    board = open_board(tmp_path / "results")
    for cell in loaded.summary.cells:
        mine = loaded.overlap[loaded.overlap["cell"] == cell.name]
        purposes = loaded.purposes[loaded.purposes["cell"] == cell.name]
        assert mine["exposed_comm_ns"].sum() / mine["step_ns"].sum() == cell.exposed_step_fraction
        assert purposes["exposed_ns"].sum() == mine["exposed_comm_ns"].sum()
        assert len(mine) == sum(rank.steps for rank in cell.ranks)
        shown = ask(board, "/overlap", {"run": "quickstart/disturbed", "cell": cell.name, "by": "step"})
        assert shown.steps == tuple(sorted(mine["step"].unique())), cell.name


def test_what_is_left_out_is_counted_and_nothing_is_lost(run: Path, tmp_path: Path, disturbed: Disturbed) -> None:
    loaded = dtbench.load_run(run)
    every = dtbench.load_runs(tmp_path / "results", all_steps=True)
    for cell in loaded.summary.cells:
        counts = dict(disturbed.get(cell.name, {}))
        assert cell.left_out_steps == counts
        out = loaded.left_out["steps"]
        mine = out[out["cell"] == cell.name]
        assert len(mine) == sum(counts.values()) * CELLS[cell.name]
        whole = pd.read_parquet(RunFolder(run).launch(cell.name, 0).steps)
        kept = loaded.steps[loaded.steps["cell"] == cell.name]
        assert sorted([*kept["step"], *mine["step"]]) == sorted(whole["step"])
        for name in ("overlap", "collectives", "lanes"):
            table, without = loaded.tables[name], loaded.left_out[name]
            written = pd.read_parquet(RunFolder(run).launch(cell.name, 0).derived_table(name))
            assert (table["cell"] == cell.name).sum() + (without["cell"] == cell.name).sum() == len(written)
            assert list(table.columns) == list(without.columns)
        assert any("left out: " in note for note in cell.notes) is bool(counts)
        of_many = every[every["cell"] == cell.name]
        assert of_many["is_left_out"].sum() == len(mine)
        assert sorted(of_many["step"]) == sorted(whole["step"])


def test_event_files_hold_the_steps_to_go_by_and_the_picture_holds_all(run: Path, disturbed: Disturbed) -> None:
    data = read_run_data(run)
    publish(data, summarize_data(data))
    for cell, ranks in CELLS.items():
        (file,) = (run / "tb" / cell).glob("events.out.*")
        told = Counter(
            value.tag
            for event in LegacyEventFileLoader(str(file)).Load()
            for value in event.summary.value
            if value.tag.startswith(("step_ms/", "loss"))
        )
        steps = pd.read_parquet(RunFolder(run).launch(cell, 0).steps)
        for phase in (Phase.MEASURED, Phase.PROFILED):
            had = int((steps["phase"] == phase.value).sum()) // ranks
            assert told[f"step_ms/{phase.value}"] == had - disturbed.get(cell, {}).get(phase, 0)
        launch = next(one for one in data.launches if one.place.cell == cell)
        assert told["loss"] == len(launch.ranks[0].losses)  # of every step: a loss is not disturbed


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each table is read, by its path."""
    counts: Counter[str] = Counter()
    real_pandas, real_arrow = pd.read_parquet, pq.ParquetFile.read

    def read_frame(path: Any, *args: Any, **kwargs: Any) -> pd.DataFrame:
        counts[str(path)] += 1
        return real_pandas(path, *args, **kwargs)

    class Counted(pq.ParquetFile):
        def __init__(self, path: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(path, *args, **kwargs)
            self.of = str(path)

        def read(self, *args: Any, **kwargs: Any) -> Any:
            counts[self.of] += 1
            return real_arrow(self, *args, **kwargs)

    monkeypatch.setattr(pd, "read_parquet", read_frame)
    monkeypatch.setattr("dtbench.runs.reading.many_runs.pq.ParquetFile", Counted)
    return counts


def command(*words: str) -> Callable[[Path], None]:
    def call(run: Path) -> None:
        with pytest.raises(SystemExit) as ended:
            main([word.format(run=run) for word in words])
        assert not ended.value.code

    return call


def publish_it(run: Path) -> None:
    data = read_run_data(run)
    publish(data, summarize_data(data))


def look_at_the_board(run: Path) -> None:
    board = open_board(run.parent)
    one = {"cell": "ddp", "launch": "0"}
    for route, words in (("/overview", {}), ("/overlap", one), ("/collectives", one)):
        assert ask(board, route, {"run": run.name, **words}) is not None


def open_board(results: Path) -> Answers:
    directory = LogDirectory(results)
    return Answers(directory, RunList(directory))


def ask(board: Answers, route: str, words: Mapping[str, str]) -> Any:
    answer = board.answer(route, words)
    assert isinstance(answer, Answer)
    return answer.document


@pytest.mark.parametrize(
    "use",
    [
        command("report", "{run}"),
        command("report", "{run}", "--json"),
        command("compare", "{run}"),
        command("compare", "{run}:ddp", "{run}:fsdp2_tp", "--json"),
        publish_it,
        look_at_the_board,
        lambda run: dtbench.load_run(run).plot_step_distribution(),
        dtbench.load_runs,
        dtbench.load_collectives,
        dtbench.load_owners,
        command("export", "{run}", "--table", "owners"),
    ],
    ids=[
        *("report", "json", "compare", "compare two", "publish", "board", "load_run", "load_runs"),
        *("load_collectives", "load_owners", "export"),
    ],
)
def test_each_table_is_read_once(tmp_path: Path, reads: Counter[str], use: Callable[[Path], object]) -> None:
    folder = tmp_path / "run"
    kept = shutil.ignore_patterns("measurements.json")  # another test may have left what it compared
    shutil.copytree(RESULTS / "example", folder, ignore=kept)
    use(folder)
    assert reads
    assert set(reads.values()) == {1}


def test_a_table_of_another_launch_is_named_and_gives_no_number(tmp_path: Path) -> None:
    folder = tmp_path / "quickstart" / "run"
    shutil.copytree(RESULTS / "example", folder)
    run_id = read_run(folder).run_id
    for cell in CELLS:
        launch = RunFolder(folder).launch(cell, 0)
        for path in launch.path.glob("*.parquet"):
            table = pd.read_parquet(path)
            table.attrs = {**table.attrs, "place": {"run": run_id, "cell": cell, "launch": 0}}
            write_table(path, table)
    assert not any(cell.unreadable for cell in summarize_run(folder).cells)
    ddp, other = (RunFolder(folder).launch(cell, 0) for cell in CELLS)
    for name in ("overlap", "collectives", "steps"):
        there = ddp.derived_table(name)
        kept = there.read_bytes()
        shutil.copy(other.derived_table(name), there)
        wrong = summarize_run(folder).cells[0]
        assert "is a table of run" in wrong.unreadable[0]
        assert f"cell fsdp2_tp, launch 0, and lies in run {run_id}, cell ddp, launch 0" in wrong.unreadable[0]
        assert pd.isna(wrong.step_time.median)
        there.write_bytes(kept)
    shutil.copy(other.steps, ddp.steps)
    with pytest.warns(UserWarning, match="is a table of run"):
        assert set(dtbench.load_runs(folder)["cell"]) == {"fsdp2_tp"}


def test_many_runs_leave_out_what_one_run_does(tmp_path: Path) -> None:
    """A complete launch that lost steps of a rank is no launch to go by, in one table or the other."""
    folder = tmp_path / "run"
    shutil.copytree(RESULTS / "example", folder)
    path = RunFolder(folder).launch("ddp", 0).steps
    steps = pd.read_parquet(path)
    write_table(path, steps[(steps["rank"] == 0) | (steps["step"] < steps["step"].max())])
    said = summarize_run(folder).cells[0].unreadable[0]
    assert "steps of a complete launch are lost: rank 1" in said
    with pytest.warns(UserWarning, match="steps of a complete launch are lost: rank 1"):
        assert set(dtbench.load_runs(folder)["cell"]) == {"fsdp2_tp"}
    for load in (dtbench.load_collectives, dtbench.load_owners):
        with pytest.warns(UserWarning, match="steps of a complete launch are lost: rank 1"):
            assert set(load(folder)["cell"]) == {"fsdp2_tp"}


@pytest.mark.parametrize("ranks", [(0, 1), (1,)])
def test_a_trace_of_another_launch_is_named_and_gives_no_number(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    """No table says of which launch it is, and steps of two launches are alike: the process that wrote it is not."""
    folder = tmp_path / "run"
    shutil.copytree(RESULTS / "example", folder)
    launch = RunFolder(folder).launch("ddp", 0)
    for table in TABLES:
        launch.derived_table(table.name).unlink(missing_ok=True)
    for rank in (0, 1):
        trace = put_trace("ddp_2ranks_rank0.json.gz", launch, rank)
        if rank in ranks:
            trace.write_bytes(_of_process(trace.read_bytes(), 77))
    cell = summarize_run(folder).cells[0]
    assert [rank.rank for rank in cell.ranks] == [rank for rank in (0, 1) if rank not in ranks]
    for rank in ranks:
        words = [note for note in cell.notes if f"rank {rank} is left out" in note]
        assert any(
            "of process 77, and this rank was process 3619: another rank's, or another launch's" in note
            for note in words
        )
    assert cell.rank_doubts or not cell.ranks


def _of_process(content: bytes, pid: int) -> bytes:
    return gzip.compress(re.sub(rb'"pid":\s*3619\b', f'"pid":{pid}'.encode(), gzip.decompress(content)))
