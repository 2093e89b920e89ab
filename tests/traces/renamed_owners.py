"""Traces of two ranks that did the same, one of which calls its owners otherwise, or knows none."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "two_ranks_one_gpu"


def wrap(events: list[dict[str, Any]]) -> None:
    """Call FSDP's units as they are called in a model that was compiled."""
    for event in events:
        event["name"] = re.sub(r"^(FSDP::\w+ \()", r"\1_orig_mod.", event["name"])


def take_ranges(events: list[dict[str, Any]]) -> None:
    """Take FSDP's ranges away."""
    events[:] = [event for event in events if not event["name"].startswith("FSDP::")]


def call_otherwise(events: list[dict[str, Any]]) -> None:
    """Call FSDP's ranges so that nobody knows them."""
    for event in events:
        event["name"] = event["name"].replace("FSDP::", "mine::")


def make_with(folder: Path, rank: int, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Copy the traces of two ranks, of which one calls its units otherwise."""
    found = Path(shutil.copytree(RECORDED / "fsdp2", folder))
    path = found / f"rank{rank}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    change(trace["traceEvents"])
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    return found
