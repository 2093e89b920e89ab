"""Which settings are worth a question, by strategy: those that move or join what it issues, and what they cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from dtbench.base.units import count_things
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Parallel

AND: Final = " + "
"""Between settings that are changed together."""
_MEMORY: Final = "memory: parameters stay whole from forward to backward"
_CAPS: Final = (0.25, 0.5, 2.0, 4.0)
_DDP_CAP_MB: Final = 25.0
_MOST_AHEAD: Final = 2


@dataclass(frozen=True)
class Candidate:
    """A change that may be asked for.

    Attributes:
        change: fields and values as ``--set`` has them, several joined by ``AND``.
        costs: what has to be paid for it; empty: nothing that is known.
    """

    change: str
    costs: str = ""


def find_candidates(parallel: Parallel) -> Iterator[Candidate]:
    """Yield what may be asked of a strategy where nobody says what."""
    match parallel:
        case Ddp():
            yield from _of_ddp(parallel)
        case Fsdp1():
            yield from _of_fsdp1(parallel)
        case Fsdp2():
            yield from _of_fsdp2(parallel)
        case _:
            assert_never(parallel)


def _of_ddp(parallel: Ddp) -> Iterator[Candidate]:
    if parallel.bucket_cap_mb_list is None:
        cap_mb = parallel.bucket_cap_mb or _DDP_CAP_MB
        yield from (Candidate(f"parallel.bucket_cap_mb={cap_mb * times:g}") for times in _CAPS)
    if parallel.comm_hook is None:
        yield Candidate("parallel.comm_hook={kind: fp16_compress}", "gradients are reduced in float16")


def _of_fsdp1(parallel: Fsdp1) -> Iterator[Candidate]:
    for prefetch in ("BACKWARD_PRE", "BACKWARD_POST"):
        if parallel.backward_prefetch != prefetch:
            memory = "memory: one more unit is whole in backward" if parallel.backward_prefetch is None else ""
            yield Candidate(f"parallel.backward_prefetch={prefetch}", memory)
    if not parallel.forward_prefetch:
        yield Candidate("parallel.forward_prefetch=true", "memory: one more unit is whole in forward")
    kept = {"FULL_SHARD": "SHARD_GRAD_OP", "HYBRID_SHARD": "_HYBRID_SHARD_ZERO2"}.get(parallel.sharding_strategy)
    if kept is not None:
        yield Candidate(f"parallel.sharding_strategy={kept}", _MEMORY)


def _of_fsdp2(parallel: Fsdp2) -> Iterator[Candidate]:
    alone = [] if parallel.unshard_async_op else ["parallel.unshard_async_op=true"]
    yield from map(Candidate, alone)
    for ahead in range(_MOST_AHEAD + 1):
        if ahead != parallel.forward_prefetch:
            change = AND.join([*alone, f"parallel.forward_prefetch={ahead}"])
            more = ahead - parallel.forward_prefetch
            yield Candidate(change, f"memory: {count_things(more, 'more unit')} whole in forward" if more > 0 else "")
    if parallel.reshard_after_forward is not False:
        yield Candidate("parallel.reshard_after_forward=false", _MEMORY)
    if not parallel.separate_reduce_scatter_group:
        together = [*alone, "parallel.separate_reduce_scatter_group=true"]
        yield Candidate(AND.join(together), "another communicator")
