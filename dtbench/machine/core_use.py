"""Who had the cores while ranks worked: the ranks, dtbench itself, other processes, looked at from outside the ranks.

::

    ranks      ██████████░░░░██████░░░░████     ░ ready, but no core was free
    others               ████      ████         what they had while ranks stood ready is taken
    look    |        |        |        |        every quarter of a second by the launcher, else between phases

What others have counts only as far as ranks stood ready meanwhile: on a machine with cores to spare, a process that
keeps one of them busy takes nothing.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dtbench.base.record import Record
from dtbench.base.units import NS_PER_US
from dtbench.machine.gpu_use import GpuSample, GpuWatch
from dtbench.machine.processes import Identity, MachineTimes, Processes, Turn, open_processes

_MOST_NAMED: Final = 6
"""Other processes that one look names."""
_TURN_NS: Final = 50 * NS_PER_US
"""What a thread waits each time it wakes up though a core is free: some 5 to 50 us, more in virtual machines."""
_COST_SHARE: Final = 200
"""A look takes at most this part of one core's time: where it takes long, the next one waits for longer."""


class Taker(Record):
    """CPU time that another process had between two looks."""

    pid: int
    name: str
    cpu_ns: int


class UseSample(Record):
    """Who had the cores between two looks at one machine.

    Attributes:
        start_ns, end_ns: on the machine's monotonic clock, that of its ranks' steps.
        ranks_ns: CPU time of the ranks and of what they started.
        own_ns: of what started the ranks, dtbench or another, and of what else that started.
        others_ns: of all other processes that could be seen, those of the kernel apart.
        kernel_ns: of the kernel's own threads, which work for everybody.
        waited_ns: how long threads of ranks stood ready without a core, less what waking up takes; None: not told.
        busy_ns, idle_ns: of all cores, by the kernel's ticks; None: not told.
        pressure_ns: how long some process of the machine stood ready without a core; None: not told.
        throttled_ns: how long a limit on CPU time held the control group back; None: not told.
        takers: the other processes that had most.
        gpus: that ranks ran on.
    """

    start_ns: int
    end_ns: int
    ranks_ns: int
    own_ns: int
    others_ns: int
    kernel_ns: int
    waited_ns: int | None
    busy_ns: int | None
    idle_ns: int | None
    pressure_ns: int | None
    throttled_ns: int | None
    takers: tuple[Taker, ...]
    gpus: tuple[GpuSample, ...] = ()

    @property
    def wanted_ns(self) -> int | None:
        """How long ranks stood ready without a core, at most; None where nothing tells."""
        return self.waited_ns if self.waited_ns is not None else self.pressure_ns

    def find_taken_ns(self, hidden_ns: float = 0.0) -> float:
        """Return the CPU time that others had while ranks stood ready.

        Where the system does not say how long ranks stood ready: what others had beyond what was idle.

        Args:
            hidden_ns: had by processes that could not be seen.
        """
        others_ns = self.others_ns + hidden_ns
        if self.wanted_ns is not None:
            return min(others_ns, self.wanted_ns)
        return max(0.0, others_ns - (self.idle_ns or 0))


@dataclass
class _Seen:
    """A process as it was at the last look; ``is_older``: it was there at the first."""

    identity: Identity
    cpu_ns: int
    is_older: bool


@dataclass
class CoreWatch:
    """Looks at all processes of this machine, and says what they had since the look before.

    Attributes:
        roots: processes of dtbench's own; they are not others, nor is what they start from the first look on, nor is
            what stands between them and their ranks, whenever it began.
        gpus: looked at too where ranks run on them; a text: why they are not.
        programs: processes that started ranks of which dtbench started none; all that they start is no other, whenever
            it began.
    """

    roots: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))
    processes: Processes = field(default_factory=open_processes)
    gpus: GpuWatch | str | None = None
    programs: frozenset[int] = frozenset()
    now_ns: Callable[[], int] = time.perf_counter_ns
    spent_ns: Callable[[], int] = time.thread_time_ns
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _between: set[int] = field(default_factory=set)
    _turns: dict[tuple[int, int], Turn] = field(default_factory=dict)
    _last_ns: int | None = None
    _due_ns: int = 0
    _machine: MachineTimes | None = None
    _pressure_ns: int | None = None
    _throttled_ns: int | None = None

    def look_if_due(self, ranks: Sequence[int]) -> UseSample | None:
        """Look, unless looks have cost too much of late; None then, and the first time."""
        if self.now_ns() < self._due_ns:
            return None
        before_ns = self.spent_ns()
        sample = self.look(ranks)
        self._due_ns = self.now_ns() + _COST_SHARE * (self.spent_ns() - before_ns)
        return sample

    def look(self, ranks: Sequence[int]) -> UseSample | None:
        """Return what was had since the last look; None the first time.

        Args:
            ranks: their process ids, as far as they have begun.
        """
        end_ns, start_ns = self.now_ns(), self._last_ns
        had_ns = dict(self._read_processes())
        waited_ns = self._read_waited_ns(ranks)
        machine, pressure_ns, throttled_ns = self._read_system()
        self._last_ns = end_ns
        if start_ns is None or end_ns <= start_ns:
            return None
        whose = self._find_whose(ranks)
        kinds = {pid: whose(pid) for pid in had_ns}
        others = sorted((pid for pid, kind in kinds.items() if kind == "others"), key=lambda pid: -had_ns[pid])
        sums = {
            kind: sum(had_ns[pid] for pid, of in kinds.items() if of == kind)
            for kind in ("ranks", "own", "others", "kernel")
        }
        return UseSample(
            start_ns=start_ns,
            end_ns=end_ns,
            ranks_ns=sums["ranks"],
            own_ns=sums["own"],
            others_ns=sums["others"],
            kernel_ns=sums["kernel"],
            waited_ns=waited_ns,
            busy_ns=None if machine is None else machine.busy_ns,
            idle_ns=None if machine is None else machine.idle_ns,
            pressure_ns=pressure_ns,
            throttled_ns=throttled_ns,
            takers=tuple(
                Taker(pid=pid, name=self._seen[pid].identity.name, cpu_ns=had_ns[pid])
                for pid in others[:_MOST_NAMED]
                if had_ns[pid]
            ),
            gpus=self._look_at_gpus(whose),
        )

    def _look_at_gpus(self, whose: Callable[[int], str]) -> tuple[GpuSample, ...]:
        if not isinstance(self.gpus, GpuWatch):
            return ()
        return self.gpus.look(lambda pid: whose(pid) in ("ranks", "own"), self._find_name)

    def _find_name(self, pid: int) -> str | None:
        seen = self._seen.get(pid)
        return None if seen is None else seen.identity.name

    def _read_processes(self) -> Iterator[tuple[int, int]]:
        """Yield what each process had since the last look; one that began since had all of it since."""
        is_first, seen = self._last_ns is None, {}
        for pid in self.processes.find():
            cpu_ns = self.processes.read_cpu_ns(pid)
            if cpu_ns is None:
                continue
            before = self._seen.get(pid)
            if before is None or cpu_ns < before.cpu_ns:  # the number of one that has gone may be given again
                identity = self.processes.identify(pid)
                if identity is None:
                    continue
                before = _Seen(identity, cpu_ns if is_first else 0, is_first)
            yield pid, cpu_ns - before.cpu_ns
            seen[pid] = replace(before, cpu_ns=cpu_ns)
        self._seen = seen

    def _read_waited_ns(self, ranks: Iterable[int]) -> int | None:
        """Return how long threads of ranks stood ready since the last look, less what waking up takes."""
        told = {rank: self.processes.read_turns(rank) for rank in ranks}
        if any(turns is None for turns in told.values()):
            return None
        now = {(rank, thread): turn for rank, turns in told.items() for thread, turn in (turns or {}).items()}
        before, self._turns = self._turns, now
        if self._last_ns is None:
            return 0
        fresh = Turn(0, 0)
        grown = [(turn, before.get(key, fresh)) for key, turn in now.items()]
        waited_ns = sum(max(0, turn.waited_ns - old.waited_ns) for turn, old in grown)
        turns = sum(max(0, turn.turns - old.turns) for turn, old in grown)
        return max(0, waited_ns - turns * _TURN_NS)

    def _read_system(self) -> tuple[MachineTimes | None, int | None, int | None]:
        """Return by how much the counters of the whole system grew."""
        machine, pressure_ns = self.processes.read_machine(), self.processes.read_pressure_ns()
        throttled_ns = self.processes.read_throttled_ns()
        grown = None
        if machine is not None and self._machine is not None:
            grown = MachineTimes(
                max(0, machine.busy_ns - self._machine.busy_ns), max(0, machine.idle_ns - self._machine.idle_ns)
            )
        more_pressure_ns = _subtract(pressure_ns, self._pressure_ns)
        more_throttled_ns = _subtract(throttled_ns, self._throttled_ns)
        self._machine, self._pressure_ns, self._throttled_ns = machine, pressure_ns, throttled_ns
        return grown, more_pressure_ns, more_throttled_ns

    def _find_whose(self, ranks: Sequence[int]) -> Callable[[int], str]:
        """Return what says whose a process is: of the ranks, dtbench's own, another's, the kernel's."""
        self._between.update(above for rank in ranks for above in self._find_between(rank))  # ranks may end before it
        return partial(self._find_kind, frozenset(ranks))

    def _find_between(self, rank: int) -> list[int]:
        """Return what stands between a rank and a root, as what forks ranks does; nothing where no root is above."""
        met = [rank]
        while met[-1] in self._seen and len(met) == len({*met}):
            parent = self._seen[met[-1]].identity.parent
            if parent in self.roots:
                return met[1:]
            met.append(parent)
        return []

    def _find_kind(self, ranks: frozenset[int], pid: int) -> str:
        """Say whose a process is, by its nearest forebear.

        What a notebook or a test had started before it starts ranks works for somebody else.
        """
        met: set[int] = set()
        while pid in self._seen and pid not in met:
            if pid in ranks:
                return "ranks"
            if pid in self.programs:
                return "own"
            if pid in self.roots:
                return "others" if any(self._seen[one].is_older for one in met - self._between) else "own"
            if self._seen[pid].identity.is_kernel:
                return "kernel"
            met.add(pid)
            pid = self._seen[pid].identity.parent
        return "others"


def _subtract(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)
