"""Runs as a worker would have left them, written through the store: two ranks, FSDP2, one PROFILED step per launch."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.columns import Row
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.finish import STEPS
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.records.baseline import Issued, MeasuredLaunch, MeasuredSide, Measurement, OwnedTime
from dtbench.store.records.rank import WARMUP_LOSSES, Memory, RankRecord, Receipt, ReceiptOutcome, WarmupEnd
from dtbench.store.records.run import CellRecord, Environment, LaunchRecord, RunRecord, RunStatus
from dtbench.store.records.traffic import Traffic
from dtbench.store.use_file import USES
from dtbench.store.write import write_record, write_table
from dtbench.traces.rows.tables import TABLES
from tests.made_receipts import EVERY_KNOB

MS = 1_000_000
GATHERED = ("root", "layers.0", "layers.1", "layers.1", "layers.0")
REDUCED = ("layers.1", "layers.0", "root")
BASE: dict[str, Any] = {
    "schema_version": 1,
    "device": "cpu",
    "model": {"kind": "transformer", "layers": 2, "dim": 64, "heads": 4, "ffn_dim": 96, "vocab_size": 250},
    "data": {"global_batch": 8, "sequence_length": 32},
    "parallel": {"kind": "fsdp2", "shards": 2},
    "measure": {"measured_steps": 4, "profiled_steps": 1},
    "correctness": {"enabled": False},
}
ENVIRONMENT = Environment(
    host="laptop",
    system="Linux-6.1",
    processor="AMD EPYC",
    cores=2,
    memory_bytes=1 << 34,
    python="3.12.1",
    torch="2.13.0+cpu",
    cuda=None,
    nccl=None,
    packages={"dtbench": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.1.0"},
    devices=(),
    variables={"OMP_NUM_THREADS": "1"},
    notes=(),
)


@dataclass(frozen=True)
class FakeCell:
    """One cell: the step time of each launch, and how long the all-gathers of an owner take, all exposed.

    Attributes:
        asynchronous: all-gathers issued so.
        failed: launches that did not complete.
    """

    times_ms: Sequence[float]
    gathers_ms: Mapping[str, float] = field(default_factory=dict)
    parallel: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = ENVIRONMENT
    asynchronous: int = 0
    failed: Sequence[int] = ()


def make_scenario(cell: FakeCell) -> Scenario:
    document = {**BASE, "parallel": {**BASE["parallel"], **cell.parallel}, "env": dict(cell.env)}
    return Scenario.model_validate(document, strict=False)


def make_run(results: Path, name: str, run_id: str, cells: Mapping[str, FakeCell]) -> Path:
    """Write a run whose cells took turns."""
    folder = RunFolder(results / name / run_id)
    records = []
    for turn, (cell_name, cell) in enumerate(cells.items()):
        scenario = make_scenario(cell)
        plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
        indices = tuple(range(len(cell.times_ms)))
        records.append(CellRecord(name=cell_name, scenario=scenario, plan=plan, launches=indices))
        for index in indices:
            started = (index * len(cells) + turn + 1) * 1000 * MS
            _write_launch(folder.launch(cell_name, index), cell, plan, index, started)
    first = next(iter(cells.values()))
    write_record(folder.environment, first.environment)
    run = RunRecord(
        dtbench_version="0.1.0",
        name=name,
        run_id=run_id,
        question="Why?",
        overrides=(),
        status=RunStatus.COMPLETE,
        reason=None,
        started_unix_ns=1,
        ended_unix_ns=2,
        cells=tuple(records),
    )
    write_record(folder.run, run)
    return folder.path


def _write_launch(folder: LaunchFolder, cell: FakeCell, plan: Plan, index: int, started: int) -> None:
    step_ns = round(cell.times_ms[index] * MS)
    first_ns = started + zlib.crc32(str(folder.path.parents[2]).encode())
    rows = [
        {
            "rank": rank,
            "step": step,
            "phase": phase,
            "start_ns": first_ns + step * step_ns + rank,
            "duration_ns": step_ns - rank,
            "cpu_ns": step_ns // 2,
            "stolen_fraction": 0.0,
            **{one.name: 0.0 for one in USES},
        }
        for rank in range(2)
        for step, phase in enumerate(["MEASURED"] * 4 + ["PROFILED"])
    ]
    dtypes = {**STEPS.dtypes, **{one.name: one.dtype for one in USES}}
    write_table(folder.steps, pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes))
    collectives = [row for rank in range(2) for row in _collectives(cell, plan, rank, started)]
    exposed_ns = sum(int(str(row["exposed_ns"])) for row in collectives) // 2
    tables: dict[str, list[Row]] = {"collectives": collectives}
    tables["overlap"] = [
        {
            "rank": rank,
            "step": 4,
            "step_ns": step_ns,
            "compute_ns": step_ns - exposed_ns,
            "comm_ns": exposed_ns,
            "hidden_comm_ns": 0,
            "exposed_comm_ns": exposed_ns,
            "exposed_copy_ns": 0,
            "idle_ns": 0,
        }
        for rank in range(2)
    ]
    tables["purposes"] = [
        {
            "rank": rank,
            "step": 4,
            "purpose": str(planned.purpose),
            "count": planned.count,
            "size_bytes": planned.size_bytes,
            **dict.fromkeys(("comm_ns", "exposed_ns"), _sum_exposed(collectives, rank, planned.purpose)),
            "hidden_ns": 0,
            "wait_ns": 0,
            "is_wait_least": False,
        }
        for rank in range(2)
        for planned in plan.traffic or ()
    ]
    for table in (table for table in TABLES if table.name in tables):
        frame = pd.DataFrame(tables[table.name], columns=list(table.dtypes), dtype=object).astype(dict(table.dtypes))
        write_table(folder.derived_table(table.name), frame)
    for rank in range(2):
        write_record(folder.rank_record(rank), _rank_record(cell, plan, rank))
    write_record(folder.environment, cell.environment)
    has_failed = index in cell.failed
    record = LaunchRecord(
        cell=folder.path.parent.name,
        index=index,
        status=RunStatus.FAILED if has_failed else RunStatus.COMPLETE,
        started_unix_ns=started,
        duration_ns=900 * MS,
        reason="rank 1 died" if has_failed else None,
        failures=(),
    )
    write_record(folder.launch, record)


def _collectives(cell: FakeCell, plan: Plan, rank: int, begin: int) -> list[Row]:
    planned = {str(one.purpose): one for one in plan.traffic or ()}
    gathers = [("all_gather", "unshard", owner, cell.gathers_ms.get(owner, 2.0)) for owner in GATHERED]
    reductions = [("reduce_scatter", "grad_reduce", owner, 1.0) for owner in REDUCED]
    rows: list[Row] = []
    for seq, (operation, purpose, owner, time_ms) in enumerate([*gathers, *reductions]):
        span_ns = round(time_ms * MS)
        one = planned[purpose]
        is_last = sum(row["purpose"] == purpose for row in rows) == one.count - 1
        size_bytes = one.size_bytes // one.count + (one.size_bytes % one.count if is_last else 0)
        rows.append(
            {
                "rank": rank,
                "step": 4,
                "group": "1",
                "axis": "shard",
                "seq": seq,
                "group_size": 2,
                "operation": operation,
                "purpose": purpose,
                "region": "",
                "owner": owner,
                "size_bytes": size_bytes,
                "dtype": "float32",
                "lane": "1/1",
                "issue_ns": begin,
                "start_ns": begin,
                "end_ns": begin + span_ns,
                "exposed_ns": span_ns,
                "hidden_ns": 0,
                "cause": "sync_op",
                "parameters": "",
                **dict.fromkeys(TABLE_CAUSES, 0),
                "exposed_sync_op_ns": span_ns,
            }
        )
        begin += span_ns
    return rows


TABLE_CAUSES = [
    name
    for name in next(table for table in TABLES if table.name == "collectives").dtypes
    if name.startswith("exposed_") and name != "exposed_ns"
]


def _sum_exposed(collectives: Sequence[Row], rank: int, purpose: Purpose) -> int:
    return sum(
        int(str(row["exposed_ns"])) for row in collectives if (row["rank"], row["purpose"]) == (rank, str(purpose))
    )


def _rank_record(cell: FakeCell, plan: Plan, rank: int) -> RankRecord:
    return RankRecord(
        rank=rank,
        host="laptop",
        pid=1,
        time_to_first_step_ns=2000 * MS,
        memory=Memory(rss_peak_bytes=300 << 20, allocated_peak_bytes=None, reserved_peak_bytes=None),
        warmup=WarmupEnd(steps=8, settled=True, reason="stable"),
        correctness=None,
        losses=(4.0,) * (WARMUP_LOSSES + plan.measured_steps + plan.profiled_steps),
        receipts=(
            Receipt(
                knob="parallel.forward_prefetch",
                asked=str(cell.parallel.get("forward_prefetch", 0)),
                got=str(cell.parallel.get("forward_prefetch", 0)),
                outcome=ReceiptOutcome.AGREES,
            ),
            *(one for one in EVERY_KNOB if one.knob != "parallel.forward_prefetch"),
        ),
        traffic=tuple(
            Traffic(
                purpose=planned.purpose,
                axis=planned.axis,
                operation=planned.operation,
                count=planned.count,
                size_bytes=planned.size_bytes,
                count_async=cell.asynchronous if planned.purpose is Purpose.UNSHARD else 0,
            )
            for planned in plan.traffic or ()
        ),
        traffic_is_stable=True,
        overlap_possible=(),
        process_groups=(),
        bucket_bytes_per_step=(),
        fsdp_units=(),
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Folder of all runs."""
    return tmp_path / "results"


@pytest.fixture
def run_of(results: Path) -> Callable[..., Path]:
    """Write a run; its cells by name, and ``run_id`` and ``name`` where they matter."""

    def make(cells: Mapping[str, FakeCell], *, name: str = "small", run_id: str = "20260101T120000Z-aaaa") -> Path:
        return make_run(results, name, run_id, cells)

    return make


def make_launch(
    index: int,
    step_ms: float,
    *,
    owned: Sequence[OwnedTime] = (),
    order: Sequence[Issued] | None = None,
    traffic: Sequence[Traffic] = (),
    started: int | None = None,
) -> MeasuredLaunch:
    """Return a launch with a step time and what it communicated."""
    return MeasuredLaunch(
        name=f"launch{index}",
        started_unix_ns=started,
        round=f"run launch{index}",
        measurements=(
            Measurement(metric="step_time", subject="", value=step_ms * MS),
            Measurement(metric="exposed_comm", subject="", value=sum(row.exposed_ns for row in owned)),
            *(
                Measurement(metric="owner_exposed", subject=row.owner, value=row.exposed_ns)
                for row in owned
                if row.owner
            ),
        ),
        owned=tuple(owned),
        placed=(),
        traffic=tuple(traffic),
        order=None if order is None else tuple(order),
        order_ranks=(0, 1) if order is not None else (),
        receipts=(),
    )


def make_side(
    label: str, launches: Sequence[MeasuredLaunch], environment: Environment | None = ENVIRONMENT
) -> MeasuredSide:
    """Return a side of these launches."""
    return MeasuredSide(
        labels=(label,),
        paths=(f"/{label}",),
        settings={},
        environment=environment,
        launches=tuple(launches),
        notes=(),
    )


def gather(owner: str, exposed_ms: float, duration_ms: float | None = None) -> OwnedTime:
    """Return an owner's all-gather."""
    return OwnedTime(
        owner=owner,
        operation=Operation.ALL_GATHER,
        purpose=Purpose.UNSHARD,
        count=1,
        duration_ns=(exposed_ms if duration_ms is None else duration_ms) * MS,
        exposed_ns=exposed_ms * MS,
        cause=None,
    )


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Write a run: the folder of all runs, the run's name and id, its cells."""
    return make_run


@pytest.fixture(scope="session")
def cell() -> type[FakeCell]:
    """Describe one cell of a run."""
    return FakeCell


@pytest.fixture
def launch_of() -> Callable[..., MeasuredLaunch]:
    """Make a launch: its index, its step time in ms, what it communicated."""
    return make_launch


@pytest.fixture
def side_of() -> Callable[..., MeasuredSide]:
    """Make a side of launches under a label."""
    return make_side


@pytest.fixture
def gather_of() -> Callable[..., OwnedTime]:
    """Make an owner's all-gather: exposed and whole time in ms."""
    return gather


@pytest.fixture
def environment() -> Environment:
    """Where everything ran."""
    return ENVIRONMENT
