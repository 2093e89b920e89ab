"""Ranks hold with each other what they were started for, before any of them waits for another."""

import threading

import pytest
from torch.distributed import HashStore

from dtbench.base.errors import NodesError
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.load import load_scenario
from dtbench.store.records.run import WorkerOrder
from dtbench.worker.joining import Rank, agree_on_order

SCENARIO = """\
# Do ranks agree?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 2}
"""


def order(*, cell: str = "base", index: int = 0, folder: str = "/a", steps: int = 4) -> WorkerOrder:
    file = load_scenario(SCENARIO, "agree.yaml", (f"measure.measured_steps={steps}",))
    scenario = file.cells[0].scenario
    return WorkerOrder(
        cell=cell,
        index=index,
        scenario=scenario,
        plan=make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0)),
        folder=folder,
        reference=None,
        is_reference=False,
        launched_unix_ns=None,
    )


def agree(*orders: WorkerOrder) -> list[str]:
    """Let a rank with each order join; gives what each is told, empty where all is well."""
    store, said = HashStore(), [""] * len(orders)

    def join(rank: int) -> None:
        try:
            agree_on_order(store, rank, len(orders), orders[rank])
        except NodesError as error:
            said[rank] = str(error)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    return said


def test_ranks_of_one_launch_agree_wherever_their_folders_are() -> None:
    assert agree(order(folder="/a"), order(folder="/b")) == ["", ""]


def test_ranks_of_two_launches_all_say_so() -> None:
    first, second = agree(order(), order(cell="other", index=1))
    assert first == second
    assert "rank 1 on " in first
    assert "was started for launch 1 of cell other (order" in first
    assert "for launch 0 of cell base (order" in first
    assert first.endswith(": start the same order on every node")


def test_ranks_with_two_plans_of_one_launch_say_so() -> None:
    said, _ = agree(order(), order(steps=5))
    assert "was started for launch 0 of cell base, planned otherwise (order" in said


def test_another_number_of_ranks_than_planned_is_told() -> None:
    assert (
        agree(order(), order(), order())
        == ["launch 0 of cell base has 2 ranks, and 3 were started: see --nnodes and --nproc-per-node"] * 3
    )


def test_a_digest_is_of_what_runs_not_of_where() -> None:
    there = order().model_copy(update={"folder": "/b", "reference": "/r", "launched_unix_ns": 5, "code_folder": "/c"})
    assert order().digest == there.digest
    assert len({order().digest, order(index=1).digest, order(cell="x").digest, order(steps=5).digest}) == 4


def test_a_rank_hears_of_its_nodes_from_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert Rank.from_environment() == Rank(3, 1, 4, 2)
