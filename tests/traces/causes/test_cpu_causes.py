"""Injected causes on the host: gloo under DDP, FSDP2 and tensor parallelism, our own runs and other people's."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

if TYPE_CHECKING:
    from tests.traces.causes.conftest import CpuRank, Maker, Story

Stories = Callable[["Maker"], "Story"]
Compute = Callable[["CpuRank", int], None]


def label(operation: str, axis: str, seq: int, *, is_async: bool = True) -> dict[str, object]:
    return {
        "group": {"tensor": 2, "shard": 1, "replicate": 0}[axis], "seq": seq, "op": operation, "bytes": 4096 + seq,
        "axis": axis, "async": int(is_async), "owner": "",
    }  # fmt: skip


def bucket(rank: "CpuRank", seq: int, span: tuple[int, int], lane: int = 100) -> None:
    """AccumulateGrad's hook copies the gradient into its bucket and reduces the bucket."""
    with rank.node("torch::autograd::AccumulateGrad"):
        rank.operator(1200, "aten::copy_")
        rank.collective(*span, label=label("all_reduce", "replicate", seq), lane=lane)


def layer(rank: "CpuRank", length_ns: int) -> None:
    with rank.node("MmBackward0"):
        rank.operator(length_ns)


def operate(rank: "CpuRank", length_ns: int) -> None:
    rank.operator(length_ns)


def timed(rank: "CpuRank", length_ns: int) -> None:
    """A block of known cost takes its time in backward: a range, with no operator in it."""
    with rank.node("_TakeTimeBackward"):
        take_time(rank, length_ns, "backward")


def take_time(rank: "CpuRank", length_ns: int, region: str = "forward") -> None:
    start_ns = rank.host_ns
    rank.host_ns += length_ns
    rank.add("user_annotation", f"dtbench::timed layers.0 {region}", (1, rank.thread), (start_ns, rank.host_ns))


def finish(rank: "CpuRank", now_ns: int) -> None:
    """Copies out of buckets, after a wait that is no event."""
    rank.host_ns = max(rank.host_ns, now_ns)
    rank.operator(2400, "aten::copy_")
    rank.operator(2400, "aten::copy_")


def step(rank: "CpuRank") -> None:
    with rank.region("optimizer"):
        rank.operator(12_000, "aten::_foreach_add_")


def buckets(
    maker: "Maker", extra_ns: int, tail_ns: int, late: int | None, compute: "Compute" = layer
) -> "list[CpuRank]":
    """Write DDP's backward of two layers; the last bucket runs alone, and on all ranks but one starts early.

    Args:
        maker: draws.
        extra_ns: how much longer the first bucket is than the compute beside it.
        tail_ns: length of the last bucket.
        late: the rank that starts the last bucket late, by half its length.
        compute: writes what a layer computes.
    """
    size = maker.size()
    ranks = []
    for number in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                compute(rank, 120_000)
                now = rank.host_ns + 24_000
                bucket(rank, 1, (now, now + 120_000 + extra_ns))
                rank.host_ns = now + 1200
                compute(rank, 120_000)
                rank.host_ns = now + 120_000 + extra_ns + 12_000
                compute(rank, 24_000)
                now = rank.host_ns + 24_000
                wait = tail_ns // 24 * 12 if number == late else 0
                bucket(rank, 2, (now + wait, now + tail_ns))
                finish(rank, now + tail_ns)
            step(rank)
        ranks.append(rank)
    return ranks


def last_bucket(maker: "Maker", compute: "Compute" = layer) -> "Story":
    """Nothing is left to compute beside DDP's last bucket."""
    tail = maker.some(60, 400)
    ranks = buckets(maker, 6_000, tail, None, compute)
    return maker.story(
        name="last_bucket", ranks=[rank.events for rank in ranks],
        target=("0", 2), injected="tail", expected=[{"tail": tail}] * len(ranks),
    )  # fmt: skip


def long_bucket(maker: "Maker", compute: "Compute" = layer) -> "Story":
    """A bucket that takes longer than what computes beside it."""
    extra = maker.some(60, 400)
    ranks = buckets(maker, extra, 60_000, None, compute)
    return maker.story(
        name="long_bucket", ranks=[rank.events for rank in ranks], target=("0", 1), injected="bandwidth",
        expected=[{"bandwidth": extra}] * len(ranks),
    )  # fmt: skip


def bucket_beside_a_thread_that_stood_still(maker: "Maker") -> "Story":
    """The thread goes on only at its end, with more compute than it was long: it was not too long for that."""
    length, size = maker.some(20, 90), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                layer(rank, 120_000)
                now = rank.host_ns + 24_000
                bucket(rank, 1, (now, now + length))
                rank.host_ns = now + length
                layer(rank, 120_000)
                now = rank.host_ns + 24_000
                bucket(rank, 2, (now, now + 60_000))
                finish(rank, now + 60_000)
            step(rank)
        ranks.append(rank.events)
    return maker.story(
        name="bucket_beside_a_thread_that_stood_still", ranks=ranks, target=("0", 1), injected="unknown",
        expected=[{"unknown": length}] * size, missing=("host",), others={("0", 2): {"tail": 60_000}},
    )  # fmt: skip


def bucket_waits_for_a_rank(maker: "Maker") -> "Story":
    """One rank starts the last bucket late."""
    tail = maker.some(60, 400) // 24 * 24
    ranks = buckets(maker, 6_000, tail, 0)
    half = {"skew": tail // 2, "tail": tail // 2}
    return maker.story(
        name="bucket_waits_for_a_rank", ranks=[rank.events for rank in ranks], target=("0", 2), injected="skew",
        expected=[{"tail": tail // 2}] + [half] * (len(ranks) - 1),
    )  # fmt: skip


def bucket_without_a_free_thread(maker: "Maker") -> "Story":
    """gloo runs two collectives of a group at once; a third waits for a thread."""
    held, size = maker.some(100, 300), maker.size()
    length = maker.some(20, 90) if maker.flip() else held + maker.some(6, 60)
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                layer(rank, 60_000)
                # The third is issued 14.4 us after this, ready or not.
                free = rank.host_ns + 14_400 + held
                before = rank.host_ns + 6_000
                bucket(rank, 1, (before, free), lane=100)
                rank.host_ns = before
                bucket(rank, 2, (rank.host_ns + 4_800, free), lane=101)
                rank.host_ns = free - held - 1200 - 240
                bucket(rank, 3, (free, free + length), lane=100)
                finish(rank, free + length)
            step(rank)
        ranks.append(rank.events)
    queued = min(length, held)
    return maker.story(
        name="bucket_without_a_free_thread", ranks=ranks, target=("0", 3), injected="queued",
        expected=[{"queued": queued, "tail": length - queued}] * size, behind=("0", 1),
    )  # fmt: skip


def buckets_ready_at_the_end(maker: "Maker", work: "Compute" = layer) -> "Story":
    """DDP over tensor parallelism: gradients are handed over at the end of backward."""
    compute, length, size = maker.some(100, 200), maker.some(20, 90), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                work(rank, compute)
                work(rank, compute)
                now = rank.host_ns + 24_000
                with rank.node("_FromTorchTensorBackward"):
                    pass
                bucket(rank, 1, (now, now + length))
                with rank.node("_FromTorchTensorBackward"):
                    pass
                bucket(rank, 2, (now + length + 12_000, now + 2 * length + 12_000), lane=101)
                finish(rank, now + 2 * length + 12_000)
            step(rank)
        ranks.append(rank.events)
    return maker.story(
        name="buckets_ready_at_the_end", ranks=ranks, target=("0", 1), injected="late_ready",
        expected=[{"late_ready": length}] * size, others={("0", 2): {"tail": length}},
    )  # fmt: skip


def gather(rank: "CpuRank", unit: int, start_ns: int, length_ns: int, *, is_async: bool) -> None:
    with rank.around(f"FSDP::all_gather ({unit})"):
        told = label("all_gather", "shard", 10 + unit, is_async=is_async)
        rank.collective(start_ns, start_ns + length_ns, label=told, lane=110)
        if not is_async:
            rank.host_ns = start_ns + length_ns


def compute_unit(rank: "CpuRank", unit: int, length_ns: int) -> None:
    with rank.around(f"FSDP::all_gather_copy_out ({unit})"):
        rank.operator(6_000, "fsdp::split_with_sizes_copy")
    rank.operator(length_ns - 6_000)


def blocking_gather(maker: "Maker") -> "Story":
    """gloo under FSDP2 as it comes: the first gather holds the thread."""
    length, size = maker.some(60, 300), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(12_000)
                gather(rank, 0, rank.host_ns + 6_000, length, is_async=False)
                compute_unit(rank, 0, 60_000)
            step(rank)
        ranks.append(rank.events)
    return maker.story(
        name="blocking_gather", ranks=ranks, target=("1", 10), injected="sync_op",
        expected=[{"sync_op": length}] * size,
    )  # fmt: skip


def blocking_gather_after_compute(maker: "Maker") -> "Story":
    """The second one could have been issued when the first unit began to compute; blocking explains the rest."""
    compute, size = maker.some(60, 120), maker.size()
    length = compute + maker.some(10, 50) if maker.flip() else maker.some(20, 50)
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                gather(rank, 0, rank.host_ns + 6_000, 60_000, is_async=False)
                compute_unit(rank, 0, compute)
                gather(rank, 1, rank.host_ns + 6_000, length, is_async=False)
                compute_unit(rank, 1, compute)
            step(rank)
        ranks.append(rank.events)
    late = min(length, compute)
    return maker.story(
        name="blocking_gather_after_compute", ranks=ranks, target=("1", 11), injected="late_issue",
        expected=[{"late_issue": late, "sync_op": length - late}] * size,
    )  # fmt: skip


def prefetched_gather(maker: "Maker", work: "Compute" = operate) -> "Story":
    """Issued asynchronously before the first unit computes, and longer than that."""
    compute, extra, size = maker.some(60, 120), maker.some(30, 200), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                gather(rank, 0, rank.host_ns + 6_000, 60_000, is_async=False)
                with rank.around("FSDP::all_gather_copy_out (0)"):
                    rank.operator(6_000, "fsdp::split_with_sizes_copy")
                now = rank.host_ns + 6_000
                gather(rank, 1, now, compute + extra, is_async=True)
                rank.host_ns = now + 1200
                work(rank, compute)
                rank.wait("1", 11, now + compute + extra)
                compute_unit(rank, 1, compute)
            step(rank)
        ranks.append(rank.events)
    late = 6_000  # the copy out ran before it was issued
    return maker.story(
        name="prefetched_gather", ranks=ranks, target=("1", 11), injected="bandwidth",
        expected=[{"late_issue": late, "bandwidth": extra - late}] * size,
    )  # fmt: skip


def timed_last_bucket(maker: "Maker") -> "Story":
    """The same causes where blocks take a given time in place of operators."""
    return last_bucket(maker, timed)


def timed_long_bucket(maker: "Maker") -> "Story":
    """A sleep hides a bucket as a product does."""
    return long_bucket(maker, timed)


def timed_buckets_ready_at_the_end(maker: "Maker") -> "Story":
    """A sleep of the backward pass is compute that made a gradient."""
    return buckets_ready_at_the_end(maker, timed)


def timed_prefetched_gather(maker: "Maker") -> "Story":
    """A sleep in forward hides a gather."""
    return prefetched_gather(maker, take_time)


def blocking_reduction(maker: "Maker") -> "Story":
    """gloo under FSDP2: a unit's reduction holds the thread, though another unit could compute."""
    length, size = maker.some(60, 300), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                for seq in (20, 21):
                    layer(rank, 60_000)
                    with rank.around("FSDP::post_backward_reduce (0)"):
                        rank.operator(1200, "fsdp::chunk_cat")
                        start = rank.host_ns + 6_000
                        told = label("reduce_scatter", "shard", seq, is_async=False)
                        rank.collective(start, start + length, label=told, lane=110)
                        rank.host_ns = start + length
            step(rank)
        ranks.append(rank.events)
    return maker.story(
        name="blocking_reduction", ranks=ranks, target=("1", 20), injected="sync_op",
        expected=[{"sync_op": length}] * size,
    )  # fmt: skip


def reduction_waited_for_in_its_hook(maker: "Maker") -> "Story":
    """A gradient's hook issues its reduction and waits for it: all that backward computes later stands behind it."""
    length, compute, size = maker.some(60, 300), maker.some(20, 400), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                for seq in (25, 26):
                    layer(rank, compute)
                    with rank.node("torch::autograd::AccumulateGrad"):
                        start = rank.host_ns + 2_400
                        told = label("all_reduce", "replicate", seq)
                        rank.collective(start, start + length, label=told)
                        rank.wait("0", seq, start + length)
                        rank.operator(1_200, "aten::div_")
            step(rank)
        ranks.append(rank.events)
    return maker.story(
        name="reduction_waited_for_in_its_hook", ranks=ranks, target=("0", 25), injected="needed_at_once",
        expected=[{"needed_at_once": length}] * size, others={("0", 26): {"tail": length}},
    )  # fmt: skip


def reduction_waited_for_in_the_next_hook(maker: "Maker") -> "Story":
    """Each gradient's hook waits for the reduction before: one layer hides it in part, the others stand behind it."""
    extra, size = maker.some(24, 300), maker.size()
    hides, behind = 60_000, maker.some(30, 90)
    ranks = []
    for _ in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                rank.operator(60_000)
            with rank.region("backward"):
                layer(rank, 12_000)
                start = rank.host_ns + 24_000
                bucket(rank, 27, (start, start + hides + extra))
                rank.host_ns = start
                layer(rank, hides)
                rank.wait("0", 27, start + hides + extra)
                layer(rank, behind)
                bucket(rank, 28, (rank.host_ns + 24_000, rank.host_ns + 36_000), lane=101)
                rank.wait("0", 28, rank.host_ns + 36_000)
            step(rank)
        ranks.append(rank.events)
    later = min(extra, behind + 1_200)  # and the copy into the next bucket
    injected = "needed_at_once" if 2 * later >= extra else "bandwidth"
    return maker.story(
        name="reduction_waited_for_in_the_next_hook", ranks=ranks, target=("0", 27), injected=injected,
        expected=[{"needed_at_once": later, "bandwidth": extra - later}] * size,
    )  # fmt: skip


def tensor_parallel(maker: "Maker", length: int, late: int | None) -> "list[CpuRank]":
    size = maker.size()
    ranks = []
    for number in range(size):
        rank = maker.cpu(size)
        with rank.around("ProfilerStep#7"):
            with rank.region("forward"):
                for seq in (30, 31):
                    rank.operator(60_000)
                    wait = length // 24 * 12 if number == late and seq == 31 else 0
                    start = rank.host_ns + 12_000
                    with rank.around("_c10d_functional::all_reduce", "cpu_op"):
                        rank.collective(
                            start + wait, start + length, label=label("all_reduce", "tensor", seq), lane=120
                        )
                    begin = rank.host_ns
                    rank.host_ns = start + length
                    rank.add("cpu_op", "_c10d_functional::wait_tensor", (1, 1), (begin, rank.host_ns))
                rank.operator(60_000)
            step(rank)
        ranks.append(rank)
    return ranks


def tensor_all_reduce(maker: "Maker") -> "Story":
    """DTensor's redistribution: the next operator waits for it at once."""
    length = maker.some(20, 200)
    ranks = tensor_parallel(maker, length, None)
    return maker.story(
        name="tensor_all_reduce", ranks=[rank.events for rank in ranks], target=("2", 31), injected="needed_at_once",
        expected=[{"needed_at_once": length}] * len(ranks),
    )  # fmt: skip


def tensor_all_reduce_waits_for_a_rank(maker: "Maker") -> "Story":
    """One rank starts late."""
    length = maker.some(20, 200) // 24 * 24
    ranks = tensor_parallel(maker, length, 0)
    half = {"skew": length // 2, "needed_at_once": length // 2}
    return maker.story(
        name="tensor_all_reduce_waits_for_a_rank", ranks=[rank.events for rank in ranks], target=("2", 31),
        injected="skew", expected=[{"needed_at_once": length // 2}] + [half] * (len(ranks) - 1),
    )  # fmt: skip


STORIES: tuple[Stories, ...] = (
    last_bucket,
    long_bucket,
    bucket_beside_a_thread_that_stood_still,
    bucket_waits_for_a_rank,
    bucket_without_a_free_thread,
    buckets_ready_at_the_end,
    blocking_gather,
    blocking_gather_after_compute,
    prefetched_gather,
    blocking_reduction,
    reduction_waited_for_in_its_hook,
    reduction_waited_for_in_the_next_hook,
    tensor_all_reduce,
    tensor_all_reduce_waits_for_a_rank,
    timed_last_bucket,
    timed_long_bucket,
    timed_buckets_ready_at_the_end,
    timed_prefetched_gather,
)


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: str(tell.__name__))
def test_the_injected_cause_and_its_time_are_found_on_the_host(
    tell: Stories, seed: int, maker: "Maker", check: "Callable[[Story], None]"
) -> None:
    check(tell(maker))


@pytest.mark.parametrize(
    ("ran", "is_async"),
    [("|  ===         |", None), ("|  =======     |", False), ("|  ==========  |", True)],
    ids=["ended inside the call", "held its thread", "ran beside it"],
)
def test_what_ended_inside_the_call_that_issued_it_tells_not_whether_that_blocked(
    draw: Callable[..., Path], ran: str, is_async: bool | None
) -> None:
    path = draw(f"""
        step ProfilerStep#1           @1 |==============|
        op aten::mm                   @1 |=        ==== |
        op c10d::allreduce_           @1 | =====        |
        range gloo:all_reduce         @2 {ran}
        """)
    (one,) = analyze_trace(read_trace(path)).collectives
    assert one.is_async is is_async
