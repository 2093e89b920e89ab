"""A search on real ranks, from the command line to the answer."""

import json
import math
from pathlib import Path

import pytest

from dtbench.cli.main import main
from dtbench.runs.run import summarize_run
from dtbench.tuning.answer import Status

TEXT = """# Do many buckets cost more than one?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 4, dim: 64, hidden_dim: 128}
data: {global_batch: 4, sequence_length: 8}
parallel: {kind: ddp, replicas: 2}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 8, profiled_steps: 1, exposure: [trace]}
"""


@pytest.mark.ranks
@pytest.mark.thorough
def test_a_search_ends_with_runs_that_can_be_reported_whoever_else_has_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("buckets.yaml").write_text(TEXT, encoding="utf-8")
    over = ("--over", "parallel.bucket_cap_mb=null,0.001,-1", "--launches", "4")
    with pytest.raises(SystemExit) as ended:
        main(["tune", "buckets.yaml", *over, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert ended.value.code in (None, 0, 8)  # 8: others had the machine
    assert bool(ended.value.code) == bool(answer["problem"])
    statuses = {point["change"]: point["status"] for point in answer["points"]}
    assert statuses[""] == Status.SAME
    assert statuses["parallel.bucket_cap_mb=-1"] == Status.IMPOSSIBLE
    first, *_ = answer["rounds"]
    assert first["stage"] == "confirm"
    cells = summarize_run(tmp_path / first["run"]).cells
    assert [len(cell.launches) for cell in cells] == [4, 4]
    assert all(cell.correctness is not None and cell.correctness.passed for cell in cells)
    if not answer["problem"]:
        assert not math.isnan(answer["unchanged_step_ns"])
