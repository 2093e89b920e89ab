"""Every knob of DDP read back from the live wrapper and its reducer, and what can overlap."""

from collections.abc import Iterator
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from dtbench.base.units import MIB, count_things
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.plan.traffic.ddp import DDP_DEFAULT_CAP_BYTES
from dtbench.scenario.schema.ddp import CustomHook, Ddp, DdpMixedPrecision
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import OverlapPossible, Traffic
from dtbench.worker.dtypes import dtype_name
from dtbench.worker.parallelize.ddp import WrappedDdp
from dtbench.worker.parallelize.ddp_hooks import read_buffer_hook_receipt, read_hook_receipts
from dtbench.worker.parallelize.tensor import read_inline_overlap, read_tensor_receipts
from dtbench.worker.receipts import compare, without_effect


def read_ddp_receipts(wrapped: WrappedDdp, parallel: Ddp) -> tuple[Receipt, ...]:
    """Read every knob back from the live wrapper and its reducer."""
    model = wrapped.model
    data = model._get_ddp_logging_data()
    return (
        compare("parallel.wrap", parallel.wrap, got=True),
        compare("parallel.replicas", parallel.replicas, int(data["world_size"])),
        *read_tensor_receipts(wrapped.tensor, parallel, through=wrapped.localized),
        *_bucket_receipts(model, data, parallel),
        compare(
            "parallel.gradient_as_bucket_view", parallel.gradient_as_bucket_view, bool(data["gradient_as_bucket_view"])
        ),
        compare("parallel.static_graph", parallel.static_graph, bool(model.static_graph)),
        *_unused_receipts(model, data, parallel),
        *_buffer_receipts(model, data, parallel),
        compare("parallel.init_sync", parallel.init_sync, wrapped.initial_syncs > 0),
        *_newer_receipts(model, parallel),
        *read_hook_receipts(model, data, parallel),
        compare(
            "parallel.delay_all_reduce",
            parallel.delay_all_reduce,
            len(model._delay_all_reduce_params),
            expected=len(wrapped.delayed) if wrapped.delayed or not parallel.delay_all_reduce else "some",
            note="parameters that left the buckets; dtbench waits for their all-reduce, torch does not",
        ),
        _ignore_receipt(wrapped, parallel),
        *_compiled_receipts(wrapped, parallel),
        *_join_receipts(model, data, parallel),
        *_mixed_precision_receipts(model, parallel.mixed_precision),
    )


def _newer_receipts(model: DistributedDataParallel, parallel: Ddp) -> Iterator[Receipt]:
    """Compare what not every torch has: what it lacks is off."""
    for name, attribute in (
        ("batched_grad_copy", "batched_grad_copy"),
        ("lazy_bucket_allocation", "lazy_bucket_allocation"),
        ("manual_backward_finalization", "require_manual_backward_finalization"),
    ):
        yield compare(f"parallel.{name}", getattr(parallel, name), bool(getattr(model, attribute, False)))


def _bucket_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    caps = parallel.bucket_cap_mb_list
    if caps is not None:
        cap_bytes = int(max(caps) * MIB)
    else:
        cap_bytes = DDP_DEFAULT_CAP_BYTES if parallel.bucket_cap_mb is None else int(parallel.bucket_cap_mb * MIB)
    got = int(data["bucket_cap_bytes"])
    cap = compare("parallel.bucket_cap_mb", parallel.bucket_cap_mb, got, expected=cap_bytes, note="in bytes")
    yield without_effect(cap, "bucket_cap_mb_list decides") if caps is not None and parallel.bucket_cap_mb else cap
    listed = tuple(getattr(model, "bucket_bytes_cap_list", ()))  # torch 2.13
    expected = tuple(int(size * MIB) for size in caps or ())
    yield compare("parallel.bucket_cap_mb_list", caps, listed, expected=expected, note="in bytes")


def _unused_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    unused = compare(
        "parallel.find_unused_parameters", parallel.find_unused_parameters, bool(data["find_unused_parameters"])
    )
    if parallel.static_graph and parallel.find_unused_parameters:
        unused = without_effect(unused, "static_graph already knows the unused parameters")
    yield unused
    skip = compare(
        "parallel.skip_all_reduce_unused_params",
        parallel.skip_all_reduce_unused_params,
        bool(getattr(model, "skip_all_reduce_unused_params", False)),
    )
    used = not getattr(model.module, "has_unused", False)
    yield without_effect(skip, "every parameter of this model is used") if skip.got == "true" and used else skip
    clone = compare("parallel.ddp_sink_clone", parallel.ddp_sink_clone, bool(model._ddp_sink_clone))
    passes = parallel.find_unused_parameters or parallel.static_graph
    idle = clone.got == "false" and not passes
    yield (
        without_effect(clone, "outputs pass no sink without find_unused_parameters or static_graph") if idle else clone
    )


def _buffer_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    receipts = (
        compare("parallel.broadcast_buffers", parallel.broadcast_buffers, bool(data["broadcast_buffers"])),
        read_buffer_hook_receipt(model, parallel),
    )
    for receipt in receipts:
        has_buffers = any(True for _ in model.module.buffers())
        idle = not has_buffers and receipt.got != "unset"
        yield without_effect(receipt, "the model has no buffers") if idle else receipt


def _ignore_receipt(wrapped: WrappedDdp, parallel: Ddp) -> Receipt:
    """Compare with the parameters and buffers that DDP neither reduces nor broadcasts."""
    known = {name for name, _ in (*wrapped.model.module.named_parameters(), *wrapped.model.module.named_buffers())}
    got = len(known & wrapped.model.parameters_to_ignore) - len(wrapped.delayed)
    expected = len(wrapped.ignored) if wrapped.ignored or not parallel.ignore else "some"
    note = "tensors that DDP leaves alone; dtbench reduces their gradients" if wrapped.ignored else ""
    return compare("parallel.ignore", parallel.ignore, got, expected=expected, note=note)


def _compiled_receipts(wrapped: WrappedDdp, parallel: Ddp) -> Iterator[Receipt]:
    python = bool(wrapped.model._use_python_reducer) and bool(wrapped.model._accum_grad_hooks)
    yield compare("parallel.python_reducer", parallel.python_reducer, python)
    compiled = wrapped.compiled_backwards()
    yield compare(
        "parallel.compiled_autograd",
        parallel.compiled_autograd,
        compiled > 0,
        note=f"{count_things(compiled, 'graph')} of backward" if compiled else "",
    )


def _join_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    joined = bool(data.get("join_uneven_inputs", False))
    asked = parallel.join
    yield compare("parallel.join", asked is not None, joined, note="ranks may have unequally many iterations")
    divides = bool(getattr(model, "_divide_by_initial_world_size", True))
    wanted = True if asked is None else asked.divide_by_initial_world_size
    yield compare("parallel.join.divide_by_initial_world_size", wanted, divides)


def _mixed_precision_receipts(model: DistributedDataParallel, asked: DdpMixedPrecision) -> Iterator[Receipt]:
    for name in DdpMixedPrecision.model_fields:
        got = None if model.mixed_precision is None else dtype_name(getattr(model.mixed_precision, name))
        yield compare(f"parallel.mixed_precision.{name}", getattr(asked, name), got)


def read_ddp_overlap(
    parallel: Ddp, bucket_bytes: tuple[int, ...], traffic: tuple[Traffic, ...], *, clips: bool
) -> tuple[OverlapPossible, ...]:
    """Say that buckets overlap backward, unless they are issued blocking or none is ready before its end.

    Over a tensor axis every gradient passes through a ``from_local`` node that was made before forward, so autograd
    comes to it last (seen on gloo: 72 % of DDP's all-reduces hidden, 6 % with a tensor axis).
    """
    reduces = [item for item in traffic if item.purpose is Purpose.GRAD_REDUCE]
    possible, reason = False, ""
    if parallel.python_reducer:
        reason = "a hook on each gradient waits for its all-reduce"
    elif any(item.count_async < item.count for item in reduces):
        reason = "all-reduces are issued synchronously"
    elif parallel.tensor > 1:
        reason = "over a tensor axis gradients are ready only when backward is over"
    elif len(bucket_bytes) == 1:
        reason = "one bucket: ready when backward is over"
    else:
        possible, reason = True, f"{len(bucket_bytes)} buckets, each all-reduced while backward goes on"
    gradients = OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=possible, reason=reason)
    inline = read_inline_overlap(parallel, traffic, clips=clips)
    beside = _find_beside(parallel, traffic)
    if beside is None:
        return (gradients, *inline)
    possible, reason = beside
    others = OverlapPossible(purpose=Purpose.OTHER, possible=possible, reason=reason)
    return (gradients, *(note for note in inline if note.purpose is not Purpose.OTHER), others)


def _find_beside(parallel: Ddp, traffic: tuple[Traffic, ...]) -> tuple[bool, str] | None:
    """Say what buffers and ``join`` make of what is neither weight nor gradient; None: it is not surely theirs.

    A person's own hook may send anything beside.
    """
    hook = parallel.buffer_comm_hook
    if isinstance(parallel.comm_hook, CustomHook):
        return None
    if parallel.join is not None:
        return False, "ranks ask each other before each forward who still has rows"
    if hook is not None:
        after = hook.location == "post_forward"
        return after, "buffers are averaged beside backward" if after else "forward waits for the averaged buffers"
    if any(item.operation is Operation.BROADCAST for item in traffic if item.purpose is Purpose.OTHER):
        return False, "forward waits for rank 0's buffers"
    return None


def read_unwrapped_receipts(parallel: Ddp, ranks: int) -> tuple[Receipt, ...]:
    """Compare with a plain model, which has none of the wrapper's knobs."""
    return (
        compare("parallel.wrap", parallel.wrap, got=False),
        compare("parallel.replicas", parallel.replicas, ranks),
        compare("parallel.tensor", parallel.tensor, 1),
        compare("parallel.sequence_parallel", parallel.sequence_parallel, got=False),
    )
