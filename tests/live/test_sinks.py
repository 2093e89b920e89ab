"""Where reports go: each place has the numbers, what is not known is not a zero, a missing package is named."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dtbench.base.errors import MissingError, StoreError
from dtbench.live import sinks
from dtbench.live.numbers import Late
from dtbench.live.sinks import Report

NUMBERS = {
    "step_ms": 400.0,
    "exposed_ms": 38.5,
    "gradient_wait_ms": 30.0,
    "unshard_wait_ms": 8.5,
    "tensor_wait_ms": 0.0,
    "hidden_fraction": 0.875,
    "unseen": 0.0,
    "slowest_rank": math.nan,
}
REPORT = Report(19, NUMBERS, None, ())


def test_a_report_is_one_line_that_says_first_what_it_does_not_count() -> None:
    assert str(REPORT) == (
        "step 19: 400 ms, 38.5 ms exposed (gradient 30, unshard 8.5), at most 87.5 % of communication hidden"
    )
    late = Late(1, 20e6, "between steps", 19e6)
    numbers = NUMBERS | {"hidden_fraction": math.nan, "unseen": 2.0}
    report = Report(19, numbers, late, ("2 collectives a step were not seen to be waited for",))
    assert str(report) == (
        "2 collectives a step were not seen to be waited for; "
        "step 19: 400 ms, at least 38.5 ms exposed (gradient 30, unshard 8.5); "
        "rank 1 is late by 20 ms a step, 19 ms of it between steps"
    )


def test_json_lines_have_null_for_what_is_not_known(tmp_path: Path) -> None:
    write = sinks.json_lines(tmp_path / "new" / "live.jsonl")
    write(REPORT)
    write(REPORT)
    first, second = map(json.loads, (tmp_path / "new" / "live.jsonl").read_text().splitlines())
    assert (first["step"], first["step_ms"], first["slowest_rank"], first["late"]) == (19, 400.0, None, None)
    assert second.keys() == first.keys() == {"step", "unix_s", *NUMBERS, "late", "notes"}


def test_prometheus_reads_the_latest_report(tmp_path: Path) -> None:
    write = sinks.prometheus(tmp_path / "dtbench.prom")
    write(REPORT)
    write(Report(39, NUMBERS | {"step_ms": 500.0}, None, ()))
    lines = (tmp_path / "dtbench.prom").read_text().splitlines()
    assert "# TYPE dtbench_step_ms gauge" in lines
    assert {"dtbench_step_ms 500.0", "dtbench_step 39.0", "dtbench_slowest_rank NaN"} <= set(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["dtbench.prom"]


def test_tensorboard_has_a_scalar_for_each_number_that_is_known(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch writes the event files")
    sinks.tensorboard(tmp_path)(REPORT)
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert set(reader.Tags()["scalars"]) == {f"dtbench/{name}" for name in NUMBERS if name != "slowest_rank"}
    (scalar,) = reader.Scalars("dtbench/step_ms")
    assert (scalar.step, scalar.value) == (19, 400.0)


def test_wandb_and_mlflow_get_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    known = {f"dtbench/{name}": value for name, value in NUMBERS.items() if name != "slowest_rank"}
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(log=logged.append))
    sinks.wandb()(REPORT)
    assert logged == [known | {"dtbench/step": 19}]
    package = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((metrics, step)))
    monkeypatch.setitem(sys.modules, "mlflow", package)
    sinks.mlflow()(REPORT)
    assert logged[1:] == [(known, 19)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingError, match=f"pip install {name}"):
        getattr(sinks, name)()


def test_a_place_that_cannot_be_written_to_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/live\.jsonl: cannot be written"):
        sinks.json_lines(tmp_path / "file" / "live.jsonl")


def test_a_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sinks.print_line()(REPORT)
    assert capsys.readouterr().out == f"dtbench: {REPORT}\n"
