"""Jobs of many ranks whose truth is known: hosts with clocks of their own, a mesh of groups, a rank that comes late.

::

    host 0   rank 0 ── rank 1 ── ... rank 7      tensor: the ranks of a host
               │         │                       expert: one index of up to eight hosts that follow each other
    host 1   rank 8 ── rank 9 ── ...             data: one index of all hosts
               │         │                       world: all

Ranks compute, meet in the next collective of a group and leave it together, but for an all-to-all, which each leaves
when its own parts are there. Who comes late does so by as much before every collective.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from dtbench.base.vocabulary import Axis, Operation
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective
from tests.traces.ranks.conftest import SOME_DAY_NS, make_collective, make_timeline

Call = tuple[str, Operation]
"""A collective of a step: along which axis, and which."""

_TENSOR: Final = ("tensor", Operation.ALL_REDUCE)
_EXPERT: Final = ("expert", Operation.ALL_TO_ALL)
_DATA: Final = (("data", Operation.REDUCE_SCATTER), ("data", Operation.ALL_GATHER))
_WORLD: Final = ("world", Operation.ALL_REDUCE)
MIXES: Final[Mapping[str, tuple[Call, ...]]] = {
    "tensor": (_TENSOR,) * 8 + (*_DATA, _WORLD),
    "expert": (_EXPERT,) * 6 + (_TENSOR, _TENSOR, *_DATA, _WORLD),
    "data": (*_DATA * 4, _WORLD),
}
"""What a step sends: mostly inside hosts, mostly between the experts of some, or mostly over all of them."""

AXES: Final = {"tensor": Axis.TENSOR, "expert": Axis.EXPERT, "data": Axis.DATA, "world": None}
_DESCRIPTIONS: Final = {"tensor": "mesh_tp", "expert": "mesh_ep", "data": "mesh_dp", "world": "default_pg"}
_COMPUTE_NS: Final = 300_000
_SCATTER: Final = 0.05  # part of what they compute by which ranks differ
_TRANSFER_NS: Final = 60_000
_LEAVE_NS: Final = 6_000  # by which ranks leave a collective apart
_ELEMENTS: Final = 65_536


@dataclass(frozen=True)
class Cluster:
    """What to generate; times in ns.

    Attributes:
        ranks: of the job, a multiple of ``per_host``.
        mix: which collectives a step has, a key of ``MIXES``.
        steps: how many.
        apart_ns: clocks of hosts are set at random, so far to both sides.
        late: how much later each of these ranks comes to every collective than the others.
        missing: ranks without a trace.
        per_host: ranks of a host, which share its clock.
        seed: of everything random.
    """

    ranks: int = 16
    mix: str = "tensor"
    steps: int = 3
    apart_ns: int = 2_000_000
    late: Mapping[int, int] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    per_host: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Ran:
    """One collective of every rank, on the common clock; arrays have shape ``(ranks,)``.

    Attributes:
        step: from 0 on.
        call: what it is.
        group: index of each rank's group along its axis.
        number: which it is along its axis, from 0 on.
        start_ns: when each rank began.
        end_ns: when each left.
    """

    step: int
    call: Call
    group: Ints
    number: int
    start_ns: Ints
    end_ns: Ints


class Truth:
    """A job that ran, and what is true of it."""

    def __init__(self, job: Cluster) -> None:
        self.job = job
        random = np.random.default_rng(job.seed)
        hosts = job.ranks // job.per_host
        self.host = np.arange(job.ranks) // job.per_host
        offsets = random.integers(-job.apart_ns, job.apart_ns + 1, size=hosts)
        self.offset_ns: Ints = offsets[self.host]
        place = np.arange(job.ranks) % job.per_host
        self.groups = {
            "tensor": self.host,
            "expert": self.host // 8 * job.per_host + place,
            "data": place,
            "world": np.zeros(job.ranks, dtype=np.int64),
        }
        self.ran = tuple(self._run(random))
        self.kept = [rank for rank in range(job.ranks) if rank not in job.missing]

    def _run(self, random: np.random.Generator) -> Iterator[Ran]:
        job = self.job
        late_ns = np.array([job.late.get(rank, 0) for rank in range(job.ranks)], dtype=np.int64)
        free_ns = np.zeros(job.ranks, dtype=np.int64)
        numbers = dict.fromkeys(self.groups, 0)
        for step in range(job.steps):
            for call in MIXES[job.mix]:
                axis, operation = call
                group = self.groups[axis]
                scattered = 1 + _SCATTER * random.random(job.ranks)
                start_ns = free_ns + np.rint(_COMPUTE_NS * scattered).astype(np.int64) + late_ns
                last_ns = np.zeros(job.ranks, dtype=np.int64)
                np.maximum.at(last_ns, group, start_ns)
                took_ns = _TRANSFER_NS + random.integers(0, _LEAVE_NS, size=job.ranks)
                if operation is Operation.ALL_TO_ALL:
                    took_ns = took_ns - random.integers(0, _TRANSFER_NS // 2, size=job.ranks)
                free_ns = last_ns[group] + took_ns
                yield Ran(step, call, group, numbers[axis], start_ns, free_ns)
                numbers[axis] += 1

    @cached_property
    def members(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The ranks of each group, by axis and index."""
        return {
            (axis, int(index)): tuple(np.flatnonzero(group == index).tolist())
            for axis, group in self.groups.items()
            for index in np.unique(group)
        }

    def caused_wait_ns(self) -> Ints:
        """Return how long others waited for each rank to begin last, whoever delayed it; shape ``(ranks,)``."""
        caused = np.zeros(self.job.ranks, dtype=np.int64)
        for one in self.ran:
            last_ns = np.zeros(self.job.ranks, dtype=np.int64)
            np.maximum.at(last_ns, one.group, one.start_ns)
            wait_ns = last_ns[one.group] - one.start_ns
            who = np.zeros(self.job.ranks, dtype=np.int64)
            who[one.group[wait_ns == 0]] = np.flatnonzero(wait_ns == 0)
            np.add.at(caused, who[one.group], wait_ns)
        return caused

    def timelines(self) -> list[RankTimeline]:
        """Return what an analysis of each trace would have found; nothing but communication, all of it exposed."""
        return [self._timeline(rank) for rank in self.kept]

    def _timeline(self, rank: int) -> RankTimeline:
        found: list[Collective] = []
        for one in self.ran:
            axis, operation = one.call
            members = self.members[axis, int(one.group[rank])]
            own_ns = SOME_DAY_NS + int(self.offset_ns[rank])
            found.append(
                make_collective(
                    own_ns + int(one.start_ns[rank]),
                    own_ns + int(one.end_ns[rank]),
                    operation=operation,
                    axis=AXES[axis],
                    group=self._name(axis, rank),
                    group_ranks=members,
                    group_size=len(members),
                    seq=one.number,
                    lane=f"{rank}/{7 + list(self.groups).index(axis)}",
                )
            )
        spans_ns = tuple(one.end_ns - one.start_ns for one in found)
        facts = {"exposed_ns": spans_ns, "stepped_exposed_ns": spans_ns, "host": self.host_name(rank)}
        return make_timeline(rank, found, world_size=self.job.ranks, **facts)

    def host_name(self, rank: int) -> str:
        """Return what the machine of a rank is called."""
        return f"node{self.host[rank]}"

    def _name(self, axis: str, rank: int) -> str:
        """Return the name of a rank's group along an axis, as torch numbers them on one rank."""
        return str(list(self.groups).index(axis))

    def write(self, folder: Path) -> None:
        """Write a trace for every rank that has one, as Kineto would."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in self.kept:
            content = json.dumps(self._trace(rank), separators=(",", ":"))
            (folder / f"rank{rank}.pt.trace.json").write_text(content, encoding="utf-8")

    def _trace(self, rank: int) -> dict[str, Any]:
        groups = [
            {
                "pg_name": self._name(axis, rank),
                "pg_desc": _DESCRIPTIONS[axis],
                "pg_size": len(members),
                "ranks": list(members),
            }
            for axis, index in ((axis, int(group[rank])) for axis, group in self.groups.items())
            for members in (self.members[axis, index],)
        ]
        about = {"backend": "nccl", "rank": rank, "world_size": self.job.ranks, "pg_config": groups}
        return {
            "schemaVersion": 1,
            "distributedInfo": about,
            "host_name": self.host_name(rank),
            "traceEvents": self._events(rank),
        }

    def _events(self, rank: int) -> list[dict[str, Any]]:
        """Return steps on the host, which runs ahead, and what each launch of it ran on the device."""
        events: list[dict[str, Any]] = []
        own_ns = 1_000_000_000 + int(self.offset_ns[rank])
        free_ns, launches = 0, 0

        def add(category: str, name: str, where: tuple[int, int], span_ns: tuple[int, int], **args: object) -> None:
            start_ns, end_ns = (own_ns + time_ns for time_ns in span_ns)
            times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
            place = {"pid": where[0], "tid": where[1]}
            events.append({"ph": "X", "cat": category, "name": name, **place, **times, "args": args})

        def launch(at_ns: int) -> int:
            nonlocal launches
            launches += 1
            add("cuda_runtime", "cudaLaunchKernel", (1, 1), (at_ns, at_ns + 2_000), correlation=launches)
            return launches

        for step in range(self.job.steps):
            mine = [one for one in self.ran if one.step == step]
            host_ns = begin_ns = free_ns
            for one in mine:
                start_ns, end_ns = int(one.start_ns[rank]), int(one.end_ns[rank])
                add("cpu_op", "aten::mm", (1, 1), (host_ns, host_ns + 2_500))
                computed = launch(host_ns + 200)
                add("kernel", "sm80_gemm", (0, 7), (free_ns + 4_000, start_ns - 1_000), correlation=computed, stream=7)
                asked = f"c10d::{one.call[1]}_"
                add("cpu_op", asked, (1, 1), (host_ns + 3_000, host_ns + 8_000))
                said = self._say(one, rank)
                add("cpu_op", "record_param_comms", (1, 1), (host_ns + 3_500, host_ns + 7_500), **said)
                sent, name = launch(host_ns + 4_000), f"ncclDevKernel_{one.call[1]}(ncclDevKernelArgs)"
                stream = 20 + list(self.groups).index(one.call[0])
                add("kernel", name, (0, stream), (start_ns, end_ns), correlation=sent, stream=stream, **said)
                waits = (host_ns + 9_000, host_ns + 9_500)
                add("cuda_runtime", "cudaStreamWaitEvent", (1, 1), waits)
                host_ns, free_ns = host_ns + 10_000, end_ns
            add("user_annotation", f"ProfilerStep#{step + 10}", (1, 1), (begin_ns - 1_000, host_ns))
        return events

    def _say(self, one: Ran, rank: int) -> dict[str, object]:
        axis, operation = one.call
        members = self.members[axis, int(one.group[rank])]
        return {
            "Collective name": str(operation).replace("all_reduce", "allreduce"),
            "Process Group Name": self._name(axis, rank),
            "Process Group Description": _DESCRIPTIONS[axis],
            "Process Group Ranks": str(list(members)),
            "Group size": len(members),
            "Seq": one.number,
            "dtype": "Float",
            "In msg nelems": _ELEMENTS,
            "Out msg nelems": _ELEMENTS,
        }


def run_cluster(job: Cluster) -> Truth:
    """Run a job."""
    return Truth(job)


def host_offsets(truth: Truth, ranks: Sequence[int]) -> Ints:
    """Return how far the clocks of some ranks are truly ahead of the first of these."""
    return np.asarray(truth.offset_ns[list(ranks)] - truth.offset_ns[ranks[0]], dtype=np.int64)
