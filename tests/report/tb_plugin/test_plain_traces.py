"""A log directory of traces that no run wrote: every tab says what ``dtbench analyze`` says of them."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dtbench
from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.trace_page import traces_page

if TYPE_CHECKING:
    from tests.report.tb_plugin.conftest import AddRun, Board

OpenBoard = Callable[[Path | str], "Board"]

RECORDED = Path(__file__).parents[2] / "traces" / "recorded"
PIPELINE = RECORDED / "pipelines" / "1f1b"
DDP = RECORDED / "ddp_2ranks_rank0.json.gz"
ONE = {"run": ".", "cell": "traces", "launch": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The traces of both ranks of a job, and nothing else."""
    return Path(shutil.copytree(PIPELINE, tmp_path / "job"))


def test_traces_are_listed_as_a_run_of_one_cell_where_there_is_no_run(
    folder: Path, add_run: "AddRun", open_board: OpenBoard
) -> None:
    board = open_board(folder)
    said = board.ask("runs")
    assert [(run["run"], run["scenario"], run["error"]) for run in said["runs"]] == [(".", "job", None)]
    assert (said["latest"], said["hint"]) == (".", None)
    assert board.plugin.is_active()
    add_run(folder.parent, "quickstart/20260101T120000-aaaa")
    assert [run["scenario"] for run in open_board(folder.parent).ask("runs")["runs"]] == ["quickstart"]


def test_files_of_other_programs_make_no_tab(tmp_path: Path, open_board: OpenBoard) -> None:
    (tmp_path / "trainer_state.json").write_text("{}")
    board = open_board(tmp_path)
    assert not board.plugin.is_active()
    status, sentence = board.refuse("overview", run=".")
    assert (status, sentence.startswith("These traces cannot be read. ")) == (500, True)


def test_the_overview_of_traces_is_the_page_of_analyze(folder: Path, open_board: OpenBoard) -> None:
    (folder / "rank1.json.gz").write_bytes(b"no trace")  # which is left out, and a note says so
    page = open_board(folder).ask("overview", run=".")["page"]
    traces = dtbench.read_trace(folder).traces
    assert [line["words"] for line in page["answer"]] == [line.words for line in traces_brief(traces).answer]
    whole = traces_page(traces)
    assert whole.notes
    assert [part["key"] for part in page["parts"]] == ["brief", "doubts", *(part.key for part in whole.parts)]
    (doubts,) = page["parts"][1]["blocks"]
    assert [fact["words"] for fact in doubts["facts"]] == [note.words for note in whole.notes]


@pytest.mark.parametrize("named", [PIPELINE, DDP], ids=["folder", "file"])
def test_the_tabs_of_traces_have_the_numbers_of_their_tables(named: Path, open_board: OpenBoard) -> None:
    board, report = open_board(named), dtbench.read_trace(named)
    bars = board.ask("overlap", **{**ONE, "launch": "all"}, by="rank")["chart"]["bars"]
    exposed_ns = report.overlap.groupby("rank")["exposed_comm_ns"].mean()
    assert [bar["lengths_ns"][1] for bar in bars] == [pytest.approx(time_ns, abs=1) for time_ns in exposed_ns]
    by_step = board.ask("overlap", **{**ONE, "launch": "all"}, by="step")
    assert by_step["steps"] == sorted(report.overlap["step"].unique())
    assert board.ask("overlap", **{**ONE, "launch": "all"}, by="owner")["chart"]["bars"]
    assert board.ask("overlap", **{**ONE, "launch": "all"}, by="purpose")["chart"]["bars"]

    of_steps = report.collectives.dropna(subset="step")
    said = board.ask("collectives", **ONE)
    assert said["total"] == len(of_steps)
    first = of_steps.sort_values("exposed_ns", ascending=False, kind="stable").index[0]
    assert said["rows"][0]["row"] == first
    grouped = board.ask("collectives", **ONE, grouped="owner")
    assert grouped["total"] == len(of_steps.groupby(["owner", "operation", "purpose"], dropna=False))
    one = board.ask("collective", **ONE, row=first)
    assert one["rank"] == report.collectives.loc[first, "rank"]
    drawn = board.ask("timeline", **ONE)
    assert [rank["rank"] for rank in drawn["ranks"]] == sorted(report.overlap["rank"].unique())
    step = int(report.overlap["step"].max())
    assert board.ask("timeline", **ONE, step=step)["shown_steps"] == [step]
    assert board.refuse("timeline", **ONE, step=999_999)[0] == 410


def test_traces_that_changed_are_read_again_and_others_are_not_sent_again(folder: Path, open_board: OpenBoard) -> None:
    board = open_board(folder)
    first = json.loads(board.get("overview", run=".").data)
    again = json.loads(board.get("overview", run=".", known=first["state"]).data)
    assert again == {"state": first["state"], "document": None}
    (folder / "rank1.json.gz").unlink()
    assert board.ask("overview", run=".", known=first["state"])["page"]["title"] == "traces of 1 rank of 2"


def test_a_trace_that_a_link_leads_out_to_is_not_read(folder: Path, tmp_path: Path, open_board: OpenBoard) -> None:
    (folder / "rank1.json.gz").rename(tmp_path / "secret.json.gz")
    (folder / "logs").mkdir()
    (folder / "logs" / "rank1.json.gz").symlink_to(tmp_path / "secret.json.gz")
    assert open_board(folder).refuse("overview", run=".")[0] == 403


def test_what_one_rank_lost_bounds_the_totals_of_collectives_and_no_other_ranks_bar(
    tmp_path: Path, open_board: OpenBoard
) -> None:
    """The kernels of the second of three steps, and the calls that launched them, are not in rank 1's trace."""
    folder = Path(shutil.copytree(RECORDED / "two_ranks_one_gpu" / "ddp", tmp_path / "job"))
    trace = json.loads(gzip.decompress((folder / "rank1.json.gz").read_bytes()))
    kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel" and "nccl" in one["name"]]
    lost = {one["args"]["correlation"] for one in sorted(kernels, key=lambda one: one["ts"])[-12:-6]}
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("args", {}).get("correlation") not in lost]
    (folder / "rank1.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    board = open_board(folder)
    for asked in ({}, {"grouped": "owner"}, {"rank": "1"}):
        said = board.ask("collectives", **ONE, **asked)["sentence"]
        assert said.count("at least ") == 2
        assert "; 6 more were launched and not seen to run" in said
    alone = board.ask("collectives", **ONE, rank="0")["sentence"]
    assert "exposed of at least" in alone
    assert alone.count("at least ") == 1
    assert "not seen to run" not in alone
    bars = board.ask("overlap", **{**ONE, "launch": "all"}, by="rank")
    labels = {row[0].strip("*"): row[-2:] for row in bars["chart"]["table"]["rows"]}
    assert [["n/a" in cells, any("at least" in cell for cell in cells)] for cells in labels.values()] == [
        [False, False],
        [True, True],
    ]
    assert "at least" in bars["sentence"]
    of_rank_0 = board.ask("overlap", **{**ONE, "launch": "all"}, by="rank", rank="0")["sentence"]
    assert "exposed at least" not in of_rank_0
