"""What the files of a run say. Every record that is a file of its own carries ``format_version``."""

from enum import StrEnum
from typing import Literal

from dtbench.plan import Plan
from dtbench.record import FloatOrNan, Record
from dtbench.scenario.checklist import Checklist
from dtbench.scenario.schema import Scenario
from dtbench.store.probe_records import Probes
from dtbench.vocabulary import Arm, Axis, DeviceKind, Operation, Purpose, Region, Stage, StatePart

FORMAT_VERSION = 1

TESTED_TORCH = ((2, 11), (2, 14))
"""Versions of torch that dtbench was tested with, first included, last excluded; as the extra ``run`` asks for.

Closed, because private functions are wrapped, and these move between versions.
"""


def is_tested_torch(version: str) -> bool:
    """Tell whether a version such as ``2.13.0+cpu`` is in the tested range."""
    major, minor = version.split(".")[:2]
    return TESTED_TORCH[0] <= (int(major), int(minor)) < TESTED_TORCH[1]


class RunStatus(StrEnum):
    """How far a run or a launch came."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


class ReceiptOutcome(StrEnum):
    """What became of a knob."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    NO_EFFECT = "no effect here"


class Receipt(Record):
    """One knob: what was asked, what torch says it got.

    Attributes:
        knob: dotted path in the scenario, for example ``parallel.static_graph``.
        asked: as the scenario says it, as text.
        got: read back from torch, as text.
        note: why it has no effect, or what was expected instead; empty when there is nothing to add.
    """

    knob: str
    asked: str
    got: str
    outcome: ReceiptOutcome
    note: str = ""


class Traffic(Record):
    """Collectives that one rank issued in one step, summed over equal (purpose, axis, operation).

    ``size_bytes`` is the sum of nccl-tests' sizes: whole output of an all-gather, whole input of a reduce-scatter, the
    tensor of an all-reduce or broadcast. ``count_async`` of them were issued with ``async_op=True``.
    """

    purpose: Purpose
    axis: Axis | None
    operation: Operation
    count: int
    size_bytes: int
    count_async: int


class Compilation(Record):
    """What ``torch.compile`` did on a rank; ``recompiles`` are graphs made because an earlier one's guards failed."""

    graphs: int
    recompiles: int
    graph_breaks: int
    duration_ns: int


class ExpectedTraffic(Record):
    """What a rank expects of a purpose in one step, where no plan could say it before the model was built.

    ``count`` is None where it hangs on the order in which gradients become ready (DDP's buckets).
    """

    purpose: Purpose
    count: int | None
    size_bytes: int


class OverlapPossible(Record):
    """Whether collectives of a purpose can run beside compute on this backend with these knobs, and why not."""

    purpose: Purpose
    possible: bool
    reason: str


class ProcessGroupInfo(Record):
    """One process group of a rank, by the name that traces carry."""

    name: str
    axis: Axis | None
    backend: str
    ranks: tuple[int, ...]


class Carried(Record):
    """Parameters that travel together: those of one DDP bucket or one FSDP unit.

    Attributes:
        owner: as a collective's owner: ``bucket 0``, ``delayed parameters``; the unit's FQN, ``root`` for the root.
        parameters: their FQNs in the order in which they lie in the buffer.
        size_bytes: of their gradients or weights as this rank holds them before it shards; what goes over the wire
            may be padded or of another dtype.
    """

    owner: str
    parameters: tuple[str, ...]
    size_bytes: int


class Owned(Record):
    """Whose a collective was, as seen where FSDP asked for it: what an owner read from a trace is held against."""

    group: str
    seq: int
    owner: str


class Memory(Record):
    """Peaks in bytes: of host memory always, of the device's allocator on CUDA (None on CPU)."""

    rss_peak_bytes: int
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None


class WarmupEnd(Record):
    """How warm-up ended: ``settled`` False means that ``max_steps`` ran out first."""

    steps: int
    settled: bool
    reason: str


class CorrectnessResult(Record):
    """Largest relative differences from the single process on the whole batch.

    ``loss_error`` over steps 2 to 5; ``gradient_error`` over parameters, of step 1 (2-norm of the difference over the
    2-norm of the reference); ``worst_parameter`` is its FQN.
    """

    passed: bool
    loss_error: FloatOrNan
    loss_tolerance: FloatOrNan
    gradient_error: FloatOrNan
    gradient_tolerance: FloatOrNan
    worst_parameter: str


class MissedWait(Record):
    """Collectives of a step that were read before they were done; what is not common to all of them is None.

    Attributes:
        owner: bucket or FSDP unit; None: unknown.
        place: of a single one without owner, among those of a step that are otherwise equal, from 0.
        count: how many collectives fail together.
        was_awaited: somebody waited for each in the end, too late.
    """

    purpose: Purpose | None
    operation: Operation | None
    region: Region | None
    owner: str | None
    place: int | None
    count: int
    was_awaited: bool


class CanaryResult(Record):
    """What became of steps in which results of collectives came only when waited for, with poison in place until then.

    Attributes:
        passed: on all ranks, within the tolerances of ``CorrectnessResult``; None: nobody can tell, see ``reason``.
        steps: that were poisoned; each held against one step, equal otherwise, without any delay.
        collectives: withheld in one of them on this rank.
        is_equal: losses and gradients are the same numbers.
        loss_error, gradient_error: largest relative differences on this rank; infinite where a poisoned step had NaN.
        missed: whose results were read too early, where a step failed.
    """

    passed: bool | None
    steps: int
    collectives: int
    is_equal: bool
    loss_error: FloatOrNan
    gradient_error: FloatOrNan
    missed: tuple[MissedWait, ...] = ()
    reason: str | None = None


class ArmBlock(Record):
    """Steps of one arm that this rank ran one after another, without profiler, learning rate 0.

    Attributes:
        step_ns: duration of each step, as MEASURED steps are timed.
        wait_ns: by purpose, how long a consumer stood still in each of these steps; only of arm ``full``.
        stolen_fraction: the share of the machine's cores that other guests had in each; empty: nobody looked.
    """

    arm: Arm
    step_ns: tuple[int, ...]
    wait_ns: dict[Purpose, tuple[int, ...]] = {}
    stolen_fraction: tuple[FloatOrNan, ...] = ()


class ArmCount(Record):
    """What one step of an arm did, counted in a step of its own: the arms must differ in nothing but communication.

    Attributes:
        operators: that torch dispatched on this rank.
        traffic: collectives as the step issued them.
    """

    arm: Arm
    operators: int
    traffic: tuple[Traffic, ...]


class ArmSteps(Record):
    """What the steps after PROFILED found out about exposed communication.

    Attributes:
        blocks: in the order in which they ran; arms take turns (ABBA).
        counts: one for each arm.
        logged_ns: DDP's own logger, communication less what overlapped compute, one value for each step of its own that
            it sampled; empty for other strategies.
    """

    blocks: tuple[ArmBlock, ...]
    counts: tuple[ArmCount, ...]
    logged_ns: tuple[int, ...] = ()


class LivedCall(Record):
    """What was done to a live model after PROFILED steps, how long each time took, and how it trained afterwards.

    ``loss_error`` and ``gradient_error`` are relative differences from before; ``passed``: they are what they should
    be (after ``remove_autograd_hooks`` nothing is reduced, so that gradients must differ). ``error`` is torch's own,
    where it is known to raise; the differences are NaN then.
    """

    call: str
    duration_ns: tuple[int, ...]
    loss_error: FloatOrNan
    gradient_error: FloatOrNan
    passed: bool
    error: str | None = None


class StageMismatch(Record):
    """A value that came out of a stage other than it went in, by its key in the state dict, and how it differs."""

    key: str
    words: str


class StageMemory(Record):
    """Peaks of memory while one round of a stage ran, in bytes, and what was there before.

    Attributes:
        host_peak_bytes: resident memory of the process, sampled.
        device_peak_bytes: of the device's allocator; None on CPU.
        samples, sampling_cpu_ns: how often the host's was looked at, and the CPU time which that took.
        at_ns, host_bytes: the host's memory over time from the start of the round, thinned out evenly where it is long.
    """

    host_before_bytes: int
    host_peak_bytes: int
    device_before_bytes: int | None
    device_peak_bytes: int | None
    samples: int
    sampling_cpu_ns: int
    at_ns: tuple[int, ...] = ()
    host_bytes: tuple[int, ...] = ()


class StageRecord(Record):
    """What one rank saw of one stage that a part of the training state went through.

    Attributes:
        duration_ns: of the call on this rank, one value for each round; empty where a rank raised.
        wait_ns: how long this rank stood still for collectives in each; empty also on CUDA, where only streams wait.
        state_bytes: tensors that this rank was given by the call, or gave to it.
        traffic: collectives of the last round that carried tensors, as issued (empty where the backend is not wrapped).
        traffic_is_stable: every round issued exactly these.
        object_collectives, object_bytes: the same of those that carried Python objects, pickled.
        file_bytes: of the checkpoint on disk, all ranks' files together; None for stages without.
        memory: None where a rank raised.
        mismatched: how many keys came out wrong in any round; ``mismatches``: the first of them.
        raised: what torch said on this rank, with its version; None: nothing, or another rank raised.
    """

    stage: Stage
    part: StatePart
    duration_ns: tuple[int, ...] = ()
    wait_ns: tuple[int, ...] = ()
    state_bytes: int = 0
    traffic: tuple[Traffic, ...] = ()
    traffic_is_stable: bool = True
    object_collectives: int = 0
    object_bytes: int = 0
    file_bytes: int | None = None
    memory: StageMemory | None = None
    mismatched: int = 0
    mismatches: tuple[StageMismatch, ...] = ()
    raised: str | None = None


class StateStepsRecord(Record):
    """How long a rank's training steps took around a load of its state and beside saves of it; a learning rate of 0.

    Attributes:
        before_ns, first_ns, after_ns: steps before the load, the first one after it, and those that follow.
        load_ns: of the load.
        alone_ns, beside_ns: steps in turns without and beside an asynchronous save, all rounds together.
        blocked_ns: of each round, how long the call of ``async_save`` kept training waiting.
        in_flight: steps of ``beside_ns`` that began while a save went on.
        saved_ns: of each round, from the call until the save was done.
        file_bytes: of one save, all ranks' files together.
        mismatched: keys of all saves that were not as they were at the call.
    """

    before_ns: tuple[int, ...]
    load_ns: int
    first_ns: int
    after_ns: tuple[int, ...]
    alone_ns: tuple[int, ...]
    blocked_ns: tuple[int, ...]
    beside_ns: tuple[int, ...]
    in_flight: int
    saved_ns: tuple[int, ...]
    file_bytes: int
    mismatched: int


class RankRecord(Record):
    """What one rank found out; written by the worker before it shuts down.

    Attributes:
        losses: this rank's loss of each step of the warm-up's first five, then of MEASURED, then of PROFILED steps.
        traffic: one step's collectives, as recorded in the last MEASURED step (empty where the backend is not wrapped).
        planned: what this rank expects by the plan's formulas where the plan itself cannot know: of a person's own
            model, for the purposes that they cover, and of compiled graphs under DDP; None: the plan says it all.
        compilation: None for a model that is not compiled.
        traffic_is_stable: every MEASURED step issued exactly these.
        region_ns: how long the host was in each region of a MEASURED step, median, ns: on CPU the region's length; on
            CUDA the time to launch it, since the host runs ahead. Empty in runs of versions that did not look.
        bucket_bytes_per_step: sizes of the gradient collectives in order of issue (DDP's buckets, FSDP2's units where
            gloo shows them), for each WARMUP step and the last MEASURED one.
        fsdp_units: FQNs in the order in which forward first unsharded them; ``""`` is the root.
        carried: what each DDP bucket (in order of issue) or FSDP unit carried in the PROFILED steps.
        owned: FSDP's collectives while the profiler was on, in order of issue (empty where the backend is not wrapped).
        time_to_first_step_ns: from the launch; None for a rank that was forked and had nothing to import.
        arms: None where ``measure.exposure`` asks for nothing but the trace.
        probes: None where ``measure.probes`` names none.
        lived: what ``parallel.lifecycle`` asked for, in its order.
        stages: what ``state_dict`` asked for, in its order, one part after the other.
        state_steps: steps around a load and beside saves; None: none were asked for, or a stage raised before.
        canary: None where nobody asked for its steps.
        stolen_fraction: the share of its machine's cores that other guests had while it worked (``steal`` on Linux);
            None where the system does not say.
    """

    format_version: Literal[1] = 1
    rank: int
    host: str
    pid: int
    time_to_first_step_ns: int | None
    memory: Memory
    warmup: WarmupEnd
    correctness: CorrectnessResult | None
    losses: tuple[FloatOrNan, ...]
    receipts: tuple[Receipt, ...]
    traffic: tuple[Traffic, ...]
    planned: tuple[ExpectedTraffic, ...] | None = None
    compilation: Compilation | None = None
    traffic_is_stable: bool
    region_ns: dict[Region, int] = {}
    overlap_possible: tuple[OverlapPossible, ...]
    process_groups: tuple[ProcessGroupInfo, ...]
    bucket_bytes_per_step: tuple[tuple[int, ...], ...]
    fsdp_units: tuple[str, ...]
    carried: tuple[Carried, ...] = ()
    owned: tuple[Owned, ...] = ()
    arms: ArmSteps | None = None
    probes: Probes | None = None
    lived: tuple[LivedCall, ...] = ()
    stages: tuple[StageRecord, ...] = ()
    state_steps: StateStepsRecord | None = None
    canary: CanaryResult | None = None
    stolen_fraction: float | None = None


class RankFailure(Record):
    """Where a rank was last seen, and what it said.

    ``what`` is ``raised``, ``killed by SIGSEGV``, ``hung``, ``ended by its peers' failure``; ``last_lines`` are the
    end of its log.
    """

    rank: int
    what: str
    last_step: int | None
    last_phase: str | None
    last_region: str | None
    last_lines: tuple[str, ...]


class LaunchRecord(Record):
    """One launch: written last, so its absence means that the launch did not end."""

    format_version: Literal[1] = 1
    cell: str
    index: int
    status: RunStatus
    started_unix_ns: int
    duration_ns: int
    reason: str | None
    failures: tuple[RankFailure, ...]


class CellRecord(Record):
    """One cell of a run: scenario and plan as run, its launches by index, and its value on each axis of a matrix."""

    name: str
    scenario: Scenario
    plan: Plan
    launches: tuple[int, ...]
    coordinates: dict[str, str] = {}


class OwnAxis(Record):
    """One mesh axis of a person's own loop; ``axis`` is None where its name is none that dtbench knows."""

    name: str
    axis: Axis | None
    size: int


class OwnLoop(Record):
    """What a person's own training loop, measured with ``dtbench.capture``, says of itself: it has no plan.

    Fields that a ``Plan`` has too carry its names and mean the same.

    Attributes:
        script: the program that was running.
        backend: None: a single process without a process group.
        mesh: as given, else as live device meshes and wrapped models say.
        tokens_per_step: over all ranks; None: not told.
    """

    kind: Literal["own_loop"] = "own_loop"
    script: str
    device: DeviceKind
    backend: str | None
    mesh: tuple[OwnAxis, ...]
    ranks: int
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


class RunRecord(Record):
    """One run.

    Attributes:
        name: the scenario's name.
        question: line 1 of the scenario file, without ``#``.
        overrides: each ``--set`` as typed.
        reason: why it failed; None unless ``status`` is failed.
        prepared: only orders were written; someone else starts the ranks.
        resumed_unix_ns: when it was gone on with after it had ended early.
        repeat_end: why ``repeat: auto`` added no more launches; None: it has not come to that, or a number was given.
        checklist: what the scenario file claims.
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


class Device(Record):
    """One accelerator."""

    name: str
    memory_bytes: int
    capability: str


class Environment(Record):
    """The machine and the software of a run; secrets in ``variables`` are redacted."""

    format_version: Literal[1] = 1
    host: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    cuda: str | None
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


class EventLine(Record):
    """One milestone of a rank."""

    unix_ns: int
    event: str
    detail: str = ""
