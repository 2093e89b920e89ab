"""What notebooks get of ``what_if``: the table, the picture, and the same numbers as the command."""

import gzip
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_hex

import dtbench
from dtbench.base.errors import PredictionError, StoreError
from dtbench.cli.main import main
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.changes.link import Link
from dtbench.replay.read import Recorded
from dtbench.replay.what_if import WhatIf, ask
from dtbench.report.documents.what_if import Asked, document
from dtbench.report.notebook.what_if import ask_run, tabulate
from dtbench.report.page import looks
from dtbench.report.page.page import Cell, Table
from dtbench.report.page.what_if_page import what_if_page
from dtbench.report.plots.names import plot_what_if
from dtbench.report.plots.what_if import MOST_CHANGES
from dtbench.traces.job.trace_set import gather_ranks
from tests.replay.hand_made import Written

ROOT = Path(__file__).parents[2]
DDP = ROOT / "tests" / "traces" / "recorded" / "two_ranks_one_gpu" / "fsdp2"


def test_the_table_has_the_numbers_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    table = dtbench.read_trace([str(DDP)], workers=1).what_if()
    with pytest.raises(SystemExit):
        main(["whatif", str(DDP), "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert [(row["change"], row["saving_ns"]) for row in cell["answers"]] == [
        *table[["change", "saving_ns"]].itertuples(index=False, name=None)
    ]
    assert (table["step_ns"] == cell["step_ns"]).all()
    assert table["own_ns"].isna().sum() == sum(row["own_ns"] == "NaN" for row in cell["answers"])


def test_some_changes_alone() -> None:
    traces = dtbench.read_trace([str(DDP)], workers=1)
    assert [*traces.what_if("link: x2")["change"]] == ["link: x2"]
    with pytest.raises(PredictionError, match="is no change"):
        traces.what_if("faster")


def test_the_picture_has_a_bar_for_each_and_one_for_the_rest() -> None:
    table = dtbench.read_trace([str(DDP)], workers=1).what_if()
    figure = plot_what_if(table)
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    more = len(table) - MOST_CHANGES
    assert len(labels) == MOST_CHANGES + (more > 0)
    assert not more > 0 or labels[-1].startswith(f"{more} more change")
    widths = [bar.get_width() for bar in axes.patches[:MOST_CHANGES]]  # type: ignore[attr-defined]
    assert widths == pytest.approx((table["saving_ns"].head(MOST_CHANGES) / 1e6).tolist())
    colours = {looks.EXPOSED_COMM.colour, looks.HIDDEN_COMM.colour, looks.COMPUTE.colour, looks.REST.colour}
    assert {to_hex(bar.get_facecolor()).upper() for bar in axes.patches} <= colours
    assert "of a step of" in axes.get_title(loc="left")


def test_what_speaks_against_the_steps_is_in_the_table_and_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = dtbench.read_trace([str(DDP)], workers=1)
    assert (traces.what_if("link: x2")["doubt"] == "").all()
    monkeypatch.setattr("dtbench.report.notebook.what_if.why_not_judged", lambda _traces: "NOT REPRESENTATIVE: made")
    assert (traces.what_if("link: x2")["doubt"] == "NOT REPRESENTATIVE: made").all()
    assert traces.plot_what_if("link: x2").axes[0].get_title(loc="left") == "NOT REPRESENTATIVE: made"


def test_nothing_to_change_is_said() -> None:
    figure = plot_what_if(pd.DataFrame(columns=["cell", "saving_fraction"]))
    assert "nothing that may be changed" in figure.axes[0].texts[0].get_text()


def test_a_run_without_traces_and_a_cell_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run = dtbench.load_run("example")
    with pytest.raises(PredictionError, match="no trace is there"):
        run.what_if(cell="fsdp2_tp")
    with pytest.raises(StoreError, match="there is no cell `ddpp`"):
        run.what_if(cell="ddpp")


def test_settings_of_one_launch_have_no_interval_and_the_picture_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = dtbench.load_run("example").what_if(cell="ddp")
    assert set(table["kind"]) == {"setting"}
    assert table["low_ns"].isna().all()
    assert plot_what_if(table).axes[0].get_title(loc="left").endswith("no interval: one launch")
    several = table.assign(low_ns=table["saving_ns"] - 1e6, high_ns=table["saving_ns"] + 1e6)
    assert "no interval" not in plot_what_if(several).axes[0].get_title(loc="left")


def test_steps_of_a_run_that_others_disturbed_are_not_replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The example with a trace in a launch one of whose PROFILED steps was left out: the replay is asked without it."""
    run = tmp_path / "example"
    shutil.copytree(ROOT / "results" / "example", run)
    steps = run / "cells" / "ddp" / "launch0" / "steps.parquet"
    table = pd.read_parquet(steps)
    table["stolen_fraction"] = 0.0
    profiled = sorted(set(table.loc[table["phase"] == "PROFILED", "step"]))
    table.loc[table["step"] == profiled[0], "stolen_fraction"] = 0.5
    table.to_parquet(steps)
    traces = run / "cells" / "ddp" / "launch0" / "traces"
    traces.mkdir()
    shutil.copy(DDP / "rank0.json.gz", traces / "rank0.1.pt.trace.json.gz")
    asked: list[object] = []

    def read(_traces: object, without: object = ()) -> object:
        asked.append(without)
        raise PredictionError("seen")

    monkeypatch.setattr("dtbench.runs.replayed.read_graph", read)
    monkeypatch.setattr("dtbench.runs.replayed.read_launch_traces", lambda _folder: None)
    with pytest.raises(PredictionError, match="seen"):
        ask_run(run, ["link: x2"], "ddp")
    assert asked == [frozenset({profiled[0]})]


@pytest.mark.parametrize("disturbed", [False, True])
def test_steps_of_a_run_are_replayed_as_they_were_measured(
    disturbed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A trace whose host took a tenth longer than in MEASURED steps; where these may not be gone by, it stays so."""
    run = tmp_path / "example"
    shutil.copytree(ROOT / "results" / "example", run)
    (cell,) = (one for one in dtbench.load_run(run).summary.cells if one.name == "ddp")
    (measured_ns,) = cell.launch_medians_ns
    if disturbed:
        steps = run / "cells" / "ddp" / "launch0" / "steps.parquet"
        table = pd.read_parquet(steps)
        table["stolen_fraction"] = 0.0
        table.loc[table["phase"] == "MEASURED", "stolen_fraction"] = 0.5
        table.to_parquet(steps)
    (traces := run / "cells" / "ddp" / "launch0" / "traces").mkdir()
    shutil.copy(DDP / "rank0.json.gz", traces / "rank0.1.pt.trace.json.gz")
    host_ns, link_ns = round(0.6 * measured_ns * 1.1), round(0.4 * measured_ns)
    graph = {0: Written().begin().spend(host_ns).issue("a", link_ns).sit(0).end().finish()}
    recorded = Recorded(graph, (1,), {0: (host_ns + link_ns,)}, gather_ranks([]))
    monkeypatch.setattr("dtbench.runs.replayed.read_graph", lambda _traces, _without: recorded)
    monkeypatch.setattr("dtbench.runs.replayed.read_launch_traces", lambda _folder: None)
    found = ask_run(run, ["link: x2"], "ddp").cells["ddp"]
    (answer,) = found.answers
    assert answer.saving_ns == pytest.approx(link_ns / 2, abs=1)
    assert found.step_ns == pytest.approx(host_ns + link_ns if disturbed else measured_ns, rel=1e-3)
    assert found.host_times == (() if disturbed else (pytest.approx(1 / 1.1, rel=2e-3),))


def ask_a_step_of(recorded_ns: int, host_ns: int = 950) -> WhatIf:
    """Ask a step of a host and a collective, 1,000 ns in all by the replay, and recorded as given."""
    graph = {0: Written().begin().spend(host_ns).issue("a", 1_000 - host_ns).sit(0).end().finish()}
    return ask([Recorded(graph, (1,), {0: (recorded_ns,)}, gather_ranks([]))], [Hidden(), Link(2.0)])


@pytest.mark.parametrize(
    ("recorded_ns", "said"), [(1_000, ""), (1_020, ", give or take the 19.6 ns by which the replay is off")]
)
def test_what_is_no_more_than_the_replay_is_off_is_no_clear_saving(recorded_ns: int, said: str) -> None:
    (answer,) = what_if_page("made", {"": ask_a_step_of(recorded_ns)}, {}, {}).answer
    assert answer.words.removesuffix(".").endswith(f"takes no time: 50.0 ns (5.0 %) of a step of 1.00 us{said}")


def test_nothing_is_said_to_help_little_without_what_the_replay_is_off_by() -> None:
    (answer,) = what_if_page("made", {"": ask_a_step_of(1_020, host_ns=995)}, {}, {}).answer
    assert answer.words == (
        "nothing helps by more than 1.0 % of a step of 1.00 us; the most is 5.00 ns, where all communication takes no "
        "time, give or take the 19.6 ns by which the replay is off."
    )


@pytest.mark.parametrize(("recorded_ns", "is_said"), [(1_000, False), (1_020, True)])
def test_each_row_has_what_the_replay_is_off_by_wherever_there_are_rows(recorded_ns: int, is_said: bool) -> None:
    asked = Asked("made", {"": ask_a_step_of(recorded_ns)}, {}, {})
    (part,) = what_if_page("made", asked.cells, {}, {}).parts
    changes = next(block for block in part.blocks if isinstance(block, Table))
    savings = [row[1] for row in changes.rows]
    assert [cell.words for cell in savings if isinstance(cell, Cell)] == (
        ["50.0 ns ± 19.6 ns", "25.0 ns ± 19.6 ns"] if is_said else ["50.0 ns", "25.0 ns"]
    )
    assert ("± what the replay is off by" in changes.title) is is_said
    off_ns = pytest.approx(19.6 if is_said else 0.0, abs=0.1)
    (cell,) = json.loads(json.dumps(document(asked)))["cells"]
    assert [answer["off_ns"] for answer in cell["answers"]] == [off_ns, off_ns]
    table = tabulate(asked)
    assert table["off_ns"].tolist() == [off_ns, off_ns]
    finding = plot_what_if(table).axes[0].get_title(loc="left")
    assert ("saves 50.0 ns (5.0 %), give or take 19.6 ns, of a step" in finding.replace("\n", " ")) is is_said


def test_what_traces_leave_out_is_said_wherever_changes_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One rank's trace is there twice, and an event of the other has no duration."""
    for rank in (0, 1):
        shutil.copy(DDP / f"rank{rank}.json.gz", tmp_path / f"rank{rank}.json.gz")
    shutil.copy(DDP / "rank0.json.gz", tmp_path / "rank0_again.json.gz")
    report = dtbench.read_trace([str(tmp_path)], workers=1)
    table = report.what_if("link: x2")
    twice = next(line for line in table.attrs["left_out"] if line.startswith("rank 0 comes twice"))
    assert "is left out" in twice
    assert "left out: rank 0 comes twice" in report.plot_what_if("link: x2").get_supxlabel()
    with pytest.raises(SystemExit):
        main(["whatif", str(tmp_path), "--change", "link: x2"])
    assert "".join(twice.split()) in "".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        main(["whatif", str(tmp_path), "--change", "link: x2", "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert twice in cell["remarks"]


def test_ranks_whose_clocks_are_not_known_to_each_other_begin_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whichever rank's clock is ahead by minutes: what is saved is the same, of the one whose steps take longest."""
    answers = []
    for ahead in (0, 1):
        (folder := tmp_path / str(ahead)).mkdir()
        for rank in (0, 1):
            document = json.loads(gzip.decompress((DDP.parent / "sendrecv" / f"rank{rank}.json.gz").read_bytes()))
            for event in document["traceEvents"]:
                if "ts" in event and rank == ahead:
                    event["ts"] = float(event["ts"]) + 1e8
            (folder / f"rank{rank}.json").write_text(json.dumps(document))
        with pytest.raises(SystemExit):
            main(["whatif", str(folder), "--json"])
        (cell,) = json.loads(capsys.readouterr().out)["cells"]
        assert not cell["is_in_step"]
        answers.append({one["change"]: one["saving_ns"] for one in cell["answers"]})
    assert answers[0] == pytest.approx(answers[1], rel=1e-4)
    assert answers[0]["hidden: all"] > 1e6
    with pytest.raises(SystemExit):
        main(["whatif", str(folder)])
    assert "ranks are replayed as if they began together" in " ".join(capsys.readouterr().out.split())
