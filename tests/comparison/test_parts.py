"""Traces of some ranks of a job, or of collectives that were not seen to run: no zero, no change, no bound kept."""

import gzip
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.columns import Better, Unit
from dtbench.base.vocabulary import POINT_TO_POINT, Purpose
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.metrics import BY_NAME, Metric, OfPurpose
from dtbench.comparison.reading import measure
from dtbench.comparison.reading.sides import read_sides
from dtbench.comparison.run import compare_paths
from dtbench.report.page.brief.comparison import sides_chart
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

TRACES = Path(__file__).parents[1] / "traces" / "recorded"
SHARED = Path(__file__).parents[3] / "shared" / "traces"


def check_that_nothing_is_compared(found: Comparison, words: str) -> None:
    assert found.sentence.endswith(f"; what was exposed cannot be compared: {words}")
    assert words in found.notes
    assert found.collectives == ()
    profiled = [change for change in found.metrics if BY_NAME[change.metric].is_profiled]
    assert {change.outcome for change in profiled} == {Outcome.UNKNOWN}
    for bound in ("mechanism changed", "exposed_comm > 1 ms"):
        assert judge(read_bound(bound), found).kept is Kept.UNDECIDED
    assert f"undecided, {words}" in judge(read_bound("mechanism changed"), found).words


@pytest.mark.parametrize("kept", [0, 1])
def test_traces_of_one_rank_are_not_compared_with_those_of_two(tmp_path: Path, kept: int) -> None:
    whole = TRACES / "pipelines" / "1f1b"
    part = tmp_path / "part"
    part.mkdir()
    shutil.copy(whole / f"rank{kept}.json.gz", part)
    each = ("1f1b has traces of ranks 0-1 of 2", f"part has traces of rank {kept} of 2")
    check_that_nothing_is_compared(compare_paths(str(whole), str(part), results=tmp_path), ", ".join(each))
    found = compare_paths(str(part), str(whole), results=tmp_path)
    check_that_nothing_is_compared(found, ", ".join(each[::-1]))
    assert f"part: there are traces of rank {kept} of 2 alone" in found.notes


def test_traces_of_the_same_rank_are_compared_and_the_others_named(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        shutil.copy(TRACES / "pipelines" / "1f1b" / "rank0.json.gz", tmp_path / name)
    found = compare_paths(str(tmp_path / "old"), str(tmp_path / "new"), results=tmp_path)
    assert "cannot be compared" not in found.sentence
    assert found.collectives
    assert "both: there are traces of rank 0 of 2 alone" in found.notes


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not beside the project")
def test_what_a_side_with_unseen_collectives_does_not_mention_is_no_zero(tmp_path: Path) -> None:
    """Its kernels are gone, its operators are not: the same trace, of which the device's reductions were left out."""
    for name, kept in (("old", True), ("new", False)):
        document = json.loads(gzip.decompress((SHARED / "a100x8_ddp_rank.json.gz").read_bytes()))
        document["traceEvents"] = [
            event
            for event in document["traceEvents"]
            if kept or "AllReduce" not in str(event.get("name", "")) or event.get("cat") != "kernel"
        ]
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank3.json").write_text(json.dumps(document))
    found = compare_paths(str(tmp_path / "old"), str(tmp_path / "new"), results=tmp_path)
    reduced = [one for one in found.metrics if one.subject == "grad_reduce"]
    assert reduced
    assert all(math.isnan(one.candidate.median) for one in reduced)


def write_without_steps(source: Path, path: Path) -> None:
    trace = json.loads(gzip.decompress(source.read_bytes()))
    trace["traceEvents"] = [one for one in trace["traceEvents"] if not one.get("name", "").startswith("ProfilerStep")]
    path.write_text(json.dumps({**trace, "traceName": path.name}))


def test_traces_without_steps_tell_what_any_column_of_purposes_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [one.name for one in PURPOSES.columns if one.is_number]
    metrics = tuple(Metric(name, name, Unit.NS, Better.NEITHER, OfPurpose(name)) for name in columns)
    monkeypatch.setattr(measure, "METRICS", metrics)
    write_without_steps(TRACES / "ddp_2ranks_rank0.json.gz", tmp_path / "one.json")
    (side,) = read_sides(str(tmp_path / "one.json"), tmp_path).values()
    (analysis,) = analyze_traces([tmp_path / "one.json"]).analyses
    (row,) = (row for row in analysis.whole_purposes if row.purpose is Purpose.GRAD_REDUCE)
    told = {one.metric: one.value for one in side.launches[0].measurements if one.subject == "grad_reduce"}
    assert {name: told[name] for name in columns} == {name: PURPOSES.describe(row)[name] for name in columns}


def test_traces_without_steps_are_not_compared_as_if_they_were_one_step(tmp_path: Path) -> None:
    """They are as long as somebody recorded: neither their length nor their counts are a step's."""
    source = TRACES / "ddp_2ranks_rank0.json.gz"
    for name in ("old.json", "new.json"):
        write_without_steps(source, tmp_path / name)
    without = [str(tmp_path / name) for name in ("old.json", "new.json")]
    both = "old.json and new.json tell no steps, so their numbers are of all that was recorded"
    one = "old.json tells no steps, so its numbers are of all that was recorded"
    for sides, words in ((without, both), ([without[0], str(source)], one), ([str(source), without[0]], one)):
        found = compare_paths(*sides, results=tmp_path)
        check_that_nothing_is_compared(found, words)
        assert found.sentence.startswith("The step times cannot be compared: ")
        assert (found.mechanism, found.mechanism_doubts) == ((), (words,))


def lose_steps(trace: dict[str, Any]) -> None:
    trace["traceEvents"] = [one for one in trace["traceEvents"] if not one.get("name", "").startswith("ProfilerStep")]


def lose_launches(trace: dict[str, Any]) -> None:
    """Take away what ties kernels to their launches: no step of a device is known then."""
    for one in trace["traceEvents"]:
        one.get("args", {}).pop("correlation", None)


def make_without(folder: Path, *, rank: int, lose: Callable[[dict[str, Any]], None]) -> Path:
    """Copy the traces of two ranks, of which one lacks something."""
    found = Path(shutil.copytree(TRACES / "two_ranks_one_gpu" / "ddp", folder))
    path = found / f"rank{rank}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    lose(trace)
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return found


@pytest.mark.parametrize("lose", [lose_steps, lose_launches])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_slowest_of_two_ranks_is_not_compared_with_the_only_one_whose_steps_are_known(
    tmp_path: Path, rank: int, lose: Callable[[dict[str, Any]], None]
) -> None:
    whole = TRACES / "two_ranks_one_gpu" / "ddp"
    part = make_without(tmp_path / "part", rank=rank, lose=lose)
    said = f"part knows step time and exposed comm of rank {1 - rank} alone"
    for sides in ((whole, part), (part, whole)):
        found = compare_paths(*map(str, sides), results=tmp_path)
        assert found.sentence.startswith("The step times cannot be compared: ")
        assert f"what was exposed cannot be compared: {said}" in found.clauses
        assert found.kernels_not_compared == f"compute kernels are not compared: {said}"
        assert {one.outcome for one in found.metrics} == {Outcome.UNKNOWN}
        assert math.isnan(found.metrics[0].ratio)
        assert judge(read_bound("step_time > 1%"), found).kept is Kept.UNDECIDED


@pytest.mark.parametrize("other", ["skew", "host", "fsdp2"])
def test_traces_of_two_jobs_are_not_compared_as_those_of_one(tmp_path: Path, other: str) -> None:
    """A rank of each: ``analyze`` says of nothing over both whose it is."""
    whole, mixed = TRACES / "two_ranks_one_gpu" / "ddp", tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(whole / "rank0.json.gz", mixed)
    shutil.copy(whole.parent / other / "rank1.json.gz", mixed)
    for sides in ((whole, mixed), (mixed, whole)):
        found = compare_paths(*map(str, sides), results=tmp_path)
        check_that_nothing_is_compared(found, "the traces of mixed are not all, or not surely, of one job")
        assert found.sentence.startswith("The step times cannot be compared: ")
        assert found.metrics[0].outcome is Outcome.UNKNOWN
        assert judge(read_bound("step_time > 1%"), found).kept is Kept.UNDECIDED
        assert sides_chart(found) is None


def lose_kernel_of_step(trace: dict[str, Any]) -> None:
    """Lose a kernel of a step that computes: the step has no account then."""
    events = trace["traceEvents"]
    begins = [one["ts"] for one in events if one.get("name") == "ProfilerStep#3" and "dur" in one]
    kernels = [one for one in events if one.get("cat") == "kernel" and "nccl" not in one["name"]]
    later = sorted((one for one in kernels if one["ts"] > min(begins) + 500), key=lambda one: float(one["ts"]))
    trace["traceEvents"] = [one for one in events if one is not later[5]]


def test_a_step_time_of_fewer_steps_than_the_other_says_so_first(tmp_path: Path) -> None:
    whole = TRACES / "two_ranks_one_gpu" / "ddp"
    part = make_without(tmp_path / "part", rank=1, lose=lose_kernel_of_step)
    found = compare_paths(str(whole), str(part), results=tmp_path)
    assert found.clauses[1] == "step times are of 3 of 3 steps of ddp and 2 of 3 steps of part"
    same = Path(shutil.copytree(part, tmp_path / "same"))
    assert not [one for one in compare_paths(str(part), str(same), results=tmp_path).clauses if "times are of" in one]


def test_steps_of_the_same_rank_alone_are_compared_and_it_is_said_first_whose_they_are(tmp_path: Path) -> None:
    sides = [make_without(tmp_path / name, rank=1, lose=lose_steps) for name in ("old", "new")]
    found = compare_paths(*map(str, sides), results=tmp_path)
    assert found.metrics[0].ratio == 1
    assert found.clauses[1] == "step time and exposed comm are of rank 0 alone on both sides"


def test_a_side_whose_ranks_show_no_communication_is_doubted(tmp_path: Path) -> None:
    ran = {"ph": "X", "pid": 0, "tid": 7, "ts": 1, "cat": "kernel", "name": "gemm", "dur": 8, "args": {"stream": 7}}
    call = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1}
    step = {**call, "cat": "user_annotation", "name": "ProfilerStep#1", "dur": 10}
    for name, size in (("alone", 1), ("several", 64)):
        for event in (ran, call):
            event["args"] = {"correlation": 5, "stream": 7}
        job = {"distributedInfo": {"rank": 0, "world_size": size, "backend": "nccl"}}
        (tmp_path / f"{name}.json").write_text(json.dumps({**job, "traceEvents": [step, call, ran]}), encoding="utf-8")
    (alone,), (several,) = (
        read_sides(str(tmp_path / f"{name}.json"), tmp_path).values() for name in ("alone", "several")
    )
    said = "PERHAPS NOT REPRESENTATIVE: no communication is seen of rank 0, though the job has 64 ranks"
    assert [doubt for doubt in several.doubts if doubt.startswith(said)]
    assert not [doubt for doubt in alone.doubts if "no communication" in doubt]


def test_a_step_that_one_rank_does_not_mark_is_left_out(tmp_path: Path) -> None:
    """Else its time were the other ranks' alone, and means were over unlike steps."""
    whole = TRACES / "pipelines" / "1f1b"
    lost = Path(shutil.copytree(whole, tmp_path / "lost"))
    path = lost / "rank1.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"] = [one for one in trace["traceEvents"] if not one.get("name", "").endswith("ProfilerStep#2")]
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    (side,), (other,) = (read_sides(str(one), tmp_path).values() for one in (whole, lost))
    steps = [
        sum(one.value for one in found.launches[0].measurements if one.metric == "step_time") for found in (side, other)
    ]
    overlap = OVERLAP.tabulate(analyze_traces([whole]).analyses)
    assert steps[0] == overlap.groupby("step")["step_ns"].max().median()
    assert steps[1] == overlap[overlap["step"] != 2].groupby("step")["step_ns"].max().median()
    assert other.doubts[0] == "PERHAPS NOT REPRESENTATIVE: step 2 is left out on all ranks, as rank 1 lacks it"
    assert not [note for note in other.notes if "are over the ranks that have it" in note], "they are not"
    assert {row.cause for row in other.launches[0].owned} == {None}
    found = compare_paths(str(whole), str(lost), results=tmp_path)
    assert "and lost may stand for no others, so what follows may not either" in found.sentence
    assert [one for one in found.doubts if "step 2 is left out on all ranks" in one]


@pytest.mark.parametrize("name", ["ddp", "compiled", "fsdp2_tp"])
def test_ranks_without_a_common_step_have_no_step_that_is_compared(tmp_path: Path, name: str) -> None:
    """Else the median over steps were of one rank and then of another, and no step's slowest rank."""
    whole = TRACES / "two_ranks_one_gpu" / name
    apart = Path(shutil.copytree(whole, tmp_path / "apart"))
    path = apart / "rank1.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(
        gzip.compress(re.sub(r"ProfilerStep#(\d+)", lambda at: f"ProfilerStep#{int(at[1]) + 10}", text).encode())
    )
    for sides in ((whole, apart), (apart, whole)):
        found = compare_paths(*map(str, sides), results=tmp_path)
        check_that_nothing_is_compared(found, "the ranks of apart have no step in common, so that none counts")
    assert "no step is in the traces of all ranks" in found.doubts[0]


def test_sends_named_by_their_stage_are_no_less_of_those_named_by_their_peer(tmp_path: Path) -> None:
    found = compare_paths(
        str(TRACES / "pipelines" / "1f1b"), str(TRACES / "pipelines" / "interleaved"), results=tmp_path
    )
    schemes = {"rank" in row.owner for row in found.collectives if row.operation in POINT_TO_POINT}
    assert schemes == {True, False}
    for row in found.collectives:
        if row.operation in POINT_TO_POINT:
            known = [not math.isnan(time_ns) for time_ns in row.exposed_ns]
            assert known == ["rank" in row.owner, "rank" not in row.owner]
    assert "of to rank" not in found.sentence
    assert "of stage" not in found.sentence


def lose_kernel(path: Path) -> None:
    """Take the second kernel of a collective out of a trace; its launch stays."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel" and "nccl" in one["name"]]
    lost = sorted(kernels, key=lambda one: one["ts"])[1]
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one is not lost]
    path.write_text(json.dumps(trace), encoding="utf-8")


def test_a_collective_that_was_launched_and_not_seen_is_no_collective_less(tmp_path: Path) -> None:
    whole = TRACES / "one_hardware_queue" / "queue8"
    lost = Path(shutil.copytree(whole, tmp_path / "lost"))
    for path in lost.glob("rank*.json"):
        lose_kernel(path)
    found = compare_paths(str(whole), str(lost), results=tmp_path)
    check_that_nothing_is_compared(found, "2 collectives of lost were launched and not seen to run")


def test_a_collective_of_the_cpu_without_a_span_is_no_shorter_communication(tmp_path: Path) -> None:
    """Its operator was recorded, its work by gloo was not."""
    whole = TRACES / "ddp_2ranks_rank0.json.gz"
    trace = json.loads(gzip.decompress(whole.read_bytes()))
    lost = [one for one in trace["traceEvents"] if one.get("name") == "gloo:all_reduce"][4]
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one is not lost]
    path = tmp_path / "lost.json"
    path.write_text(json.dumps({**trace, "traceName": "lost"}), encoding="utf-8")
    found = compare_paths(str(whole), str(path), results=tmp_path)
    check_that_nothing_is_compared(found, "1 collective of lost.json was launched and not seen to run")


def test_a_step_without_collectives_is_not_taken_for_the_steps_that_have_some(tmp_path: Path) -> None:
    """As under ``no_sync``: neither a call, nor an operator, nor work of gloo is in one step of three."""
    whole = TRACES / "ddp_2ranks_rank0.json.gz"
    trace = json.loads(gzip.decompress(whole.read_bytes()))
    first = min(
        (one for one in trace["traceEvents"] if one.get("name", "").startswith("ProfilerStep")),
        key=lambda one: one["ts"],
    )
    trace["traceEvents"] = [
        one
        for one in trace["traceEvents"]
        if not (
            one.get("name", "").startswith(("gloo:", "c10d::", "dtbench::collective", "torch.distributed.ddp"))
            and first["ts"] <= one["ts"] < first["ts"] + first["dur"]
        )
    ]
    path = tmp_path / "without.json"
    path.write_text(json.dumps({**trace, "traceName": "without"}), encoding="utf-8")
    found = compare_paths(str(whole), str(path), results=tmp_path)
    said = "without.json issued other collectives in 1 of 3 PROFILED steps of rank 0 than in most, which are compared"
    assert found.mechanism_doubts == (said,)
    assert judge(read_bound("mechanism changed"), found).kept is Kept.UNDECIDED


@pytest.mark.parametrize("kept", [0, 1])
def test_the_step_time_of_the_slowest_rank_is_not_compared_where_that_may_be_missing(tmp_path: Path, kept: int) -> None:
    whole = TRACES / "pipelines" / "1f1b"
    for name in ("part", "same"):
        (tmp_path / name).mkdir()
        shutil.copy(whole / f"rank{kept}.json.gz", tmp_path / name)
    for named in ((whole, tmp_path / "part"), (tmp_path / "part", whole)):
        found = compare_paths(*map(str, named), results=tmp_path)
        assert found.sentence.startswith("The step times cannot be compared: ")
        assert found.metrics[0].outcome is Outcome.UNKNOWN
        assert math.isnan(found.metrics[0].ratio)
        assert judge(read_bound("step_time > 1%"), found).kept is Kept.UNDECIDED
    alike = compare_paths(str(tmp_path / "part"), str(tmp_path / "same"), results=tmp_path)
    assert alike.metrics[0].outcome is not Outcome.UNKNOWN
