"""Who had the cores of a launch's machines, on disk: one file a machine, one line a look, and what it means for steps.

What others had between two looks is spread evenly over the time between them, so that a step has its share of it. A
step before the first look or after the last has what was seen nearest to it.
"""

import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dtbench.base.columns import Column, Unit
from dtbench.base.record import Record
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import Phase
from dtbench.machine.core_use import CoreWatch, UseSample
from dtbench.machine.disturbance import DISTURBED
from dtbench.machine.processes import count_cores
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import HeldBack, TookCores, TookMachine
from dtbench.store.used_gpus import find_gpus_taken, find_held_back, find_unseen, name_gpu_takers

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_HIDDEN_SHARE: Final = 0.1
"""What the kernel's ticks may miss: processes out of sight count only with more of the cores than that."""
_HIDDEN_S: Final = 2.0
"""And over so long: ticks of 10 ms say nothing of less."""
_MOST_NAMED: Final = 3
_OUT_OF_SIGHT: Final = "processes too brief or too hidden to be named"


class UseHeader(Record):
    """Whose cores a file is about.

    Attributes:
        ranks: of the launch that ran on this machine.
        cores: that they could use.
        host: its name; None: written by versions that did not say it.
        has_gpus: they were to run on some of NVIDIA's.
        gpus_unseen: why nobody looked at these; empty where somebody did.
    """

    format_version: Literal[1] = 1
    ranks: tuple[int, ...]
    cores: int
    host: str | None = None
    has_gpus: bool = False
    gpus_unseen: str = ""


class UseWriter:
    """Writes what a look finds; never an error: neither a full disk nor an odd ``/proc`` may end a launch."""

    def __init__(self, folder: LaunchFolder, ranks: Sequence[int], watch: CoreWatch) -> None:
        self._path, self._watch = folder.core_use(min(ranks)), watch
        unseen = watch.gpus if isinstance(watch.gpus, str) else ""
        has_gpus = watch.gpus is not None
        header = UseHeader(
            ranks=tuple(ranks),
            cores=count_cores(),
            host=socket.gethostname(),
            has_gpus=has_gpus,
            gpus_unseen=unseen,
        )
        self._put(header, "w")

    def look_if_due(self, pids: Sequence[int]) -> None:
        """Look unless looks cost too much, and keep what is found."""
        self._keep(self._watch.look_if_due, pids)

    def look(self, pids: Sequence[int]) -> None:
        """Look, and keep what is found."""
        self._keep(self._watch.look, pids)

    def _keep(self, look: Callable[[Sequence[int]], UseSample | None], pids: Sequence[int]) -> None:
        with suppress(OSError, ValueError, IndexError):
            sample = look(pids)
            if sample is not None:
                self._put(sample, "a")

    def _put(self, record: Record, mode: Literal["w", "a"]) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open(mode, encoding="utf-8") as file:
                file.write(record.model_dump_json() + "\n")


@dataclass(frozen=True)
class MachineUse:
    """What was seen of one machine; ``samples`` in order of time, at least one."""

    header: UseHeader
    samples: Sequence[UseSample]

    def find_taken(self, start_ns: Floats, duration_ns: Floats) -> Floats:
        """Return the share of the cores that others had in each step while ranks stood ready for them.

        Of the cores that ranks can use at once: one each, as far as there are any. Or of the GPU of which they had
        most, where that is more.

        Args:
            start_ns: shape ``(steps,)``, on the machine's clock.
            duration_ns: likewise, above 0.
        """
        hidden_ns = self._find_hidden_ns()
        taken_ns = [one.find_taken_ns(hidden) for one, hidden in zip(self.samples, hidden_ns, strict=True)]
        spread_ns = self._spread(np.asarray(taken_ns, dtype=np.float64), start_ns, duration_ns)
        of_cores = spread_ns / (self._cores * duration_ns)
        of_gpus_ns = find_gpus_taken(self.samples) * self._lengths_ns
        return np.minimum(1.0, np.maximum(of_cores, self._spread(of_gpus_ns, start_ns, duration_ns) / duration_ns))

    @property
    def throttled_fraction(self) -> float | None:
        """How long a limit on CPU time held the control group back, of the time of the cores that ranks can use."""
        told = [one for one in self.samples if one.throttled_ns is not None]
        length_ns = sum(one.end_ns - one.start_ns for one in told)
        return sum(one.throttled_ns or 0 for one in told) / (length_ns * self._cores) if told else None

    @property
    def span(self) -> tuple[Floats, Floats]:
        """Start and length of all that was seen, as one step."""
        start_ns = self.samples[0].start_ns
        return np.array([float(start_ns)]), np.array([float(self.samples[-1].end_ns - start_ns)])

    @property
    def _cores(self) -> int:
        """Cores that the ranks can use at once, one each."""
        return max(1, min(self.header.cores, len(self.header.ranks)))

    def find_others_ns(self, start_ns: Floats, duration_ns: Floats) -> Floats:
        """Return the CPU time that all other processes had in each step; shapes as in ``find_taken``."""
        others_ns = np.array([one.others_ns for one in self.samples], dtype=np.float64)
        return self._spread(others_ns, start_ns, duration_ns)

    def name_takers(self, phase: Phase, start_ns: Floats, duration_ns: Floats) -> tuple[TookCores, ...]:
        """Return who had most in these steps, most first: cores on average, those in view by name.

        Then all others that looks saw, together, and what no look could see. A look names those that had most: of what
        others had besides, nobody knows how many they were.
        """
        inside_ns = self._find_inside_ns(start_ns, duration_ns)
        total_ns = float(inside_ns.sum())
        if not total_ns:
            return ()
        weights = inside_ns / self._lengths_ns
        found: dict[tuple[int | None, str], float] = defaultdict(float)
        unnamed_ns = 0.0
        for weight, sample in zip(weights.tolist(), self.samples, strict=True):
            unnamed_ns += weight * (sample.others_ns - sum(taker.cpu_ns for taker in sample.takers))
            for taker in sample.takers if weight else ():
                found[taker.pid, taker.name] += weight * taker.cpu_ns
        ordered = sorted(found.items(), key=lambda item: -item[1])
        rest = ordered[_MOST_NAMED:]
        together = [
            ((None, _count_rest(len(rest), has_more=unnamed_ns > 0)), unnamed_ns + sum(ns for _, ns in rest)),
            ((None, _OUT_OF_SIGHT), float(weights @ self._find_hidden_ns())),
        ]
        told = [*ordered[:_MOST_NAMED], *sorted(together, key=lambda item: -item[1])]
        named = [
            TookCores(
                phase=phase,
                pid=pid,
                name=name,
                cores=ns / total_ns,
                of_cores=self.header.cores,
                host=self.header.host,
            )
            for (pid, name), ns in told
            if ns
        ]
        return tuple(one for one in named if one.cores >= DISTURBED) or tuple(named[:1])

    def name_all_takers(self, phase: Phase, start_ns: Floats, duration_ns: Floats) -> tuple[TookMachine, ...]:
        """Return who had most of the cores in these steps, then who had most of the ranks' GPUs."""
        cores = self.name_takers(phase, start_ns, duration_ns)
        gpus = name_gpu_takers(self.samples, phase, self._find_inside_ns(start_ns, duration_ns))
        named = (one.model_copy(update={"host": self.header.host}) for one in gpus)
        return (*(one for one in cores if one.cores >= DISTURBED or not gpus), *named)

    def find_held_back(self, start_ns: Floats, duration_ns: Floats) -> tuple[HeldBack, ...]:
        """Return what kept clocks of the ranks' GPUs low in these steps, longest first."""
        found = find_held_back(self.samples, self._find_inside_ns(start_ns, duration_ns))
        return tuple(one.model_copy(update={"host": self.header.host}) for one in found)

    @property
    def gpus_unseen(self) -> tuple[str, ...]:
        """Say why it is not known who had the ranks' GPUs, or not of all; empty where it is, and without any."""
        if not self.header.has_gpus:
            return ()
        return (self.header.gpus_unseen,) if self.header.gpus_unseen else find_unseen(self.samples)

    def _find_inside_ns(self, start_ns: Floats, duration_ns: Floats) -> Floats:
        """Return how much of the time of each look lies in steps, summed over them; nearest to steps outside all."""
        ends = np.array([self.samples[0].start_ns, *(one.end_ns for one in self.samples)], dtype=np.float64)
        passed_ns = np.zeros(len(ends))
        for start, duration in zip(start_ns.tolist(), duration_ns.tolist(), strict=True):
            passed_ns += np.clip(ends - start, 0.0, duration)
        inside_ns = np.diff(passed_ns)
        if len(start_ns) and not inside_ns.any():
            inside_ns[0 if start_ns[0] < ends[0] else -1] = 1.0
        return np.asarray(inside_ns, dtype=np.float64)

    def _find_hidden_ns(self) -> Floats:
        """Return what processes out of sight had between looks: as the kernel's ticks say, less all that was seen."""
        middle_ns = np.array([(one.end_ns + one.start_ns) / 2 for one in self.samples])
        first = np.searchsorted(middle_ns, middle_ns - _HIDDEN_S * NS_PER_S / 2, side="left")
        end = np.searchsorted(middle_ns, middle_ns + _HIDDEN_S * NS_PER_S / 2, side="right")
        unseen_ns, length_ns = (
            np.concatenate([[0.0], np.cumsum(one)])
            for one in (np.array([_find_unseen_ns(one) for one in self.samples]), self._lengths_ns)
        )
        share = (unseen_ns[end] - unseen_ns[first]) / (length_ns[end] - length_ns[first])
        return np.where(share > _HIDDEN_SHARE * self.header.cores, share * self._lengths_ns, 0.0)

    @property
    def _lengths_ns(self) -> Floats:
        return np.array([one.end_ns - one.start_ns for one in self.samples], dtype=np.float64)

    def _spread(self, amount_ns: Floats, start_ns: Floats, duration_ns: Floats) -> Floats:
        """Return each step's part of amounts that lie evenly between looks, at both ends as if they went on."""
        ends = np.array([self.samples[0].start_ns, *(one.end_ns for one in self.samples)], dtype=np.float64)
        heights = np.concatenate([[0.0], np.cumsum(amount_ns)])
        rates = amount_ns / np.diff(ends)

        def reach(at_ns: Floats) -> Floats:
            before = np.minimum(0.0, at_ns - ends[0]) * rates[0]
            after = np.maximum(0.0, at_ns - ends[-1]) * rates[-1]
            return np.asarray(np.interp(at_ns, ends, heights) + before + after, dtype=np.float64)

        return np.maximum(0.0, reach(start_ns + duration_ns) - reach(start_ns))


def _count_rest(count: int, *, has_more: bool) -> str:
    if has_more:
        return f"{max(1, count)} or more processes with less each"
    return "1 process with less" if count == 1 else f"{count} processes with less each"


def _find_unseen_ns(sample: UseSample) -> float:
    if sample.busy_ns is None:
        return 0.0
    return float(sample.busy_ns - sample.ranks_ns - sample.own_ns - sample.others_ns - sample.kernel_ns)


def name_held_back(steps: "pd.DataFrame", uses: Sequence[MachineUse]) -> tuple[HeldBack, ...]:
    """Return what kept the clocks of the ranks' GPUs low in MEASURED and PROFILED steps, on all machines."""
    judged = steps[steps["phase"].isin([Phase.MEASURED.value, Phase.PROFILED.value])]
    return tuple(
        one for use in uses for one in use.find_held_back(*_read_times(judged[judged["rank"].isin(use.header.ranks)]))
    )


def read_use(folder: LaunchFolder) -> tuple[MachineUse, ...]:
    """Return what was seen of each machine of a launch; empty where nobody looked. A line cut short ends its file."""
    found = []
    for path in folder.find_core_uses():
        header, samples = _read_file(path)
        if header is not None and samples:
            found.append(MachineUse(header, samples))
    return tuple(found)


def _read_file(path: Path) -> tuple[UseHeader | None, list[UseSample]]:
    header: UseHeader | None = None
    samples: list[UseSample] = []
    with suppress(OSError, ValidationError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            if header is None:
                header = UseHeader.model_validate_json(line)
            else:
                samples.append(UseSample.model_validate_json(line))
    return header, [one for one in samples if one.end_ns > one.start_ns]


@dataclass(frozen=True)
class _Looked:
    """Steps of the ranks of a machine, shape ``(n,)``, and what was seen of others there."""

    use: MachineUse
    start_ns: Floats
    duration_ns: Floats


USES: Final[tuple[Column[_Looked], ...]] = (
    Column(
        "others_cpu_ns",
        "float64",
        Unit.NS,
        "CPU time of all other processes of its machine in the step; NaN: not known",
        lambda of: of.use.find_others_ns(of.start_ns, of.duration_ns),
    ),
    Column(
        "taken_fraction",
        "float64",
        Unit.FRACTION,
        "of the cores that ranks can use at once, what others had while ranks were ready to run; NaN: not known",
        lambda of: of.use.find_taken(of.start_ns, of.duration_ns),
    ),
)
"""Further columns of the table ``steps`` where somebody looked at the whole machine, of many steps at once."""


def add_use(steps: "pd.DataFrame", uses: Sequence[MachineUse]) -> "pd.DataFrame":
    """Return steps with the columns ``USES``: what others had of the cores in each; NaN: not known."""
    found = steps.assign(**{column.name: np.nan for column in USES})
    for use in uses:
        rows = found["rank"].isin(use.header.ranks) & (found["duration_ns"] > 0)
        looked = _Looked(use, *_read_times(found[rows]))
        for column in USES:
            found.loc[rows, column.name] = np.asarray(column.value(looked))
    return found.astype({column.name: column.dtype for column in USES})


def name_takers(steps: "pd.DataFrame", uses: Sequence[MachineUse]) -> tuple[TookMachine, ...]:
    """Return who had most of the cores and GPUs in the steps of each phase of which others took part, on any machine.

    Args:
        steps: as ``add_use`` gives them.
        uses: of the same launch.
    """
    told: list[TookMachine] = []
    for use in uses:
        mine = steps[steps["rank"].isin(use.header.ranks)]
        for phase in (Phase.MEASURED, Phase.PROFILED):
            of_phase = mine[mine["phase"] == phase.value]
            told += use.name_all_takers(phase, *_read_times(of_phase[of_phase["taken_fraction"] >= DISTURBED]))
    return tuple(told)


def _read_times(steps: "pd.DataFrame") -> tuple[Floats, Floats]:
    return np.asarray(steps["start_ns"], dtype=np.float64), np.asarray(steps["duration_ns"], dtype=np.float64)
