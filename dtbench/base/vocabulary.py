"""The words both wings share: phases, regions, kinds, purposes, mesh axes; and who a collective belongs to."""

import re
from enum import StrEnum
from typing import Final


class DeviceKind(StrEnum):
    """Where the ranks compute: ``cpu`` talks over gloo, ``cuda`` over NCCL."""

    CPU = "cpu"
    CUDA = "cuda"


class Runtime(StrEnum):
    """Through which calls a device is driven, where an advice knows knobs of it."""

    CUDA = "cuda"
    HIP = "hip"


class Phase(StrEnum):
    """What a step is for; the three never mix."""

    WARMUP = "WARMUP"
    MEASURED = "MEASURED"
    PROFILED = "PROFILED"


class Region(StrEnum):
    """The part of a step that the training loop is in; gradient clipping belongs to ``optimizer``."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    STATE_DICT = "state_dict"


class StatePart(StrEnum):
    """What of a training state goes through a stage."""

    MODEL = "model"
    OPTIMIZER = "optimizer"


class Stage(StrEnum):
    """What is done at once to a training state, by one of torch's public functions where there is one.

    Out of the model: ``shard`` (each rank its own part), ``offload`` (the same, in host memory), ``gather`` (all of it,
    on every rank), ``gather_offload`` (all of it, in rank 0's host memory), ``flatten`` (the optimizer's, one level
    deep). Copies for a save, in host memory: ``stage``, ``stage_pinned``, ``stage_shared``. To disk and back: ``save``,
    ``read``. Back into the model: ``load`` (own parts), ``distribute`` (every rank has all of it), ``broadcast`` (only
    rank 0 has), ``unflatten``. ``pre_load``: what FSDP1 over a tensor axis does first with a ``ShardedTensor`` that it
    loads; called on the live model, since torch 2.13 cannot make such a state (see ``state_dict_matrix``).
    """

    SHARD = "shard"
    OFFLOAD = "offload"
    GATHER = "gather"
    GATHER_OFFLOAD = "gather_offload"
    FLATTEN = "flatten"
    STAGE = "stage"
    STAGE_PINNED = "stage_pinned"
    STAGE_SHARED = "stage_shared"
    SAVE = "save"
    READ = "read"
    LOAD = "load"
    DISTRIBUTE = "distribute"
    BROADCAST = "broadcast"
    UNFLATTEN = "unflatten"
    PRE_LOAD = "pre_load"


class StageOutcome(StrEnum):
    """What became of a stage: equal bits, wrong ones, torch raised; one known to be broken was so, or is no longer.

    ``NOT_COMPARED``: nothing was compared, as of a ``save`` where no ``read`` came to its end.
    """

    EQUAL = "equal"
    NOT_COMPARED = "not compared"
    WRONG = "WRONG"
    RAISED = "RAISED"
    BROKEN = "broken in torch"
    MENDED = "no longer broken"


OPTIMIZER_STAGES: Final = (Stage.FLATTEN, Stage.UNFLATTEN)
"""Stages that a model's state does not have: it is one level deep."""

MODEL_STAGES: Final = (Stage.PRE_LOAD,)
"""Stages that an optimizer's state does not have: they are of parameters."""

FILE_STAGES: Final = (Stage.SAVE, Stage.READ)
"""Stages with files: they leave a checkpoint, or read one."""


class Kind(StrEnum):
    """What a span of a trace does."""

    COMPUTE = "compute"
    COMM = "comm"
    COPY = "copy"


class Purpose(StrEnum):
    """Why a collective was issued."""

    UNSHARD = "unshard"
    GRAD_REDUCE = "grad_reduce"
    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    STATE = "state"
    OTHER = "other"


UNUSED_MAP: Final = "unused-parameter map"
"""Owner of DDP's all-reduce of integers: which parameters were used at all."""


class Axis(StrEnum):
    """The axes of a device mesh: those of dtbench's own meshes, outermost first, then those of other people's.

    ``data`` is an axis of data parallelism of which nobody says whether it replicates or shards.
    """

    REPLICATE = "replicate"
    SHARD = "shard"
    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    DATA = "data"


MESH_PREFIX = "mesh_"
"""torch's DeviceMesh describes its groups as ``mesh_<axis>``."""

_AXIS_NAMES = {
    Axis.REPLICATE: ("replicate", "dp_replicate", "ddp"),
    Axis.SHARD: ("shard", "dp_shard", "dp_shard_cp", "fsdp"),
    Axis.TENSOR: ("tensor", "tp"),
}
"""What people call the axes of their device meshes; the longer ones are torchtitan's."""

_OTHER_AXIS_NAMES = {
    Axis.SHARD: ("efsdp", "dp_shard_mod_ep", "dp_mod_ep", "dp_shard_in_ep", "ep_shard", "hsdp_shard", "fsdp_cp"),
    Axis.TENSOR: ("etp", "tensor_parallel", "tensor_model_parallel"),
    Axis.CONTEXT: ("cp", "context", "context_parallel", "sp", "seq", "sequence_parallel", "ulysses", "ring"),
    Axis.EXPERT: ("ep", "expert", "expert_parallel", "tp_ep", "etp_ep", "moe"),
    Axis.PIPELINE: ("pp", "pipe", "pipeline", "pipeline_parallel", "stage"),
    Axis.DATA: (
        *("dp", "data", "data_parallel", "dp_cp", "edp", "batch", "loss", "loss_mesh"),
        *("dp_replicate_dp_shard", "dp_replicate_dp_shard_cp", "replicate_shard"),  # as torch flattens a mesh
    ),
}
"""The same of meshes that dtbench does not make: torchtitan's, Accelerate's, Lightning's, NeMo's."""


_MEGATRON_AXES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "HIERARCHICAL_CONTEXT_PARALLEL_GROUP": "cp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "INTER_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp_dp",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp_dp_cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "etp_ep",
    "TENSOR_AND_EXPERT_PARALLEL_GROUP": "tp_ep",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP": "edp",
    "DATA_MODULO_EXPERT_PARALLEL_GROUP": "edp",
    "DATA_MODULO_EXPERT_PARALLEL_GROUP_WITH_CP": "edp",
}
"""How Megatron-LM describes its groups (megatron/core/parallel_state.py), in the words of a mesh."""

_MEGATRON_SUFFIX = re.compile(r"(?:_GLOO|_\d+)$")
"""What it appends for the same ranks over gloo, and for the levels of a hierarchy."""

_SAYS_NOTHING = ("undefined", "default_pg")
"""torch's descriptions of a group that nobody described."""


def axis_word(description: str | None) -> str:
    """Return what people call the axis that a process group's description names, also if it is no ``Axis`` of ours.

    >>> axis_word("mesh_tp"), axis_word("EXPERT_MODEL_PARALLEL_GROUP"), axis_word("default_pg")
    ('tp', 'ep', '')
    """
    if not description or description in _SAYS_NOTHING:
        return ""
    megatron = _MEGATRON_AXES.get(_MEGATRON_SUFFIX.sub("", description))
    return megatron or description.removeprefix(MESH_PREFIX)


def axis_named(name: str) -> Axis | None:
    """Return the axis of dtbench's own meshes that people mean by a name; None for any other.

    Also for ``dp``, which says not which.
    """
    return next((axis for axis, names in _AXIS_NAMES.items() if name in names), None)


def axis_described(description: str | None) -> Axis | None:
    """Return the axis that a process group's description names, whoever made the mesh; None: it names none.

    >>> axis_described("mesh_dp_shard_cp"), axis_described("CONTEXT_PARALLEL_GROUP"), axis_described("default_pg")
    (<Axis.SHARD: 'shard'>, <Axis.CONTEXT: 'context'>, None)
    """
    word = axis_word(description).lower()
    return axis_named(word) or next((axis for axis, names in _OTHER_AXIS_NAMES.items() if word in names), None)


class Operation(StrEnum):
    """Collectives by their standard names, whatever the backend's method is called."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all_to_all"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"
    BARRIER = "barrier"


REDUCTIONS: Final = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.REDUCE)
"""What gradients are summed with; the last one by sharded optimizers, to whom each part belongs."""


END_TOGETHER: Final = frozenset(
    {Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.BARRIER}
)
"""What all ranks leave at about one moment: the last byte of each depends on all others."""


WAIT_FOR_ALL: Final = END_TOGETHER | {Operation.ALL_TO_ALL}
"""What no rank leaves before all have entered it; an all-to-all each when its own parts are sent and received."""


GIVEN_BY_ROOT: Final = (Operation.BROADCAST, Operation.SCATTER)
"""What no other rank leaves before the root has entered; it need not wait for any."""


TAKEN_BY_ROOT: Final = (Operation.REDUCE, Operation.GATHER)
"""What the root does not leave before all have entered; no other need wait for any."""


ROOTED: Final = GIVEN_BY_ROOT + TAKEN_BY_ROOT


POINT_TO_POINT: Final = (Operation.SEND, Operation.RECV)
"""What two ranks of a group do without the others."""


class Cause(StrEnum):
    """Why time of a collective is exposed, in the order in which causes take their part of it."""

    SKEW = "skew"
    BUBBLE = "bubble"
    QUEUED = "queued"
    SERIALIZED = "serialized"
    LATE_ISSUE = "late_issue"
    LATE_READY = "late_ready"
    SYNC_OP = "sync_op"
    TAIL = "tail"
    NEEDED_AT_ONCE = "needed_at_once"
    BANDWIDTH = "bandwidth"
    UNKNOWN = "unknown"


CAUSE_PHRASES: Final = {
    Cause.SKEW: "waited for other ranks",
    Cause.BUBBLE: "pipeline bubble",
    Cause.QUEUED: "queued behind another collective",
    Cause.SERIALIZED: "serialized with compute that does not depend on it",
    Cause.LATE_ISSUE: "issued late",
    Cause.LATE_READY: "gradients ready late",
    Cause.SYNC_OP: "issued blocking",
    Cause.TAIL: "nothing left to hide behind",
    Cause.NEEDED_AT_ONCE: "needed at once",
    Cause.BANDWIDTH: "longer than what hides it",
    Cause.UNKNOWN: "cause unknown",
}
"""A short phrase for each cause, for sentences and tables."""

OF_TRANSFER: Final = (Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH)
"""Causes of time after the last rank was there: nobody waits less by their remedies, so transfer bounds their gain."""

PURPOSE_TIMES: Final = {"comm_ns": "comm", "hidden_ns": "hidden", "exposed_ns": "exposed"}
"""Times of a purpose that every table of purposes shows, each with its title; beside them is what is waited for."""


class Estimate(StrEnum):
    """An independent way to tell how much communication a step leaves exposed.

    ``trace``: read from the profiler's spans; ``ablation``: the step time without communication, subtracted;
    ``wait``: the time that consumers stood still. ``logger`` is torch's own, of DDP, a cross-check of ``wait``.
    """

    TRACE = "trace"
    ABLATION = "ablation"
    WAIT = "wait"
    LOGGER = "logger"


ESTIMATE_PHRASES: Final = {
    Estimate.TRACE: "trace",
    Estimate.ABLATION: "ablation",
    Estimate.WAIT: "waits",
    Estimate.LOGGER: "DDP's logger",
}
"""A word for each estimate, for sentences and tables."""


class Assumption(StrEnum):
    """What estimates of exposed communication take for granted, and what may break so that two of them differ."""

    CONTENTION = "contention"
    SKEW = "skew"
    HOST_BOUND = "host_bound"
    PROFILER = "profiler"
    NOT_WAITED_FOR = "not_waited_for"
    WAIT_ALONE = "wait_alone"
    CLOCKS = "clocks"


ASSUMPTION_PHRASES: Final = {
    Assumption.CONTENTION: "contention, communication slows the compute beside it",
    Assumption.SKEW: "skew, ranks wait for each other's compute with communication or without",
    Assumption.HOST_BOUND: "host-bound, the host may set the pace of the step",
    Assumption.PROFILER: "the profiler, it stretches the steps that the trace is of",
    Assumption.NOT_WAITED_FOR: "exposed communication that nobody waited for, or whose wait no clock sees",
    Assumption.WAIT_ALONE: (
        "waits that are no exposed communication: beside another thread's compute, before the collective began, "
        "or while waking up"
    ),
    Assumption.CLOCKS: "one of these two clocks misses part of DDP's last wait",
}
"""What broke, in a few words, for the sentence on two estimates that differ."""


class Arm(StrEnum):
    """What is done to communication in a block of steps, to see what it costs.

    ``full``: nothing, its waits are timed; ``removed``: neither link nor backend runs, outputs are filled locally;
    ``serial``: the issuer waits for every collective, so that nothing overlaps.
    """

    FULL = "full"
    REMOVED = "removed"
    SERIAL = "serial"


class MissingInput(StrEnum):
    """What a trace would have to say for an ``unknown`` cause to be known.

    The other ranks' starts; how far their clocks are apart; when they began it; which ranks share its process group;
    for which of them it waits; what made the last of them late; the call that launched it; those that launched compute
    before it and beside it; whether it stood in its group's queue; how long that had been with no rank late, or with no
    stage waiting for another; the order inside a captured graph; when it could have been issued; the region that issued
    it; whether it was issued blocking; what the compute waited for that stood launched beside it; why the host launched
    no compute beside it; when collectives ran that its region issued and that were not seen to run; what kept a thread
    in a collective that another rank had left, and of which it had nothing more to get; how far the device's clock is
    off the host's; whether anything waited for it; who asked for it, or for others of its step; which stream did what.
    """

    RANKS = "ranks"
    CLOCKS = "clocks"
    EVENTS = "events"
    GROUP = "group"
    WAITS = "waits"
    LATENESS = "lateness"
    LAUNCH = "launch"
    LAUNCHES = "launches"
    QUEUE = "queue"
    PUT_OFF = "put_off"
    SCHEDULE = "schedule"
    GRAPH_ORDER = "graph_order"
    READY = "ready"
    REGION = "region"
    BLOCKING = "blocking"
    STREAM_WAITS = "stream_waits"
    HOST = "host"
    LOST = "lost"
    WAKING = "waking"
    DEVICE_CLOCK = "device_clock"
    CONSUMER = "consumer"
    ASKER = "asker"
    STREAMS = "streams"


_DECIDING = {
    Axis.TENSOR: Purpose.TENSOR,
    Axis.CONTEXT: Purpose.CONTEXT,
    Axis.EXPERT: Purpose.EXPERT,
    Axis.PIPELINE: Purpose.PIPELINE,
}
"""Axes that carry one thing, whatever region and operation."""


def purpose_of(axis: Axis | None, operation: Operation | None, region: Region | None) -> Purpose:
    """Return the purpose of a collective from the mesh axis that carries it and the region that issued it.

    The region comes first where it is state dict or optimizer, then the axes that decide alone; None is unknown.
    ``tensor`` is every collective on the tensor axis inside forward and backward, also the all-reduce that completes
    the gradient of a replicated (norm) weight there. ``other`` is what no parameter or gradient needs (the norm for
    gradient clipping, buffer broadcasts, barriers), and what no axis names: a send may be a pipeline's, or a ring's,
    which only what lies around it tells (``traces/who/exchanges.py``).
    """
    if region is Region.STATE_DICT:
        return Purpose.STATE
    if region is Region.OPTIMIZER:
        return Purpose.OTHER
    if axis is None:
        return Purpose.OTHER
    return _DECIDING.get(axis) or _data_parallel_purpose(axis, operation, region)


def _data_parallel_purpose(axis: Axis, operation: Operation | None, region: Region | None) -> Purpose:
    if operation is Operation.ALL_GATHER and axis is not Axis.REPLICATE:
        return Purpose.UNSHARD
    # Nothing else scatters over data; sums may be a loss's outside backward.
    is_reduction = operation is Operation.REDUCE_SCATTER and region is not Region.FORWARD
    is_reduction |= operation in REDUCTIONS and region is Region.BACKWARD
    return Purpose.GRAD_REDUCE if is_reduction else Purpose.OTHER
