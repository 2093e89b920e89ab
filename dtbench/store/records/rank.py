"""What one rank found out: a file of its own, with the parts that are told nowhere else."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from dtbench.base.record import Amount, FloatOrNan, Positive, Record
from dtbench.base.vocabulary import Region
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.place import Place
from dtbench.store.records.state import StageRecord, StateDictRecord
from dtbench.store.records.traffic import Carried, ExpectedTraffic, OverlapPossible, Owned, ProcessGroupInfo, Traffic


class ReceiptOutcome(StrEnum):
    """What became of a knob."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    NO_EFFECT = "no effect here"


WARMUP_LOSSES: Final = 5
"""Steps of the warm-up, its first, whose loss is recorded."""

NETWORK_KNOB: Final = "network.kind"
REAL_NETWORK: Final = "real"
"""What the receipt of that knob says it got where the backend, and not the emulated link, set the times."""


class Receipt(Record):
    """One knob: what was asked, what torch says it got.

    Attributes:
        knob: dotted path in the scenario, for example ``parallel.static_graph``.
        asked: as the scenario says it, as text.
        got: read back from torch, as text.
        outcome: whether it got what was asked.
        note: why it has no effect, or what was expected instead; empty when there is nothing to add.
    """

    knob: str
    asked: str
    got: str
    outcome: ReceiptOutcome
    note: str = ""


class Compilation(Record):
    """What ``torch.compile`` did on a rank; ``recompiles`` are graphs made because an earlier one's guards failed.

    Attributes:
        graphs: that were compiled.
        recompiles: of these, those made because an earlier one's guards failed.
        graph_breaks: where a graph had to end.
        duration_ns: that compiling took.
    """

    graphs: Amount
    recompiles: Amount
    graph_breaks: Amount
    duration_ns: Amount


class Memory(Record):
    """Peaks in bytes until MEASURED steps were over, before the profiler and all that comes after it.

    Of host memory since the process began; of the device's allocator since the end of warm-up (None on CPU).

    Attributes:
        rss_peak_bytes: of the host's memory, resident.
        allocated_peak_bytes: that the device's allocator gave out; None: CPU.
        reserved_peak_bytes: that it held of the device; None: CPU.
    """

    rss_peak_bytes: Positive
    allocated_peak_bytes: Amount | None
    reserved_peak_bytes: Amount | None


class WarmupEnd(Record):
    """How warm-up ended: ``settled`` False means that ``max_steps`` ran out first.

    ``period``: steps of a person's own loop that take turns, and are measured together as one.

    Attributes:
        steps: that it took.
        settled: step times had settled.
        reason: why it ended.
        period: steps of a person's own loop that are measured together as one.
    """

    steps: Amount
    settled: bool
    reason: str
    period: Positive = 1


class CorrectnessResult(Record):
    """Largest relative differences from the single process on the whole batch.

    ``loss_error`` over steps 2 to 5; ``gradient_error`` over parameters, of step 1 (2-norm of the difference over the
    2-norm of the reference); ``worst_parameter`` is its FQN.

    Attributes:
        passed: both errors are within their tolerances.
        loss_error: of the loss, over steps 2 to 5.
        loss_tolerance: of that.
        gradient_error: over parameters, of step 1.
        gradient_tolerance: of that.
        worst_parameter: FQN of the one where it is largest.
    """

    passed: bool
    loss_error: FloatOrNan
    loss_tolerance: FloatOrNan
    gradient_error: FloatOrNan
    gradient_tolerance: FloatOrNan
    worst_parameter: str


class RankRecord(Record):
    """What one rank found out; written by the worker before it shuts down.

    Attributes:
        place: which launch it is of; None: it lay in no run, or a version wrote it that did not say it.
        losses: of each step of the warm-up's first ``WARMUP_LOSSES``, then of MEASURED, then of PROFILED, on this rank.
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
        time_to_first_step_ns: from the launch, by a clock that may be set meanwhile; None for a rank that was forked
            and had nothing to import.
        extras: what each extra found out that was asked for.
        stolen_fraction: the share of its machine's cores that other guests had while it worked (``steal`` on Linux);
            None where the system does not say.
        kernel: which start of which machine's kernel it ran on; what ran on one shares a clock. None where the system
            does not say.
    """

    format_version: Literal[2] = 2
    place: Place | None = None
    rank: Amount
    host: str
    kernel: str | None = None
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
    region_ns: dict[Region, Amount] = {}
    overlap_possible: tuple[OverlapPossible, ...]
    process_groups: tuple[ProcessGroupInfo, ...]
    bucket_bytes_per_step: tuple[tuple[Amount, ...], ...]
    fsdp_units: tuple[str, ...]
    carried: tuple[Carried, ...] = ()
    owned: tuple[Owned, ...] = ()
    extras: RankExtras = RankExtras()
    stolen_fraction: float | None = None

    def with_stages(self, stages: Sequence[StageRecord]) -> "RankRecord":
        """Return the record with these stages of a training state and no steps around them."""
        state = StateDictRecord(stages=tuple(stages))
        return self.model_copy(update={"extras": self.extras.model_copy(update={"state_dict": state})})


def upgrade_format_1(content: bytes) -> bytes:
    """Return a record of format 1 in the present one: it had what extras found out among all else."""
    fields: dict[str, Any] = msgspec.json.decode(content)
    calls, stages = fields.pop("lived", ()), fields.pop("stages", ())
    steps, taken_fraction = fields.pop("state_steps", None), fields.pop("state_taken_fraction", None)
    fields["extras"] = {
        "exposure": fields.pop("arms", None),
        "lifecycle": {"calls": calls} if calls else None,
        "state_dict": {"stages": stages, "steps": steps, "taken_fraction": taken_fraction} if stages else None,
        "probes": fields.pop("probes", None),
        "canary": fields.pop("canary", None),
    }
    return msgspec.json.encode({**fields, "format_version": 2})
