"""Independent compute that stands in line behind a collective, and everything that only looks like it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.traces.job.explain import explain
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.table_sums import find_strangers
from dtbench.traces.rows.tables import TABLES

if TYPE_CHECKING:
    from tests.traces.causes.conftest import GpuRank, Maker

QUEUES = Path(__file__).parents[1] / "recorded" / "one_hardware_queue"
AHEAD = 6_000_000
MS = 1_000_000
Parts = dict[str, dict[Cause, int]]


def explain_files(paths: Sequence[Path]) -> Parts:
    """Return ns by cause of each owner, on the first rank."""
    one = explain([analyze_trace(read_trace(path)) for path in paths]).analyses[0]
    found: Parts = {}
    for collective, split in zip(one.collectives, one.splits, strict=True):
        mine = found.setdefault(collective.owner or str(collective.group), {})
        for part in split.parts:
            mine[part.cause] = mine.get(part.cause, 0) + part.exposed_ns
    return {owner: parts for owner, parts in found.items() if parts}


@pytest.mark.parametrize("ranks", [["rank0.json"], ["rank1.json"], ["rank0.json", "rank1.json"]])
def test_one_hardware_queue_is_told_from_eight(ranks: list[str]) -> None:
    assert explain_files([QUEUES / "queue1" / rank for rank in ranks]) == {
        "layers.2": {Cause.SERIALIZED: 1_500_000},
        "layers.1": {Cause.SERIALIZED: 1_500_000},
        "layers.0": {Cause.TAIL: 500_000},
    }
    assert explain_files([QUEUES / "queue8" / rank for rank in ranks]) == {"layers.0": {Cause.TAIL: 500_000}}


def test_what_was_launched_tells_nothing_where_the_launches_are_gone(tmp_path: Path) -> None:
    told = json.loads((QUEUES / "queue1" / "rank0.json").read_text())
    told["traceEvents"] = [one for one in told["traceEvents"] if one.get("cat") != "cuda_runtime"]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(told))
    causes = {cause for parts in explain_files([path]).values() for cause in parts}
    assert causes == {Cause.UNKNOWN}


Tell = Callable[["GpuRank"], None]


@pytest.fixture
def split(maker: "Maker", tmp_path: Path) -> Callable[..., tuple[dict[Cause, int], tuple[MissingInput, ...]]]:
    """Return ns by cause of the collective ``("x", 1)`` of two equal ranks, and what was missing.

    What one tells lies in forward, and what comes after it in backward.
    """

    def find(tell: Tell, after: Tell | None = None) -> tuple[dict[Cause, int], tuple[MissingInput, ...]]:
        analyses = []
        for number in range(2):
            rank = maker.gpu(2)
            with rank.around("ProfilerStep#3"):
                with rank.region("forward"):
                    rank.kernel(AHEAD - MS, AHEAD)
                    tell(rank)
                if after is not None:
                    with rank.region("backward"):
                        after(rank)
            path = tmp_path / f"rank{number}.json"
            told = {"distributedInfo": {"rank": number}, "host_name": "one", "traceEvents": rank.events}
            path.write_text(json.dumps(told))
            analyses.append(analyze_trace(read_trace(path)))
        one = explain(analyses).analyses[0]
        (parts,) = [
            split.parts
            for collective, split in zip(one.collectives, one.splits, strict=True)
            if (collective.group, collective.seq) == ("x", 1)
        ]
        return {part.cause: part.exposed_ns for part in parts}, tuple(m for part in parts for m in part.missing)

    return find


def exchange(rank: "GpuRank", start_ns: int, end_ns: int, **more: Any) -> None:
    rank.collective(start_ns, end_ns, operation="alltoall", group="x", seq=1, is_async=True, **more)


def work_wait(rank: "GpuRank") -> None:
    """``Work.wait``, around which torch writes a record of its own in some versions."""
    with rank.around("record_param_comms", "cpu_op"):
        rank.wait_on_stream()


def test_compute_launched_before_the_first_wait_stood_in_line(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)
        work_wait(rank)
        rank.kernel(AHEAD + 3 * MS, AHEAD + 4 * MS)

    assert split(tell) == ({Cause.SERIALIZED: MS}, ())


@pytest.mark.parametrize("wait", [work_wait, lambda rank: rank.wait_on_stream()])
def test_compute_launched_after_a_wait_may_need_it(split: Callable[..., Any], wait: Tell) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        wait(rank)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)

    assert split(tell) == ({Cause.NEEDED_AT_ONCE: MS}, ())


def test_a_wait_inside_the_call_that_issues_lets_communication_wait_for_compute(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        with rank.around("c10d::alltoall_base_", "cpu_op"):
            rank.wait_on_stream()
            exchange(rank, AHEAD, AHEAD + MS)
            rank.wait_on_stream()
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)
        work_wait(rank)

    assert split(tell) == ({Cause.SERIALIZED: MS}, ())


def test_without_a_record_of_waits_nobody_knows_and_what_is_missing_is_named(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)

    assert split(tell) == ({Cause.UNKNOWN: MS}, (MissingInput.STREAM_WAITS,))


def test_where_it_may_have_waited_for_something_else_no_table_knows_the_wait(maker: "Maker", tmp_path: Path) -> None:
    def analyze(*, is_recorded: bool) -> TraceAnalysis:
        rank = maker.gpu(2)
        with rank.around("ProfilerStep#3"), rank.region("forward"):
            rank.kernel(AHEAD - MS, AHEAD)
            exchange(rank, AHEAD, AHEAD + MS)
            if is_recorded:
                work_wait(rank)
            rank.kernel(AHEAD + MS, AHEAD + 3 * MS)
        path = tmp_path / "rank0.json"
        path.write_text(json.dumps({"traceEvents": rank.events}))
        return analyze_trace(read_trace(path))

    for is_recorded, wait_ns in ((True, MS), (False, None)):
        one = analyze(is_recorded=is_recorded)
        (purpose,) = one.steps[0].purposes
        gaps = one.accounts.steps[0].gaps
        assert gaps is not None
        tables = {table.name: table.tabulate([one]) for table in TABLES}
        told = (purpose.wait_ns, gaps.comm_wait_ns, *(wait.wait_ns for wait in gaps.waits))
        assert told == (wait_ns,) * 3
        for name in ("collectives", "comm_waits"):
            assert tables[name]["wait_ns"].isna().tolist() == [not is_recorded]
        assert list(find_strangers(tables)) == []


def test_at_most_what_stood_there_could_have_hidden_it(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        rank.kernel(AHEAD, AHEAD + MS)  # beside it, so that it is not needed at once
        rank.wait_on_stream()
        exchange(rank, AHEAD, AHEAD + 5 * MS)
        rank.kernel(AHEAD + 5 * MS, AHEAD + 6 * MS)
        work_wait(rank)
        rank.kernel(AHEAD + 6 * MS, AHEAD + 7 * MS)

    assert split(tell) == ({Cause.SERIALIZED: MS, Cause.BANDWIDTH: 3 * MS}, ())


def test_compute_that_waited_for_a_copy_did_not_wait_for_the_collective(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        rank.launches += 1
        rank.add("cuda_runtime", "cudaMemcpyAsync", (1, 1), (rank.host_ns, rank.host_ns + 2400), correlation=999)
        rank.add("gpu_memcpy", "Memcpy HtoD", (0, 33), (AHEAD, AHEAD + MS), correlation=999, stream=33)
        rank.host_ns += 4800
        rank.wait_on_stream()  # for the copy: queued before the collective was issued
        exchange(rank, AHEAD, AHEAD + MS - 12)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)
        work_wait(rank)

    parts, missing = split(tell)
    assert Cause.SERIALIZED not in parts
    assert Cause.BANDWIDTH not in parts
    assert missing == (MissingInput.STREAM_WAITS,)


def test_compute_that_began_long_after_its_end_waited_for_something_else(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.kernel(AHEAD + 2 * MS, AHEAD + 3 * MS)
        work_wait(rank)

    parts, missing = split(tell)
    assert (parts, missing) == ({Cause.UNKNOWN: MS}, (MissingInput.STREAM_WAITS,))


def test_compute_that_the_host_launched_after_its_end_did_not_stand(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.host_ns = AHEAD + 2 * MS
        rank.kernel(AHEAD + 2 * MS + 12_000, AHEAD + 3 * MS)
        work_wait(rank)

    assert split(tell) == ({Cause.UNKNOWN: MS}, (MissingInput.HOST,))


def test_a_line_of_two_collectives_holds_what_stands_behind_both(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.collective(AHEAD + MS, AHEAD + 2 * MS, operation="allreduce", group="y", seq=1, stream=21, is_async=True)
        rank.kernel(AHEAD + 2 * MS, AHEAD + 6 * MS)
        work_wait(rank)

    assert split(tell) == ({Cause.SERIALIZED: MS}, ())


def test_a_line_whose_second_collective_is_needed_holds_nothing(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        with rank.around("_c10d_functional::all_reduce", "cpu_op"):
            rank.collective(AHEAD + MS, AHEAD + 2 * MS, operation="allreduce", group="tp", seq=1, stream=21)
        exchange(rank, AHEAD, AHEAD + MS)
        with rank.around("_c10d_functional::wait_tensor", "cpu_op"):
            rank.wait_on_stream()  # for the all-reduce alone
        rank.kernel(AHEAD + 2 * MS, AHEAD + 6 * MS)
        work_wait(rank)

    parts, _ = split(tell)
    assert not {Cause.SERIALIZED, Cause.BANDWIDTH, Cause.NEEDED_AT_ONCE} & parts.keys()


def test_a_gather_ahead_holds_the_unit_before_but_not_its_own(split: Callable[..., Any]) -> None:
    def gather_both(rank: "GpuRank") -> None:
        for unit, seq in ((0, 7), (1, 1)):
            with rank.around(f"FSDP::all_gather (layers.{unit})"):
                span = (AHEAD + unit * MS, AHEAD + (unit + 1) * MS)
                rank.collective(*span, operation="_allgather_base", group="x", seq=seq, is_async=False)
            if unit == 0:
                copy_out(rank, 0)

    def copy_out(rank: "GpuRank", unit: int) -> None:
        with rank.around(f"FSDP::all_gather_copy_out (layers.{unit})"):
            rank.wait_on_stream()

    def before(rank: "GpuRank") -> None:
        gather_both(rank)
        rank.kernel(AHEAD + 2 * MS, AHEAD + 4 * MS)  # of layers.0, behind the gather of layers.1
        copy_out(rank, 1)
        rank.kernel(AHEAD + 4 * MS, AHEAD + 5 * MS)

    def own(rank: "GpuRank") -> None:
        gather_both(rank)
        copy_out(rank, 1)
        rank.kernel(AHEAD + 2 * MS, AHEAD + 4 * MS)

    assert split(before) == ({Cause.SERIALIZED: MS}, ())
    assert Cause.SERIALIZED not in split(own)[0]


@pytest.mark.parametrize("gone", ["FSDP::", "ProfilerStep", "cuda_runtime", "cpu_op", "autograd::engine"])
def test_with_evidence_taken_away_no_cause_gets_surer(tmp_path: Path, gone: str) -> None:
    told = json.loads((QUEUES / "queue1" / "rank0.json").read_text())
    told["traceEvents"] = [
        one for one in told["traceEvents"] if not one["name"].startswith(gone) and one.get("cat") != gone
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(told))
    (one,) = explain([analyze_trace(read_trace(path))]).analyses
    for collective, split in zip(one.collectives, one.splits, strict=True):
        is_last = collective.span.length_ns == MS // 2
        assert split.cause in ((Cause.TAIL, Cause.UNKNOWN) if is_last else (Cause.SERIALIZED, Cause.UNKNOWN)), gone


def test_a_functional_collective_whose_waits_are_in_no_record_may_be_needed(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        with rank.around("_c10d_functional::all_to_all_single", "cpu_op"):
            exchange(rank, AHEAD, AHEAD + MS)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)

    assert split(tell) == ({Cause.UNKNOWN: MS}, (MissingInput.STREAM_WAITS,))


def test_where_fsdps_own_waits_are_gone_its_gather_may_hold_or_be_needed(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        with rank.around("FSDP::all_gather (layers.0)"):
            rank.collective(AHEAD, AHEAD + MS, operation="_allgather_base", group="x", seq=1, is_async=False)
        rank.kernel(AHEAD + MS, AHEAD + 3 * MS)

    assert split(tell) == ({Cause.UNKNOWN: MS}, (MissingInput.STREAM_WAITS,))


def sit(rank: "GpuRank", until_ns: int, *, beside_ns: int | None = None) -> None:
    """Sit in a synchronising call, perhaps until a copy on another stream has ended that ended the wait."""
    if beside_ns is not None:
        rank.launches += 1
        told = {"correlation": rank.launches}
        rank.add("cuda_runtime", "cudaMemcpyAsync", (1, rank.thread), (rank.host_ns, rank.host_ns + 2_400), **told)
        rank.host_ns += 2_412
        span = (until_ns - beside_ns, until_ns - 3_000)
        rank.add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", (0, 30), span, **told)
    rank.add("cuda_runtime", "cudaStreamSynchronize", (1, rank.thread), (rank.host_ns, until_ns))
    rank.host_ns = until_ns


def compute_next(rank: "GpuRank") -> None:
    rank.kernel(rank.host_ns + 6_000, rank.host_ns + 6_000 + MS)


def compute_nothing(rank: "GpuRank") -> None:
    """Leave the rest to what comes after."""


@pytest.mark.parametrize(("tell", "after"), [(compute_next, None), (compute_nothing, compute_next)])
def test_where_the_host_sat_in_a_call_that_waited_for_something_else_nobody_needed_it(
    split: Callable[..., Any], tell: Tell, after: Tell | None
) -> None:
    """A pipeline of input: the host fetches one batch while another is sent, and could launch nothing beside it."""

    def sit_for_another(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        sit(rank, AHEAD + MS + MS // 2, beside_ns=MS // 4)
        tell(rank)

    assert split(sit_for_another, after) == ({Cause.UNKNOWN: MS}, (MissingInput.HOST,))


@pytest.mark.parametrize(("tell", "after"), [(compute_next, None), (compute_nothing, compute_next)])
def test_where_the_host_sat_in_a_call_until_it_had_ended_the_host_needed_it(
    split: Callable[..., Any], tell: Tell, after: Tell | None
) -> None:
    def sit_for_it(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        sit(rank, AHEAD + MS + 3_000)
        tell(rank)

    assert split(sit_for_it, after) == ({Cause.NEEDED_AT_ONCE: MS}, ())


def test_a_host_that_sat_in_a_call_when_a_wait_stood_launched_is_no_matter(split: Callable[..., Any]) -> None:
    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        work_wait(rank)
        rank.kernel(AHEAD + MS, AHEAD + 2 * MS)
        sit(rank, AHEAD + 2 * MS + 3_000)
        compute_next(rank)

    assert split(tell) == ({Cause.NEEDED_AT_ONCE: MS}, ())


def test_what_a_host_that_sat_in_a_call_left_uncovered_is_no_want_of_bandwidth(split: Callable[..., Any]) -> None:
    """The first half was hidden; what could have hidden the rest was not launched."""

    def tell(rank: "GpuRank") -> None:
        exchange(rank, AHEAD, AHEAD + MS)
        rank.kernel(AHEAD, AHEAD + MS // 2)
        sit(rank, AHEAD + MS + MS // 2, beside_ns=MS // 4)
        compute_next(rank)

    assert split(tell) == ({Cause.UNKNOWN: MS // 2}, (MissingInput.HOST,))


@pytest.mark.parametrize("inside", [True, False])
def test_an_optimizer_inside_backward_may_have_waited_for_its_gradients(
    split: Callable[..., Any], *, inside: bool
) -> None:
    """DDP with the optimizer in backward: no call of the host tells what its kernels waited for."""

    def forward(rank: "GpuRank") -> None:
        with rank.around("DistributedDataParallel.forward"):
            rank.kernel(AHEAD, AHEAD + MS)

    def backward(rank: "GpuRank") -> None:
        with rank.node("MmBackward0"):
            rank.kernel(AHEAD + MS, AHEAD + 2 * MS)
        with rank.node("torch::autograd::AccumulateGrad"):
            rank.collective(AHEAD + 2 * MS, AHEAD + 3 * MS, operation="allreduce", group="x", seq=1, is_async=True)
            if inside:
                with rank.around("Optimizer.step#AdamW.step"):
                    rank.kernel(AHEAD + 3 * MS, AHEAD + 4 * MS, name="multi_tensor_apply_kernel")
        with rank.node("MmBackward0"):
            start_ns = AHEAD + (4 if inside else 3) * MS
            rank.kernel(start_ns, start_ns + MS)

    expected = ({Cause.UNKNOWN: MS}, (MissingInput.STREAM_WAITS,)) if inside else ({Cause.SERIALIZED: MS}, ())
    assert split(forward, backward) == expected


@pytest.mark.parametrize(
    ("launched_ns", "expected"),
    [
        (AHEAD + 5 * MS, ({Cause.UNKNOWN: MS}, (MissingInput.HOST,))),
        (AHEAD + MS // 2, ({Cause.NEEDED_AT_ONCE: MS}, ())),
    ],
    ids=["after its end", "while it ran"],
)
def test_a_gather_whose_unit_was_launched_after_its_end_was_needed_by_nobody(
    split: Callable[..., Any], launched_ns: int, expected: object
) -> None:
    def tell(rank: "GpuRank") -> None:
        with rank.around("FSDP::all_gather (layers.0)"):
            rank.collective(AHEAD, AHEAD + MS, operation="_allgather_base", group="x", seq=1, is_async=True)
        rank.host_ns = launched_ns
        with rank.around("FSDP::all_gather_copy_out (layers.0)"):
            rank.wait_on_stream()
            start_ns = max(rank.host_ns + 6_000, AHEAD + MS + 6_000)
            rank.kernel(start_ns, start_ns + MS)

    assert split(tell) == expected


@pytest.mark.parametrize(
    ("launched_ns", "expected"),
    [
        (AHEAD + 5 * MS, ({Cause.UNKNOWN: MS}, (MissingInput.HOST,))),
        (AHEAD + 2 * MS + MS // 2, ({Cause.TAIL: MS}, ())),
    ],
    ids=["after its end", "while it ran"],
)
def test_a_last_bucket_that_ended_before_the_optimizer_was_launched_held_nobody_up(
    split: Callable[..., Any], launched_ns: int, expected: object
) -> None:
    def forward(rank: "GpuRank") -> None:
        with rank.around("DistributedDataParallel.forward"):
            rank.kernel(AHEAD, AHEAD + MS)

    def backward(rank: "GpuRank") -> None:
        with rank.node("MmBackward0"):
            rank.kernel(AHEAD + MS, AHEAD + 2 * MS)
        with rank.node("torch::autograd::AccumulateGrad"):
            rank.collective(AHEAD + 2 * MS, AHEAD + 3 * MS, operation="allreduce", group="x", seq=1, is_async=True)
        rank.wait_on_stream()
        rank.host_ns = launched_ns
        with rank.around("Optimizer.step#AdamW.step"):
            start_ns = max(rank.host_ns + 6_000, AHEAD + 3 * MS + 6_000)
            rank.kernel(start_ns, start_ns + MS, name="multi_tensor_apply_kernel")

    assert split(forward, backward) == expected
