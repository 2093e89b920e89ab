"""One join over generated ranks: what it cost this process, and whether it found what was put in, as JSON.

``python -m tests.benchmarks.join_one RANKS COLLECTIVES (one|any)``: half of a rank's collectives are all-reduces of all
ranks, half of the eight ranks of its host. Hosts' clocks are up to 2 ms apart. One rank comes last to every all-reduce
of all ranks, or any.
"""

import json
import resource
import sys
import time
from dataclasses import dataclass

import numpy as np

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.over_ranks import OverRanks, compare_fitting_ranks
from dtbench.traces.skeleton import CollectiveColumns, SaidGroup, ToldInts, code_of
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, unite
from dtbench.traces.who.collectives import Collective, Launch

SOME_DAY_NS = 1_700_000_000_000_000_000
PERIOD_NS = 4_000_000
ON_HOST = 8


@dataclass(frozen=True)
class MadeRank:
    """A rank that has columns and no objects; fields as in ``RankTimeline``."""

    rank: int
    world_size: int
    columns: CollectiveColumns
    host: str
    steps: tuple[Window, ...]
    compute: Intervals
    step_numbers: tuple[int, ...] = (3,)
    is_device: bool = True
    path: str = ""
    kernel: str | None = None
    base_ns: int | None = None
    unseen: tuple[Launch, ...] = ()

    @property
    def told_size(self) -> int:
        """Number of ranks."""
        return self.world_size

    @property
    def said_rank(self) -> int:
        """As its trace would say."""
        return self.rank

    def read(self, index: int) -> Collective:
        """Return a send or receive: there is none."""
        raise IndexError(index)


def find_late(ranks: int) -> int:
    """Return the rank that comes last where one does."""
    return int(0.76 * ranks)


def find_offset_ns(host: int) -> int:
    """Return how far a host's clock is ahead."""
    return int(np.random.default_rng(host).integers(-2_000_000, 2_000_000))


def make_rank(rank: int, ranks: int, collectives: int, *, is_one_late: bool) -> MadeRank:
    """Make one rank; the time in collectives is random, when they end is not but for some microseconds."""
    random, half = np.random.default_rng((7, rank)), collectives // 2
    host = rank // ON_HOST
    number = np.arange(half)
    ends_ns = SOME_DAY_NS + find_offset_ns(host) + PERIOD_NS * number
    all_took_ns, own_took_ns = random.integers(300_000, 900_000, half), random.integers(20_000, 200_000, half)
    if is_one_late and rank == find_late(ranks):
        all_took_ns[:] = 60_000
    all_end_ns = ends_ns + random.integers(0, 4_000, half)
    own_end_ns = ends_ns + PERIOD_NS // 2 + random.integers(0, 3_000, half)
    end_ns = np.stack((all_end_ns, own_end_ns), axis=1).reshape(-1)
    start_ns = end_ns - np.stack((all_took_ns, own_took_ns), axis=1).reshape(-1)
    shared = _Shared.of(ranks, host, half)
    columns = CollectiveColumns(
        start_ns=start_ns,
        end_ns=end_ns,
        issue_ns=ToldInts(start_ns - 10_000, shared.yes),
        seq=ToldInts(np.repeat(number, 2), shared.yes),
        is_seen=shared.yes,
        is_span_missing=shared.no,
        operation=shared.operation,
        size_bytes=ToldInts(shared.size_bytes, shared.yes),
        root=ToldInts(shared.nothing, shared.no),
        step=ToldInts(shared.nothing, shared.yes),
        on_link=shared.no,
        group=shared.group,
        groups=shared.groups,
        stream=shared.operation,
        streams=("7",),
        comms_id=shared.operation,
        comms_ids=("",),
    )
    steps = (Window(int(start_ns[0]), int(end_ns[-1])),)
    compute = unite(end_ns[:1], start_ns[-1:])
    return MadeRank(rank, ranks, columns, f"host{host}", steps, compute)


@dataclass(frozen=True)
class _Shared:
    """Columns that say the same of each rank of a host."""

    yes: np.ndarray
    no: np.ndarray
    nothing: np.ndarray
    operation: np.ndarray
    size_bytes: np.ndarray
    group: np.ndarray
    groups: tuple[SaidGroup, ...]

    @classmethod
    def of(cls, ranks: int, host: int, half: int) -> "_Shared":
        members = tuple(range(host * ON_HOST, min(ranks, (host + 1) * ON_HOST)))
        if (key := (ranks, host, half)) not in _SHARED:
            _SHARED[key] = cls(
                yes=np.ones(2 * half, dtype=np.bool_),
                no=np.zeros(2 * half, dtype=np.bool_),
                nothing=np.zeros(2 * half, dtype=np.int64),
                operation=np.full(2 * half, code_of(Operation.ALL_REDUCE), dtype=np.int32),
                size_bytes=np.full(2 * half, 1 << 20, dtype=np.int64),
                group=np.tile(np.array([0, 1], dtype=np.int32), half),
                groups=(SaidGroup("0", tuple(range(ranks)), ranks), SaidGroup(str(1 + host), members, len(members))),
            )
        return _SHARED[key]


_SHARED: dict[tuple[int, int, int], _Shared] = {}


def check(compared: OverRanks, ranks: int, *, is_one_late: bool) -> dict[str, object]:
    """Say what was found of what is known."""
    offsets_ns = np.array(
        [compared.clocks.by_rank[rank].offset_ns - find_offset_ns(rank // ON_HOST) for rank in range(ranks)]
    )
    straggler = compared.waiting.straggler
    return {
        "matched": sum(len(group.index) for group in compared.matches.groups),
        "clocks_within_ns": int(np.ptp(offsets_ns)),
        "is_late_rank_found": (straggler is not None and straggler.rank == find_late(ranks)) if is_one_late else None,
    }


def main() -> None:
    """Make the ranks, join them, print."""
    ranks, collectives, is_one_late = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "one"
    made = [make_rank(rank, ranks, collectives, is_one_late=is_one_late) for rank in range(ranks)]
    before_s = time.process_time()
    compared = compare_fitting_ranks(made)
    join_s = time.process_time() - before_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = {"join_s": join_s, "peak_bytes": peak_kib * 1024, **check(compared, ranks, is_one_late=is_one_late)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
