"""What the files of a run say, those of its ranks apart. A record that is a file carries ``format_version``."""

import hashlib
from enum import StrEnum
from itertools import takewhile
from typing import Final, Literal

from dtbench.base.record import Record
from dtbench.base.units import format_fraction
from dtbench.base.vocabulary import Axis, DeviceKind, Phase
from dtbench.plan.plan import Plan, RankCount
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.schema.scenario import Scenario

FORMAT_VERSION = 1
RANK_FORMAT_VERSION = 2
"""Of ranks' records; of format 1, which are read too, what extras found out lay among all else."""


class RunStatus(StrEnum):
    """How far a run or a launch came."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


LOG_FOLLOWS: Final = "; the end of its log:"
"""What stands between why a launch failed and the last lines of the log."""

_LONGEST_WORDS: Final = 200


def tell_reason_in_a_line(reason: str) -> str:
    r"""Say why a launch failed without the lines of its log, but for the last, which is what the rank said of it.

    >>> tell_reason_in_a_line("rank 1 raised, last seen in step 3; the end of its log:\n  | Trace\n  | OSError: no")
    'rank 1 raised, last seen in step 3: OSError: no'
    """
    first, *lines = reason.splitlines() or [""]
    words = [line.strip(" |") for line in takewhile(lambda line: line.startswith("  | "), lines)]
    if not first.endswith(LOG_FOLLOWS) or not words:
        return first
    last = words[-1] if len(words[-1]) <= _LONGEST_WORDS else f"{words[-1][:_LONGEST_WORDS]}..."
    return f"{first.removesuffix(LOG_FOLLOWS)}: {last}"


class RankFailure(Record):
    """Where a rank was last seen, and what it said.

    ``what`` is ``raised``, ``killed by SIGSEGV``, ``hung``, ``left with exit code 3``, ``ended because another rank
    failed``, ...; ``last_lines`` are the end of its log; ``host`` is where it ran, None where all ran on one machine.
    """

    rank: int
    what: str
    last_step: int | None
    last_phase: str | None
    last_region: str | None
    last_lines: tuple[str, ...]
    host: str | None = None


def _say_where(host: str | None) -> str:
    return "" if host is None else f" on {host}"


class TookCores(Record):
    """Another process that had cores in the disturbed steps of a phase.

    Attributes:
        phase: of the run.
        pid: None for processes that cannot be named: too brief, or of another container.
        name: of the process.
        cores: that it had, on average over these steps, of ``of_cores``.
        of_cores: that the machine has.
        host: of these cores; None: written by versions that did not say it.
    """

    phase: Phase
    pid: int | None
    name: str
    cores: float
    of_cores: int
    host: str | None = None

    @property
    def words(self) -> str:
        """Who took how much, as part of a sentence."""
        who = self.name if self.pid is None else f"{self.name} (pid {self.pid})"
        return f"{who} took {self.cores:.2f} of {self.of_cores} cores{_say_where(self.host)}"


class UsedGpu(Record):
    """Another process whose kernels ran on a GPU of the ranks in the disturbed steps of a phase.

    Attributes:
        phase: of the run.
        pid: as the driver numbers it.
        name: None where the process cannot be seen.
        gpu: the driver's number of it.
        share: of the time, on average over these steps.
        host: of this GPU; None: written by versions that did not say it.
    """

    phase: Phase
    pid: int
    name: str | None
    gpu: int
    share: float
    host: str | None = None

    @property
    def words(self) -> str:
        """Who took how much, as part of a sentence."""
        who = f"{self.name or 'a process out of sight'} (pid {self.pid})"
        return f"{who} had GPU {self.gpu}{_say_where(self.host)} for {format_fraction(self.share)} of the time"


TookMachine = TookCores | UsedGpu


class HeldBack(Record):
    """What kept the clocks of a GPU low in MEASURED and PROFILED steps.

    Attributes:
        gpu: the driver's number of it.
        share: of the time of these steps.
        clock_mhz, most_clock_mhz: of its multiprocessors meanwhile (mean) and at most; None: not told.
        host: of this GPU; None: written by versions that did not say it.
    """

    gpu: int
    why: str
    share: float
    clock_mhz: float | None
    most_clock_mhz: int | None
    host: str | None = None

    @property
    def words(self) -> str:
        """What held it back, as a sentence."""
        told = self.clock_mhz is not None and self.most_clock_mhz is not None
        at = f", at {self.clock_mhz:.0f} of {self.most_clock_mhz} MHz" if told else ""
        which = f"GPU {self.gpu}{_say_where(self.host)}"
        return f"{which} was held back for {format_fraction(self.share)} of the time by {self.why}{at}"


class LaunchRecord(Record):
    """One launch: written last, so its absence means that the launch did not end.

    Attributes:
        takers: other processes that had cores or GPUs in its disturbed steps, by phase, most first.
        throttled_fraction: how long a limit on CPU time (of the control group that the ranks are in) held them back, of
            the time of the cores that they can use at once; None: not known.
        held_back: what kept the clocks of the ranks' GPUs low.
        gpus_unseen: why it is not known, or not of all, who had the ranks' GPUs; empty where it is, and on CPUs.
    """

    format_version: Literal[1] = 1
    cell: str
    index: int
    status: RunStatus
    started_unix_ns: int
    duration_ns: int
    reason: str | None
    failures: tuple[RankFailure, ...]
    takers: tuple[TookMachine, ...] = ()
    throttled_fraction: float | None = None
    held_back: tuple[HeldBack, ...] = ()
    gpus_unseen: tuple[str, ...] = ()


class CellRecord(Record):
    """One cell of a run: scenario and plan as run, its launches by index, and its value on each axis of a matrix."""

    name: str
    scenario: Scenario
    plan: Plan
    launches: tuple[int, ...]
    coordinates: dict[str, str] = {}


class OwnAxis(Record):
    """One mesh axis of a person's own loop; ``axis`` is None where its name is none that dtbench knows.

    Attributes:
        name: as the loop calls it.
        axis: what dtbench knows it as; None: nothing.
        size: ranks along it.
    """

    name: str
    axis: Axis | None
    size: int


class OwnLoop(Record):
    """What a person's own training loop, measured with ``dtbench.capture``, says of itself: it has no plan.

    Fields that a ``Plan`` has too carry its names and mean the same.

    Attributes:
        script: the program that was running.
        device: that it runs on.
        backend: None: a single process without a process group.
        mesh: as given, else as live device meshes and wrapped models say.
        ranks: how many.
        min_warmup_steps: fewest steps of warm-up.
        max_warmup_steps: most steps of warm-up.
        measured_steps: steps that are timed.
        profiled_steps: steps under the profiler.
        tokens_per_step: over all ranks; None: not told.
        notes: what a reader of the numbers must know.
    """

    kind: Literal["own_loop"] = "own_loop"
    script: str
    device: DeviceKind
    backend: str | None
    mesh: tuple[OwnAxis, ...]
    ranks: RankCount
    min_warmup_steps: int
    max_warmup_steps: int
    measured_steps: int
    profiled_steps: int
    tokens_per_step: int | None
    notes: tuple[str, ...]


class OwnLoopCell(Record):
    """The one cell of a run that ``dtbench.capture`` made: neither scenario nor plan, ``plan`` says what is known."""

    name: str
    scenario: None = None
    plan: OwnLoop
    launches: tuple[int, ...]
    coordinates: dict[str, str] = {}


class Neighbour(Record):
    """Another process that ran scenarios on the same machine; ``run`` is the folder of its run.

    Attributes:
        pid: of its process.
        user: who started it.
        run: folder of its run.
    """

    pid: int
    user: str
    run: str


class RunRecord(Record):
    """One run.

    Attributes:
        name: the scenario's name.
        question: line 1 of the scenario file, without ``#``.
        overrides: each ``--set`` as typed.
        only: the cells that were chosen, where not all of the scenario were to run.
        reason: why it failed; None unless ``status`` is failed.
        prepared: only orders were written; someone else starts the ranks.
        resumed_unix_ns: when it was gone on with after it had ended early, and a launch ran anew.
        repeat_end: why ``repeat: auto`` added no more launches; None: it has not come to that, or a number was given.
        checklist: what the scenario file claims.
        neighbours: other runs that were on this machine when it, or a launch of it, began or ended.
    """

    format_version: Literal[1] = 1
    dtbench_version: str
    name: str
    run_id: str
    question: str
    overrides: tuple[str, ...]
    status: RunStatus
    reason: str | None
    started_unix_ns: int
    ended_unix_ns: int | None
    cells: tuple[CellRecord | OwnLoopCell, ...]
    prepared: bool = False
    resumed_unix_ns: tuple[int, ...] = ()
    repeat_end: str | None = None
    checklist: Checklist = Checklist()
    neighbours: tuple[Neighbour, ...] = ()
    only: tuple[str, ...] = ()


class Device(Record):
    """One accelerator."""

    name: str
    memory_bytes: int
    capability: str


class Commit(Record):
    """What git says of a folder.

    Attributes:
        revision: the commit's full name.
        is_dirty: files that it tracks were changed since; None: git did not say so in time.
    """

    revision: str
    is_dirty: bool | None

    @property
    def words(self) -> str:
        """The commit in short, and whether the code was that of it."""
        changed = {True: " with changes", False: "", None: ", perhaps with changes"}
        return f"{shorten_revision(self.revision)}{changed[self.is_dirty]}"


def shorten_revision(revision: str) -> str:
    """Return as much of a commit's name as tells it from others."""
    return revision[:_REVISION]


_REVISION: Final = 12


class Environment(Record):
    """The machine and the software of a run.

    Attributes:
        torch_git: the commit that torch was built of; None: not told, as by versions that did not look.
        commit: of the user's code, the scenario's folder or where it was started; None: in no git repository, or by
            versions that did not look.
        runner_class: a person's word for machines that stand for each other (``DTBENCH_RUNNER_CLASS``); None: none was
            given, or by versions that did not look.
        cuda: version of CUDA that torch was built for; None: for another, or for none.
        hip: likewise of ROCm's HIP.
        nccl: version of NCCL, on ROCm of RCCL; None: there is none.
        variables: that tune what is measured; secrets are redacted.
    """

    format_version: Literal[1] = 1
    host: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    torch_git: str | None = None
    commit: Commit | None = None
    runner_class: str | None = None
    cuda: str | None
    hip: str | None = None
    nccl: str | None
    packages: dict[str, str]
    devices: tuple[Device, ...]
    variables: dict[str, str]
    notes: tuple[str, ...]


class WorkerOrder(Record):
    """What the launcher tells every rank of a launch.

    Attributes:
        folder: absolute path of the launch folder.
        reference: path of the single process's results to compare with; None: do not compare.
        is_reference: run as that single process and write them.
        import_folders: absolute paths in which a person's own model is looked for, first to look in first.
        launched_unix_ns: when the launcher started the ranks; None: someone else does, count from the process's start.
        code_folder: absolute path of the folder whose commit is that of the user's code; None: where ranks start.
    """

    format_version: Literal[1] = 1
    cell: str
    index: int
    scenario: Scenario
    plan: Plan
    folder: str
    reference: str | None
    is_reference: bool
    import_folders: tuple[str, ...] = ()
    launched_unix_ns: int | None
    code_folder: str | None = None

    @property
    def digest(self) -> str:
        """What all ranks of a launch share, whatever paths their machines have: 16 hexadecimal digits."""
        places = {"folder", "reference", "import_folders", "code_folder", "launched_unix_ns"}
        told = self.model_dump_json(exclude=places, warnings=False)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def words(self) -> str:
        """Which launch this is, as part of a sentence."""
        return f"the reference of cell {self.cell}" if self.is_reference else f"launch {self.index} of cell {self.cell}"


class EventLine(Record):
    """One milestone of a rank; ``monotonic_ns``: on its machine's monotonic clock, None in files of before 2026-12."""

    unix_ns: int
    monotonic_ns: int | None = None
    event: str
    detail: str = ""
