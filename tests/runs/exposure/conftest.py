"""Blocks of steps with known answers, as ranks write them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtbench.base.vocabulary import Arm, Axis, Operation, Purpose
from dtbench.runs.exposure.summarize import LaunchExposure
from dtbench.store.records.arms import ArmBlock, ArmCount, ArmSteps
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.rank import Memory, RankRecord, WarmupEnd
from dtbench.store.records.traffic import Traffic
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

MS = 1_000_000
ABBA = (Arm.FULL, Arm.REMOVED, Arm.REMOVED, Arm.FULL) * 2
TRAFFIC = (
    Traffic(
        purpose=Purpose.GRAD_REDUCE,
        axis=Axis.REPLICATE,
        operation=Operation.ALL_REDUCE,
        count=3,
        size_bytes=3 << 20,
        count_async=3,
    ),
)


def make_block(
    arm: Arm,
    step_ms: Sequence[float],
    wait_ms: Mapping[Purpose, Sequence[float]] | None = None,
    stolen_fraction: Sequence[float] = (),
) -> ArmBlock:
    """Return a block of these steps."""
    waits = {purpose: tuple(round(one * MS) for one in of) for purpose, of in (wait_ms or {}).items()}
    return ArmBlock(
        arm=arm,
        step_ns=tuple(round(one * MS) for one in step_ms),
        wait_ns=waits,
        stolen_fraction=tuple(stolen_fraction),
    )


def make_steps(
    step_ms: Mapping[Arm, float],
    wait_ms: float | None = None,
    *,
    order: Sequence[Arm] = ABBA,
    steps: int = 5,
    logged_ms: Sequence[float] = (),
    operators: Mapping[Arm, int] | None = None,
) -> ArmSteps:
    """Return blocks in which every step of an arm takes as long, and every wait."""
    blocks = []
    for arm in order:
        is_timed = arm is Arm.FULL and wait_ms is not None
        waits = {Purpose.GRAD_REDUCE: [wait_ms or 0.0] * steps} if is_timed else None
        blocks.append(make_block(arm, [step_ms[arm]] * steps, waits))
    counts = tuple(
        ArmCount(arm=arm, operators=(operators or {}).get(arm, 100), traffic=TRAFFIC) for arm in dict.fromkeys(order)
    )
    return ArmSteps(blocks=tuple(blocks), counts=counts, logged_ns=tuple(round(one * MS) for one in logged_ms))


def make_record(rank: int, arms: ArmSteps | None) -> RankRecord:
    """Return a rank's record that says nothing but this."""
    return RankRecord(
        rank=rank,
        host="here",
        pid=1,
        time_to_first_step_ns=MS,
        memory=Memory(rss_peak_bytes=1, allocated_peak_bytes=None, reserved_peak_bytes=None),
        warmup=WarmupEnd(steps=8, settled=True, reason="stable"),
        correctness=None,
        losses=(),
        receipts=(),
        traffic=(),
        traffic_is_stable=True,
        overlap_possible=(),
        process_groups=(),
        bucket_bytes_per_step=(),
        fsdp_units=(),
        extras=RankExtras(exposure=arms),
    )


def make_overlap(
    exposed_ms: Mapping[int, Sequence[float]], *, idle_ms: float = 5, step_ms: float = 100
) -> pd.DataFrame:
    """Return the table ``overlap`` of PROFILED steps, by rank."""
    rows = [
        {
            "rank": rank,
            "step": 30 + place,
            "step_ns": round(step_ms * MS),
            "compute_ns": round((step_ms - exposed - idle_ms) * MS),
            "comm_ns": round(2 * exposed * MS),
            "hidden_comm_ns": round(exposed * MS),
            "exposed_comm_ns": round(exposed * MS),
            "exposed_copy_ns": 0,
            "idle_ns": round(idle_ms * MS),
        }
        for rank, of_rank in exposed_ms.items()
        for place, exposed in enumerate(of_rank)
    ]
    return pd.DataFrame(rows, columns=list(OVERLAP.dtypes)).astype(OVERLAP.dtypes)


def make_collectives(skew_ms: Mapping[int, float]) -> pd.DataFrame:
    """Return the table ``collectives`` with one collective of each rank, exposed for waiting only."""
    rows = []
    for rank, skew in skew_ms.items():
        row: dict[str, Any] = {}
        for name, dtype in COLLECTIVES.dtypes.items():
            row[name] = 0 if dtype == "int64" else "" if dtype == "string" else None
        row |= {"rank": rank, "step": 30, "exposed_ns": round(skew * MS), "exposed_skew_ns": round(skew * MS)}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLLECTIVES.dtypes), dtype=object).astype(COLLECTIVES.dtypes)


def make_purposes(wait_ms: Mapping[int, Sequence[float]]) -> pd.DataFrame:
    """Return the table ``purposes`` of PROFILED steps by rank: half each wait for gradients, half for parameters."""
    rows = [
        {
            **dict.fromkeys(PURPOSES.dtypes, 0),
            "rank": rank,
            "step": 30 + place,
            "purpose": purpose.value,
            "wait_ns": round(wait * MS / 2),
        }
        for rank, of_rank in wait_ms.items()
        for place, wait in enumerate(of_rank)
        for purpose in (Purpose.GRAD_REDUCE, Purpose.UNSHARD)
    ]
    return pd.DataFrame(rows, columns=list(PURPOSES.dtypes)).astype(PURPOSES.dtypes)


def make_launch(
    exposed_ms: Mapping[int, Sequence[float]],
    arms: Mapping[int, ArmSteps | None],
    *,
    name: str = "launch0",
    skew_ms: Mapping[int, float] | None = None,
    gaps_ms: Mapping[int, Sequence[float]] | None = None,
    has_ended: bool = True,
    **overlap: float,
) -> LaunchExposure:
    """Return what a launch wrote: exposed communication of its profiled steps and blocks, by rank."""
    return LaunchExposure(
        name=name,
        index=int(name.removeprefix("launch")),
        world_size=1 + max((*exposed_ms, *arms), default=-1),
        has_ended=has_ended,
        ranks=[make_record(rank, of_rank) for rank, of_rank in arms.items()],
        overlap=make_overlap(exposed_ms, **overlap),
        collectives=make_collectives(skew_ms or {}),
        purposes=make_purposes(gaps_ms or {}),
    )


@pytest.fixture
def block_of() -> Callable[..., ArmBlock]:
    """Make a block: its arm, its steps in ms, its waits by purpose."""
    return make_block


@pytest.fixture
def steps_of() -> Callable[..., ArmSteps]:
    """Make blocks: the step time of each arm and the wait in ms."""
    return make_steps


@pytest.fixture
def launch_of() -> Callable[..., LaunchExposure]:
    """Make a launch: exposed time of profiled steps and blocks, by rank."""
    return make_launch


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers every time."""
    return np.random.default_rng(6)
