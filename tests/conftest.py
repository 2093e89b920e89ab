"""Small scenarios and real launches for tests that need them."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dtbench.plan import Machine, make_plan, plan_reference
from dtbench.scenario.schema import Scenario
from dtbench.store.layout import LaunchFolder
from dtbench.store.records import CorrectnessResult, LaunchRecord, RankRecord, WorkerOrder

SMALL: dict[str, Any] = {
    "schema_version": 1,
    "device": "cpu",
    "model": {
        "kind": "transformer",
        "layers": 2,
        "dim": 64,
        "heads": 4,
        "kv_heads": 2,
        "ffn_dim": 96,
        "vocab_size": 250,
    },
    "data": {"global_batch": 8, "sequence_length": 32},
    "parallel": {"kind": "ddp", "replicas": 2},
    "measure": {
        "warmup": {"min_steps": 8, "max_steps": 8},
        "measured_steps": 4,
        "profiled_steps": 1,
        "stall_timeout_s": 60,
    },
}


def make_scenario(**sections: Any) -> Scenario:
    """Give the small scenario with sections replaced, or merged where both are mappings without a kind."""
    fields = dict(SMALL)
    for name, section in sections.items():
        before = fields.get(name)
        merges = isinstance(before, dict) and isinstance(section, dict) and "kind" not in section
        fields[name] = {**before, **section} if merges and before is not None else section
    return Scenario.model_validate_json(json.dumps(fields))


@pytest.fixture
def scenario() -> Callable[..., Scenario]:
    return make_scenario


@dataclass(frozen=True)
class Launched:
    """A finished launch, read back."""

    folder: LaunchFolder

    def rank(self, rank: int = 0) -> RankRecord:
        return RankRecord.model_validate_json(self.folder.rank_record(rank).read_bytes())

    @property
    def record(self) -> LaunchRecord:
        return LaunchRecord.model_validate_json(self.folder.launch.read_bytes())

    @property
    def correctness(self) -> CorrectnessResult:
        result = self.rank().correctness
        assert result is not None
        return result

    @property
    def traffic(self) -> Mapping[tuple[str, str, str], tuple[int, int]]:
        rows = self.rank().traffic
        return {(str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in rows}


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of single-process results; scenarios that train the same share one."""
    return tmp_path_factory.mktemp("references")


@pytest.fixture
def launch(tmp_path: Path, references: Path) -> Callable[..., Launched]:
    """Run a scenario's reference and one launch with real ranks; ``fault`` runs the faulty worker instead."""

    def run(scenario: Scenario, fault: str | None = None) -> Launched:
        from dtbench.launch.local import WORKER, launch_ranks

        plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
        reference_scenario, reference_plan = plan_reference(scenario, plan)
        key = hashlib.sha256(reference_scenario.model_dump_json(exclude={"measure"}).encode()).hexdigest()[:16]
        reference, folder = LaunchFolder(references / key), LaunchFolder(tmp_path / "launch0")
        order = WorkerOrder(
            cell="cell",
            index=0,
            scenario=scenario,
            plan=plan,
            folder=str(folder.path),
            reference=str(reference.reference_data) if scenario.correctness.enabled else None,
            is_reference=False,
            import_folders=(str(Path(__file__).parent / "worker"),),
            launched_unix_ns=time.time_ns(),
        )
        if scenario.correctness.enabled and not reference.reference_data.exists():
            changes = {
                "scenario": reference_scenario,
                "plan": reference_plan,
                "folder": str(reference.path),
                "reference": None,
            }
            single = order.model_copy(update={**changes, "is_reference": True})
            launch_ranks(single, reference, on_look=lambda _ranks: None)
        worker: Sequence[str] = WORKER
        if fault is not None:
            worker = (sys.executable, str(Path(__file__).parent / "worker" / "faulty_worker.py"), fault)
        launch_ranks(order, folder, on_look=lambda _ranks: None, worker=worker)
        return Launched(folder)

    return run
