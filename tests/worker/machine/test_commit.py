"""Which commit a person's code was at, as git says it; where it says nothing, nothing is claimed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dtbench.store.records.run import Commit
from dtbench.worker.machine.commit import read_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is what is asked here")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@here")
    return subprocess.check_output(["git", "-C", str(folder), *who, *words], text=True).strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "scenarios").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "train.py").write_text("layers = 1\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def test_a_commit_is_that_of_the_repository_around_a_folder(code: Path) -> None:
    (code / "results").mkdir()
    (code / "results" / "run.json").write_text("{}", encoding="utf-8")
    revision = git(code, "rev-parse", "HEAD")
    assert read_commit(code / "scenarios") == Commit(revision=revision, is_dirty=False), "results are no change"
    (code / "train.py").write_text("layers = 2\n", encoding="utf-8")
    assert read_commit(code) == Commit(revision=revision, is_dirty=True)


def test_without_a_repository_a_commit_or_git_there_is_none(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("GIT_DIR", str(code / ".git"))  # as in a hook: it is not about this folder
    assert read_commit(empty) is None
    git(empty, "init", "--quiet", str(empty / "new"))
    assert read_commit(empty / "new") is None
    monkeypatch.setenv("PATH", str(empty))
    assert read_commit(code) is None


def test_a_git_that_takes_too_long_is_not_waited_for(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def hang(words: list[str], **options: object) -> object:
        if "status" in words:
            raise subprocess.TimeoutExpired(words, 1)
        return run(words, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", hang)
    found = read_commit(code)
    assert found is not None
    assert found.is_dirty is None
    assert found.words == f"{found.revision[:12]}, perhaps with changes"
