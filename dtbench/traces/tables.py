"""Every table that crosses a room's border or lands on disk: columns, dtypes and units, written down once.

All ``*_ns`` columns are integer nanoseconds, all ``*_bytes`` integer bytes. A column that may not be known is nullable
(``Int64``, NA). One file holds one launch and says in its ``attrs`` of which it is; readers add
``run``, ``cell`` and ``launch``.
"""

from collections.abc import Mapping
from typing import Final

from dtbench.base.vocabulary import Cause

Row = Mapping[str, object]
"""A row of any table: values by column; None where a number is not known."""

STEPS: Final = {
    "rank": "int64",
    "step": "int64",  # counts from 0 over all phases
    "phase": "string",  # WARMUP, MEASURED, PROFILED
    "start_ns": "int64",  # monotonic clock of that rank
    "duration_ns": "int64",
    "cpu_ns": "int64",  # CPU time of the whole process (all threads) in the step
    "stolen_fraction": "float64",  # of its machine's cores, had by other guests in the step; NaN: not known
}

IS_LEFT_OUT: Final = "is_left_out"
"""A column that tables of all steps have: no number of an answer has anything of that step, see ``undisturbed``."""

OTHERS: Final = {
    # further columns of steps during which somebody looked at the whole machine
    "others_cpu_ns": "float64",  # CPU time of all other processes of its machine in the step; NaN: not known
    "taken_fraction": "float64",  # of the cores that ranks can use at once: had by others while ranks stood ready
}

RUN_STEPS: Final = {
    # every step of many runs: what ``dtbench.load_runs`` gives
    "scenario": "category",
    "run": "category",  # its id, as its folder is called
    "status": "category",  # of the run: complete, failed, running; every launch in the table is complete
    "cell": "category",
    "launch": "int64",
    # here one category for each axis of any run's sweep, named as the scenario does; NA: not on that axis
    **STEPS,
    "phase": "category",
}

OVERLAP: Final = {
    # NA: nothing ran in the step; all but step_ns and comm_ns: what computes was not recorded in it
    "rank": "int64",
    "step": "int64",  # number in the trace's ProfilerStep#N
    "step_ns": "Int64",
    "compute_ns": "Int64",
    "comm_ns": "Int64",
    "hidden_comm_ns": "Int64",
    "exposed_comm_ns": "Int64",
    "exposed_copy_ns": "Int64",
    "idle_ns": "Int64",
}

PURPOSES: Final = {
    "rank": "int64",
    "step": "int64",
    "purpose": "string",
    "count": "int64",
    "size_bytes": "Int64",  # of those whose size is known; NA: of none
    "unsized": "Int64",  # collectives whose size is not known; NA: an older table, which does not say
    "comm_ns": "Int64",  # NA: none of them was seen to run
    "hidden_ns": "Int64",  # NA, as exposed_ns: nor was it recorded what computes
    "exposed_ns": "Int64",  # sums over purposes to OVERLAP's exposed_comm_ns
    "wait_ns": "Int64",  # NA: none was seen, and not every consumer of theirs can be
    "is_wait_least": "boolean",  # not every consumer can be seen: at least this, or at least 0; NA: an older table
}

PROBES: Final = {
    # functions under study in PROFILED steps, see `measure.probes`; empty where none had a probe
    "rank": "int64",
    "step": "int64",
    "function": "string",  # file and name, as `measure.probes` spells them
    "calls": "int64",  # whose ranges begin in the step
    "total_ns": "int64",  # in at least one of its ranges, on any thread; what it calls included
    "exposed_ns": "int64",  # the part in which nothing computed, on no thread or stream
}

WHOLE: Final = {
    # NA as in OVERLAP
    "rank": "int64",
    "window_ns": "Int64",  # first start to last end of whatever has a kind; never a step
    "compute_ns": "Int64",
    "comm_ns": "Int64",
    "hidden_comm_ns": "Int64",
    "exposed_comm_ns": "Int64",
    "exposed_copy_ns": "Int64",
    "idle_ns": "Int64",
}

COLLECTIVES: Final = {
    "rank": "int64",
    "step": "Int64",  # that issued it; issue not in the trace: in which it begins; NA: none, or the trace has no steps
    "group": "string",  # torch's process-group name; empty where the trace does not say
    "axis": "string",  # a word of `Axis`: shard, tensor, context, ...; empty when the group is no mesh axis or unknown
    "seq": "Int64",  # on that group
    "group_size": "Int64",  # ranks of the group
    "operation": "string",
    "purpose": "string",
    "region": "string",  # forward, backward, ...; empty: outside all, or unknown
    "owner": "string",  # FQN of the FSDP unit, bucket of DDP; empty: unattributed
    "size_bytes": "Int64",
    "dtype": "string",  # as the trace spells it; empty where it does not say
    "algorithm": "string",  # as NCCL's kernel is called by: RING, TREE; empty where that tells none
    "lane": "string",  # stream or thread of its span, "<process>/<thread>"
    "issue_ns": "Int64",  # trace clock
    "start_ns": "Int64",  # NA: issued, but its span was not found
    "end_ns": "Int64",
    "first_wait_ns": "Int64",  # when the first consumer began to wait for it
    "wait_ns": "Int64",  # how long that consumer stood still, what it computed meanwhile included; NA: not known
    "awaited_by": "string",  # the function under study that waited, where it had a probe; empty: not told
    "skew_wait_ns": "Int64",  # waiting for the last rank to begin; NA: not known, see traces/ranks/skew.py
    "last_rank": "Int64",  # it waited for, of a send or receive the other end; NA also: two came last, or it handed on
    "transfer_ns": "Int64",  # the rest of the span
    "algbw": "Float64",  # bytes per second over transfer_ns
    "busbw": "Float64",  # algbw with nccl-tests' factor
    "algbw_at_least": "Float64",  # bytes per second over the whole span: what one rank alone tells, a lower bound
    "busbw_at_least": "Float64",
    "exposed_ns": "Int64",  # NA, as the next and the causes: its span was not found, or not recorded what computes
    "hidden_ns": "Int64",
    "cause": "string",  # of the largest part of exposed_ns; empty: nothing is exposed, or not known
    **{f"exposed_{cause}_ns": "Int64" for cause in Cause},  # add up to exposed_ns; see traces/causes/split.py
    "parameters": "string",  # FQNs that a DDP bucket or an FSDP unit carries, by ", "; empty: not known
}

OWNERS: Final = {
    # whose communication was exposed and why, most exposed owner first: means per step and rank
    "owner": "string",  # empty: unattributed
    "operation": "string",
    "purpose": "string",
    "cause": "string",
    "exposed_ns": "float64",  # for this cause
    "owner_exposed_ns": "float64",  # for all causes of this owner, operation and purpose
    "waited_for": "Int64",  # for skew, the rank that nearly all of it waited for; NA: several, or not told
    "known_of": "string",  # over what ranks, launches and steps the means are; NA: over all
}

ESTIMATES: Final = {
    # exposed communication per step, estimated independently
    "rank": "Int64",  # NA: the mean over ranks
    "estimate": "string",  # trace, ablation, wait, logger
    "mean_ns": "float64",  # may be negative; NaN: not known
    "standard_error_ns": "float64",
    "count": "int64",  # independent values behind it
    "agreement": "string",  # of the rank's row: agree, disputed, unknown
}

LANES: Final = {
    "rank": "int64",
    "step": "int64",
    "lane": "string",  # <process>/<stream or thread>
    "busy_ns": "int64",  # less than the sum of the three where kinds run at once
    "compute_ns": "int64",
    "comm_ns": "int64",
    "copy_ns": "int64",
}

GROUPS: Final = {
    "rank": "int64",
    "step": "int64",
    "group": "string",  # torch's process-group name; empty: the trace does not say
    "axis": "string",  # as the group's description calls it: tp, dp_shard, ep, ...; empty: it says nothing
    "count": "int64",
    "size_bytes": "Int64",  # of those whose size is known; NA: of none
    "unsized": "Int64",  # collectives whose size is not known; NA: an older table, which does not say
    "comm_ns": "Int64",
    "hidden_ns": "Int64",
    "exposed_ns": "Int64",  # sums over groups to OVERLAP's exposed_comm_ns
}

GAPS: Final = {
    "rank": "int64",
    "step": "int64",
    "lane": "string",  # the stream with most compute; NA, as all that follow, for a trace without a device
    "gap_ns": "Int64",  # comm_wait + host_wait + launch_gap + other
    "comm_wait_ns": "Int64",
    "host_wait_ns": "Int64",
    "host_sync_ns": "Int64",  # part of host_wait
    "launch_gap_ns": "Int64",
    "other_ns": "Int64",  # the six that follow
    "beside_compute_ns": "Int64",
    "beside_comm_ns": "Int64",
    "beside_copy_ns": "Int64",
    "launch_unknown_ns": "Int64",
    "trace_end_ns": "Int64",
    "unexplained_ns": "Int64",
}

COMM_WAITS: Final = {
    "rank": "int64",
    "step": "int64",
    "group": "string",
    "seq": "Int64",
    "operation": "string",
    "purpose": "string",
    "owner": "string",
    "start_ns": "int64",  # of the collective, which may have begun in the step before
    "end_ns": "int64",
    "wait_ns": "Int64",  # sums over a step to GAPS' comm_wait_ns; NA: may have been for something else
}

OVERLAP_TAX: Final = {
    "rank": "int64",
    "name": "string",
    "grid": "string",  # grid and block
    "alone_count": "int64",
    "under_count": "int64",
    "alone_ns": "float64",  # medians
    "under_ns": "float64",
    "ratio": "float64",
}

SPANS: Final = {
    "rank": "int64",
    "step": "Int64",  # in whose window it starts; NA: in none
    "lane": "string",  # <process>/<stream or thread>; with " beside" what a thread sends while it computes
    "lane_name": "string",  # "stream 7 · compute"
    "kind": "string",  # compute, comm, copy
    "name": "string",  # kernel, copy or operator; of communication the operation
    "start_ns": "int64",  # from the origin of the picture, on the clock that all its ranks share
    "end_ns": "int64",  # start_ns and the duration on the rank's own clock
    "owner": "string",  # of a collective; empty: unattributed, and for compute and copies
    "purpose": "string",  # of a collective; empty for compute and copies
    "operation": "string",  # likewise
    "exposed_ns": "Int64",  # of communication: without compute beside it; two at once both count it; NA: not known
}

STAGE_WORK: Final = {
    "rank": "int64",
    "step": "Int64",  # in whose window it starts; NA: in none
    "stage": "Int64",  # of a pipeline; NA: the schedule names the micro-batch alone
    "micro_batch": "Int64",  # NA: not said
    "action": "string",  # forward, backward; of zero-bubble schedules input gradients, weight gradients
    "start_ns": "int64",  # of its first compute, as in SPANS
    "end_ns": "int64",  # of its last compute
}

EXPOSED: Final = {
    "rank": "int64",
    "step": "Int64",  # NA: outside the windows of all steps
    "start_ns": "int64",  # as in SPANS
    "end_ns": "int64",  # the lengths of a step's rows sum to OVERLAP's exposed_comm_ns
}
