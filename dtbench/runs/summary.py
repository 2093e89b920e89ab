"""The answer of a run as one frozen value: what every report, plot, event file and ``--json`` shows.

Ratios are fractions, times integer nanoseconds (medians rounded down), NaN where a number cannot be computed.
"""

import math
from typing import Literal

from dtbench.base.record import FloatOrNan, IntOrNan, Record
from dtbench.base.vocabulary import Cause, Estimate, MissingInput, Operation, Phase, Purpose, Region, Runtime
from dtbench.machine.disturbance import DISTURBED
from dtbench.plan.plan import Plan
from dtbench.runs.representative import Doubt
from dtbench.runs.stage_summary import StageSummary, StateStepsSummary
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.checks import ChecksSummary
from dtbench.store.records.rank import Compilation, CorrectnessResult, Memory, Receipt, WarmupEnd
from dtbench.store.records.run import Commit, Neighbour, OwnLoop, RunStatus, TookMachine
from dtbench.traces.known_part import KnownPart


class Interval(Record):
    """A median with the middle half of the data and a 95 % bootstrap confidence interval of the median.

    Attributes:
        median: of the data.
        low: lower end of the confidence interval.
        high: its upper end.
        quartile1: a quarter of the data is below.
        quartile3: a quarter is above.
        count: of the data.
    """

    median: FloatOrNan
    low: FloatOrNan
    high: FloatOrNan
    quartile1: FloatOrNan
    quartile3: FloatOrNan
    count: int


class PurposeSummary(Record):
    """One purpose, per step: counts and bytes of the first rank, times means over all ranks and PROFILED steps.

    Means, so that what is exposed sums over purposes to what is exposed in ``RankBreakdown`` on average.

    Attributes:
        purpose: what the collectives were for.
        count: collectives in a step.
        planned_count: the plan's formula; None where it makes no statement, or only one about bytes.
        planned_size_bytes: the plan's formula; None: it makes no statement.
        matches_plan: None where there is no formula.
        size_bytes: None: not known of any.
        comm_ns: None, as the next two: none of them was seen to run.
        hidden_ns: overlapped with compute.
        exposed_ns: not overlapped with compute.
        wait_ns: time a consumer stood still: gradient wait for grad_reduce, unshard wait for unshard; None: none was
            seen, and not every consumer of theirs can be.
        hidden_fraction: of ``comm_ns``; NaN: there is none, or it is not known.
        part: over what times but the wait are means, where they are not known of all; None: they are.
        wait_part: the same of the wait.
        is_wait_least: not every consumer can be seen, so that the wait is at least this; None: tables of an older
            version do not tell.
        overlap_possible: None where nobody could tell.
        overlap_reason: why not, or by what mechanism.
    """

    purpose: Purpose
    count: int
    size_bytes: IntOrNan
    planned_count: int | None
    planned_size_bytes: int | None
    matches_plan: bool | None
    comm_ns: IntOrNan
    hidden_ns: IntOrNan
    exposed_ns: IntOrNan
    wait_ns: IntOrNan
    hidden_fraction: FloatOrNan
    overlap_possible: bool | None
    overlap_reason: str
    part: KnownPart | None = None
    wait_part: KnownPart | None = None
    is_wait_least: bool | None = False

    @property
    def why_wait_least(self) -> str | None:
        """Why the wait may have been longer; None: it was not, or nothing is known of it."""
        if self.wait_ns is None or self.is_wait_least is False:
            return None
        return "not every consumer can be seen" if self.is_wait_least else _OLDER


_OLDER = "the tables are of an older version"


class OwnerSummary(Record):
    """What one owner's collectives of one kind left exposed for one cause: means per PROFILED step and rank, ns.

    Attributes:
        owner: empty: unattributed.
        operation: of its collectives; None: the trace names none.
        purpose: what they were for.
        cause: why they are exposed.
        exposed_ns: for this cause.
        owner_exposed_ns: for all causes.
        part: over what these are means, where what it exposed is not known of all; None: it is.
        waited_for: for ``skew``, the rank that nearly all of it waited for; None: several, or not told.
        at_most_ns: in which, on the rank that has most of it, any of its collectives, hidden ones too, was under way
            and not known to have waited for the last rank, summed over ranks of sends and receives; None: one was not
            seen to run.
        waited_at_most_ns: what they waited for the last rank, each on the rank that waited longest for it; None: not
            known of each.
        taken_at_most_ns: likewise what they took, waiting included; None: one was not seen to run.
        transfer_ns: what they took when not waiting so; None: of one it is not known.
        skew_wait_ns: what they waited for the last rank; None: of one it is not known.
        size_bytes: of its largest collective; None: of one it is not told, which may be larger.
        outsized_bytes: the same where that is of another order than the others, and takes most of the time; else None.
        dtype: of that one; empty: not told.
        parameters: FQNs that that one carried.
        missing: for ``unknown``, what would tell the cause, of most of it first; empty also where no table says it.
    """

    owner: str
    operation: Operation | None
    purpose: Purpose
    cause: Cause
    exposed_ns: int
    owner_exposed_ns: int
    waited_for: int | None = None
    at_most_ns: int | None = None
    waited_at_most_ns: int | None = None
    taken_at_most_ns: int | None = None
    transfer_ns: int | None = None
    skew_wait_ns: int | None = None
    size_bytes: int | None = None
    outsized_bytes: int | None = None
    dtype: str = ""
    parameters: tuple[str, ...] = ()
    missing: tuple[MissingInput, ...] = ()
    part: KnownPart | None = None


class OwnerGain(Record):
    """What a step would be shorter without the time that some communication takes: means over launches, ns.

    Attributes:
        owner: whose; empty: unattributed; None: of all owners.
        purpose: None: of all.
        operation: None: not told, or of all owners.
        own_ns: what its collectives take in a step, without waiting for other ranks.
        saving_ns: no remedy for their size gains more.
    """

    owner: str | None
    purpose: Purpose | None
    operation: Operation | None
    own_ns: float
    saving_ns: float


class GainsSummary(Record):
    """What no remedy for a cell's communication can gain more than, by a replay of PROFILED steps without its time.

    Attributes:
        step_ns: mean of the replayed steps, each the slowest rank's; NaN: the replay is refused.
        is_measured: hosts take a time by which these are as long as MEASURED ones; else they are PROFILED ones.
        launches: that were replayed.
        rows: of all communication, of purposes, and of owners that may get an advice which this bounds.
        refused: why nothing is said, a clause; empty: something is.
    """

    step_ns: FloatOrNan = math.nan
    is_measured: bool = False
    launches: tuple[int, ...] = ()
    rows: tuple[OwnerGain, ...] = ()
    refused: str = ""


class GradientWait(Record):
    """How long the hook of a tensor-parallel parameter stood still for its gradient, medians per backward, ns.

    Read where ``sync_grad_hook`` ran (``dtbench.traces.who.hooked_gradients``), of gradients that came unfinished.

    Attributes:
        parameter: its FQN.
        count: waits seen, over all ranks and PROFILED steps.
        wait_ns: from where the hook began to wait for the collective to where it went on.
        since_issue_ns: from the issue of that collective to where the hook went on: what the collective takes, or what
            lay between where that is longer.
        hidden_ns: of the collective that it waited for, overlapped with compute.
        exposed_ns: the rest of that collective; None, as hidden_ns: one was not seen to run.
        part: over what these are medians, where no wait for it is known of some rank's step; None: of each it is.
    """

    parameter: str
    count: int
    wait_ns: int
    since_issue_ns: int
    hidden_ns: IntOrNan
    exposed_ns: IntOrNan
    part: KnownPart | None = None


class RankBreakdown(Record):
    """Where one rank's mean PROFILED step went, ns; ``steps`` were averaged, the parts add up to ``step_ns``.

    Where copies are lost of one of them, neither they nor idle time are known.

    Attributes:
        rank: which.
        steps: that were averaged.
        step_ns: the step.
        compute_ns: compute runs.
        comm_ns: communication runs.
        hidden_comm_ns: communication runs overlapped with compute.
        exposed_comm_ns: communication runs and compute does not.
        exposed_copy_ns: a copy runs, and neither compute nor communication does.
        idle_ns: nothing runs; on a CPU the host's time.
        part: of its steps, where these are not all; None: they are.
    """

    rank: int
    steps: int
    step_ns: int
    compute_ns: int
    comm_ns: int
    hidden_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: IntOrNan
    idle_ns: IntOrNan
    part: KnownPart | None = None


class Estimated(Record):
    """One estimate of exposed communication per step, ns; may be negative (``ablation``), NaN where it is not known.

    Attributes:
        estimate: by which method.
        mean_ns: exposed communication of a step.
        standard_error_ns: of the mean; NaN with fewer than two independent values.
        count: independent values behind it: steps, blocks, pairs of blocks; launches where there are several.
        part: the ranks and launches that it is of, where it is not known of all; None: it is.
        is_least: it may have been more: it was read off traces that lack collectives which were launched.
    """

    estimate: Estimate
    mean_ns: FloatOrNan
    standard_error_ns: FloatOrNan
    count: int
    part: KnownPart | None = None
    is_least: bool = False


class ExposureRow(Record):
    """Exposed communication of a rank, estimated several ways.

    Attributes:
        rank: None: the mean over all ranks.
        estimates: one for each method that was asked for.
        disputes: one sentence for each pair of estimates that do not agree, with the assumption that broke; empty: all
            that are known agree.
    """

    rank: int | None
    estimates: tuple[Estimated, ...]
    disputes: tuple[str, ...]


class ExposureSummary(Record):
    """Whether independent estimates of exposed communication agree, and what overlapping gained.

    Attributes:
        rows: the mean over ranks first, then each rank.
        serial_ns: step time of a run that waits after every collective, median of the slowest rank; NaN: not known of
            all ranks of any launch.
        overlapped_ns: the same of the run as it is, from blocks that took turns with it.
        gain_error_ns: standard error of the difference of these two; NaN: not known.
        gain_part: the launches that these three are of, where some lack blocks of some rank; None: they are of all.
        notes: on what the arms lack or differ in.
        unjudged: why nothing is judged by them, as a clause: others had the machine, what ranks tell is lost, ...; then
            no row has disputes. Empty: nothing speaks against it.
    """

    rows: tuple[ExposureRow, ...]
    serial_ns: FloatOrNan
    overlapped_ns: FloatOrNan
    notes: tuple[str, ...]
    gain_error_ns: FloatOrNan = math.nan
    gain_part: KnownPart | None = None
    unjudged: str = ""


class PredictionSummary(Record):
    """A step time held against its closed form, ns; NaN where there is none.

    Attributes:
        expected_ns: with the host's time of the run, spread evenly.
        low_ns: with a host that costs nothing.
        high_ns: with all of the host's time hidden nowhere, and a margin.
        is_inside: of the bounds; a step time outside, on either side, is an error. None: there is no closed form, or no
            step.
        sentence: what came of it.
    """

    expected_ns: FloatOrNan
    low_ns: FloatOrNan
    high_ns: FloatOrNan
    is_inside: bool | None
    sentence: str


class BranchSummary(Record):
    """Calls of a function under study that took one branch; fields as in ``ProbeSummary``.

    Attributes:
        name: of the branch.
        calls: that took it, of the rank and launch with the fewest.
        most_calls: of the rank and launch with the most.
        total_ns: inside it, what it called included; mean over ranks and launches.
        per_call_ns: mean over all calls; NaN where there was none.
    """

    name: str
    calls: int
    most_calls: int
    total_ns: int
    per_call_ns: FloatOrNan


class ProbeSummary(Record):
    """A function under study as its probes saw it on one rank, in one launch, in all phases.

    Attributes:
        label: file and name, as ``measure.probes`` spells them.
        calls: of the rank and launch with the fewest.
        most_calls: of the rank and launch with the most.
        raised: calls that ended in an exception, where there were most.
        total_ns: inside it, what it calls included; mean over ranks and launches.
        per_call_ns: mean over all calls; NaN where there was none.
        branches: where branches have names, and each rank tells of each of its calls which one it took.
    """

    label: str
    calls: int
    most_calls: int
    raised: int
    total_ns: int
    per_call_ns: FloatOrNan
    branches: tuple[BranchSummary, ...] = ()


class DeviceIdle(Record):
    """What the compute streams of a cell's devices stood still for in a PROFILED step, ns: means over ranks and steps.

    Attributes:
        host_wait_ns: nothing was launched yet.
        host_sync_ns: part of it, in calls that wait for the device; NaN: not known.
        comm_wait_ns: until a collective ended; NaN: in some step they may have waited for something else.
        comm_wait_at_most_ns: the same where that, and what nobody knows the launch of, waited for collectives.
        part: over what these are means, where they are not known of all; None: they are.
    """

    host_wait_ns: float
    host_sync_ns: FloatOrNan
    comm_wait_ns: FloatOrNan
    comm_wait_at_most_ns: float
    part: KnownPart | None = None


class OtherSummary(Record):
    """Collectives of one operation of which it is not known what they were for: of purpose other.

    Attributes:
        operation: None where the trace names none.
        are_numbers: each carries a number or two of a rank: a loss, a norm, a counter. The others have rows of their
            own: no size tells a small model's gradients from anything else.
        count: in a step and rank, where there are most.
        size_bytes: likewise; None: not known of all.
    """

    operation: Operation | None
    are_numbers: bool
    count: int
    size_bytes: IntOrNan


class RegionTimes(Record):
    """How long the host was in each region of a MEASURED step of a launch, ns: means over ranks of their medians.

    Attributes:
        forward_ns: over all micro-batches, as the others; on a CPU with what was computed and waited for in it.
        backward_ns: likewise.
        optimizer_ns: clipping included.
    """

    forward_ns: float
    backward_ns: float
    optimizer_ns: float

    @property
    def by_region(self) -> dict[Region, float]:
        """The same by region."""
        times_ns = (self.forward_ns, self.backward_ns, self.optimizer_ns)
        return dict(zip((Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER), times_ns, strict=True))


class BetweenSteps(Record):
    """What lies between the MEASURED steps of a loop of one's own, and so in no step time: means over steps, ns.

    Attributes:
        between_ns: from the end of a step, on its slowest rank, to the start of the next.
        cycle_ns: on that rank from the start of a step to that of the next: a mean, so a slow step is in it that no
            median shows.
    """

    between_ns: float
    cycle_ns: float

    @property
    def fraction(self) -> float:
        """Of the time that passed, what was in no step."""
        return self.between_ns / self.cycle_ns


class Disturbed(Record):
    """A phase of a launch of which others left fewer than half of the steps alone: nothing can be judged by it.

    Attributes:
        launch: its index in the cell.
        steps: that the phase had.
        of_launches: how many launches the cell has, those that cannot be read among them.
        phase: None: the steps of ``measure.exposure``'s arms, after all phases.
        left_alone: of its ``steps``.
        stolen_fraction: what other guests of the machine had of its cores in the steps that are shown, median; NaN: not
            known.
        takers: other processes that had cores or GPUs in it, most first; empty: there were only other virtual machines.
    """

    launch: int
    phase: Phase | None
    steps: int
    left_alone: int
    stolen_fraction: FloatOrNan
    takers: tuple[TookMachine, ...]
    of_launches: int = 1


class CellSummary(Record):
    """One cell of a run.

    Attributes:
        name: of the cell.
        status: how its launches ended.
        reason: why they did not end well; None: they did.
        scenario: None for a person's own loop, measured with ``dtbench.capture``.
        plan: for such a loop what it says of itself.
        launches: index of each that the numbers are of.
        time_to_first_step_ns: from the launch to the end of the first step, of the slowest rank, median of launches.
        tokens_per_second: over all ranks, by the median of ``step_time``; NaN: not known.
        memory: the largest peak of any rank, each figure for itself; None: nobody wrote them down.
        purposes: what its communication was for, per step.
        others: collectives of purpose other.
        ranks: where each rank's mean PROFILED step went.
        receipts: each knob: what was asked, and what torch got.
        contested_knobs: of which some ranks say that they agree, and others that they have no effect here, or that they
            got another value.
        warmup: how warm-up ended; None: nobody wrote it down.
        correctness: against a single process; None: that was not asked for, or not known.
        trace_paths: files of its traces.
        notes: what a reader of the numbers must know.
        coordinates: its value on each axis of a matrix, as text.
        step_time: MEASURED steps, slowest rank per step, ns; median of launch medians, count of all steps.
        launch_medians_ns: median step time of each launch: the unit of statistics.
        launch_regions: of each launch, how long MEASURED steps were in each region; None: some rank did not tell.
        timed_part: the launches and steps that these have, where they have not all; None: they have.
        profiler_cost: PROFILED over MEASURED median step time, a ratio (1.0: free).
        model_flops_utilization: NaN where the device's peak or the model's FLOPs are unknown.
        hidden_fraction: of communication, NaN when there is none, or some was launched and not seen to run.
        exposed_step_fraction: exposed communication over step, PROFILED.
        records_part: the ranks and launches that told ``memory``, where records of others are not there; None: all did,
            or none.
        first_step_part: likewise ``time_to_first_step_ns``, where others did not tell it.
        first_step_not_told: which rank told a first step that took no time, so that it is not known; empty: none did.
        compilation_part: likewise ``compilation``.
        part: over what ``ranks`` and these two fractions are means, where they are not known of all; None: they are.
        owners: whose communication was exposed and why, most exposed first.
        unknown_owners: owners, by operation and purpose, that have no row in ``owners`` since all that is not zero of
            what they left exposed is not known.
        gains: what no remedy for its communication can gain more than; None: no replay was asked, as in tables of an
            older version, or nothing was exposed for want of something to hide it.
        gradient_waits: of parameters whose gradients came unfinished to their hooks, where these had a probe.
        compilation: of the rank where it took longest; None for a model that is not compiled.
        cpu_ns_per_step: CPU time of a rank's process per MEASURED step, median; NaN where it was not read.
        losses: mean over data-parallel ranks, as recorded, of the first launch that recorded any.
        launch_losses: the same of each launch; none where it recorded none.
        unread_events: events of the traces that could not be read, summed.
        unknown_names: (name, count) of device events that no rule knows.
        exposure: None where only the trace was asked.
        prediction: None where it is not known what the model or the network costs.
        probes: functions under study that were probed.
        absent_functions: functions under study that were to be probed and the installed torch does not have, spelled as
            the label of ``probes``.
        between_steps: what step time and throughput leave out of a loop of one's own; None: a scenario's, which does
            nothing between its steps, or not known.
        canary: None where nobody looked for missing waits.
        stages: what became of the training state, where ``state_dict`` asked for it.
        state_steps: steps around a load and beside saves of it; None: none were asked for.
        state_taken_fraction: the share of the cores that others had while both ran, in the launch where it was most;
            None: nobody looked, or not on every rank.
        left_out_steps: of each phase, over all launches: others disturbed them, and no number here has anything of
            them; a phase from which none is has no entry.
        disturbed: phases of launches of which too few steps are left; empty: the cell can be judged.
        unreadable: what is wrong with each launch that is left out of ``launches``, naming its file; of a copy, of
            which launch it is one.
        unseen_collectives: launched and not seen to run, over launches and ranks: what was exposed is then
            at least so much.
        rank_doubts: why no check of it is judged, a sentence each: some rank's evidence is lost, or is not surely its
            own.
        doubts: why PROFILED steps may not stand for the run; with any, owners and causes are no findings.
        idle: None without a device, or where it is not known.
        runtime: through which its devices were driven; None: it had none, or nobody wrote it down.
        ranks_per_host: the most that one machine had; None: not every rank of any launch wrote it down.
        cores: of the machine that the run says; None: nobody wrote it down.
        unlike: in what its environment is unlike that of another cell, by that cell's name, so that no time of these
            two is held against the other; by its own name, those of its launches among themselves.
        silent_launches: those of ``launches`` of which it is not known on which machine and software they ran.
        torch: version that the ranks of the first launch had; None: nobody wrote it down.
        nccl: likewise.
    """

    name: str
    status: RunStatus
    reason: str | None
    scenario: Scenario | None
    plan: Plan | OwnLoop
    launches: tuple[int, ...]
    step_time: Interval
    launch_medians_ns: tuple[FloatOrNan, ...]
    launch_regions: tuple[RegionTimes | None, ...] = ()
    timed_part: KnownPart | None = None
    records_part: KnownPart | None = None
    first_step_part: KnownPart | None = None
    first_step_not_told: str = ""
    compilation_part: KnownPart | None = None
    profiler_cost: Interval
    time_to_first_step_ns: FloatOrNan
    tokens_per_second: FloatOrNan
    model_flops_utilization: FloatOrNan
    memory: Memory | None
    cpu_ns_per_step: FloatOrNan
    hidden_fraction: FloatOrNan
    exposed_step_fraction: FloatOrNan
    part: KnownPart | None = None
    purposes: tuple[PurposeSummary, ...]
    owners: tuple[OwnerSummary, ...] = ()
    unknown_owners: int = 0
    gains: GainsSummary | None = None
    others: tuple[OtherSummary, ...] = ()
    gradient_waits: tuple[GradientWait, ...] = ()
    ranks: tuple[RankBreakdown, ...]
    receipts: tuple[Receipt, ...]
    contested_knobs: tuple[str, ...] = ()
    warmup: WarmupEnd | None
    compilation: Compilation | None = None
    correctness: CorrectnessResult | None
    losses: tuple[FloatOrNan, ...]
    launch_losses: tuple[tuple[FloatOrNan, ...], ...] = ()
    unread_events: int
    unknown_names: tuple[tuple[str, int], ...]
    trace_paths: tuple[str, ...]
    notes: tuple[str, ...]
    coordinates: dict[str, str] = {}
    exposure: ExposureSummary | None = None
    prediction: PredictionSummary | None = None
    probes: tuple[ProbeSummary, ...] = ()
    absent_functions: tuple[str, ...] = ()
    between_steps: BetweenSteps | None = None
    canary: CanaryResult | None = None
    stages: tuple[StageSummary, ...] = ()
    state_steps: StateStepsSummary | None = None
    state_taken_fraction: float | None = None
    left_out_steps: dict[Phase, int] = {}
    disturbed: tuple[Disturbed, ...] = ()
    unreadable: dict[int, str] = {}
    rank_doubts: tuple[str, ...] = ()
    unseen_collectives: int = 0
    doubts: tuple[Doubt, ...] = ()
    idle: DeviceIdle | None = None
    runtime: Runtime | None = None
    ranks_per_host: int | None = None
    cores: int | None = None
    unlike: dict[str, str] = {}
    silent_launches: tuple[int, ...] = ()
    torch: str | None = None
    nccl: str | None = None

    @property
    def is_least(self) -> bool:
        """Whether what communication took, hid and exposed is at least this, copies and idle time at most."""
        return self.unseen_collectives > 0

    @property
    def is_state_disturbed(self) -> bool:
        """Whether others had cores while the training state went through stages: no time of them is judged."""
        return self.state_taken_fraction is not None and self.state_taken_fraction >= DISTURBED


class RunSummary(Record):
    """A whole run, ready to be shown.

    Attributes:
        name: of the scenario.
        run_id: of the run.
        question: which the scenario asks.
        path: the run's folder.
        status: how it ended.
        reason: why it did not end well; None: it did.
        overrides: every ``--set``.
        torch: its version.
        torch_git: the commit that it was built of; None: not told.
        commit: of the user's code; None: it is in no git repository, or was not looked for.
        host: where it ran.
        device: what it ran on.
        cells: each cell.
        resumed_unix_ns: when it was gone on with after it had ended early, and a launch ran anew.
        repeat_end: why ``repeat: auto`` added no more launches; None: it has not come to that, or a number was given.
        environment_notes: what a reader must know of the software that it ran on.
        neighbours: other runs that were on this machine meanwhile.
        unlisted: which launches lie in its folder and are left out, as it does not list them; none or a sentence.
        checks: None where the scenario claims nothing.
        cleaned: of how many launches `dtbench clean` removed the traces, a sentence for each day; none: of none.
        only: the cells that were chosen, where not all of the scenario were to run.
    """

    format_version: Literal[1] = 1
    name: str
    run_id: str
    question: str
    path: str
    status: RunStatus
    reason: str | None
    overrides: tuple[str, ...]
    torch: str
    torch_git: str | None = None
    commit: Commit | None = None
    host: str
    device: str
    cells: tuple[CellSummary, ...]
    resumed_unix_ns: tuple[int, ...] = ()
    repeat_end: str | None = None
    environment_notes: tuple[str, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    unlisted: tuple[str, ...] = ()
    checks: ChecksSummary | None = None
    only: tuple[str, ...] = ()
    cleaned: tuple[str, ...] = ()
