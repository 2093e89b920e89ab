"""What a shell offers at the press of a key; whatever is wrong, it offers nothing and says nothing."""

import shutil
from pathlib import Path

import pytest

from dtbench.cli.main import main

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(RESULTS / "example", tmp_path / "results" / "quickstart" / "20260101T000000-aaaa")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "quickst"), {"quickstart"}),
        (("run", "quickstart", "--cell", ""), {"ddp", "fsdp2_tp"}),
        (("check", "quickstart", "--cell", "f"), {"fsdp2_tp"}),
        (
            ("run", "ddp", "--set", "parallel.bucket_cap_mb"),
            {"parallel.bucket_cap_mb=", "parallel.bucket_cap_mb_list="},
        ),
        (("run", "--set", "seed=1", "quickstart", "--cell", "d"), {"ddp"}),
        (("check", "ddp", "--sweep", "model.lay"), {"model.layers="}),
        (("report", ""), {"quickstart", "20260101T000000-aaaa"}),
        (("report", "quickstart", "--cell", ""), {"ddp", "fsdp2_tp"}),
        (("compare", "quickstart:f"), {"quickstart:fsdp2_tp"}),
        (("compare", "qu"), {"quickstart"}),
        (("run", "no_such_scenario", "--cell", ""), set()),
        (("report", "no_such_run", "--cell", ""), set()),
        (("compare", "no_such_run:"), set()),
    ],
)
def test_what_fits_is_offered(
    words: tuple[str, ...],
    offered: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_DTBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("dtbench", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        main([])
    printed = capsys.readouterr()
    assert set(printed.out.split()) == offered
    assert printed.err == ""


def test_a_broken_run_offers_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "results" / "quickstart" / "20260101T000000-aaaa" / "run.json").write_text("{")
    monkeypatch.setenv("_DTBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "dtbench report quickstart --cell ")
    monkeypatch.setenv("COMP_CWORD", "4")
    with pytest.raises(SystemExit):
        main([])
    printed = capsys.readouterr()
    assert (printed.out.split(), printed.err) == ([], "")
