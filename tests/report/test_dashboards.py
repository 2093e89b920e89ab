"""The standard dashboards, as a TensorBoard that runs answers them."""

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.report.event_files.dashboards import write_cell, write_tensorboard
from dtbench.report.event_files.server import tensorboard_command
from dtbench.runs.summary import CellSummary, RunSummary

_PATIENCE_S = 60


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Callable[..., Any]]:
    """Start TensorBoard; gives what asks one of its plugins."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def ask(route: str, **query: object) -> Any:
        address = f"http://127.0.0.1:{port}/data/plugin/{route}"
        encoded = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(address + encoded, timeout=10) as answer:
            return json.load(answer)

    command = [*tensorboard_command(folder, host="127.0.0.1", port=port), "--reload_interval", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield ask
        finally:
            server.terminate()


def wait_for(ask: Callable[[], Any], is_there: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as wished."""
    found: object = "no answer"
    for _ in range(_PATIENCE_S * 4):
        try:
            found = ask()
        except OSError:  # not listening yet, or a run that it does not know yet
            time.sleep(0.25)
            continue
        if is_there(found):
            return found
        time.sleep(0.25)
    pytest.fail(f"TensorBoard says after {_PATIENCE_S} s: {found}")


@pytest.mark.parametrize("loader", ["auto", "false"], ids=["data server", "loader in Python"])
def test_cells_appear_while_tensorboard_runs_and_every_dashboard_lists_them(
    loader: str,
    make_run: Callable[..., RunSummary],
    make_ddp: Callable[..., CellSummary],
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tb"
    settings = {"ddp": {"parallel.kind": "ddp"}, "fsdp2_tp": {"parallel.kind": "fsdp2"}}
    slower = make_ddp(update={"time_to_first_step_ns": 9_000_000_000.0})
    write_cell(slower, folder, steps=steps, purposes=purposes, settings=settings)
    with served(folder, "--load_fast", loader) as ask:
        tags = wait_for(lambda: ask("scalars/tags"), lambda found: "summary/step_ms" in found.get("ddp", ()))
        assert list(tags) == ["ddp"]
        write_tensorboard(make_run(), folder, steps=steps, purposes=purposes, environment=None)
        tags = wait_for(lambda: ask("scalars/tags"), lambda found: "summary/step_ms" in found.get("fsdp2_tp", ()))
        assert {"step_ms/MEASURED", "exposed_ms/grad_reduce", "summary/peak_host_mib"} <= set(tags["ddp"])
        assert set(tags) == {"ddp", "fsdp2_tp"}
        tag = {"run": "ddp", "tag": "summary/time_to_first_step_ms"}
        points = wait_for(lambda: ask("scalars/scalars", **tag), lambda found: found[-1][2] != 9000)
        assert [point[1:] for point in points] == [[0, 2310.0]], "the old value is gone"
        texts = wait_for(lambda: ask("text/tags"), lambda found: "summary" in found.get(".", ()))
        assert "receipts" in texts["ddp"]
        images = wait_for(lambda: ask("images/tags"), lambda found: "step_times" in found.get("ddp", ()))
        assert "step_breakdown" in images["."]
