"""Every table that crosses a room's border or lands on disk: columns, dtypes and units, written down once.

All ``*_ns`` columns are int64 nanoseconds, all ``*_bytes`` int64. ``rank`` and ``step`` are int64. One file holds one
launch; readers add ``cell`` and ``launch``.
"""

from typing import Final

STEPS: Final = {
    "rank": "int64",
    "step": "int64",  # counts from 0 over all phases
    "phase": "string",  # WARMUP, MEASURED, PROFILED
    "start_ns": "int64",  # monotonic clock of that rank
    "duration_ns": "int64",
    "cpu_ns": "int64",  # CPU time of the whole process (all threads) in the step
}

OVERLAP: Final = {
    "rank": "int64",
    "step": "int64",  # number in the trace's ProfilerStep#N
    "step_ns": "int64",
    "compute_ns": "int64",
    "comm_ns": "int64",
    "hidden_comm_ns": "int64",
    "exposed_comm_ns": "int64",
    "exposed_copy_ns": "int64",
    "idle_ns": "int64",
}

PURPOSES: Final = {
    "rank": "int64",
    "step": "int64",
    "purpose": "string",
    "count": "int64",
    "size_bytes": "int64",
    "comm_ns": "int64",
    "hidden_ns": "int64",
    "exposed_ns": "int64",  # sums over purposes to OVERLAP's exposed_comm_ns
    "wait_ns": "int64",
}

COLLECTIVES: Final = {
    "rank": "int64",
    "step": "int64",
    "group": "string",  # torch's process-group name; empty where the trace does not say
    "axis": "string",  # replicate, shard, tensor; empty when the group is no mesh axis or unknown
    "seq": "int64",  # on that group; -1 never appears: rows without one carry pd.NA in Int64
    "operation": "string",
    "purpose": "string",
    "owner": "string",  # FQN of the FSDP unit, bucket of DDP; empty: unattributed
    "size_bytes": "Int64",
    "issue_ns": "Int64",  # trace clock
    "start_ns": "int64",
    "end_ns": "int64",
    "exposed_ns": "int64",
}

MATCHED: Final = {  # what COLLECTIVES gains where the traces of all ranks of a group are there
    "skew_wait_ns": "Int64",  # waiting for the last rank to begin; pd.NA: not known, see analyze/ranks/skew.py
    "transfer_ns": "Int64",  # the rest of the span
    "algbw": "float64",  # bytes per second over transfer_ns, NaN: not known
    "busbw": "float64",  # algbw with nccl-tests' factor
}
