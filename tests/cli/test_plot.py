"""``dtbench plot``: a picture of a run or of traces as a file."""

from pathlib import Path

import pytest

from dtbench.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "results" / "example")
TRACE = str(ROOT / "tests" / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz")


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(["plot", *words])
    return caught.value.code


@pytest.mark.parametrize(
    ("name", "ending", "begins"),
    [("owners", ".png", b"\x89PNG"), ("overlap", ".svg", b"<?xml"), ("breakdown", ".pdf", b"%PDF")],
)
def test_a_picture_of_a_run_is_written_as_its_ending_says(
    name: str, ending: str, begins: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"picture{ending}"
    file.write_text("old")
    assert run(EXAMPLE, name, "-o", str(file)) == 0
    assert file.read_bytes().startswith(begins)
    assert f"Wrote {file}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("words", [(EXAMPLE,), (EXAMPLE, "ownrs", "-o", "x.png"), (EXAMPLE, "owners")])
def test_a_mistake_is_told_before_anything_is_read(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtbench.load_run", lambda path: pytest.fail(f"{path} was read"))
    assert run(*words) == 2


def test_traces_have_pictures_too_and_of_some_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "owners.png"
    assert run(TRACE, "owners", "-o", str(file)) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert run(TRACE, "owners", "-o", str(file), "--steps", "999") != 0
    assert "the traces have no step 999" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((EXAMPLE, "ownrs", "-o", "x.png"), "did you mean `owners`?"),
        ((EXAMPLE, "owners", "-o", "x.jpg"), "a picture ends in .png, .svg or .pdf"),
        ((EXAMPLE, "owners", "-o", "no/such/folder/x.png"), "there is no folder no/such/folder"),
        ((TRACE, "breakdown", "-o", "x.png"), "there is no picture `breakdown`"),
        (("no_such_run", "owners", "-o", "x.png"), "no_such_run"),
        (
            (EXAMPLE,),
            "breakdown, causes, exposed, overlap, owners, predicted, ranks, step_distribution, sweep",
        ),
        ((EXAMPLE, "owners"), "say where to write it, for example `-o owners.svg`"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert run(*words) != 0
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not [*tmp_path.iterdir()]
