"""A second interpreter, with the same packages as the one that runs the tests."""

import site
import venv
from pathlib import Path

import pytest


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    venv.EnvBuilder(symlinks=True).create(folder)
    own = next(folder.glob("lib/python3*/site-packages"))
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (own / "same_packages.pth").write_text("\n".join(lines), encoding="utf-8")
    return folder / "bin" / "python"
