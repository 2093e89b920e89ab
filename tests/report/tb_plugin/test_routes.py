"""The plugin's routes: what they answer, what they refuse, and that their numbers are the tables'."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
import pytest

import dtbench
from dtbench.base.units import format_fraction, format_ns
from dtbench.base.vocabulary import Cause, Phase
from dtbench.comparison.run import compare_paths
from dtbench.report.page.brief.run import doubt_facts, run_brief
from dtbench.report.tb_plugin.plugin import BoardPlugin
from dtbench.report.tb_plugin.run_list import MOST_LISTED, RunList
from dtbench.report.tb_plugin.runs import LogDirectory
from dtbench.report.words import sentences
from dtbench.report.words.doubts import NO_FINDING
from dtbench.runs.run import summarize_run
from dtbench.store.journal import JournalWriter, RankState, StepTiming
from dtbench.store.layout import FOLDER_VARIABLE, LaunchFolder, RunFolder
from dtbench.store.write import write_table
from tests.put_trace import put_trace

if TYPE_CHECKING:
    from tests.report.tb_plugin.conftest import AddRun, Board

OpenBoard = Callable[[Path | str], "Board"]

RUN = "quickstart/20260101T120000-aaaa"
"""The run of the fixture ``logdir``."""

TRACE = Path(__file__).parents[2] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
DDP = {"run": RUN, "cell": "ddp", "launch": 0}
FSDP = {"run": RUN, "cell": "fsdp2_tp", "launch": 0}


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record of a run in place."""
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def collectives_of(logdir: Path, cell: str) -> pd.DataFrame:
    return dtbench.load_run(logdir / RUN).collectives.query("cell == @cell").reset_index(drop=True)


def words_of(said: dict[str, Any], name: str) -> list[str]:
    """Return a column of the table of collectives."""
    at = [column["key"] for column in said["columns"]].index(name)
    return [row["words"][at] for row in said["rows"]]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_every_run_below_the_log_directory_is_listed_newest_first(
    logdir: Path, open_board: OpenBoard, add_run: "AddRun"
) -> None:
    add_run(logdir, "quickstart/20260301T120000-cccc")
    add_run(logdir, "other/20260201T120000-bbbb")
    said = open_board(logdir).ask("runs")
    assert [run["run_id"] for run in said["runs"]] == ["20260301T120000-cccc", "20260201T120000-bbbb", RUN[11:]]
    assert said["runs"][0]["cells"] == [{"name": "ddp", "launches": [0]}, {"name": "fsdp2_tp", "launches": [0]}]
    assert said["runs"][0]["status"] == "complete"
    assert said["latest"] == "quickstart/20260301T120000-cccc"


def test_the_latest_run_is_the_one_that_began_last_and_can_be_read(
    logdir: Path, open_board: OpenBoard, add_run: "AddRun"
) -> None:
    later = add_run(logdir, "copy/a")
    change_json(later / "run.json", lambda record: record.update(started_unix_ns=record["started_unix_ns"] + 1))
    (add_run(logdir, "copy/z") / "run.json").write_text("{")
    said = open_board(logdir).ask("runs")
    assert said["latest"] == "copy/a"
    assert [run["run"] for run in said["runs"] if run["error"] is None] == ["copy/a", RUN]
    shutil.rmtree(later)
    shutil.rmtree(logdir / "quickstart")
    assert open_board(logdir).ask("runs")["latest"] == "copy/z"


@pytest.mark.parametrize(
    ("inside", "name"), [("quickstart", "20260101T120000-aaaa"), (RUN, "."), ("..", f"logs/{RUN}")]
)
def test_the_log_directory_may_be_a_scenario_a_run_or_a_folder_above(
    logdir: Path, inside: str, name: str, open_board: OpenBoard
) -> None:
    board = open_board(logdir / inside)
    assert [run["run"] for run in board.ask("runs")["runs"]] == [name]
    assert board.ask("overview", run=name)["page"]["aside"] == "20260101T120000-aaaa"
    assert board.plugin.is_active()


def test_where_tensorboard_is_given_the_newest_runs_alone_the_tab_lists_all(
    logdir: Path, tmp_path: Path, open_board: OpenBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "links").mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(logdir))
    assert [run["run_id"] for run in open_board(tmp_path / "links").ask("runs")["runs"]] == [RUN[11:]]


def test_a_run_around_the_log_directory_is_outside_and_the_page_says_what_to_serve(
    logdir: Path, open_board: OpenBoard
) -> None:
    events = logdir / RUN / "tb"
    events.mkdir()
    board = open_board(events)
    assert not board.plugin.is_active()
    assert board.ask("runs")["hint"].endswith(f"`dtbench tensorboard {logdir / RUN}` shows the run.")


@pytest.mark.parametrize("logdir", ["", "gs://bucket/logs", "/nowhere/at/all"])
def test_without_a_folder_on_this_machine_the_plugin_is_there_and_inactive(logdir: str, open_board: OpenBoard) -> None:
    board = open_board(logdir)
    assert not board.plugin.is_active()
    assert board.refuse("runs")[0] == 404


def test_a_broken_run_is_listed_with_its_error_and_others_are_fine(
    logdir: Path, open_board: OpenBoard, add_run: "AddRun"
) -> None:
    cut = add_run(logdir, "quickstart/20260102T120000-cut")
    (cut / "run.json").write_text((cut / "run.json").read_text()[:300])
    odd = add_run(logdir, "quickstart/20260103T120000-odd")
    change_json(odd / "run.json", lambda record: record.update(format_version=99))
    (logdir / "quickstart" / "20260104T120000-none").mkdir()
    (logdir / "quickstart" / "20260104T120000-none" / "scenario.yaml").touch()
    board = open_board(logdir)
    errors = {run["run_id"]: run["error"] for run in board.ask("runs")["runs"]}
    assert errors["20260101T120000-aaaa"] is None
    assert "was it edited or cut short" in errors["20260102T120000-cut"]
    assert "written in format 99" in errors["20260103T120000-odd"]
    assert "the run is incomplete" in errors["20260104T120000-none"]
    assert board.ask("overview", run=RUN)["status"] == "complete"
    status, sentence = board.refuse("overview", run="quickstart/20260102T120000-cut")
    assert status == 500
    assert "This run cannot be read." in sentence


def test_a_broken_table_is_refused_with_its_file(logdir: Path, open_board: OpenBoard) -> None:
    (logdir / RUN / "cells/ddp/launch0/collectives.parquet").write_bytes(b"no parquet")
    status, sentence = open_board(logdir).refuse("collectives", **DDP)
    assert status == 500
    assert "collectives.parquet: not a readable table" in sentence


def test_a_damaged_file_that_nobody_foresaw_is_a_sentence_too(board: "Board", monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("as if")

    monkeypatch.setattr("dtbench.report.tb_plugin.overview.make_overview", fail)
    assert board.refuse("overview", run=RUN) == (
        500,
        "dtbench could not answer this: ZeroDivisionError: as if. The server's log says more.",
    )


def test_a_thousand_runs_are_listed_from_what_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add_run: "AddRun"
) -> None:
    record = json.loads((add_run(tmp_path, RUN) / "run.json").read_text())
    for number in range(1000):
        folder = tmp_path / f"scenario{number % 10}" / f"20260101T120000-{number:04d}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({**record, "run_id": folder.name}))
    runs = RunList(LogDirectory(tmp_path.resolve()))
    first = runs.make_document()
    assert (len(first.runs), first.count) == (MOST_LISTED, 1001)
    assert len(msgspec.json.encode(first)) < 400 * MOST_LISTED
    oldest = "scenario0/20260101T120000-0000"
    assert oldest not in {run.run for run in first.runs}
    assert oldest in {run.run for run in runs.make_document(shown=oldest).runs}, "the one that the page shows"
    found = runs.make_document("-0000")
    assert ([run.run for run in found.runs], found.count, found.latest) == ([oldest], 1, first.latest)
    read: list[Path] = []
    read_bytes = Path.read_bytes

    def note(path: Path) -> bytes:
        read.append(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", note)
    changed = tmp_path / "scenario3" / "20260101T120000-0013" / "run.json"
    change_json(changed, lambda record: record.update(status="failed", reason="why"))
    started = time.process_time()
    said = runs.make_document("failed")
    assert time.process_time() - started < 1
    assert read == [changed]
    assert [run.run_id for run in said.runs if run.status == "failed"] == ["20260101T120000-0013"]


# --- nothing outside --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("../secret", 403),
        ("quickstart/../../secret", 403),
        ("/etc", 403),
        ("link", 403),
        ("quickstart", 404),
        ("quickstart/none", 404),
        ("..\\secret", 404),
        ("a\0b", 404),
    ],
)
@pytest.mark.parametrize("route", ["overview", "progress", "overlap", "collectives", "collective", "timeline"])
def test_what_leads_out_of_the_log_directory_is_refused(
    logdir: Path, route: str, name: str, status: int, open_board: OpenBoard, add_run: "AddRun"
) -> None:
    add_run(logdir.parent, "secret")
    (logdir / "link").symlink_to(logdir.parent / "secret")
    assert open_board(logdir).refuse(route, run=name, cell="ddp", launch=0, row=0)[0] == status


def test_a_comparison_does_not_lead_out_either(logdir: Path, open_board: OpenBoard, add_run: "AddRun") -> None:
    add_run(logdir.parent, "secret")
    board, inside = open_board(logdir), json.dumps([RUN, "ddp"])
    assert board.refuse("compare", baseline=inside, candidate=json.dumps(["../secret", "ddp"]))[0] == 403
    assert board.refuse("compare", baseline=inside, candidate=json.dumps([RUN, "../../x"]))[0] == 404
    assert board.refuse("compare", baseline=inside, candidate="../secret")[0] == 400


@pytest.mark.parametrize(
    "linked", ["cells/ddp/launch0", "cells/ddp", "cells/ddp/launch0/collectives.parquet", "run.json"]
)
def test_a_link_inside_a_run_that_leads_out_is_not_followed(logdir: Path, linked: str, open_board: OpenBoard) -> None:
    outside = logdir.parent / "outside"
    (logdir / RUN / linked).rename(outside)
    (logdir / RUN / linked).symlink_to(outside)
    status, sentence = open_board(logdir).refuse("overview", run=RUN)
    assert status == 403
    assert "leads out of the log directory" in sentence


def test_links_that_stay_inside_are_followed(logdir: Path, open_board: OpenBoard) -> None:
    (logdir / "latest").symlink_to(logdir / RUN)
    assert open_board(logdir).ask("overview", run="latest")["page"]["aside"] == "20260101T120000-aaaa"


def test_a_cell_that_is_called_by_a_path_is_refused(logdir: Path, open_board: OpenBoard) -> None:
    shutil.copytree(logdir / RUN / "cells" / "ddp", logdir.parent / "ddp")
    change_json(logdir / RUN / "run.json", lambda record: record["cells"][0].update(name="../../../../ddp"))
    status, sentence = open_board(logdir).refuse("overview", run=RUN)
    assert status == 500
    assert "is no name of a cell's folder" in sentence


def test_a_folder_of_somebody_else_does_not_hide_the_runs_beside_it(
    logdir: Path, open_board: OpenBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logdir / "lost+found").mkdir()
    real = Path.is_file

    def is_file(path: Path) -> bool:
        if "lost+found" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    board = open_board(logdir)
    assert board.plugin.is_active()
    assert [run["run"] for run in board.ask("runs")["runs"]] == [RUN]
    assert board.refuse("overview", run="lost+found") == (404, "The run cannot be looked for: Permission denied.")


def test_a_number_or_a_name_of_thousands_of_characters_is_refused(board: "Board") -> None:
    assert board.refuse("overlap", **{**DDP, "launch": "9" * 5000})[0] == 400
    assert board.refuse("overview", run="x" * 300) == (404, "The run cannot be looked for: File name too long.")


@pytest.mark.parametrize("logdir", ["x" * 5000, "a\0b", "~nobody-of-this-name/x"])
def test_a_log_directory_that_no_folder_can_be_is_none(open_board: OpenBoard, logdir: str) -> None:
    assert not open_board(logdir).plugin.is_active()


@pytest.mark.parametrize("name", ["plugin.py", "..%2Fplugin.py", "none.js", "timeline.html"])
def test_only_the_pages_own_files_are_served(board: "Board", name: str) -> None:
    assert board.get("static/index.js").mimetype == "text/javascript"
    assert board.get("static/board.css").mimetype == "text/css"
    assert board.get("static/look.css").mimetype == "text/css"
    assert board.get("static/timeline.js").mimetype == "text/javascript"
    assert board.get(f"static/{name}").status_code == 404


@pytest.mark.parametrize(
    ("route", "words", "sentence"),
    [
        ("overview", {}, "The request lacks `run`."),
        ("collectives", {"run": RUN, "cell": "ddp"}, "The request lacks `launch`."),
        ("collectives", {**DDP, "launch": "x"}, "`launch=x` is no number."),
        ("collectives", {**DDP, "launch": 7}, "The cell `ddp` has no launch 7; there are 0."),
        ("collectives", {**DDP, "cell": "none"}, "The run has no cell `none`."),
        ("collectives", {**DDP, "sort": "__class__"}, "`sort=__class__` is no column; "),
        ("collective", {**DDP, "row": 10**9}, "There is no collective 1000000000; the launch has "),
        ("overlap", {**DDP, "by": "color"}, "`by=color` is not one of rank, step, purpose, owner."),
        ("overlap", {**DDP, "launch": "-1"}, "`launch=-1` is neither `all` nor a number."),
        ("timeline", DDP, "no trace is there (deleted, or none was written)"),
    ],
)
def test_a_request_that_makes_no_sense_gets_a_sentence(
    board: "Board", route: str, words: dict[str, Any], sentence: str
) -> None:
    assert sentence in board.refuse(route, **words)[1]


# --- numbers ----------------------------------------------------------------------------------------------------------


def cards_of(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the blocks of each cell by their names, of what the overview says."""
    cells = [part for part in said["page"]["parts"] if part["key"].startswith("cell:")]
    return {part["title"]: {block["key"]: block for block in part["blocks"]} for part in cells}


def test_the_overview_says_what_the_report_says(board: "Board", logdir: Path) -> None:
    summary = summarize_run(logdir / RUN)
    said = board.ask("overview", run=RUN)
    cards = cards_of(said)
    assert list(cards) == ["ddp", "fsdp2_tp"]
    for cell in summary.cells:
        card = cards[cell.name]
        (answer,) = (fact["words"] for fact in card["lead"]["facts"] if fact["label"] == "exposed")
        assert answer == sentences.answer_sentence(cell)
        tiles = {tile["label"]: tile["words"] for tile in card["tiles"]["tiles"]}
        assert tiles["step time"] == format_ns(cell.step_time.median)
        assert tiles["throughput"] == sentences.throughput_words(cell)
        assert tiles["exposed share"] == format_fraction(cell.exposed_step_fraction)
        assert tiles["hidden share"] == format_fraction(cell.hidden_fraction)
        bars = card["breakdown"]["bars"]
        assert [bar["label"] for bar in bars] == [f"rank {row.rank}" for row in cell.ranks]
        assert [sum(bar["lengths_ns"]) for bar in bars] == [row.step_ns for row in cell.ranks]
        assert [bar["below_ns"] for bar in bars] == [row.hidden_comm_ns for row in cell.ranks]


def test_the_overview_leads_with_the_short_answer_its_checks_and_every_doubt(board: "Board", logdir: Path) -> None:
    summary = summarize_run(logdir / RUN)
    page = board.ask("overview", run=RUN)["page"]
    assert [line["words"] for line in page["answer"]] == [line.words for line in run_brief(summary).answer]
    assert [part["key"] for part in page["parts"]] == [
        "brief",
        "checks",
        "doubts",
        "cells",
        "cell:ddp",
        "cell:fsdp2_tp",
    ]
    told = {line["words"] for line in page["answer"]}
    checks = page["parts"][1]["blocks"]
    assert not told & {line["words"] for block in checks if block["kind"] == "prose" for line in block["lines"]}
    assert any(block["kind"] == "table" for block in checks)
    (doubts,) = page["parts"][2]["blocks"]
    assert [fact["words"] for fact in doubts["facts"]] == [fact.words for fact in doubt_facts(summary)]
    assert len(doubts["facts"]) > 3  # which the terminal's screen cuts
    assert not any("--full" in fact["words"] for fact in doubts["facts"])


def test_overlap_by_rank_and_purpose_is_the_overviews(board: "Board", logdir: Path) -> None:
    for cell in summarize_run(logdir / RUN).cells:
        by_rank = board.ask("overlap", run=RUN, cell=cell.name, launch="all", by="rank")
        assert [bar["lengths_ns"][1] for bar in by_rank["chart"]["bars"]] == [r.exposed_comm_ns for r in cell.ranks]
        by_purpose = board.ask("overlap", run=RUN, cell=cell.name, launch="all", by="purpose")
        bars = {bar["label"]: bar["lengths_ns"] for bar in by_purpose["chart"]["bars"]}
        assert bars == {row.purpose.value: [row.exposed_ns, row.hidden_ns] for row in cell.purposes}


def test_overlap_by_step_and_owner_is_the_tables(board: "Board", logdir: Path) -> None:
    table = dtbench.load_run(logdir / RUN).overlap.query("cell == 'fsdp2_tp' and rank == 1")
    by_step = board.ask("overlap", **FSDP, by="step", rank=1)
    assert [bar["label"] for bar in by_step["chart"]["bars"]] == [f"step {step}" for step in table["step"]]
    assert [bar["lengths_ns"][0] for bar in by_step["chart"]["bars"]] == table["compute_ns"].tolist()
    assert by_step["ranks"] == [0, 1, 2, 3]
    step = int(table["step"].iloc[0])
    one = board.ask("overlap", **FSDP, by="rank", rank=1, step=step)
    assert [sum(bar["lengths_ns"]) for bar in one["chart"]["bars"]] == [int(table["step_ns"].iloc[0])]
    assert one["sentence"].startswith("1 profiled step of one rank; exposed ")


def test_collectives_are_sorted_filtered_and_paged(board: "Board", logdir: Path) -> None:
    table = collectives_of(logdir, "fsdp2_tp")
    table = table[table["step"].notna()]
    longest = (table["end_ns"] - table["start_ns"]).sort_values(ascending=False, kind="stable").index
    page = board.ask("collectives", **FSDP, sort="duration_ns", offset=100)
    assert page["total"] == len(table)
    assert [row["row"] for row in page["rows"]] == longest[100:200].tolist()
    columns = [column["key"] for column in page["columns"]]
    first = dict(zip(columns, page["rows"][0]["words"], strict=True))
    same = table.loc[longest[100]]
    assert first["duration_ns"] == format_ns(same["end_ns"] - same["start_ns"])
    assert first["exposed_ns"] == format_ns(same["exposed_ns"])
    shortest = board.ask("collectives", **FSDP, sort="duration_ns", order="ascending")
    assert shortest["rows"][0]["row"] == longest[-1]
    some = board.ask("collectives", **FSDP, purpose="unshard", rank=2, text="LAYERS.1")
    kept = table[(table["purpose"] == "unshard") & (table["rank"] == 2) & table["owner"].str.contains("layers.1")]
    assert some["total"] == len(kept) > 0
    assert "unshard" in page["choices"]["purpose"]
    assert page["choices"]["rank"] == ["0", "1", "2", "3"]


def test_nothing_left_by_the_filters_is_an_empty_page(board: "Board") -> None:
    for grouped in ("", "owner"):
        said = board.ask("collectives", **DDP, text="no such owner", grouped=grouped)
        assert (said["total"], said["rows"]) == (0, [])


def test_collectives_by_owner_are_sums_of_the_table(board: "Board", logdir: Path) -> None:
    table = collectives_of(logdir, "fsdp2_tp")
    table = table[table["step"].notna()]
    sums = table.groupby(["owner", "operation", "purpose"])["exposed_ns"].agg(["sum", "size"])
    said = board.ask("collectives", **FSDP, grouped="owner")
    assert said["total"] == len(sums)
    columns = [column["key"] for column in said["columns"]]
    first = dict(zip(columns, said["rows"][0]["words"], strict=True))
    assert first["exposed_ns"] == format_ns(sums["sum"].max())
    assert first["count"] == str(sums.sort_values("sum")["size"].iloc[-1])
    owner = said["rows"][0]["owner"]
    assert board.ask("collectives", **FSDP, owner=owner)["total"] == int((table["owner"] == owner).sum())


@pytest.mark.parametrize("grouped", ["", "owner"])
def test_collectives_of_no_profiled_step_are_counted_only_where_they_are_asked_for(
    logdir: Path, open_board: OpenBoard, grouped: str
) -> None:
    launch = LaunchFolder(logdir / RUN / "cells/ddp/launch0")
    table = pd.read_parquet(launch.derived_table("collectives"))
    table = table[table["step"].notna()].reset_index(drop=True)
    first = table["step"] == table["step"].min()
    table["step"] = table["step"].astype("Int64").mask(first)
    table.to_parquet(launch.derived_table("collectives"))
    board = open_board(logdir)
    inside, outside = (format_ns(table["exposed_ns"][rows].sum()) for rows in (~first, first))
    said = board.ask("collectives", **DDP, grouped=grouped)
    aside = f"{int(first.sum())} more are of no profiled step, choose step (none) to see them"
    assert said["sentence"].endswith(f"; {inside} exposed of {inside} over all ranks and steps; {aside}")
    assert said["choices"]["step"][-1] == "(none)"
    said = board.ask("collectives", **DDP, grouped=grouped, step="(none)")
    assert said["sentence"].endswith(f"; {outside} exposed of {outside} outside the profiled steps, over all ranks")


def test_a_collective_names_its_owner_and_every_ranks_times(logdir: Path, open_board: OpenBoard) -> None:
    launch = LaunchFolder(logdir / RUN / "cells/ddp/launch0")
    table = pd.read_parquet(launch.derived_table("collectives"))
    row = int(table[table["owner"].str.startswith("bucket")].index[-1])
    exposed = {"exposed_ns": 5_000_000, "exposed_skew_ns": 3_000_000, "exposed_tail_ns": 2_000_000}
    for name, number in {**exposed, "skew_wait_ns": 3_000_000, "last_rank": 0}.items():
        table[name] = [number if place == row else 0 for place in range(len(table))]
    for name, word in {"cause": "skew", "parameters": "layers.0.weight, layers.0.bias"}.items():
        table[name] = [word if place == row else "" for place in range(len(table))]
    table["transfer_ns"] = table["end_ns"] - table["start_ns"] - table["skew_wait_ns"]
    table.to_parquet(launch.derived_table("collectives"))
    said = open_board(logdir).ask("collective", **DDP, row=row)
    one: dict[str, Any] = dict(table.loc[row])
    assert said["owner"] == one["owner"]
    assert said["title"] == f"{one['owner']}'s all-reduce"
    assert said["parameters"] == ["layers.0.weight", "layers.0.bias"]
    assert {fact["label"]: fact["words"] for fact in said["facts"]}["cause"] == "waited for rank 0"
    assert [rank[0] for rank in said["ranks"]["rows"]] == ["0", "1"]
    of_rank = dict(
        zip((column["title"] for column in said["ranks"]["columns"]), said["ranks"]["rows"][one["rank"]], strict=True)
    )
    assert of_rank["time"] == format_ns(one["end_ns"] - one["start_ns"])
    assert (of_rank["exposed"], of_rank["cause"]) == (format_ns(one["exposed_ns"]), "waited for rank 0")
    assert said["ranks"]["notes"] == ["Rank 0 began last."]
    (bar,) = (bar for bar in said["chart"]["bars"] if bar["label"] == f"rank {one['rank']}")
    parts = [part["key"] for part in said["chart"]["parts"]]
    assert dict(zip(parts, bar["lengths_ns"], strict=True))["tail"] == 2_000_000
    assert said["index"] == int((table["rank"][:row] == one["rank"]).sum())


def test_two_groups_of_one_name_are_not_taken_for_one_collective(logdir: Path, open_board: OpenBoard) -> None:
    launch = LaunchFolder(logdir / RUN / "cells/fsdp2_tp/launch0")
    table = pd.read_parquet(launch.derived_table("collectives"))
    table["group"] = "1"
    table["seq"] = 7
    table["group_size"] = 2
    table.to_parquet(launch.derived_table("collectives"))
    said = open_board(logdir).ask("collective", **FSDP, row=0)
    assert len(said["ranks"]["rows"]) == 1
    assert "Several groups have this name" in " ".join(said["ranks"]["notes"])


def test_a_comparison_leads_with_its_sentence(logdir: Path, open_board: OpenBoard, add_run: "AddRun") -> None:
    after_run = "quickstart/20260301T120000-cccc"
    add_run(logdir, after_run)
    board = open_board(logdir)
    before, after = (json.dumps([name, "ddp"]) for name in (RUN, after_run))
    said = board.ask("compare", baseline=before, candidate=after)
    sentence = compare_paths(
        *(str(logdir / name / "cells" / "ddp") for name in (RUN, after_run)), results=logdir
    ).sentence
    lines = [line["words"] for line in said["page"]["answer"]]
    assert "; ".join(lines).startswith(sentence)
    assert [part["key"] for part in said["page"]["parts"]][:2] == ["sides", "metrics"]
    assert said["picture"].startswith("<svg")
    status, sentence = board.refuse("compare", baseline=before, candidate=before)
    assert status == 409
    assert "not compared with itself" in sentence


def test_unlike_environments_are_compared_only_when_a_person_insists(
    logdir: Path, open_board: OpenBoard, add_run: "AddRun"
) -> None:
    other = add_run(logdir, "quickstart/20260301T120000-cccc")
    for path in (other / "env.json", *other.glob("cells/*/launch*/ranks/env.json")):
        change_json(path, lambda record: record.update(torch="9.9.9"))
    board = open_board(logdir)
    sides = {"baseline": json.dumps([RUN, "ddp"]), "candidate": json.dumps(["quickstart/20260301T120000-cccc", "ddp"])}
    status, sentence = board.refuse("compare", **sides)
    assert status == 409
    assert "9.9.9" in sentence
    assert board.ask("compare", **sides, force="yes")["page"]["answer"][0]["words"]


def test_numbers_that_nobody_knows_are_words_not_zeros(logdir: Path, open_board: OpenBoard) -> None:
    launch = LaunchFolder(logdir / RUN / "cells/ddp/launch0")
    table = pd.read_parquet(launch.derived_table("collectives"))
    table["end_ns"] = pd.array([pd.NA] * len(table), dtype="Int64")
    table.to_parquet(launch.derived_table("collectives"))
    said = open_board(logdir).ask("collectives", **DDP)
    at = [column["key"] for column in said["columns"]].index("duration_ns")
    assert {row["words"][at] for row in said["rows"]} == {"n/a"}
    assert math.isnan(summarize_run(logdir / RUN).cells[0].model_flops_utilization)


# --- while a run goes on ----------------------------------------------------------------------------------------------


def test_what_has_not_changed_is_not_sent_again(board: "Board", logdir: Path) -> None:
    first = json.loads(board.get("overview", run=RUN).data)
    again = json.loads(board.get("overview", run=RUN, known=first["state"]).data)
    assert again == {"state": first["state"], "document": None}
    change_json(logdir / RUN / "run.json", lambda record: record.update(question="Is it new?"))
    assert (
        json.loads(board.get("overview", run=RUN, known=first["state"]).data)["document"]["page"]["question"]
        == "Is it new?"
    )


def begin_launch(folder: LaunchFolder, *, beat_unix_ns: int) -> None:
    """Let rank 0 of a launch be in its second MEASURED step, and rank 1 not yet there."""
    with JournalWriter(folder.journal(0), rank=0, pid=1, capacity=10) as journal:
        journal.begin(beat_unix_ns)
        journal.finish_step(StepTiming(step=8, phase=Phase.MEASURED, start_ns=0, duration_ns=5_000_000, cpu_ns=1))
        journal.enter_step(Phase.MEASURED, 9, beat_unix_ns)
        journal.set_state(RankState.STEPPING, beat_unix_ns)


def unfinish(run: Path) -> LaunchFolder:
    """Let a run be in the launch of its second cell."""
    change_json(run / "run.json", lambda record: record.update(status="running", ended_unix_ns=None))
    launch = RunFolder(run).launch("fsdp2_tp", 0)
    shutil.rmtree(launch.path)
    launch.path.mkdir()
    return launch


def test_a_run_in_progress_shows_where_it_is_and_the_launches_that_have_ended(board: "Board", logdir: Path) -> None:
    launch = unfinish(logdir / RUN)
    begin_launch(launch, beat_unix_ns=time.time_ns())
    assert board.ask("runs")["runs"][0]["status"] == "running"
    said = board.ask("progress", run=RUN)
    assert not said["is_over"]
    assert said["sentence"] == "1 of 2 launches have ended; fsdp2_tp, launch 0: its ranks are at work."
    words = [rank["words"] for rank in said["ranks"]]
    assert words == ["MEASURED 1 of 8 steps, last 5.00 ms", "starting", "starting", "starting"]
    cards = cards_of(board.ask("overview", run=RUN))
    assert "breakdown" in cards["ddp"]
    assert "breakdown" not in cards["fsdp2_tp"]
    assert cards["fsdp2_tp"]["problem"]["lines"][0]["words"].startswith("This cell is not finished")


def test_a_run_whose_ranks_are_silent_was_probably_stopped(board: "Board", logdir: Path) -> None:
    begin_launch(unfinish(logdir / RUN), beat_unix_ns=time.time_ns() - 3_600_000_000_000)
    assert "no sign of life for 3600 s, it was probably stopped" in board.ask("progress", run=RUN)["sentence"]


def test_a_finished_run_has_no_progress(board: "Board") -> None:
    said = board.ask("progress", run=RUN)
    assert (said["is_over"], said["launches_ended"], said["launches"]) == (True, 2, 2)


def test_traces_that_are_being_written_are_waited_for(board: "Board", logdir: Path) -> None:
    launch = unfinish(logdir / RUN)
    begin_launch(launch, beat_unix_ns=time.time_ns())
    launch.traces.mkdir()
    shutil.copy(TRACE, launch.trace(0, 1))
    status, sentence = board.refuse("overview", run=RUN)
    assert (status, sentence) == (503, "fsdp2_tp, launch0: its ranks are writing their traces.")
    assert not launch.overlap.exists()


def test_the_tables_of_a_launch_that_has_ended_are_made_beside_the_server(board: "Board", logdir: Path) -> None:
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    for table in launch.path.glob("*.parquet"):
        if table != launch.steps:
            table.unlink()
    put_trace(TRACE.name, launch)
    said = board.ask("overview", run=RUN)
    assert launch.overlap.exists()
    assert [bar["label"] for bar in cards_of(said)["ddp"]["breakdown"]["bars"]] == ["rank 0"]
    drawn = board.ask("timeline", **DDP)
    assert [rank["rank"] for rank in drawn["ranks"]] == [0]
    step = drawn["steps"][0]
    assert board.ask("timeline", **DDP, step=step)["shown_steps"] == [step]
    assert board.refuse("timeline", **DDP, step=999_999)[0] == 410


# --- what is not known -----------------------------------------------------------------------------------------------


def forget(folder: LaunchFolder, table: str, *columns: str, steps: int = 0) -> None:
    """Make columns of a launch's table unknown, but of its first so many steps."""
    frame = pd.read_parquet(folder.derived_table(table))
    attrs, kept = dict(frame.attrs), sorted(frame["step"].dropna().unique())[:steps]
    for column in (one for one in columns if one in frame):  # older versions know fewer causes
        frame[column] = frame[column].astype("Int64").where(frame["step"].isin(kept))
    frame.attrs = attrs
    write_table(folder.derived_table(table), frame)


OF_STEP = ("compute_ns", "comm_ns", "hidden_comm_ns", "exposed_comm_ns", "idle_ns")
BY_CAUSE = tuple(f"exposed_{cause}_ns" for cause in Cause)


def test_bars_are_means_of_the_steps_whose_account_is_known_and_the_others_are_counted(
    logdir: Path, open_board: OpenBoard
) -> None:
    whole = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"}, by="purpose", step=16)
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    forget(launch, "overlap", *OF_STEP, steps=1)
    forget(launch, "purposes", "hidden_ns", "exposed_ns", steps=1)
    board = open_board(logdir)
    for by in ("purpose", "owner"):
        of_first, said = (
            board.ask("overlap", **{**DDP, "launch": "all"}, by=by, **step) for step in ({"step": 16}, {})
        )
        assert said["chart"] == of_first["chart"]
        assert said["sentence"].endswith("; 4 more are left out: where their time went is not known")
        if by == "purpose":
            assert said["chart"] == whole["chart"]
        assert all(length >= 0 for bar in said["chart"]["bars"] for length in bar["lengths_ns"])


def keep_rows(launch: LaunchFolder, table: str, *, rank: int) -> None:
    """Take the rows of all other ranks out of a table."""
    frame = pd.read_parquet(launch.derived_table(table))
    kept = frame[frame["rank"] == rank]
    kept.attrs = frame.attrs
    write_table(launch.derived_table(table), kept)


def test_a_rank_of_which_no_purpose_is_told_is_no_zero_in_the_mean(logdir: Path, open_board: OpenBoard) -> None:
    keep_rows(RunFolder(logdir / RUN).launch("ddp", 0), "purposes", rank=0)
    (row,) = summarize_run(logdir / RUN).cells[0].purposes
    chart = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"}, by="purpose")["chart"]
    assert chart["bars"][0]["lengths_ns"] == [row.exposed_ns, row.hidden_ns]
    assert chart["table"]["rows"][0][1:3] == ["4", "19.3 MiB"]
    assert "* of rank 0 alone, of 2: not known of the others" in chart["note"]
    assert "purposes of communication are not known in 3 of 6 rank steps" in chart["note"]


def test_a_rank_without_an_account_is_missed_and_can_be_chosen(logdir: Path, open_board: OpenBoard) -> None:
    keep_rows(RunFolder(logdir / RUN).launch("ddp", 0), "overlap", rank=0)
    board = open_board(logdir)
    said = board.ask("overlap", **{**DDP, "launch": "all"})
    assert said["ranks"] == [0, 1]
    assert said["sentence"] == (
        "3 profiled steps, of rank 0 alone, of 2; exposed 19.8 % of their time; 3 more are left out: where their time "
        "went is not known; not judged: launch0: rank 1 is in no derived table"
    )
    lost = board.ask("overlap", **{**DDP, "launch": "all"}, rank=1)
    assert lost["sentence"].startswith("Nothing to show: where the time went is not known of 3 profiled steps")


def test_bars_of_owners_of_which_a_part_is_known_say_which(logdir: Path, open_board: OpenBoard) -> None:
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    frame = pd.read_parquet(launch.derived_table("collectives"))
    is_lost = (frame["owner"] == "bucket 3") & (frame["rank"] == 0)
    frame["exposed_ns"] = frame["exposed_ns"].astype("Int64").mask(is_lost)
    write_table(launch.derived_table("collectives"), frame)
    chart = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"}, by="owner")["chart"]
    first, second, *_ = chart["table"]["rows"]
    assert (first[0], first[4], second[4]) == ("bucket 3", "60.07*", "7.63")
    assert chart["bars"][0]["end"] == "60.1 ms*"
    assert "* of rank 1 alone, of 2: not known of the others" in chart["note"]


def test_bars_of_which_something_launched_was_not_seen_are_bounds(logdir: Path, open_board: OpenBoard) -> None:
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    frame = pd.read_parquet(launch.derived_table("overlap"))
    frame.attrs["unseen_collectives"] = 3
    write_table(launch.derived_table("overlap"), frame)
    board = open_board(logdir)
    lost = "3 collectives were launched and not seen to run"
    for by in ("rank", "step", "purpose", "owner"):
        said = board.ask("overlap", **{**DDP, "launch": "all"}, by=by)
        assert "; exposed at least 17.0 % of their time; " in said["sentence"]
        assert said["chart"]["note"].startswith(f"{lost}: communication, and what of it was exposed")
        if by != "owner":
            assert all("hidden n/a" in bar["end"] for bar in said["chart"]["bars"])
    purpose = board.ask("overlap", **{**DDP, "launch": "all"}, by="purpose")["chart"]
    assert purpose["table"]["rows"][0][-2:] == ["at least 74.9", "n/a"]


@pytest.mark.parametrize("by", ["rank", "owner"])
def test_bars_of_steps_that_stand_for_no_others_say_so(by: str, logdir: Path, open_board: OpenBoard) -> None:
    steps = RunFolder(logdir / RUN).launch("ddp", 0).steps
    frame = pd.read_parquet(steps)
    longer = frame["duration_ns"].where(frame["phase"] != "PROFILED", 2 * frame["duration_ns"])
    write_table(steps, frame.assign(duration_ns=longer))
    said = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"}, by=by)
    assert said["sentence"].endswith("; NOT REPRESENTATIVE: PROFILED steps took 2.14 x as long as MEASURED ones")
    assert (NO_FINDING in said["chart"]["note"]) is (by == "owner")


def test_where_no_account_is_known_the_tab_says_so_and_not_that_nothing_was_profiled(
    logdir: Path, open_board: OpenBoard
) -> None:
    forget(RunFolder(logdir / RUN).launch("ddp", 0), "overlap", *OF_STEP)
    said = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"})
    assert said["sentence"] == (
        "Nothing to show: where the time went is not known of 6 profiled steps, all ranks' together."
    )
    assert said["chart"] is None


def test_a_purpose_of_which_only_a_part_is_known_has_no_bar(logdir: Path, open_board: OpenBoard) -> None:
    forget(RunFolder(logdir / RUN).launch("ddp", 0), "purposes", "hidden_ns")
    said = open_board(logdir).ask("overlap", **{**DDP, "launch": "all"}, by="purpose")
    assert said["chart"]["bars"] == []
    assert said["chart"]["table"]["rows"][0][3:6] == ["208.4", "n/a", "83.1"]


def test_exposed_time_of_collectives_that_is_not_known_is_no_zero_no_cause_and_no_advice(
    logdir: Path, open_board: OpenBoard
) -> None:
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    forget(launch, "collectives", "exposed_ns", "hidden_ns", *BY_CAUSE)
    board = open_board(logdir)
    alone, grouped = (board.ask("collectives", **DDP, grouped=grouped) for grouped in ("", "owner"))
    assert "how much of it was exposed is not known" in alone["sentence"]
    assert grouped["sentence"].removeprefix("4 owners' ") == alone["sentence"].removeprefix("24 ")
    for said in (alone, grouped):
        for name in ("exposed_ns", "hidden_ns"):
            assert set(words_of(said, name)) == {"n/a"}
    details = board.ask("collective", **DDP, row=4)
    assert {"label": "cause", "words": "n/a: what of it was exposed is not known", "tone": "plain"} in details["facts"]
    assert (details["chart"], details["advice"]) == (None, "")
    said = board.ask("overlap", **{**DDP, "launch": "all"}, by="owner")
    assert (said["chart"]["bars"], said["chart"]["note"]) == ([], "Whose the exposed time is, and why, is not known.")


def test_sums_of_which_a_part_is_not_known_are_at_least_the_rest(logdir: Path, open_board: OpenBoard) -> None:
    forget(RunFolder(logdir / RUN).launch("ddp", 0), "collectives", "exposed_ns", "hidden_ns", *BY_CAUSE, steps=1)
    said = open_board(logdir).ask("collectives", **DDP, grouped="owner")
    assert "at least 175 ms exposed of at least 175 ms (not known of 16 of 24 collectives)" in said["sentence"]
    assert words_of(said, "exposed_ns")[0] == "at least 139 ms"


def test_where_causes_are_no_findings_a_collective_gets_no_advice(logdir: Path, open_board: OpenBoard) -> None:
    assert open_board(logdir).ask("collective", **DDP, row=4)["advice"]
    launch = RunFolder(logdir / RUN).launch("ddp", 0)
    steps = pd.read_parquet(launch.steps)
    shorter = steps["duration_ns"].where(steps["phase"] != Phase.MEASURED, steps["duration_ns"] // 4)
    write_table(launch.steps, steps.assign(duration_ns=shorter))
    board = open_board(logdir)
    lead = cards_of(board.ask("overview", run=RUN))["ddp"]["lead"]
    assert any("NOT REPRESENTATIVE" in fact["words"] for fact in lead["facts"])
    assert board.ask("collective", **DDP, row=4)["advice"] == ""


# --- how it is found --------------------------------------------------------------------------------------------------


def test_the_entry_point_names_the_plugin() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name, value) = next(iter(project["entry-points"]["tensorboard_plugins"].items()))
    assert name == BoardPlugin.plugin_name
    assert EntryPoint(name, value, "tensorboard_plugins").load() is BoardPlugin


def test_tensorboard_starts_without_paying_for_what_a_tab_needs() -> None:
    script = (
        "import sys; from types import SimpleNamespace; from dtbench.report.tb_plugin.plugin import BoardPlugin\n"
        "plugin = BoardPlugin(SimpleNamespace(logdir='.')); plugin.get_plugin_apps(); plugin.is_active()\n"
        "heavy = {'torch', 'pandas', 'numpy', 'pyarrow', 'matplotlib', 'scipy', 'pydantic', 'rich'}\n"
        "loaded = heavy & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", script], check=True, timeout=120, env=os.environ
    )
