"""``dtbench list``."""

import json
from pathlib import Path

import pytest

from dtbench.cli.main import main


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# Is mine [broken]?\nfoo: 1\n", encoding="utf-8")
    (folder / "quickstart.yaml").write_text("# Is mine shorter?\n", encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["list", *arguments])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_the_list_has_questions_and_the_error_of_a_broken_file(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(capsys)
    for words in ("mine", "Is mine [broken]?", "./scenarios", "mine cannot run:", "mine.yaml:2:1: `foo`", "fsdp2_tp"):
        assert words in printed


def test_json_is_one_document_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(run(capsys, "--json"))
    by_origin = {(entry["name"], entry["origin"]): entry for entry in listed}
    assert by_origin["mine", "./scenarios"]["question"] == "Is mine [broken]?"
    assert "`foo`" in by_origin["mine", "./scenarios"]["error"]
    assert by_origin["ddp", "dtbench"]["error"] is None
    assert by_origin["quickstart", "dtbench"]["hidden_by"] == str(Path("scenarios") / "quickstart.yaml")


def test_scenarios_stand_by_folder_below_the_one_to_start_with(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.strip() for line in run(capsys).splitlines()]
    titles = [line for line in lines if line == "Start here" or line.endswith(("(dtbench)", "./scenarios"))]
    assert titles[:2] == ["Start here", "./scenarios"]
    assert {"ddp (dtbench)", "fsdp (dtbench)", "state_dict (dtbench)"} < set(titles)
    of_start = lines[lines.index("Start here") : lines.index("./scenarios")]
    assert [line.split()[0] for line in of_start[3:] if line.startswith("quickstart")] == ["quickstart"] * 2
