"""Injected causes on devices: FSDP2's gathers and reductions, DDP's buckets, tensor parallelism, a captured graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dtbench.base.vocabulary import Cause

if TYPE_CHECKING:
    from tests.traces.causes.conftest import GpuRank, Maker, Story

AHEAD = 6_000_000  # ns: where devices start to work on what their hosts have launched long before
Stories = Callable[["Maker"], "Story"]


def send_beside(rank: "GpuRank", start_ns: int, end_ns: int) -> None:
    """Run a send to a pipeline's neighbour beside: what both expose is shared."""
    if end_ns > start_ns:
        rank.collective(start_ns, end_ns, operation="send", group="pp", seq=1, stream=40)


def gather_unit(rank: "GpuRank", unit: int, span: tuple[int, int], **more: Any) -> None:
    with rank.around(f"FSDP::all_gather (layers.{unit})"):
        rank.collective(*span, operation="_allgather_base", group="dp", seq=10 + unit, **more)


def compute_unit(rank: "GpuRank", unit: int, start_ns: int, length_ns: int) -> None:
    """Copy out, then two kernels without a gap."""
    middle = length_ns // 36 * 12
    with rank.around(f"FSDP::all_gather_copy_out (layers.{unit})"):
        rank.kernel(start_ns, start_ns + middle, name="split_with_sizes_copy_out")
    rank.kernel(start_ns + middle, start_ns + 2 * middle)
    rank.kernel(start_ns + 2 * middle, start_ns + length_ns)


def end_step(rank: "GpuRank", now_ns: int, *, is_shown: bool) -> None:
    """A little backward and an optimizer, so that steps look like steps."""
    rank.thread = 2
    with rank.region("backward", is_shown=is_shown):
        with rank.node("MmBackward0"):
            rank.kernel(now_ns, now_ns + 12_000)
    rank.thread = 1
    with rank.region("optimizer", is_shown=is_shown):
        rank.kernel(now_ns + 12_000, now_ns + 24_000, name="multi_tensor_apply_kernel")


def gather_ahead(maker: "Maker") -> "Story":
    """The second unit's gather is longer than the first unit's compute: bandwidth."""
    compute, extra, first = maker.some(80, 200), maker.some(20, 150), maker.some(20, 60)
    shared = maker.flip() * (extra // 48 * 24)
    shown, size = maker.flip(), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            now = AHEAD
            with rank.region("forward", is_shown=shown):
                gather_unit(rank, 0, (now, now + first), mesh="mesh_shard")
                now += first
                compute_unit(rank, 0, now, compute)
                gather_unit(rank, 1, (now, now + compute + extra), mesh="mesh_shard")
                send_beside(rank, now + compute, now + compute + shared)
                now += compute + extra
                compute_unit(rank, 1, now, compute)
            end_step(rank, now + compute, is_shown=shown)
        ranks.append(rank.events)
    return maker.story(
        name="gather_ahead", ranks=ranks, target=("dp", 11), injected="bandwidth",
        expected=[{"bandwidth": extra - shared // 2}] * size,
    )  # fmt: skip


def gather_without_other_ranks(maker: "Maker") -> "Story":
    """The same, of which one rank's trace is missing."""
    story = gather_ahead(maker)
    (time_ns,) = story.expected[0].values()
    return maker.story(
        name="gather_without_other_ranks", ranks=story.ranks, target=story.target, injected="unknown",
        expected=[{"unknown": time_ns}] * len(story.ranks), missing=("ranks",), absent=(len(story.ranks) - 1,),
    )  # fmt: skip


def gather_issued_late(maker: "Maker") -> "Story":
    """The host issues the second gather only when the first unit has computed for a while."""
    compute, delay = maker.some(200, 400), maker.some(100, 180)
    exposed = maker.some(20, 100) if maker.flip() else delay + maker.some(5, 40)
    length = (compute - delay) + exposed - 12_000  # the gather starts 12 us after its issue
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                gather_unit(rank, 0, (AHEAD, AHEAD + 60_000))
                now = AHEAD + 60_000
                compute_unit(rank, 0, now, compute)
                # Four ranges open before the operator that issues does.
                rank.host_ns = now + delay - 120
                issue = now + delay
                gather_unit(rank, 1, (issue + 12_000, issue + 12_000 + length))
                now = issue + 12_000 + length
                rank.host_ns += 100_000
                compute_unit(rank, 1, max(now, rank.host_ns + 50_000), compute)
            end_step(rank, max(now, rank.host_ns) + compute + 200_000, is_shown=True)
        ranks.append(rank.events)
    late = min(exposed, delay)
    return maker.story(
        name="gather_issued_late", ranks=ranks, target=("dp", 11), injected="late_issue",
        expected=[{"late_issue": late, "bandwidth": exposed - late}] * size,
    )  # fmt: skip


def prefetched_gather_issued_late(maker: "Maker") -> "Story":
    """The second gather is prefetched and ends while the first unit computes; the third is issued late in the second.

    The unit before the third is the second, which begins to compute long after its own gather.
    """
    compute, delay, extra = maker.some(200, 400), maker.some(100, 150), maker.some(12, 80)
    length = compute - delay - 12_000 + delay + extra
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                gather_unit(rank, 0, (AHEAD, AHEAD + 60_000))
                now = AHEAD + 60_000
                gather_unit(rank, 1, (now, now + compute // 48 * 12))
                compute_unit(rank, 0, now, compute)
                now += compute
                compute_unit(rank, 1, now, compute)
                rank.host_ns = now + delay - 120
                gather_unit(rank, 2, (now + delay + 12_000, now + delay + 12_000 + length))
                now = max(now + delay + 12_000 + length, rank.host_ns + 200_000)
                compute_unit(rank, 2, now, compute)
            end_step(rank, now + compute, is_shown=True)
        ranks.append(rank.events)
    return maker.story(
        name="prefetched_gather_issued_late", ranks=ranks, target=("dp", 12), injected="late_issue",
        expected=[{"late_issue": delay, "bandwidth": extra}] * size,
    )  # fmt: skip


def gather_waits_for_a_rank(maker: "Maker") -> "Story":
    """One rank comes later to the second unit; before it starts, the others wait in their gathers."""
    compute, transfer, first = maker.some(60, 120), maker.some(20, 60), maker.some(20, 60)
    delay = compute + maker.some(100, 200)
    shared = maker.flip() * ((delay - compute) // 48 * 24)
    size = maker.size()
    late = maker.rng.randrange(size)
    ranks, expected = [], []
    for number in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                gather_unit(rank, 0, (AHEAD, AHEAD + first))
                now = AHEAD + first
                mine = delay if number == late else 0
                # The late rank computes longer in its first unit, and gathers only when that is done.
                compute_unit(rank, 0, now, delay if number == late else compute)
                gather_unit(rank, 1, (now + mine, now + delay + transfer))
                if number != late:
                    send_beside(rank, now + compute, now + compute + shared)
                now += delay + transfer
                compute_unit(rank, 1, now, compute)
            end_step(rank, now + compute, is_shown=True)
        ranks.append(rank.events)
        waited = delay - compute - shared // 2
        # With that rank in time the others' transfer had run beside their first unit, which hid their wait at first.
        expected.append({"bandwidth": transfer} if number == late else {"skew": waited, "unknown": transfer})
    return maker.story(
        name="gather_waits_for_a_rank",
        ranks=ranks,
        target=("dp", 11),
        injected="skew",
        expected=expected,
        missing=("put_off",),
    )


def first_gather(maker: "Maker") -> "Story":
    """Nothing can hide the first gather of a step: its parameters come from the optimizer."""
    length, compute = maker.some(20, 200), maker.some(50, 100)
    shown, size = maker.flip(), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        rank.kernel(AHEAD - 40_000, AHEAD, name="multi_tensor_apply_kernel")
        with rank.around("ProfilerStep#3"):
            with rank.region("forward", is_shown=shown):
                gather_unit(rank, 0, (AHEAD + 1200, AHEAD + 1200 + length))
                compute_unit(rank, 0, AHEAD + 1200 + length, compute)
            end_step(rank, AHEAD + 1200 + length + compute, is_shown=shown)
        ranks.append(rank.events)
    return maker.story(
        name="first_gather", ranks=ranks, target=("dp", 10), injected="needed_at_once",
        expected=[{"needed_at_once": length}] * size,
    )  # fmt: skip


def reduce_unit(rank: "GpuRank", unit: int, span: tuple[int, int], **more: Any) -> None:
    with rank.around(f"FSDP::post_backward_reduce (layers.{unit})"):
        rank.kernel(span[0] - 2400, span[0], stream=23, name="chunk_cat_cuda_kernel")
        rank.collective(*span, operation="_reduce_scatter_base", group="dp", seq=30 + unit, is_async=False, **more)


def reduction_behind_a_gather(maker: "Maker") -> "Story":
    """A reduce-scatter waits for the next unit's gather: on the same stream or, from torch 2.8 on, on another one."""
    compute, held = maker.some(40, 80), maker.some(100, 200)
    stream = 21 if maker.flip() else 20
    length = maker.some(30, 90)
    extra = maker.flip() * maker.some(10, 60)  # the gather started before the gradients were ready
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 50_000, AHEAD)
            with rank.region("backward"):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + extra + compute)
                ready = AHEAD + extra + compute
                gather_unit(rank, 1, (ready - extra - 12, ready + held))
                reduce_unit(rank, 2, (ready + held, ready + held + length), stream=stream)
                # What the host launches next waits for the reduction's end: nothing is beside either.
                now = ready + held + length
                with rank.node("MmBackward0"):
                    compute_unit(rank, 1, now, compute)
                reduce_unit(rank, 1, (now + compute + 2400, now + compute + 20_400))
            with rank.region("optimizer"):
                rank.kernel(now + compute + 20_400, now + compute + 40_800)
        ranks.append(rank.events)
    return maker.story(
        name="reduction_behind_a_gather", ranks=ranks, target=("dp", 32), injected="queued",
        expected=[{"queued": length}] * size, behind=("dp", 11),
    )  # fmt: skip


def last_reduction(maker: "Maker") -> "Story":
    """The last unit's reduction has no backward beside it."""
    compute, length = maker.some(60, 120), maker.some(30, 200)
    shown, size = maker.flip(), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward", is_shown=shown):
                rank.kernel(AHEAD - 50_000, AHEAD)
            with rank.region("backward", is_shown=shown):
                for unit, now in ((1, AHEAD + compute), (0, AHEAD + 2 * compute)):
                    with rank.node("MmBackward0"):
                        rank.kernel(now - compute, now)
                    with rank.node("RegisterPostBackwardFunctionBackward"):
                        own = length if unit == 0 else compute // 24 * 12
                        reduce_unit(rank, unit, (now + 2400, now + 2400 + own))
            with rank.region("optimizer", is_shown=shown):
                rank.kernel(now + 2400 + length, now + 2400 + length + compute)
        ranks.append(rank.events)
    return maker.story(
        name="last_reduction", ranks=ranks, target=("dp", 30), injected="tail", expected=[{"tail": length}] * size
    )


def reduction_of_the_root(maker: "Maker") -> "Story":
    """FSDP2 reduces the root when backward has ended, and lets compute wait for that before it goes on."""
    compute, length, size = maker.some(200, 400), maker.some(30, 200), maker.size()
    ends = maker.some(0, 1)
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        now = AHEAD
        for step in (3, 4):
            with rank.around(f"ProfilerStep#{step}"):
                rank.kernel(now, now + compute)
                with rank.node("MmBackward0"):
                    rank.kernel(now + compute, now + 2 * compute)
                now += 2 * compute
                with rank.around("FSDP::finalize_backward" if ends else "FSDP::root_post_backward_callback"):
                    with rank.around("FSDP::post_backward_rs_wait ()"):
                        rank.wait_on_stream()
                    reduce_unit(rank, 10 * step, (now + 2400, now + 2400 + length))
                    rank.wait_on_stream()
                now += 2400 + length
                rank.kernel(now, now + compute, name="multi_tensor_apply_kernel")
                now += compute
        ranks.append(rank.events)
    return maker.story(
        name="reduction_of_the_root", ranks=ranks, target=("dp", 60), injected="tail",
        expected=[{"tail": length}] * size, others={("dp", 70): {"tail": length}},
    )  # fmt: skip


def last_reduction_of_a_micro_batch(maker: "Maker") -> "Story":
    """The same at the end of the first of two micro-batches: the second one's forward and backward wait for it."""
    compute, length, size = maker.some(200, 400), maker.some(30, 200), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            now = AHEAD
            for batch in range(2):
                for unit in range(2):
                    with rank.around("aten::mm", "cpu_op", **{"Sequence number": 2 * batch + unit}):
                        rank.kernel(now, now + compute)
                    now += compute
                for unit in (1, 0):
                    with rank.node("MmBackward0", 2 * batch + unit):
                        rank.kernel(now, now + compute)
                    now += compute
                    with rank.node("RegisterPostBackwardFunctionBackward"):
                        own = length if unit == 0 else compute // 24 * 12
                        reduce_unit(rank, unit - 10 * batch, (now + 2400, now + 2400 + own))
                with rank.around("FSDP::root_post_backward_callback"):
                    rank.wait_on_stream()
                now += 2400 + length
            rank.kernel(now, now + compute, name="multi_tensor_apply_kernel")
        ranks.append(rank.events)
    return maker.story(
        name="last_reduction_of_a_micro_batch", ranks=ranks, target=("dp", 30), injected="tail",
        expected=[{"tail": length}] * size, others={("dp", 20): {"tail": length}},
    )  # fmt: skip


def forward_of_ddp(rank: "GpuRank") -> None:
    with rank.around("DistributedDataParallel.forward"):
        rank.kernel(AHEAD - 50_000, AHEAD)


def bucket(rank: "GpuRank", index: int, span: tuple[int, int], **more: Any) -> None:
    """AccumulateGrad's hook copies the gradient into its bucket and reduces the bucket."""
    with rank.node("torch::autograd::AccumulateGrad"):
        rank.kernel(span[0] - 1200, span[0], name="mul_out_copy_into_bucket")
        rank.collective(*span, operation="allreduce", group="dp", seq=50 + index, is_async=True, **more)


def reduction_waited_for_in_its_hook(maker: "Maker") -> "Story":
    """A gradient's hook lets compute wait for the reduction that it has just issued."""
    length, compute, size = maker.some(60, 300), maker.some(60, 400), maker.size()
    shown = maker.flip()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            now = AHEAD
            with rank.region("forward", is_shown=shown):
                rank.kernel(now, now + 60_000)
            now += 60_000
            rank.thread = 2
            with rank.region("backward", is_shown=shown):
                for seq in (95, 96):
                    with rank.node("MmBackward0"):
                        rank.kernel(now, now + compute)
                    now += compute
                    with rank.node("torch::autograd::AccumulateGrad"):
                        rank.collective(
                            now, now + length, operation="allreduce", group="dp", seq=seq, is_async=True, mesh="mesh_dp"
                        )
                        rank.wait_on_stream()
                        now += length
                        rank.kernel(now, now + 1_200, name="div")
                        now += 1_200
            rank.thread = 1
            with rank.region("optimizer", is_shown=shown):
                rank.kernel(now, now + 12_000, name="multi_tensor_apply_kernel")
        ranks.append(rank.events)
    return maker.story(
        name="reduction_waited_for_in_its_hook", ranks=ranks, target=("dp", 95), injected="needed_at_once",
        expected=[{"needed_at_once": length}] * size, others={("dp", 96): {"tail": length}},
    )  # fmt: skip


def copy_out(rank: "GpuRank", now_ns: int) -> None:
    """DDP's end of backward: copies out of the buckets, after waits that are no event."""
    rank.kernel(now_ns, now_ns + 2400, name="copy_out_of_bucket")
    rank.kernel(now_ns + 2400, now_ns + 4800, name="copy_out_of_bucket")


def two_buckets(maker: "Maker", tail_ns: int, extra_ns: int, late: int | None, *, shown: bool) -> "list[GpuRank]":
    """Write DDP's backward of two layers.

    ::

        compute   ██layer 1██ c ██layer 0██ c           ▏copy out
        bucket 0              ├────────────────extra─┤
        bucket 1                              (queued) ├──tail──┤

    Args:
        maker: draws.
        tail_ns: length of bucket 1.
        extra_ns: how much longer bucket 0 is than the compute beside it; negative: it ends before.
        late: the rank that starts the last bucket later than the others, by half its length.
        shown: with region ranges.
    """
    size, layer = maker.size(), 120_000
    ranks = []
    for number in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward", is_shown=shown):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward", is_shown=shown):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + layer)
                now = AHEAD + layer + 1200
                bucket(rank, 0, (now, now + layer + 1200 + extra_ns), mesh="mesh_replicate" if shown else "undefined")
                with rank.node("MmBackward0"):
                    rank.kernel(now, now + layer)
                begin = now + layer + 1200 + max(extra_ns, 0) + (tail_ns // 24 * 12 if number == late else 0)
                now += layer + 1200 + max(extra_ns, 0) + tail_ns
                with rank.node("torch::autograd::AccumulateGrad"):
                    rank.kernel(AHEAD + 2 * layer + 1200, AHEAD + 2 * layer + 2400, name="mul_out_copy_into_bucket")
                    rank.collective(begin, now, operation="allreduce", group="dp", seq=51, is_async=True)
                copy_out(rank, now)
            rank.thread = 1
            with rank.region("optimizer", is_shown=shown):
                rank.kernel(now + 4800, now + 9600, name="multi_tensor_apply_kernel")
        ranks.append(rank)
    return ranks


def last_bucket(maker: "Maker") -> "Story":
    """Nothing is left to compute beside DDP's last bucket; the copies out of it come after."""
    tail = maker.some(30, 300)
    ranks = two_buckets(maker, tail, -12_000, None, shown=maker.flip())
    return maker.story(
        name="last_bucket", ranks=[rank.events for rank in ranks], target=("dp", 51), injected="tail",
        expected=[{"tail": tail}] * len(ranks),
    )  # fmt: skip


def long_bucket(maker: "Maker") -> "Story":
    """A bucket that takes longer than the rest of backward."""
    extra = maker.some(30, 300)
    ranks = two_buckets(maker, 24_000, extra, None, shown=maker.flip())
    return maker.story(
        name="long_bucket", ranks=[rank.events for rank in ranks], target=("dp", 50), injected="bandwidth",
        expected=[{"bandwidth": extra}] * len(ranks),
    )  # fmt: skip


def bucket_behind_a_bucket(maker: "Maker") -> "Story":
    """The last bucket is ready, and stands behind the one before."""
    extra = maker.some(50, 200)
    tail = maker.some(20, 50) if maker.flip() else extra + maker.some(10, 40)
    ranks = two_buckets(maker, tail, extra, None, shown=maker.flip())
    queued = min(tail, extra)
    return maker.story(
        name="bucket_behind_a_bucket", ranks=[rank.events for rank in ranks], target=("dp", 51), injected="queued",
        expected=[{"queued": queued, "tail": tail - queued}] * len(ranks), behind=("dp", 50),
    )  # fmt: skip


def bucket_waits_for_a_rank(maker: "Maker") -> "Story":
    """One rank starts the last bucket late, by half its length on the others."""
    tail = maker.some(50, 300)
    tail += maker.rng.choice((0, 12, 24))
    ranks = two_buckets(maker, tail, -12_000, 0, shown=maker.flip())
    late = tail // 24 * 12
    first = {"tail": tail - late}
    return maker.story(
        name="bucket_waits_for_a_rank", ranks=[rank.events for rank in ranks], target=("dp", 51),
        injected="skew" if late >= tail - late else "tail",
        expected=[first] + [{"skew": late, "tail": tail - late}] * (len(ranks) - 1),
    )  # fmt: skip


def reduction_in_line(maker: "Maker") -> "Story":
    """One hardware queue: the next unit's backward stands behind a reduction that it does not need.

    With waits recorded, as CUDA's traces have them, or without.
    """
    compute, length = maker.some(100, 200), maker.some(30, 90)
    records, size = maker.flip(), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 50_000, AHEAD)
            rank.thread = 2
            with rank.region("backward"):
                now = AHEAD
                for unit in (2, 1, 0):
                    with rank.node("MmBackward0"):
                        rank.kernel(now, now + compute)
                    now += compute
                    with rank.node("RegisterPostBackwardFunctionBackward"):
                        if records:
                            rank.wait_on_stream()  # of FSDP: nothing is around it that names it
                        reduce_unit(rank, unit, (now, now + length))
                    now += length
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(now, now + compute)
        ranks.append(rank.events)
    return maker.story(
        name="reduction_in_line", ranks=ranks, target=("dp", 32), injected="serialized",
        expected=[{"serialized": length}] * size,
        others={("dp", 31): {"serialized": length}, ("dp", 30): {"tail": length}},
    )  # fmt: skip


def bucket_in_line(maker: "Maker") -> "Story":
    """The same under DDP: the rest of backward stands behind a bucket; what is longer than that rest is bandwidth."""
    length, rest = maker.some(100, 300), maker.some(30, 90)
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + 60_000)
                now = AHEAD + 61_200
                bucket(rank, 0, (now, now + length))
                now += length
                with rank.node("MmBackward0"):
                    rank.kernel(now, now + rest)
                bucket(rank, 1, (now + rest + 1200, now + rest + 13_200))
                copy_out(rank, now + rest + 13_200)
        ranks.append(rank.events)
    return maker.story(
        name="bucket_in_line", ranks=ranks, target=("dp", 50),
        injected="serialized" if rest + 1200 > length - rest - 1200 else "bandwidth",
        expected=[{"serialized": rest + 1200, "bandwidth": length - rest - 1200}] * size,
        others={("dp", 51): {"tail": 12_000}},
    )  # fmt: skip


def bucket_without_launch(maker: "Maker") -> "Story":
    """The call that launched it is not in the trace."""
    story = last_bucket(maker)
    for events in story.ranks:
        (kernel,) = [one for one in events if one["cat"] == "kernel" and one["args"].get("Seq") == 51]
        (call,) = [
            one
            for one in events
            if one["cat"] == "cuda_runtime" and one["args"]["correlation"] == kernel["args"]["correlation"]
        ]
        events.remove(call)
    return maker.story(
        name="bucket_without_launch", ranks=story.ranks, target=("dp", 51), injected="unknown",
        expected=[{"unknown": one["tail"]} for one in story.expected], missing=("launch",),
    )  # fmt: skip


def buckets_ready_at_the_end(maker: "Maker") -> "Story":
    """DDP over tensor parallelism: gradients are handed over at the end of backward, whenever they were computed."""
    layer, length = maker.some(60, 120), maker.some(20, 100)
    apart = maker.flip()  # the last bucket runs on a stream of its own, at the same time
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                now = AHEAD
                for _ in range(3):
                    with rank.node("MmBackward0"):
                        rank.kernel(now, now + layer)
                    now += layer
                with rank.node("_FromTorchTensorBackward"):
                    pass
                bucket(rank, 0, (now + 1200, now + 1200 + length))
                with rank.node("_FromTorchTensorBackward"):
                    pass
                last = now + 1200 if apart else now + 1200 + length
                with rank.node("torch::autograd::AccumulateGrad"):
                    rank.kernel(now, now + 1200, stream=8, name="mul_out_copy_into_bucket")
                    rank.collective(
                        last, last + length, operation="allreduce", group="other" if apart else "dp", seq=51,
                        is_async=True, stream=24 if apart else 20,
                    )  # fmt: skip
                copy_out(rank, last + length)
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(last + length + 4800, last + length + 9600)
        ranks.append(rank.events)
    return maker.story(
        name="buckets_ready_at_the_end",
        others={("other", 51): {"tail": length // 2}} if apart else {("dp", 51): {"queued": length}},
        ranks=ranks, target=("dp", 50), injected="late_ready",
        expected=[{"late_ready": length // 2 if apart else length}] * size,
    )  # fmt: skip


def layers_on_two_streams(maker: "Maker") -> "Story":
    """DDP over branches: backward of all but one runs on a second stream, and each bucket follows its own layer."""
    layer, length = maker.some(60, 120), maker.some(150, 250)
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                now = AHEAD
                for index, stream in enumerate((7, 9, 9)):
                    own = layer if index else 4 * layer  # most of it on the main stream
                    with rank.node("MmBackward0"):
                        rank.kernel(now, now + own, stream=stream)
                    now += own + 1200
                    bucket(rank, index, (now, now + length))
                    now += length
                    if index < 2:  # the host is late with the next layer
                        rank.host_ns = now + 12_000
                        now += 36_000
                copy_out(rank, now)
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(now + 4800, now + 9600)
        ranks.append(rank.events)
    return maker.story(
        name="layers_on_two_streams", ranks=ranks, target=("dp", 52), injected="tail",
        expected=[{"tail": length}] * size, others={("dp", 50): {"unknown": length}},
    )  # fmt: skip


def bucket_beside_an_idle_host(maker: "Maker") -> "Story":
    """While a bucket runs, the host launches nothing; the next layer could have computed."""
    length, size = maker.some(50, 200), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + 60_000)
                now = AHEAD + 61_200
                bucket(rank, 0, (now, now + length))
                now += length
                rank.host_ns = now + 12_000
                with rank.node("MmBackward0"):
                    rank.kernel(now + 24_000, now + 84_000)
                bucket(rank, 1, (now + 85_200, now + 97_200))
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(now + 97_200, now + 99_600)
        ranks.append(rank.events)
    return maker.story(
        name="bucket_beside_an_idle_host", ranks=ranks, target=("dp", 50), injected="unknown",
        expected=[{"unknown": length}] * size, missing=("host",), others={("dp", 51): {"tail": 12_000}},
    )  # fmt: skip


def bucket_whose_host_was_late_for_a_while(maker: "Maker") -> "Story":
    """While a bucket runs, the host launches the next layer late; from then on that stands in line behind it."""
    late, stood, size = maker.some(60, 150), maker.some(40, 100), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + 60_000)
                now = AHEAD + 61_200
                bucket(rank, 0, (now, now + late + stood))
                rank.host_ns = now + late - 240  # two ranges open before the launch
                now += late + stood
                with rank.node("MmBackward0"):
                    rank.kernel(now, now + 120_000)
                bucket(rank, 1, (now + 121_200, now + 133_200))
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(now + 133_200, now + 140_400)
        ranks.append(rank.events)
    return maker.story(
        name="bucket_whose_host_was_late_for_a_while", ranks=ranks, target=("dp", 50),
        injected="unknown" if late > stood else "serialized",
        expected=[{"serialized": stood, "unknown": late}] * size, missing=("host",),
    )  # fmt: skip


def last_bucket_before_more_compute(maker: "Maker") -> "Story":
    """The last bucket is no tail where backward goes on, if only the host had launched what follows in time."""
    length, size = maker.some(50, 200), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                forward_of_ddp(rank)
            rank.thread = 2
            with rank.region("backward"):
                with rank.node("MmBackward0"):
                    rank.kernel(AHEAD, AHEAD + 60_000)
                now = AHEAD + 61_200
                bucket(rank, 0, (now, now + length))
                now += length
                rank.host_ns = now + 12_000
                with rank.node("MmBackward0"):
                    rank.kernel(now + 24_000, now + 84_000)
            rank.thread = 1
            with rank.region("optimizer"):
                rank.kernel(now + 97_200, now + 99_600)
        ranks.append(rank.events)
    return maker.story(
        name="last_bucket_before_more_compute", ranks=ranks, target=("dp", 50), injected="unknown",
        expected=[{"unknown": length}] * size, missing=("host",),
    )  # fmt: skip


def one_unit_reduced_twice(maker: "Maker") -> "Story":
    """HSDP of one unit: its reduce-scatter and its all-reduce follow the same compute; neither was handed over late."""
    compute, length = maker.some(60, 120), maker.some(30, 100)
    size = maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 50_000, AHEAD)
            with rank.region("backward"):
                for place in range(2):
                    with rank.node("MmBackward0"):
                        rank.kernel(AHEAD + place * compute, AHEAD + (place + 1) * compute)
                now = AHEAD + 2 * compute
                with rank.node("RegisterPostBackwardFunctionBackward"):
                    with rank.around("FSDP::post_backward_reduce"):
                        rank.collective(now, now + length, operation="_reduce_scatter_base", group="dp", seq=30)
                        now += length
                        rank.collective(now, now + length, operation="allreduce", group="replicas", seq=31, stream=21)
            with rank.region("optimizer"):
                rank.kernel(now + length, now + length + compute)
        ranks.append(rank.events)
    return maker.story(
        name="one_unit_reduced_twice", ranks=ranks, target=("dp", 30), injected="tail",
        expected=[{"tail": length}] * size, others={("replicas", 31): {"tail": length}},
    )  # fmt: skip


def dispatch_on_a_stream_of_its_own(maker: "Maker") -> "Story":
    """A collective that did not wait for the compute launched before it, and is longer than that."""
    compute, extra, size = maker.some(60, 120), maker.some(40, 200), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 24_000, AHEAD)
                rank.kernel(AHEAD, AHEAD + compute)
                rank.collective(
                    AHEAD + 1200, AHEAD + compute + extra, operation="alltoall", group="ep", seq=80, is_async=True
                )
                now = AHEAD + compute + extra
                rank.wait_on_stream()
                rank.kernel(now, now + 60_000)
            end_step(rank, now + 60_000, is_shown=True)
        ranks.append(rank.events)
    return maker.story(
        name="dispatch_on_a_stream_of_its_own", ranks=ranks, target=("ep", 80), injected="bandwidth",
        expected=[{"bandwidth": extra}] * size,
    )  # fmt: skip


def dispatch_beside_a_late_host(maker: "Maker") -> "Story":
    """What could have hidden the whole of it was launched late: until then nobody can say that it was too long."""
    late, compute, extra, size = maker.some(90, 160), maker.some(30, 50), maker.some(40, 80), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 24_000, AHEAD)
                end = AHEAD + 1200 + late + compute + extra
                rank.collective(AHEAD + 1200, end, operation="alltoall", group="ep", seq=80, is_async=True)
                rank.host_ns = AHEAD + 1200 + late
                rank.kernel(AHEAD + 1200 + late, AHEAD + 1200 + late + compute)
                rank.wait_on_stream()
                rank.kernel(end, end + 60_000)
            end_step(rank, end + 60_000, is_shown=True)
        ranks.append(rank.events)
    return maker.story(
        name="dispatch_beside_a_late_host", ranks=ranks, target=("ep", 80), injected="unknown",
        expected=[{"bandwidth": extra, "unknown": late}] * size, missing=("host",),
    )  # fmt: skip


def tensor_parallel(
    maker: "Maker", length: int, late: int | None, *, beside_ns: int = 0, **more: Any
) -> "list[GpuRank]":
    """A column and a row linear with an all-reduce, which the next layer needs; and so again."""
    size, layer, shown = maker.size(), 60_000, maker.flip()
    ranks = []
    for number in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward", is_shown=shown):
                now = AHEAD
                for seq in (70, 71):
                    own = layer + (length // 24 * 12 if number == late and seq == 71 else 0)
                    rank.kernel(now, now + own // 24 * 12)
                    rank.kernel(now + own // 24 * 12, now + own)
                    with rank.around("_c10d_functional::all_reduce", "cpu_op"):
                        end = now + layer + length
                        rank.collective(now + own, end, operation="allreduce", group="tp", seq=seq, **more)
                    if seq == 71 and beside_ns:
                        rank.kernel(end - beside_ns, end, stream=9, name="copy_of_a_scalar")
                    with rank.around("_c10d_functional::wait_tensor", "cpu_op"):
                        pass
                    now = end
                rank.kernel(now, now + layer)
            end_step(rank, now + layer, is_shown=shown)
        ranks.append(rank)
    return ranks


def tensor_all_reduce(maker: "Maker") -> "Story":
    """The next layer needs it, and nothing else can run."""
    length = maker.some(10, 200)
    beside = maker.flip() * (length // 2400 * 12)  # half a percent of it: nothing that would hide it
    ranks = tensor_parallel(maker, length, None, beside_ns=beside, mesh=maker.rng.choice(("mesh_tp", "undefined")))
    return maker.story(
        name="tensor_all_reduce", ranks=[rank.events for rank in ranks], target=("tp", 71), injected="needed_at_once",
        expected=[{"needed_at_once": length - beside}] * len(ranks),
    )  # fmt: skip


def tensor_all_reduce_waits_for_a_rank(maker: "Maker") -> "Story":
    """One rank of the tensor group comes later, by half the length on the others."""
    length = maker.some(20, 200) // 24 * 24
    ranks = tensor_parallel(maker, length, 0, mesh="mesh_tp")
    half = length // 2
    return maker.story(
        name="tensor_all_reduce_waits_for_a_rank", ranks=[rank.events for rank in ranks], target=("tp", 71),
        injected="skew",
        expected=[{"needed_at_once": half}] + [{"skew": half, "needed_at_once": half}] * (len(ranks) - 1),
    )  # fmt: skip


def blocking_all_reduce(maker: "Maker") -> "Story":
    """Issued with ``async_op=False``: the stream that computes waits for it."""
    length = maker.some(10, 200)
    ranks = tensor_parallel(maker, length, None, is_async=False)
    return maker.story(
        name="blocking_all_reduce", ranks=[rank.events for rank in ranks], target=("tp", 71), injected="sync_op",
        expected=[{"sync_op": length}] * len(ranks),
    )  # fmt: skip


def captured_all_reduce(maker: "Maker") -> "Story":
    """One launch of a graph starts everything: what the host did when says nothing."""
    length, layer, size = maker.some(20, 200), maker.some(30, 60), maker.size()
    ranks = []
    for _ in range(size):
        rank = maker.gpu(size)
        with rank.around("ProfilerStep#3"):
            with rank.region("forward"):
                rank.kernel(AHEAD - 12_000, AHEAD)
                call = rank.host_ns
                rank.add("cuda_runtime", "cudaGraphLaunch", (1, 1), (call, call + 2400), correlation=900)
                rank.host_ns += 4800
                rank.add("kernel", "gemm", (0, 7), (AHEAD, AHEAD + layer), correlation=900)
                said = {"Collective name": "allreduce", "Process Group Name": "tp", "Seq": 71, "Group size": size}
                span = (AHEAD + layer, AHEAD + layer + length)
                rank.add("kernel", "ncclDevKernel_AllReduce", (0, 7), span, correlation=900, **said)
                rank.add("kernel", "gemm", (0, 7), (span[1], span[1] + layer), correlation=900)
            end_step(rank, span[1] + layer, is_shown=True)
        ranks.append(rank.events)
    return maker.story(
        name="captured_all_reduce", ranks=ranks, target=("tp", 71), injected="unknown",
        expected=[{"unknown": length}] * size, missing=("graph_order",),
    )  # fmt: skip


STORIES: tuple[Stories, ...] = (
    gather_ahead,
    gather_without_other_ranks,
    gather_issued_late,
    prefetched_gather_issued_late,
    gather_waits_for_a_rank,
    first_gather,
    reduction_behind_a_gather,
    last_reduction,
    reduction_of_the_root,
    last_reduction_of_a_micro_batch,
    last_bucket,
    long_bucket,
    bucket_behind_a_bucket,
    bucket_waits_for_a_rank,
    reduction_waited_for_in_its_hook,
    reduction_in_line,
    bucket_in_line,
    bucket_without_launch,
    bucket_beside_an_idle_host,
    buckets_ready_at_the_end,
    layers_on_two_streams,
    bucket_whose_host_was_late_for_a_while,
    last_bucket_before_more_compute,
    one_unit_reduced_twice,
    dispatch_on_a_stream_of_its_own,
    dispatch_beside_a_late_host,
    tensor_all_reduce,
    tensor_all_reduce_waits_for_a_rank,
    blocking_all_reduce,
    captured_all_reduce,
)


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: str(tell.__name__))
def test_the_injected_cause_and_its_time_are_found_on_a_device(
    tell: Stories, seed: int, maker: "Maker", check: "Callable[[Story], None]"
) -> None:
    check(tell(maker))


def test_every_cause_is_injected_by_some_story(maker: "Maker") -> None:
    assert {tell(maker).injected for tell in STORIES} == set(Cause) - {Cause.BUBBLE}  # see test_pipelines.py
