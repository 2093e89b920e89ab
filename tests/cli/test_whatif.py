"""``dtbench whatif``: what it prints of traces and runs, and what it refuses."""

import gzip
import html
import json
import re
import shutil
from pathlib import Path

import pytest

from dtbench.base.units import format_ns
from dtbench.cli.main import main
from dtbench.proof.claims import Claim
from dtbench.scenario.load import load_scenario_file
from dtbench.traces.job.foreign import analyze_traces
from tests.known import known

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
DDP = RECORDED / "two_ranks_one_gpu" / "ddp"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["whatif", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), re.sub(r"\s+", " ", printed.out + printed.err)


def test_two_ranks_are_told_what_saves_most_and_what_no_remedy_can(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, str(DDP))
    assert not code
    assert "most is saved where" in said
    for expected in (
        "what each change would save",
        "the longest way through the steps: hosts",
        "the unchanged replay: off by 0.1 % of a step in the median",
        "Note: replayed, not run",
    ):
        assert expected in said


def test_changes_that_cannot_be_asked_for_one_reason_are_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = call(capsys, str(DDP))
    assert said.count("not asked") == 1
    assert "Note: `bandwidth: x2` and `latency: x0.5` are not asked: of 100.0 % of what collectives take" in said


def test_json_holds_every_change_and_the_fit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["whatif", str(DDP), "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    savings = {one["change"]: one["saving_ns"] for one in cell["answers"]}
    assert [*savings.values()] == sorted(savings.values(), reverse=True)
    assert {"hidden: all", "link: x2", "no straggler", "host: x0"} <= savings.keys()
    hidden = [one for one in cell["answers"] if one["kind"] == "hidden"]
    assert all(0 <= one["saving_ns"] <= one["own_ns"] for one in hidden)
    assert savings["link: x2"] <= savings["hidden: all"]
    (fit,) = cell["fits"]
    assert fit["steps"]
    for step in fit["steps"]:
        assert step["replayed_ns"] == pytest.approx(step["recorded_ns"], rel=0.002)
    way_ns = cell["way_host_ns"] + cell["way_work_ns"] + sum(one["time_ns"] for one in cell["way_owners"])
    assert way_ns == sum(one["time_ns"] for one in cell["way_ranks"])


def test_one_change_is_asked_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, str(DDP), "--change", "link: x4", "--change", "hidden: bucket 0")
    assert not code
    assert "all links are 4 times as fast" in said
    assert "bucket 0's all-reduce takes no time" in said
    assert "hosts take no time" not in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--change", "faster"), "`faster` is no change; there are `hidden: all`"),
        (("--change", "hidden: layers.0"), "no collective of these steps is of `layers.0`; there are `bucket"),
        (("--change", "kernel: nothing x2"), "no kernel that computes has `nothing` in its name"),
        (("--cell", "ddp"), "traces have no cells"),
        (("--steps", "900-901"), "900"),
    ],
)
def test_what_does_not_apply_is_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    code, said = call(capsys, str(DDP), *arguments)
    assert code
    assert why in said.replace("│ ", "")


def test_of_one_rank_nothing_is_offered_that_needs_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    rank = sorted(DDP.glob("*.json.gz"))[0]
    code, said = call(capsys, str(rank))
    assert not code
    assert "1 rank of 2 is here" in said
    assert "no rank is behind" not in said
    code, said = call(capsys, str(rank), "--change", "no straggler")
    assert code
    assert "one rank alone" in said


def write_with_a_silent_rank(folder: Path, *, are_three: bool) -> None:
    """Write two or three ranks, of the last of which nothing was recorded that communicates."""
    for rank, source in enumerate((0, 1, 1) if are_three else (0, 1)):
        trace = json.loads(gzip.decompress((DDP / f"rank{source}.json.gz").read_bytes()))
        trace["distributedInfo"] |= {"rank": rank, "world_size": 3 if are_three else 2}
        if rank == 1 + are_three:
            events, silent = trace["traceEvents"], re.compile("nccl|c10d|record_param_comms|allreduce", re.IGNORECASE)
            gone = {event.get("args", {}).get("correlation") for event in events if silent.search(event["name"])} - {
                None
            }
            trace["traceEvents"] = [
                event
                for event in events
                if event.get("args", {}).get("correlation") not in gone and not silent.search(event["name"])
            ]
            for event in trace["traceEvents"]:
                event["ts"] = float(event.get("ts", 0)) + 1.0  # no copy of another rank's
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))


@pytest.mark.parametrize(
    ("are_three", "wanted"),
    [
        (
            True,
            (
                "no step is there on all ranks of which all is known; ranks 0-1: all is known of steps 2-4; rank 2: "
                "all is known of no step; rank 2: no communication is seen on its device, though the job has 3 ranks"
            ),
        ),
        (False, "; rank 1: no communication is seen on its device, though the job has 2 ranks"),
    ],
)
def test_a_rank_that_shows_no_communication_is_named_with_what_it_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *, are_three: bool, wanted: str
) -> None:
    write_with_a_silent_rank(tmp_path, are_three=are_three)
    code, said = call(capsys, str(tmp_path))
    assert code
    assert wanted in said


def test_what_only_costs_is_said_to_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, str(DDP), "--change", "host: x2")
    assert not code
    assert "nothing of that helps: a step of" in said
    assert "longer, where hosts take 2 times as long" in said


def test_what_speaks_against_traces_comes_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtbench.report.notebook.what_if.why_not_judged", lambda _traces: "NOT REPRESENTATIVE: made")
    code, said = call(capsys, str(DDP))
    assert not code
    assert said.index("NOT REPRESENTATIVE: made") < said.index("of these steps: most is saved where")


def test_steps_that_the_replay_does_not_give_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, str(RECORDED / "two_ranks_one_gpu" / "graph"))
    assert code == 1
    assert "the replay of the unchanged steps does not fit" in said
    assert "so nothing is said of what would change it" in said


def test_ranks_that_wait_in_a_circle_are_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, str(RECORDED / "pipelines" / "ring"))
    assert code == 1
    assert "ranks wait for each other in a circle" in said


def test_a_run_without_traces_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    code, said = call(capsys, "example", "--results", "results", "--cell", "fsdp2_tp")
    assert code == 1
    assert "no trace is there" in said
    code, said = call(capsys, "example", "--results", "results", "--cell", "ddpp")
    assert code == 6
    assert "there is no cell `ddpp`" in said.replace("│ ", "")


def test_the_answer_as_one_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _ = call(capsys, str(DDP), "--html", str(tmp_path / "page.html"))
    assert not code
    assert "what each change would save" in html.unescape((tmp_path / "page.html").read_text())


def test_equal_work_stands_beside_what_ranks_wait_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 of two begins late by turns: what its waits sum up to is what the skew table says of both, per step."""
    skewed = RECORDED / "two_ranks_one_gpu" / "skew"
    traces = analyze_traces([skewed], workers=1)
    waited_ns = sum(known(one.skew_wait_ns) for one in traces.over_ranks.waiting.ranks) / len(traces.analyses[0].steps)
    with pytest.raises(SystemExit):
        main(["whatif", str(skewed), "--change", "no straggler", "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["waited_ns"] == waited_ns > 0
    _, said = call(capsys, str(skewed), "--change", "no straggler")
    saved = format_ns(max(0.0, cell["answers"][0]["saving_ns"]))
    assert f"{saved} a step are saved, where 2 ranks wait {format_ns(waited_ns)} for the last of them, summed" in said
    _, said = call(capsys, str(skewed), "--change", "link: x2")
    assert "beside the skew table" not in said


def test_what_cannot_be_run_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = str(Path(__file__).parents[2] / "results" / "example")
    write = ("--write", str(tmp_path / "changed.yaml"))
    for words, said in (
        ((str(DDP), "--prove", "1"), "of traces there is no scenario to run"),
        ((example, "--prove", "1", "--change", "link: x2"), "`link: x2` is no setting of a scenario"),
        ((example, "--prove", "1", "--cell", "ddpp", "--change", "parallel.bucket_cap_mb=1"), "no cell `ddpp`"),
        (
            (example, *write, "--change", "parallel.bucket_cap_mb=1", "--change", "parallel.bucket_cap_mb=2"),
            "--write leaves one changed scenario: give one --change",
        ),
        ((example, *write, "--json"), "--html and --json are of --prove"),
        (
            (example, *write, "--cell", "ddp", "--change", "model.layers=2"),
            "what else a scenario says is the work itself",
        ),
        ((str(DDP), "--change", "parallel.bucket_cap_mb=1"), "is a setting of a scenario, and traces have none"),
    ):
        code, printed = call(capsys, *words)
        assert code
        assert said in printed
    assert not (tmp_path / "changed.yaml").exists()


def test_the_changed_scenario_is_left_where_it_is_wanted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "changed.yaml"
    example = str(Path(__file__).parents[2] / "results" / "example")
    code, said = call(capsys, example, "--cell", "ddp", "--change", "parallel.bucket_cap_mb=1", "--write", str(path))
    assert not code
    assert f"ddp with parallel.bucket_cap_mb=1; `dtbench run {path}`" in said
    (cell,) = load_scenario_file(path).cells
    assert cell.scenario.parallel.model_dump()["bucket_cap_mb"] == 1
    assert cell.scenario.model.kind == "transformer"


def test_settings_of_a_real_model_are_told_with_where_its_compute_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = str(Path(__file__).parents[2] / "results" / "example")
    code, said = call(capsys, example, "--change", "parallel.bucket_cap_mb=16")
    assert not code
    assert "compute of blocks was found from how long forward, backward and optimizer of these steps were" in said
    assert "settings of `fsdp2_tp` are not asked: no closed form: parallel.tensor over model.kind=transformer" in said
    with pytest.raises(SystemExit):
        main(["whatif", example, "--cell", "ddp", "--json"])
    (settings,) = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["costs_from"], settings["model_error"]) == ("regions", 0.03)
    assert f"is {100 * settings['exposed_off']:.1f} % of a step from what PROFILED steps showed (above 8.0 %" in said
    assert 0 < settings["exposed_off"] < 0.08
    savings = {one["change"]: one["saving_ns"] for one in settings["answers"]}
    assert savings["parallel.bucket_cap_mb=16"] < savings["parallel.bucket_cap_mb=8"] < 0  # one bucket hides nothing


def test_a_secret_of_the_run_is_not_written_for_others_to_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, path = tmp_path / "example", tmp_path / "changed.yaml"
    shutil.copytree(Path(__file__).parents[2] / "results" / "example", run)
    record = json.loads((run / "run.json").read_text())
    for one in record["cells"]:
        one["scenario"]["env"] = {"NCCL_TOKEN": "abc", "NCCL_ALGO": "Ring"}
    (run / "run.json").write_text(json.dumps(record))
    change = ("--cell", "ddp", "--change", "parallel.bucket_cap_mb=1")
    code, said = call(capsys, str(run), *change, "--write", str(path))
    assert not code
    left_out = "left out of `env`, as secret: NCCL_TOKEN; ranks have what is exported where this is run"
    assert left_out in said
    text = path.read_text()
    assert text.splitlines()[1] == f"# {left_out}"
    assert "abc" not in text
    (cell,) = load_scenario_file(path).cells
    assert cell.scenario.env == {"NCCL_ALGO": "Ring"}


def test_a_proof_by_which_nothing_can_be_judged_is_shown_and_ends_as_such(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The example in the place of the run that is made: one launch of each cell tells no interval."""
    run = tmp_path / "example"
    shutil.copytree(Path(__file__).parents[2] / "results" / "example", run)
    claim = Claim("ddp", "fsdp2_tp", "parallel.bucket_cap_mb=1", None)
    monkeypatch.setattr("dtbench.proof.claims.choose_claims", lambda *_, **__: ([claim], []))
    monkeypatch.setattr("dtbench.cli.run.train", lambda _request: run)
    code, said = call(capsys, str(run), "--prove", "1", "--change", "parallel.bucket_cap_mb=1", "--cell", "ddp")
    assert code == 8
    assert "nothing can be said: too few MEASURED steps are known" in said
    assert "the run finished, but nothing follows from it" in said
