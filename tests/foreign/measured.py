"""What every loop is asked: what dtbench says of it, held against counts by hand and against its own tables."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

import dtbench
from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import CAUSE_PHRASES, Cause, Purpose, Region
from dtbench.report.notebook.loaded import RunReport
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_rank_records, read_run, read_steps
from dtbench.store.records.run import OwnLoop, RunStatus
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import find_regions
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
    _check_purposes(issued, known, steps=known.ranks * loop.profiled_steps)
    _check_owners(issued)
    counted = _add_begun_before(traced.collectives, _find_starts(launch))
    leaders = list(_find_leaders(counted))
    first_line = str(traced).splitlines()[0]
    _check_leader(first_line, leaders, windows=known.ranks * loop.profiled_steps)
    _check_exposed(first_line, traced.overlap)
    _check_answer(dtbench.load_run(folder), leaders)


def _check_traffic(launch: LaunchFolder, known: Known) -> None:
    """Check what each rank counted itself, while nobody profiled it."""
    for record in read_rank_records(launch):
        assert record.warmup.period == known.period, record.warmup.reason
        counts, sizes = Counter[Purpose](), Counter[Purpose]()
        for row in record.traffic:
            counts[row.purpose] += row.count
            sizes[row.purpose] += row.size_bytes
        assert counts == (known.told or known.purposes)
        if known.told:
            assert sizes.total() == sum(known.bytes_of.values())
        else:
            assert {purpose: sizes[purpose] for purpose in known.bytes_of} == known.bytes_of
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


def _check_owners(issued: pd.DataFrame) -> None:
    """Check that owners are known: modules below the root, FSDP's units, stages, buckets, ranges, functions."""
    is_units = issued["purpose"].isin([Purpose.UNSHARD, Purpose.GRAD_REDUCE])
    is_nobodys = (issued["owner"] == "") | ((issued["owner"] == "root") & ~is_units)
    share = issued.loc[is_nobodys, "exposed_ns"].sum() / issued["exposed_ns"].sum()
    print(f"{share:.2%} of exposed time nobody's")  # noqa: T201 - for who runs it with -s
    assert share <= MOST_UNATTRIBUTED, issued[is_nobodys]


def _find_starts(launch: LaunchFolder) -> dict[int, int]:
    """Return when the first traced step of each rank begins, on its trace's clock."""
    starts = {}
    for rank, path in launch.find_traces().items():
        trace = read_trace(path)
        is_step = trace.is_named(lambda name: name.startswith(STEP_PREFIX))
        starts[rank] = int(trace.start_ns[is_step].min())
    return starts


def _add_begun_before(collectives: pd.DataFrame, starts_ns: Mapping[int, int]) -> pd.DataFrame:
    """Return those of the traced steps, and those of an earlier one that still run when the first of these begins.

    Their column ``least_ns`` is what of their exposed time must count to the steps, ``most_ns`` what may.
    """
    after_ns = (collectives["end_ns"] - collectives["rank"].map(starts_ns)).clip(lower=0)
    is_issued = collectives["step"].notna()
    exposed_ns = collectives["exposed_ns"].astype("int64")
    least_ns = exposed_ns.where(is_issued, 0)
    most_ns = exposed_ns.where(is_issued, exposed_ns.clip(upper=after_ns.astype("int64")))
    return collectives.assign(least_ns=least_ns, most_ns=most_ns)[most_ns > 0]


def _find_leaders(counted: pd.DataFrame) -> Iterator[tuple[str, float, float]]:
    """Yield the words that an answer may lead with, and the least and most ns of all ranks and steps that they are of.

    The largest owner's where they are large, or where most causes are not known; else the largest cause's. There is
    one, but where what an earlier step left running may make it another.
    """
    owners = counted.groupby(["owner", "operation", "purpose"])[["least_ns", "most_ns"]].sum()
    causes = pd.DataFrame(
        {
            bound: [int(counted[f"exposed_{cause}_ns"].clip(upper=counted[bound]).sum()) for cause in Cause]
            for bound in ("least_ns", "most_ns")
        },
        index=list(Cause),
    )
    largest = owners[owners["most_ns"] >= owners["least_ns"].max()]
    causing = causes[causes["most_ns"] >= causes["least_ns"].max()]
    if largest["most_ns"].max() >= LARGE * owners["least_ns"].sum() or Cause.UNKNOWN in causing.index:
        for (owner, operation, _), least_ns, most_ns in largest.itertuples():
            who = f"module {owner}" if owner.replace(".", "").isdecimal() else owner
            yield f"{who}'s {operation.replace('_', '-')}", least_ns, most_ns
    if largest["least_ns"].max() < LARGE * owners["most_ns"].sum():
        for cause, least_ns, most_ns in causing.itertuples():
            yield f"{CAUSE_PHRASES[cause]}; the largest part of that", least_ns, most_ns


def _check_leader(line: str, leaders: Sequence[tuple[str, float, float]], *, windows: int) -> None:
    match = re.search(r"; ([\d.]+) (ns|us|ms|s) of it (.*)", line)
    assert match is not None, line
    said = re.sub(r"(?<='s )[\d.]+ [KMG]?i?B ", "", match[3])  # of an owner that has others of other sizes
    least_ns, most_ns = next((ends for words, *ends in leaders if said.startswith(words)), (math.nan, math.nan))
    said_ns = float(match[1]) * _NS[match[2]] * windows
    assert 0.99 * least_ns <= said_ns <= 1.01 * most_ns, (line, leaders)


def _check_exposed(line: str, overlap: pd.DataFrame) -> None:
    match = re.search(r"([\d.]+) (ns|us|ms|s) exposed", line)
    assert match is not None, line
    exposed_ns = overlap["exposed_comm_ns"].mean()
    assert abs(float(match[1]) * _NS[match[2]] - exposed_ns) <= 0.01 * exposed_ns, (line, exposed_ns)


def _check_answer(run: RunReport, leaders: Sequence[tuple[str, float, float]]) -> None:
    """Check that the run's own answer leads with the same, unless it says why its steps may stand for no others."""
    line = next(line for line in str(run).splitlines() if line.startswith("foreign: exposed"))
    cell = run.summary.cells[0]
    if cell.disturbed or cell.doubts:
        assert re.search("unreliable, since|REPRESENTATIVE", line), line
    else:
        assert any(f"of it {words}" in line for words, *_ in leaders), (line, leaders)
