"""Situations of DDP: buckets that hide, queue, wait for a late rank, or are ready too late.

::

    tail         ██b██|██b██|██b██|            all but the last bucket hide behind backward
                       ─m─   ─m─   ─m─         m < b

    queued       ██b██|██b██|██b██|            each bucket waits for the one before
                       ────m────────m────      m > b
"""

from typing import Final, NamedTuple

from dtbench.base.units import MIB, NS_PER_MS
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.scenario.written import Words
from dtbench.selftest.draw import Draw
from dtbench.selftest.expectations import Aligned, Counted, Named, Ordered, Rebuilt
from dtbench.selftest.row import Row
from dtbench.selftest.sections import SMALL_MIB, Blocks, Message, ddp, draw_link, emulate, tier

APART_NS: Final = 10 * NS_PER_MS
"""Predictions that differ by less put nothing in order."""

_CLOCK_BOUND_NS: Final = NS_PER_MS
_CAPS_MIB: Final = (1, 2, 3, 4, 6, 12)
_REPLICAS: Final = (2, 3)
"""More would take turns on two cores for so long that the host's time is no longer little beside a block's."""


class _Drawn(NamedTuple):
    """A cell of DDP: its blocks, what the link takes for a bucket of one of them, its ranks, its words."""

    blocks: Blocks
    service_ms: float
    replicas: int
    cell: Words


def _draw_cell(draw: Draw, layers: tuple[int, int], backward_ms: float, service_ms: float, replicas: int = 2) -> _Drawn:
    blocks = Blocks(draw.whole(*layers), draw.one_of(SMALL_MIB), 0.0, backward_ms)
    network = draw_link(draw, service_ms, Message(Operation.ALL_REDUCE, blocks.block_bytes, replicas))
    return _Drawn(blocks, service_ms, replicas, ddp(blocks, network, replicas=replicas))


def inject_hidden(draw: Draw) -> Row:
    """Return buckets that take next to nothing beside much backward.

    They are few: the host's time between an issue and the next compute is exposed in the trace, and part of no wait.
    """
    blocks, service_ms, _, cell = _draw_cell(draw, (2, 2), draw.whole(50, 60), draw.tenths(3.0, 4.0))
    return Row(
        name="hidden",
        claim=f"{blocks.layers} buckets of {service_ms:g} ms beside {blocks.backward_ms:g} ms of backward each: "
        "the first is hidden, and the last takes next to nothing",
        cells={"hidden": cell},
        expectations=(Named("hidden", Purpose.GRAD_REDUCE, Cause.TAIL, blocks.buckets(-1)),),
    )


def _draw_tail(draw: Draw) -> _Drawn:
    service_ms = draw.tenths(34.0, 40.0)
    return _draw_cell(draw, (3, 4), round(service_ms) + draw.whole(8, 12), service_ms, draw.one_of(_REPLICAS))


def inject_tail(draw: Draw) -> Row:
    """Return buckets that backward hides, and after the last no backward is left."""
    blocks, service_ms, replicas, cell = _draw_tail(draw)
    return Row(
        name="tail",
        claim=f"buckets of {service_ms:g} ms among {replicas} ranks hide behind {blocks.backward_ms:g} ms of backward "
        "each; after the last none is left",
        cells={"tail": cell},
        expectations=(Named("tail", Purpose.GRAD_REDUCE, Cause.TAIL, blocks.buckets(-1)),),
    )


def inject_clock(draw: Draw) -> Row:
    """Return the same, and look at the clocks of its ranks."""
    return Row(
        name="clock",
        claim="ranks of one machine have one clock, and the ends of their collectives say so",
        cells={"tail": _draw_tail(draw).cell},
        expectations=(Aligned("tail", _CLOCK_BOUND_NS),),
    )


def _draw_queued(draw: Draw) -> _Drawn:
    backward_ms = draw.whole(20, 26)
    service_ms = backward_ms + draw.tenths(10.0, 16.0)
    return _draw_cell(draw, (5, 6), backward_ms, service_ms, draw.one_of(_REPLICAS))


def inject_queued(draw: Draw) -> Row:
    """Return buckets that come faster than the link serves them."""
    blocks, service_ms, replicas, cell = _draw_queued(draw)
    return Row(
        name="queued",
        claim=f"a bucket every {blocks.backward_ms:g} ms, each {service_ms:g} ms among {replicas} ranks: they queue",
        cells={"queued": cell},
        expectations=(Named("queued", Purpose.GRAD_REDUCE, Cause.QUEUED, blocks.buckets(-3)),),
    )


def inject_rebuild(draw: Draw) -> Row:
    """Return the same, and look at the buckets of its first step."""
    blocks, _, _, cell = _draw_queued(draw)
    return Row(
        name="rebuild",
        claim=f"the first step reduces all gradients at once, the others in {blocks.layers} buckets",
        cells={"queued": cell},
        expectations=(Rebuilt("queued", (blocks.all_bytes,), (blocks.block_bytes,) * blocks.layers),),
    )


def inject_straggler(draw: Draw) -> Row:
    """Return a rank that is late for every bucket, so much that the host's time between blocks is little beside it."""
    replicas = draw.one_of(_REPLICAS)
    slow, factor = draw.whole(0, replicas - 1), draw.tenths(1.6, 2.0)
    blocks, _, _, cell = _draw_cell(draw, (3, 3), draw.whole(44, 50), draw.tenths(4.0, 8.0), replicas)
    model = blocks.words(slow_rank={"rank": slow, "factor": factor})
    return Row(
        name="straggler",
        claim=f"rank {slow} of {replicas} takes {factor:g} times as long, and the others wait for it at each bucket",
        cells={"straggler": {**cell, "model": model}},
        expectations=(Named("straggler", Purpose.GRAD_REDUCE, Cause.SKEW, blocks.buckets(0), waited_for=slow),),
    )


def inject_compressed(draw: Draw) -> Row:
    """Return buckets that only the fp16 hook makes small enough to hide."""
    blocks = Blocks(3, draw.one_of(SMALL_MIB), 0.0, draw.whole(64, 72))
    service_ms = blocks.backward_ms - draw.whole(6, 9)
    half = Message(Operation.ALL_REDUCE, blocks.block_bytes // 2)
    cell = ddp(blocks, emulate(tier(service_ms, half, latency_share=0.1)), comm_hook={"kind": "fp16_compress"})
    return Row(
        name="compressed",
        claim=f"the fp16 hook halves the bytes: {service_ms:g} ms a bucket, hidden behind {blocks.backward_ms:g} ms",
        cells={"compressed": cell},
        expectations=(
            Named("compressed", Purpose.GRAD_REDUCE, Cause.TAIL, blocks.buckets(-1)),
            Counted("compressed", Purpose.GRAD_REDUCE, blocks.layers, blocks.all_bytes // 2),
        ),
    )


def inject_no_sync(draw: Draw) -> Row:
    """Return two micro-batches of which only the last reduces."""
    service_ms = draw.tenths(34.0, 40.0)
    blocks, _, _, cell = _draw_cell(draw, (3, 3), round(service_ms) + draw.whole(8, 14), service_ms)
    return Row(
        name="no_sync",
        claim=f"of two micro-batches only the last reduces: {blocks.layers} buckets a step, not {2 * blocks.layers}",
        cells={"no_sync": {**cell, "accumulation": {"micro_batches": 2, "sync": "last"}}},
        expectations=(
            Named("no_sync", Purpose.GRAD_REDUCE, Cause.TAIL, blocks.buckets(-1)),
            Counted("no_sync", Purpose.GRAD_REDUCE, blocks.layers, blocks.all_bytes),
        ),
    )


def inject_late_ready(draw: Draw) -> Row:
    """Return DDP over a tensor axis, where every bucket is ready only when backward is over.

    One bucket holds all blocks but the first, so that what it takes outweighs what then queues behind it. The blocks
    are few and long: between the issue of a block's tensor-parallel collective and its wait lies host time, which the
    trace calls exposed and no wait contains, and which four ranks on two cores stretch.
    """
    blocks = Blocks(3, draw.one_of(SMALL_MIB), 0.0, draw.whole(40, 46))
    local_bytes = blocks.block_bytes // 2
    service_ms = draw.whole(80, 96)
    most = Message(Operation.ALL_REDUCE, (blocks.layers - 1) * local_bytes)
    cell = ddp(blocks, emulate(tier(service_ms, most, latency_share=0.03)))
    parallel: Words = {"kind": "ddp", "replicas": 2, "tensor": 2, "bucket_cap_mb": most.size_bytes / MIB}
    return Row(
        name="ddp_tensor",
        claim=f"over a tensor axis all gradients are ready only when backward is over: {service_ms} ms of them could "
        "have crossed before",
        cells={"ddp_tensor": {**cell, "parallel": parallel}},
        expectations=(Named("ddp_tensor", Purpose.GRAD_REDUCE, Cause.LATE_READY, ("bucket 0",)),),
    )


def inject_caps(_draw: Draw) -> Row:
    """Return the sweep of bucket caps of MEASUREMENT.md, section 6; its numbers are not drawn.

    Before and after it the blocks run without a link: what slows one of these launches alone would make all others
    look too fast.
    """
    blocks = Blocks(12, 1, 0.0, 20.0)
    link = emulate({"latency_us": 12_000.0, "bandwidth_gb_per_s": MIB / (10 * NS_PER_MS)})
    cells = {f"caps_{cap}": ddp(blocks, link, blocks_per_bucket=cap) for cap in _CAPS_MIB}
    unlinked = {**ddp(blocks, {"kind": "real"}), "measure": {"exposure": ("trace",)}}
    return Row(
        name="caps",
        claim="buckets of 1 to 12 MiB at 12 ms and 10 ms a MiB: the steps that their closed form foretells",
        cells={"caps_unlinked": unlinked, **cells, "caps_unlinked_after": unlinked},
        expectations=(Ordered(tuple(cells), APART_NS),),
        fed_by=("caps_unlinked", "caps_unlinked_after"),
    )
