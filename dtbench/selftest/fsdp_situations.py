"""Situations of FSDP2 on gloo: gathers that block, come late or come ahead, and two tiers of a link.

::

    serial       ─m─████ ─m─████ ─m─████       the unit computes when its gather is done
    prefetched   ─m─████████████                m < c: only the first gather is exposed
                    ─m─ ─m─
"""

from functools import partial
from typing import Final

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.scenario.written import Words
from dtbench.selftest.ddp_situations import APART_NS
from dtbench.selftest.draw import Draw
from dtbench.selftest.expectations import Counted, ForwardTook, Named, Ordered, WithoutEffect
from dtbench.selftest.row import Row
from dtbench.selftest.sections import SMALL_MIB, Blocks, Message, draw_link, emulate, fsdp2, tier

_PURPOSES: Final = (Purpose.UNSHARD, Purpose.GRAD_REDUCE)
_DEPTHS: Final = (0, 1, 2)


def _gather(blocks: Blocks) -> Message:
    return Message(Operation.ALL_GATHER, blocks.block_bytes)


def _draw_exposed(draw: Draw) -> tuple[Blocks, float, Words]:
    blocks = Blocks(3, draw.one_of(SMALL_MIB), draw.whole(20, 26), draw.whole(20, 26))
    service_ms = draw.tenths(10.0, 16.0)
    return blocks, service_ms, fsdp2(blocks, draw_link(draw, service_ms, _gather(blocks)), forward_prefetch=1)


def inject_exposed(draw: Draw) -> Row:
    """Return collectives that block, all of them."""
    blocks, service_ms, cell = _draw_exposed(draw)
    return Row(
        name="exposed",
        claim=f"gloo gathers and reduces {blocks.layers} units blocking, {service_ms:g} ms each: nothing is hidden",
        cells={"exposed": cell},
        expectations=tuple(Named("exposed", purpose, Cause.SYNC_OP, blocks.units) for purpose in _PURPOSES),
    )


def inject_forward_prefetch(draw: Draw) -> Row:
    """Return the same, and look at what its prefetch is said to do."""
    return Row(
        name="forward_prefetch",
        claim="where gathers block, forward_prefetch only moves them: it has no effect, and a receipt says so",
        cells={"exposed": _draw_exposed(draw)[2]},
        expectations=(WithoutEffect("exposed", "parallel.forward_prefetch"),),
    )


def _draw_prefetch(draw: Draw) -> tuple[Blocks, float, dict[str, Words]]:
    """Draw cells that gather in forward only: before backward's first gather the loss computes about 1 % of it."""
    unit_ms = draw.whole(22, 26)
    blocks = Blocks(4, draw.one_of(SMALL_MIB), unit_ms, unit_ms)
    service_ms = unit_ms - draw.tenths(8.0, 12.0)
    network = draw_link(draw, service_ms, _gather(blocks))
    knobs: Words = {"unshard_async_op": True, "reshard_after_forward": False}
    cells = {f"prefetch_{depth}": fsdp2(blocks, network, forward_prefetch=depth, **knobs) for depth in _DEPTHS}
    return blocks, service_ms, cells


def inject_late_issue(draw: Draw) -> Row:
    """Return asynchronous gathers that are issued when they are needed."""
    blocks, service_ms, cells = _draw_prefetch(draw)
    return Row(
        name="late_issue",
        claim=f"async gathers of {service_ms:g} ms without prefetch: each is issued when its unit is about to compute",
        cells={"prefetch_0": cells["prefetch_0"]},
        expectations=(Named("prefetch_0", Purpose.UNSHARD, Cause.LATE_ISSUE, blocks.units, Operation.ALL_GATHER),),
    )


def inject_prefetch(draw: Draw) -> Row:
    """Return the same with none, one and two units gathered ahead.

    With two ahead no cause is expected: beside the first gather the host copies the second unit's shards in, which is
    about 1 % of it, and the analyser may or may not call that something to hide behind.
    """
    blocks, service_ms, cells = _draw_prefetch(draw)
    return Row(
        name="prefetch",
        claim=f"async gathers of {service_ms:g} ms, one or two units of {blocks.forward_ms:g} ms ahead: exposed "
        "is only the first",
        cells=cells,
        expectations=(
            Named("prefetch_1", Purpose.UNSHARD, Cause.NEEDED_AT_ONCE, blocks.units[:1], Operation.ALL_GATHER),
            Ordered(tuple(cells), APART_NS),
        ),
    )


def inject_hsdp(draw: Draw) -> Row:
    """Return two nodes of two ranks: shards inside, replicas between."""
    blocks = Blocks(3, draw.one_of(SMALL_MIB), draw.whole(20, 26), draw.whole(20, 26))
    inside_ms, between_ms, share = draw.tenths(6.0, 8.0), draw.tenths(36.0, 44.0), draw.tenths(0.2, 0.8)
    reduced = Message(Operation.ALL_REDUCE, blocks.block_bytes // 2)
    between: Words = {"ranks_per_node": 2, **tier(between_ms, reduced, latency_share=share)}
    network = emulate(tier(inside_ms, _gather(blocks), latency_share=share), between_nodes=between)
    cell = fsdp2(blocks, network, replicas=2, unshard_async_op=True, forward_prefetch=1)
    return Row(
        name="hsdp",
        claim=f"two nodes of two ranks: units cross {inside_ms:g} ms inside a node, gradients {between_ms:g} ms more "
        "between nodes, issued blocking",
        cells={"hsdp": cell},
        expectations=(
            Named("hsdp", Purpose.GRAD_REDUCE, Cause.SYNC_OP, blocks.units, Operation.ALL_REDUCE),
            Counted("hsdp", Purpose.UNSHARD, 2 * blocks.layers, 2 * blocks.all_bytes),
            Counted("hsdp", Purpose.GRAD_REDUCE, 2 * blocks.layers, blocks.all_bytes + blocks.all_bytes // 2),
        ),
    )


def inject_forward(_draw: Draw) -> Row:
    """Return the forward of MEASUREMENT.md, section 6; its numbers are not drawn, and each unit is one parameter."""
    blocks = Blocks(5, 1 / 64, 20.0, 0.0, matrices=1)
    link = emulate(tier(12.0, _gather(blocks), latency_share=0.5))
    ahead: Words = {"unshard_async_op": True, "forward_prefetch": 1}
    cells = {
        "forward_unlinked": fsdp2(blocks, {"kind": "real"}, **ahead),
        "forward_serial": fsdp2(blocks, link),
        "forward_prefetched": fsdp2(blocks, link, **ahead),
    }
    compute_ns = round(blocks.layers * blocks.forward_ms * NS_PER_MS)
    took = partial(ForwardTook, unlinked="forward_unlinked", compute_ns=compute_ns, tolerance=0.1)
    return Row(
        name="forward",
        claim="five units of 20 ms behind gathers of 12 ms: 160 ms of forward one after another, 112 ms prefetched, "
        "and what the host takes without a link",
        cells={name: {**cell, "measure": {"exposure": ("trace",)}} for name, cell in cells.items()},
        expectations=(
            took("forward_serial", expected_ns=160 * NS_PER_MS),
            took("forward_prefetched", expected_ns=112 * NS_PER_MS),
            Ordered(("forward_serial", "forward_prefetched"), APART_NS),
        ),
        fed_by=("forward_unlinked",),
    )
