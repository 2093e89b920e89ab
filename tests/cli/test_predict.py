"""``dtbench predict``: what it prints of scenarios and runs, and what it refuses."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dtbench
from dtbench.cli import complete
from dtbench.cli.main import main
from dtbench.runs.scaling.curve import Subject
from dtbench.runs.scaling.links import LINKS
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.scaling.subjects import Subjects
from dtbench.scenario.catalog import open_scenario

ROOT = Path(__file__).parents[2]
TEXT = """# Which layout is fastest?
schema_version: 1
device: cpu
model: {kind: timed, layers: 4, forward_ms: 10.0, backward_ms: 20.0}
data: {global_batch: 4, sequence_length: 8}
network: {kind: emulated, latency_us: 100.0, bandwidth_gb_per_s: 0.2, algorithm: ring}
cells:
  ddp: {parallel: {kind: ddp, replicas: 2}}
  fsdp2: {parallel: {kind: fsdp2, shards: 2}}
  real: {parallel: {kind: ddp, replicas: 2}, network: {kind: real}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "layouts.yaml"
    path.write_text(TEXT)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["predict", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), re.sub(r"\s+", " ", printed.out + printed.err)


def test_a_scenario_is_answered_without_a_run_and_says_so_first(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, said = call(capsys, file, "--world", "64")
    assert not code
    assert said.startswith("the host's time is not known: taken as none")
    assert "at 64 ranks `ddp` comes first" in said
    assert "side by side at 64 ranks, fastest first" in said
    assert "real: network.kind=real has no known cost" in said


def test_json_has_every_number_and_every_refusal(capsys: pytest.CaptureFixture[str], file: str) -> None:
    with pytest.raises(SystemExit):
        main(["predict", file, "--json", "--world", "8,64", "--link", "x2"])
    found = json.loads(capsys.readouterr().out)
    assert found["link"] == "x2"
    assert [cell["cell"] for cell in found["cells"]] == ["ddp", "fsdp2"]
    assert [one["name"] for one in found["refused"]] == ["real"]
    for cell in found["cells"]:
        assert cell["measured"] == []
        assert [point["world"] for point in cell["points"]] == [8, 64]
        for point in cell["points"]:
            assert point["exposed_comm_ns"] == sum(one["time_ns"] for one in point["exposed"])
            assert point["low_ns"] == "NaN"
            assert "no host" in point["extrapolated"]


def test_without_numbers_of_ranks_it_is_a_curve_to_4096(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, said = call(capsys, file, "--cell", "ddp")
    assert not code
    assert "a step by number of ranks" in said
    assert " 8 " in said
    assert "4,096" in said


def test_a_network_that_has_no_cost_takes_that_of_a_link(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, said = call(
        capsys, file, "--cell", "real", "--world", "16", "--link", "nvlink4", "--between", "400G", "--nodes-of", "8"
    )
    assert not code
    assert "NVIDIA H100 Tensor Core GPU Architecture" in said
    code, said = call(capsys, file, "--cell", "real", "--world", "8", "--link", "x2")
    assert code == 1
    assert "of which no cost is known" in said


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--world", "8,many"), 2, "`many` is no number of ranks from 1 to 100000"),
        (("--world", "0"), 2, "`0` is no number of ranks"),
        (("--world", "200000"), 2, "`200000` is no number of ranks"),
        (("--link", "fast"), 1, "`fast` is no link; say `x2`"),
        (("--between", "400G"), 1, "--between 400G needs --nodes-of K"),
        (("--cell", "dpp"), 2, "did you mean `ddp`"),
        (("--html", "page.txt"), 2, "the page is an HTML file"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    capsys: pytest.CaptureFixture[str], file: str, arguments: tuple[str, ...], code: int, why: str
) -> None:
    ended, said = call(capsys, file, *arguments)
    assert ended == code
    assert why in said.replace("│ ", "")


def test_a_name_that_is_neither_a_run_nor_a_scenario(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said = call(capsys, "quickstartt", "--results", str(tmp_path))
    assert code == 2
    assert "did you mean `quickstart`" in said
    code, said = call(capsys, "--results", str(tmp_path))
    assert code == 6
    assert "no runs here" in said


def test_cells_of_a_run_that_have_no_closed_form_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, said = call(capsys, "example", "--results", "results")
    assert code == 1
    assert "the host's time is that of run results/example" in said
    assert "has no known cost" in said
    code, said = call(capsys, "example", "--results", "results", "--cell", "ddpp")
    assert code == 6
    assert "there is no cell `ddpp`; did you mean `ddp`" in said


def read_made(file: str) -> Any:
    """Return what reads a run whose cells took 8 ms of host, in place of reading one."""

    def read(_run: Path, cell: str | None = None) -> Subjects:
        ran = Measured(2, (2e8, 2.1e8), (8e6, 9e6), 8e6, 1e6, 2)
        cells = open_scenario(file, (), () if cell is None else (cell,)).cells
        return Subjects(tuple(Subject(one.name, one.scenario, "2.13.0", (ran,)) for one in cells))

    return read


def test_a_run_tells_the_host_and_a_band(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("dtbench.report.notebook.predict.read_subjects", read_made(file))
    page = tmp_path / "page.html"
    code, said = call(capsys, "example", "--cell", "ddp", "--html", str(page))
    assert not code
    assert "90.0 % interval" in said
    assert "the host takes 8.50 ms of a step at 2 ranks (2 launches)" in said
    assert "not known" not in said
    assert "a step by number of ranks" in page.read_text()


def test_notebooks_have_the_numbers_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("dtbench.report.notebook.predict.read_subjects", read_made(file))
    run = dtbench.load_run("example")
    table = run.predict(8, 64, link="x2", cell="ddp")
    with pytest.raises(SystemExit):
        main(["predict", "example", "--json", "--world", "8,64", "--link", "x2", "--cell", "ddp"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    for name in ("world", "step_ns", "low_ns", "high_ns", "exposed_comm_ns", "collectives", "extrapolated"):
        assert [point[name] for point in cell["points"]] == table[name].tolist()
    assert run.plot_predicted(8, 64, cell="ddp").axes[0].get_xscale() == "log"


def test_a_shell_completes_links_runs_and_scenarios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    shutil.copytree(ROOT / "results" / "example", tmp_path / "made" / "20260101")
    context: Any = SimpleNamespace(params={"results": tmp_path}, args=[])
    assert complete.complete_link(context, "nv") == [name for name in LINKS if name.startswith("nv")]
    assert {"made", "20260101", "quickstart"} <= {*complete.complete_run_or_scenario(context, "")}
