"""Runs of a user's own, made of a copy of one: another id, another time, another knob."""

import json
from pathlib import Path
from typing import Any

import pandas as pd


def give_own(run: Path, bucket_cap_mb: float) -> None:
    """Make the copy of a run one of its own, by its folder's name, whose first cell has another size of buckets."""
    record: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    old = record["run_id"]
    record["run_id"] = run.name
    record["cells"][0]["scenario"]["parallel"]["bucket_cap_mb"] = bucket_cap_mb
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    for path in run.rglob("*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(old, run.name), encoding="utf-8")
    for path in run.rglob("*.parquet"):
        table = pd.read_parquet(path)
        table.attrs = {key: run.name if value == old else value for key, value in table.attrs.items()}
        if path.name == "steps.parquet":
            table["start_ns"] += sum(run.name.encode()) * 1_000_000_000_000  # else it is a copy, and no run of its own
        table.to_parquet(path)
