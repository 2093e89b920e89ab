"""Two small cells that look like real ones, and a door to change any field of them."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import Arm, Axis, DeviceKind, Estimate, Operation, Purpose
from dtbench.plan.arms import order_blocks
from dtbench.plan.plan import MeshAxis, Plan
from dtbench.plan.traffic.planned import PlannedTraffic
from dtbench.runs.summary import (
    CellSummary,
    Estimated,
    ExposureRow,
    ExposureSummary,
    Interval,
    PurposeSummary,
    RankBreakdown,
    RunSummary,
)
from dtbench.scenario.schema.model import Transformer
from dtbench.scenario.schema.scenario import Data, Ddp, Fsdp2, Scenario
from dtbench.store.records.arms import ArmBlock, ArmCount, ArmSteps
from dtbench.store.records.rank import CorrectnessResult, Memory, Receipt, ReceiptOutcome, WarmupEnd
from dtbench.store.records.run import RunStatus

MS = 1_000_000
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def keep_to_the_palettes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold all figures that a test of plots draws against the palettes."""
    if not request.module.__name__.rpartition(".")[2].startswith("test_plots"):
        yield
        return
    from dtbench.report.plots.drawing import Picture
    from tests.report.palette_rule import find_breaches

    drawn: list[Picture] = []
    begin = Picture.__init__

    def begin_and_keep(figure: Picture, *given: Any, **named: Any) -> None:
        begin(figure, *given, **named)
        drawn.append(figure)

    monkeypatch.setattr(Picture, "__init__", begin_and_keep)
    yield
    assert [words for figure in drawn for words in find_breaches(figure)] == []


def _scenario(parallel: Ddp | Fsdp2) -> Scenario:
    return Scenario(
        schema_version=1,
        model=Transformer(kind="transformer", layers=4, dim=256, heads=4, ffn_dim=768, vocab_size=4096),
        data=Data(global_batch=8, sequence_length=128),
        parallel=parallel,
    )


def _plan(mesh: dict[Axis, int], traffic: tuple[PlannedTraffic, ...]) -> Plan:
    ranks = 1
    for size in mesh.values():
        ranks *= size
    return Plan(
        device=DeviceKind.CPU,
        backend="gloo",
        mesh=tuple(MeshAxis(name=name, size=size) for name, size in mesh.items()),
        ranks=ranks,
        data_ranks=2,
        rows_per_rank=4,
        min_warmup_steps=8,
        max_warmup_steps=60,
        measured_steps=20,
        profiled_steps=5,
        stall_timeout_ns=120_000 * MS,
        threads_per_rank=1,
        parameters=5_243_136,
        flops_per_step=32_212_254_720,
        tokens_per_step=1024,
        traffic=traffic,
        notes=("loopback communication takes cores from compute: trust step times more than what seems hidden",),
    )


def _interval(median: float, spread: float) -> Interval:
    return Interval(
        median=median,
        low=median - spread,
        high=median + spread,
        quartile1=median - 2 * spread,
        quartile3=median + 3 * spread,
        count=20,
    )


def _rank(rank: int, compute_ms: int, hidden_ms: int, exposed_ms: int, copy_ms: int, idle_ms: int) -> RankBreakdown:
    return RankBreakdown(
        rank=rank,
        steps=5,
        step_ns=(compute_ms + exposed_ms + copy_ms + idle_ms) * MS,
        compute_ns=compute_ms * MS,
        comm_ns=(hidden_ms + exposed_ms) * MS,
        hidden_comm_ns=hidden_ms * MS,
        exposed_comm_ns=exposed_ms * MS,
        exposed_copy_ns=copy_ms * MS,
        idle_ns=idle_ms * MS,
    )


def _purpose(
    purpose: Purpose,
    count: int,
    size_bytes: int,
    hidden_ms: float,
    exposed_ms: float,
    wait_ms: float,
    *,
    possible: bool,
    reason: str,
) -> PurposeSummary:
    comm_ns = round((hidden_ms + exposed_ms) * MS)
    planned = purpose is not Purpose.OTHER
    return PurposeSummary(
        purpose=purpose,
        count=count,
        size_bytes=size_bytes,
        planned_count=count if planned else None,
        planned_size_bytes=size_bytes if planned else None,
        matches_plan=True if planned else None,
        comm_ns=comm_ns,
        hidden_ns=round(hidden_ms * MS),
        exposed_ns=comm_ns - round(hidden_ms * MS),
        wait_ns=round(wait_ms * MS),
        hidden_fraction=hidden_ms * MS / comm_ns,
        overlap_possible=possible,
        overlap_reason=reason,
    )


_AGREEING = tuple(
    Receipt(knob=f"parallel.{knob}", asked="false", got="False", outcome=ReceiptOutcome.AGREES)
    for knob in ("static_graph", "gradient_as_bucket_view", "find_unused_parameters")
)

_DDP = CellSummary(
    name="ddp",
    status=RunStatus.COMPLETE,
    reason=None,
    scenario=_scenario(Ddp(kind="ddp", replicas=2)),
    plan=_plan(
        {Axis.REPLICATE: 2},
        (
            PlannedTraffic(
                purpose=Purpose.GRAD_REDUCE,
                axis=Axis.REPLICATE,
                operation=Operation.ALL_REDUCE,
                count=2,
                size_bytes=20 * MIB,
            ),
        ),
    ),
    launches=(0,),
    step_time=_interval(142.0 * MS, 1.5 * MS),
    launch_medians_ns=(142.0 * MS,),
    profiler_cost=_interval(1.07, 0.01),
    time_to_first_step_ns=2_310.0 * MS,
    tokens_per_second=7211.3,
    model_flops_utilization=float("nan"),
    memory=Memory(rss_peak_bytes=712 * MIB, allocated_peak_bytes=None, reserved_peak_bytes=None),
    cpu_ns_per_step=171.0 * MS,
    hidden_fraction=18 / 30,
    exposed_step_fraction=12 / 152,
    purposes=(
        _purpose(
            Purpose.GRAD_REDUCE,
            2,
            20 * MIB,
            18,
            12,
            12.3,
            possible=True,
            reason="DDP issues each bucket's all-reduce while backward goes on",
        ),
    ),
    ranks=(_rank(0, 110, 18, 12, 1, 29), _rank(1, 112, 17, 11, 1, 28)),
    receipts=(
        *_AGREEING,
        Receipt(
            knob="parallel.broadcast_buffers",
            asked="true",
            got="True",
            outcome=ReceiptOutcome.NO_EFFECT,
            note="the model has no buffers",
        ),
    ),
    warmup=WarmupEnd(steps=9, settled=True, reason="bucket sizes and step time are stable"),
    correctness=CorrectnessResult(
        passed=True,
        loss_error=1.2e-7,
        loss_tolerance=1e-5,
        gradient_error=3.1e-7,
        gradient_tolerance=1e-5,
        worst_parameter="layers.3.ffn.down.weight",
    ),
    losses=(8.32, 8.31, 8.30),
    unread_events=0,
    unknown_names=(),
    trace_paths=(
        "results/small/20260101T120000Z-ab12/cells/ddp/launch0/traces/rank0.1767268800000000000.pt.trace.json.gz",
        "results/small/20260101T120000Z-ab12/cells/ddp/launch0/traces/rank1.1767268800000000000.pt.trace.json.gz",
    ),
    notes=(),
)

_FSDP2_TP = CellSummary(
    name="fsdp2_tp",
    status=RunStatus.COMPLETE,
    reason=None,
    scenario=_scenario(Fsdp2(kind="fsdp2", shards=2, tensor=2, forward_prefetch=1)),
    plan=_plan(
        {Axis.SHARD: 2, Axis.TENSOR: 2},
        (
            PlannedTraffic(
                purpose=Purpose.UNSHARD,
                axis=Axis.SHARD,
                operation=Operation.ALL_GATHER,
                count=9,
                size_bytes=18 * MIB,
            ),
        ),
    ),
    launches=(0, 1),
    step_time=_interval(231.0 * MS, 4.0 * MS),
    launch_medians_ns=(229.0 * MS, 234.0 * MS),
    profiler_cost=_interval(1.12, 0.02),
    time_to_first_step_ns=3_870.0 * MS,
    tokens_per_second=4433.0,
    model_flops_utilization=float("nan"),
    memory=Memory(rss_peak_bytes=655 * MIB, allocated_peak_bytes=None, reserved_peak_bytes=None),
    cpu_ns_per_step=204.0 * MS,
    hidden_fraction=4 / 96,
    exposed_step_fraction=92 / 258,
    purposes=(
        _purpose(
            Purpose.UNSHARD,
            9,
            18 * MIB,
            0.5,
            24,
            24.5,
            possible=False,
            reason="gloo issues FSDP2's collectives synchronously",
        ),
        _purpose(
            Purpose.GRAD_REDUCE,
            5,
            10 * MIB,
            0.5,
            31,
            31.4,
            possible=False,
            reason="gloo issues FSDP2's collectives synchronously",
        ),
        _purpose(
            Purpose.TENSOR,
            16,
            8 * MIB,
            3,
            37,
            38.1,
            possible=False,
            reason="the next operator needs the result at once",
        ),
    ),
    ranks=(
        _rank(0, 98, 4, 92, 3, 65),
        _rank(1, 101, 4, 88, 3, 66),
        _rank(2, 97, 3, 93, 3, 66),
        _rank(3, 99, 4, 92, 3, 64),
    ),
    receipts=(
        *_AGREEING,
        Receipt(
            knob="parallel.forward_prefetch",
            asked="1",
            got="1",
            outcome=ReceiptOutcome.NO_EFFECT,
            note="every all-gather was issued synchronously; set parallel.unshard_async_op: true",
        ),
        Receipt(
            knob="optimizer.fused",
            asked="true",
            got="False",
            outcome=ReceiptOutcome.DISAGREES,
            note="torch fell back to foreach",
        ),
    ),
    warmup=WarmupEnd(steps=60, settled=False, reason="the step time still drifted by 6.2 %"),
    correctness=CorrectnessResult(
        passed=True,
        loss_error=2.2e-7,
        loss_tolerance=1e-5,
        gradient_error=5.0e-7,
        gradient_tolerance=1e-5,
        worst_parameter="layers.0.attention.query.weight",
    ),
    losses=(8.32, 8.31, 8.30),
    unread_events=3,
    unknown_names=(("void mystery_kernel<4>[float]", 12),),
    trace_paths=tuple(
        f"results/small/20260101T120000Z-ab12/cells/fsdp2_tp/launch{launch}/traces/rank{rank}.1767268800000000000.pt.trace.json.gz"
        for launch in (0, 1)
        for rank in range(4)
    ),
    notes=("4 ranks share 2 cores",),
)


@pytest.fixture
def make_ddp() -> Callable[..., CellSummary]:
    """Build the DDP cell: 2 ranks on gloo, 30 ms of communication of which 12 are exposed."""
    return _DDP.model_copy


@pytest.fixture
def make_fsdp2_tp() -> Callable[..., CellSummary]:
    """Build the FSDP2 x TP cell: 4 ranks, nearly nothing hidden, with findings of every sort."""
    return _FSDP2_TP.model_copy


@pytest.fixture
def make_run(
    make_ddp: Callable[..., CellSummary], make_fsdp2_tp: Callable[..., CellSummary]
) -> Callable[..., RunSummary]:
    """Build a run of the given cells; without any, of both."""

    def make(*cells: CellSummary, **changes: object) -> RunSummary:
        summary = RunSummary(
            name="small",
            run_id="20260101T120000Z-ab12",
            question="What does sharding cost on a laptop?",
            path="results/small/20260101T120000Z-ab12",
            status=RunStatus.COMPLETE,
            reason=None,
            overrides=(),
            torch="2.13.0+cpu",
            host="laptop",
            device="cpu",
            cells=cells or (make_ddp(), make_fsdp2_tp()),
        )
        return summary.model_copy(update=changes)

    return make


def _make_arms(place: int, measured_steps: int) -> ArmSteps:
    step_ns = {Arm.FULL: 150_123_456 + 1_357_911 * place, Arm.REMOVED: 118_765_432, Arm.SERIAL: 163_222_111}
    return ArmSteps(
        blocks=tuple(
            ArmBlock(
                arm=arm,
                step_ns=tuple(step_ns[arm] + 10_007 * step for step in range(3)),
                wait_ns={Purpose.GRAD_REDUCE: (28_888_111 + 70_001 * place,) * 3} if arm is Arm.FULL else {},
                stolen_fraction=(0.0,) * 3,
            )
            for arm in order_blocks(tuple(Arm), measured_steps)
        ),
        counts=tuple(ArmCount(arm=arm, operators=7, traffic=()) for arm in Arm),
    )


@pytest.fixture(scope="session")
def add_estimates() -> Callable[[Path], None]:
    """Make the run in a folder one whose ranks ran blocks of steps with and without communication."""

    def add(folder: Path) -> None:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        for cell in record["cells"]:
            cell["scenario"]["measure"]["exposure"] = ["trace", "ablation", "wait"]
        (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
        for place, file in enumerate(sorted(folder.glob("cells/*/launch0/ranks/rank*.json"))):
            arms = _make_arms(place, record["cells"][0]["plan"]["measured_steps"]).model_dump(mode="json")
            file.write_text(
                json.dumps({**json.loads(file.read_text(encoding="utf-8")), "arms": arms}), encoding="utf-8"
            )

    return add


@pytest.fixture
def exposure_of() -> Callable[..., ExposureSummary]:
    """Build estimates: their means in ms by rank (None: over ranks) and kind, all with the same standard error."""

    def make(
        means_ms: Mapping[int | None, Mapping[str, float]],
        disputes: Mapping[int | None, tuple[str, ...]] | None = None,
        *,
        serial_ms: float = float("nan"),
        overlapped_ms: float = float("nan"),
        error_ms: float = 0.3,
        notes: tuple[str, ...] = (),
    ) -> ExposureSummary:
        rows = [
            ExposureRow(
                rank=rank,
                estimates=tuple(
                    Estimated(estimate=Estimate(name), mean_ns=mean * MS, standard_error_ns=error_ms * MS, count=5)
                    for name, mean in means.items()
                ),
                disputes=(disputes or {}).get(rank, ()),
            )
            for rank, means in means_ms.items()
        ]
        return ExposureSummary(
            rows=tuple(rows),
            serial_ns=serial_ms * MS,
            overlapped_ns=overlapped_ms * MS,
            gain_error_ns=error_ms * MS,
            notes=notes,
        )

    return make


@pytest.fixture
def steps() -> pd.DataFrame:
    """Two ranks of the cell ddp, four steps; rank 1 is 10 ms slower."""
    phases = ("WARMUP", "MEASURED", "MEASURED", "PROFILED")
    rows = [
        (
            "ddp",
            0,
            rank,
            step,
            phase,
            step * 200 * MS,
            (900 if step == 0 else 100 + step + 10 * rank) * MS,
            90 * MS,
            0.0,
        )
        for rank in range(2)
        for step, phase in enumerate(phases)
    ]
    columns = ["cell", "launch", "rank", "step", "phase", "start_ns", "duration_ns", "cpu_ns", "stolen_fraction"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def purposes() -> pd.DataFrame:
    """One profiled step of two ranks of the cell ddp: 18 and 16 ms hidden, 12 exposed, 13 waited."""
    rows = [
        ("ddp", 0, rank, 3, "grad_reduce", 2, 20 * MIB, (30 - 2 * rank) * MS, (18 - 2 * rank) * MS, 12 * MS, 13 * MS)
        for rank in range(2)
    ]
    columns = ["cell", "launch", "rank", "step", "purpose", "count", "size_bytes", "comm_ns", "hidden_ns", "exposed_ns"]
    return pd.DataFrame(rows, columns=[*columns, "wait_ns"]).assign(is_wait_least=False)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Yield a headless Chromium."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()
