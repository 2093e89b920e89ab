"""What every loop is asked: what dtbench says of it, held against counts by hand and against its own tables."""

import re
from collections import Counter
from pathlib import Path

import pandas as pd

import dtbench
from dtbench.analyze.collectives import find_regions
from dtbench.analyze.reader import read_trace
from dtbench.report.loaded import RunReport
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_rank_records, read_run, read_steps
from dtbench.store.records import OwnLoop, RunStatus
from dtbench.vocabulary import CAUSE_PHRASES, Cause, Purpose, Region
from tests.foreign.known import Known

LARGE = 0.3
"""Part of the exposed time from which one owner is what an answer leads with, as README says of it."""
MOST_UNATTRIBUTED = 0.05
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def check_measured(folder: Path, known: Known) -> None:
    """Check all that a run says of a loop.

    Args:
        folder: of the run.
        known: what is known of the loop without it.
    """
    run = read_run(folder)
    assert run.status is RunStatus.COMPLETE, run.reason
    launch, loop = RunFolder(folder).launch("foreign", 0), run.cells[0].plan
    assert isinstance(loop, OwnLoop)
    _check_traffic(launch, known)
    steps = read_steps(launch)
    assert (steps["phase"] == "PROFILED").sum() == known.ranks * loop.profiled_steps
    _check_region_ranges(launch)
    traced = dtbench.read_trace(launch.path / "traces")
    issued = traced.collectives[traced.collectives["step"].notna()]
    is_between = issued["region"] == ""
    _check_between(issued[is_between], known)
    _check_purposes(issued[~is_between], known, steps=known.ranks * loop.profiled_steps)
    _check_owners(issued[~is_between])
    leader = _find_leader(issued)
    first_line = str(traced).splitlines()[0]
    _check_leader(first_line, leader, windows=known.ranks * loop.profiled_steps)
    _check_exposed(first_line, traced.overlap)
    _check_answer(dtbench.load_run(folder), leader)


def _check_traffic(launch: LaunchFolder, known: Known) -> None:
    """Check what each rank counted itself, while nobody profiled it."""
    for record in read_rank_records(launch):
        assert record.warmup.period == known.period, record.warmup.reason
        counts, sizes = Counter[Purpose](), Counter[Purpose]()
        for row in record.traffic:
            counts[row.purpose] += row.count
            sizes[row.purpose] += row.size_bytes
        assert counts == known.told(known.purposes)
        by_hand = known.told(known.bytes_of)
        assert {purpose: sizes[purpose] for purpose in by_hand} == by_hand
        assert record.traffic_is_stable


def _check_region_ranges(launch: LaunchFolder) -> None:
    for trace in launch.find_traces().values():
        found = find_regions(read_trace(trace))
        assert (found.ends_ns[:-1] <= found.starts_ns[1:]).all()
        assert set(found.regions) == {Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER}


def _check_purposes(issued: pd.DataFrame, known: Known, *, steps: int) -> None:
    """Check counts, bytes and regions of what the traces show: in each step of each rank the same."""
    for purpose in known.purposes:
        rows = issued[issued["purpose"] == purpose]
        per_step = rows.groupby(["rank", "step"])["size_bytes"].agg(["size", "sum"])
        assert len(per_step) == steps, purpose
        assert set(per_step["size"]) == {known.purposes[purpose]}, purpose
        if purpose in known.bytes_of:
            assert set(per_step["sum"]) == {known.bytes_of[purpose]}, purpose
        assert set(rows["region"]) == known.regions_of(purpose), purpose
    assert set(issued["purpose"]) == set(known.purposes)


def _check_between(issued: pd.DataFrame, known: Known) -> None:
    """Check that outside all regions is only what a framework issues between steps: at most once after each."""
    assert issued.empty or known.between is not None, issued
    assert (issued["size_bytes"] == known.between).all()
    assert not issued.duplicated(["rank", "step"]).any()


def _check_owners(issued: pd.DataFrame) -> None:
    """Check that an owner is known: a module below the root, a stage, a bucket, a range, or FSDP's root unit."""
    is_units = issued["purpose"].isin([Purpose.UNSHARD, Purpose.GRAD_REDUCE])
    is_nobodys = (issued["owner"] == "") | ((issued["owner"] == "root") & ~is_units)
    share = issued.loc[is_nobodys, "exposed_ns"].sum() / issued["exposed_ns"].sum()
    assert share <= MOST_UNATTRIBUTED, issued[is_nobodys]


def _find_leader(issued: pd.DataFrame) -> tuple[str, float]:
    """Give the words that an answer must lead with, and the ns of all ranks and steps that they are of.

    One owner's collectives where they are large, or where most causes are not known; else the largest cause.
    """
    owners = issued.groupby(["owner", "operation", "purpose"])["exposed_ns"].sum().sort_values(ascending=False)
    causes = {cause: int(issued[f"exposed_{cause}_ns"].sum()) for cause in Cause}
    cause = max(causes, key=causes.__getitem__)
    if owners.iloc[0] < LARGE * owners.sum() and cause is not Cause.UNKNOWN:
        return f"{CAUSE_PHRASES[cause]}; the largest part", float(causes[cause])
    owner, operation, _ = owners.index[0]
    who = f"module {owner}" if owner.replace(".", "").isdecimal() else owner
    return f"{who}'s {operation.replace('_', '-')}", float(owners.iloc[0])


def _check_leader(line: str, leader: tuple[str, float], *, windows: int) -> None:
    words, time_ns = leader
    match = re.search(r"; ([\d.]+) (ns|us|ms|s) of it (.*)", line)
    assert match is not None, line
    assert match[3].startswith(words), (line, words)
    assert abs(float(match[1]) * _NS[match[2]] - time_ns / windows) <= 0.01 * time_ns / windows, (line, time_ns)


def _check_exposed(line: str, overlap: pd.DataFrame) -> None:
    match = re.search(r"([\d.]+) (ns|us|ms|s) exposed", line)
    assert match is not None, line
    exposed_ns = overlap["exposed_comm_ns"].mean()
    assert abs(float(match[1]) * _NS[match[2]] - exposed_ns) <= 0.01 * exposed_ns, (line, exposed_ns)


def _check_answer(run: RunReport, leader: tuple[str, float]) -> None:
    """Check that the run's own answer leads with the same, unless it says why its steps may stand for no others."""
    line = next(line for line in str(run).splitlines() if line.startswith("foreign: exposed"))
    cell = run.summary.cells[0]
    if cell.disturbed or cell.doubts:
        assert re.search("unreliable, since|REPRESENTATIVE", line), line
    else:
        assert f"of it {leader[0]}" in line, (line, leader)
