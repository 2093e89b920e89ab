"""A log directory with runs as they lie on disk, and the plugin's routes without a server."""

import json
import shutil
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from werkzeug.test import Client, TestResponse

from dtbench.report.tb_plugin.plugin import BoardPlugin

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of a library that TensorBoard brings along
    from tensorboard.backend.application import TensorBoardWSGI

EXAMPLE = Path(__file__).parents[3] / "results" / "example"
RUN = "quickstart/20260101T120000-aaaa"


AddRun = Callable[[Path, str], Path]


@pytest.fixture
def add_run() -> AddRun:
    """Write the recorded example below a log directory, its steps at another time for each name.

    Two cells of one launch each, with tables, without traces.
    """

    def add(logdir: Path, name: str) -> Path:
        folder = logdir / name
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.png", "tb"))
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        (folder / "run.json").write_text(json.dumps({**record, "run_id": folder.name}), encoding="utf-8")
        for path in folder.glob("cells/*/launch*/steps.parquet"):
            steps = pd.read_parquet(path)
            steps.assign(start_ns=steps["start_ns"] + zlib.crc32(name.encode())).to_parquet(path)
        return folder

    return add


@pytest.fixture
def logdir(tmp_path: Path, add_run: AddRun) -> Path:
    """A log directory with one run."""
    add_run(tmp_path / "logs", RUN)
    return tmp_path / "logs"


class Board:
    """The plugin below TensorBoard's own router, so that its route names and prefixes hold."""

    def __init__(self, logdir: Path | str) -> None:
        context = SimpleNamespace(logdir=str(logdir))
        self.plugin = BoardPlugin(context)
        self.client = Client(TensorBoardWSGI([self.plugin], ""))

    def get(self, route: str, **words: object) -> TestResponse:
        return self.client.get(f"/data/plugin/dtbench/{route}", query_string={k: str(v) for k, v in words.items()})

    def ask(self, route: str, **words: object) -> Any:
        """Return a route's document; it must not be refused."""
        response = self.get(route, **words)
        assert response.status_code == 200, response.text
        said = json.loads(response.data)
        assert not isinstance(said, dict) or "error" not in said, said
        return said["document"] if isinstance(said, dict) and "document" in said else said

    def refuse(self, route: str, **words: object) -> tuple[int, str]:
        """Return status and sentence of a refusal; one that is part of normal use is an answer for the browser."""
        response = self.get(route, **words)
        assert response.mimetype == "application/json"
        refusal = json.loads(response.data)
        assert response.status_code in (200, refusal["status"])
        return refusal["status"], refusal["error"]


@pytest.fixture
def open_board() -> type[Board]:
    """Open the plugin on a log directory."""
    return Board


@pytest.fixture
def board(logdir: Path) -> Board:
    return Board(logdir)
