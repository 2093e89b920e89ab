"""Which settings leave what each rank computes as it was, so that compute found under one holds under another.

A list of fields, as of those that closed forms know: any other may change it, a field of tomorrow too.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from dtbench.base.record import Record
from dtbench.scenario.schema.ddp import Ddp
from dtbench.scenario.schema.scenario import Fsdp1, Fsdp1MixedPrecision, Fsdp2, Fsdp2MixedPrecision, Parallel

LEAVES_COMPUTE: Final[Mapping[type[Record], frozenset[str]]] = {
    Ddp: frozenset({"bucket_cap_mb", "bucket_cap_mb_list", "static_graph", "comm_hook"})
    | {"gradient_as_bucket_view", "batched_grad_copy", "lazy_bucket_allocation"},  # copies of gradients
    Fsdp1: frozenset({"shards", "replicas", "sharding_strategy", "backward_prefetch", "forward_prefetch"})
    | {"limit_all_gathers"},
    Fsdp1MixedPrecision: frozenset({"reduce_dtype"}),
    Fsdp2: frozenset({"shards", "replicas", "reshard_after_forward", "reshard_after_backward", "unshard_async_op"})
    | {"forward_prefetch", "backward_prefetch", "separate_reduce_scatter_group", "needless_in_backward"}
    | {"reduce_scatter_max_input_buffers", "force_sum_reduction"},
    Fsdp2MixedPrecision: frozenset({"reduce_dtype"}),
}
"""Fields that move, join or convert what is communicated, by their record; the job has as many ranks as before."""


def find_other_compute(before: Record, after: Record, path: tuple[str, ...] = ("parallel",)) -> Iterator[str]:
    """Yield the dotted names of changed fields of which it is not known whether ranks compute with them as before."""
    known = LEAVES_COMPUTE[type(before)]
    for name in type(before).model_fields:
        old, new, place = getattr(before, name), getattr(after, name), (*path, name)
        if old == new or name in known:
            continue
        if type(old) is type(new) and type(old) in LEAVES_COMPUTE:
            yield from find_other_compute(old, new, place)
        else:
            yield ".".join(place)


def held_share(parallel: Parallel) -> float:
    """Return which share of the parameters a rank holds, which is what its optimizer updates; a tensor axis apart."""
    match parallel:
        case Fsdp1(is_whole=False, shards=shards) | Fsdp2(shards=shards):
            return 1 / shards
        case _:
            return 1.0
