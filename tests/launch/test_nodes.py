"""Which nodes there are, as each scheduler says it."""

import pytest

from dtbench.base.errors import PlanError
from dtbench.launch.nodes import (
    NodeOptions,
    Nodes,
    expand_hosts,
    find_allocation,
    find_nodes,
    read_endpoint,
    spread_ranks,
)

BATCH = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURMD_NODENAME": "gpu07",
}
"""As a batch script has them."""
STEP = {
    **BATCH,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURMD_NODENAME": "gpu08",
}
"""As the second task of `srun --ntasks-per-node=1` has them."""
TRAIN_JOB = {
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "pretrain-node-0-0.pretrain",
    "PET_MASTER_PORT": "29500",
}
"""As Kubeflow's Trainer sets them (pkg/runtime/framework/plugins/torch)."""


def test_without_a_word_there_is_this_machine_alone() -> None:
    assert find_nodes({}) == Nodes(1, 0, "127.0.0.1", 29400)


def test_a_task_of_srun_is_a_node_of_its_step() -> None:
    assert find_nodes(STEP) == Nodes(2, 1, "gpu07", 24711, "Slurm", "4711", ("gpu07", "gpu08"))


def test_a_step_of_fewer_nodes_than_its_job_has_its_own() -> None:
    step = {**STEP, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "gpu08", "SLURM_NODEID": "0"}
    assert find_nodes(step) == Nodes(1, 0, "gpu08", 24711, "Slurm", "4711", ("gpu08",))


def test_the_script_of_a_job_is_told_to_use_srun() -> None:
    with pytest.raises(PlanError, match=r"job of 2 nodes.*srun --ntasks-per-node=1"):
        find_nodes(BATCH)


def test_several_tasks_on_a_node_are_refused_on_each_of_them() -> None:
    with pytest.raises(PlanError, match=r"8 tasks on a node.*--ntasks-per-node=1"):
        find_nodes({**STEP, "SLURM_STEP_TASKS_PER_NODE": "1,8(x3)"})


def test_a_train_job_says_it_in_torchruns_variables() -> None:
    assert find_nodes(TRAIN_JOB) == Nodes(3, 2, "pretrain-node-0-0.pretrain", 29500, "TrainJob")
    endpoint = {"PET_NNODES": "2:2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "head:1234"}
    assert find_nodes(endpoint) == Nodes(2, 1, "head", 1234, "TrainJob")


def test_an_elastic_number_of_nodes_is_refused() -> None:
    with pytest.raises(PlanError, match=r"PET_NNODES=1:4.*may not change"):
        find_nodes({**TRAIN_JOB, "PET_NNODES": "1:4"})


def test_a_train_job_that_does_not_say_which_node_this_is_is_refused() -> None:
    with pytest.raises(PlanError, match=r"PET_NODE_RANK is not"):
        find_nodes({"PET_NNODES": "2", "PET_MASTER_ADDR": "head"})


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(PlanError, match="PET_NODE_RANK=second: is no number"):
        find_nodes({**TRAIN_JOB, "PET_NODE_RANK": "second"})


def test_options_stand_before_the_environment() -> None:
    options = NodeOptions(2, 1, "10.0.0.7:1234")
    assert find_nodes({}, options) == Nodes(2, 1, "10.0.0.7", 1234, "options")
    assert find_nodes(STEP, NodeOptions(endpoint="ib0-gpu07")) == Nodes(
        2, 1, "ib0-gpu07", 24711, "options", "4711", ("gpu07", "gpu08")
    )


def test_options_that_say_all_need_nothing_of_the_environment() -> None:
    assert find_nodes(BATCH, NodeOptions(2, 1, "head:1234")) == Nodes(2, 1, "head", 1234, "options")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (NodeOptions(0), "--nnodes 0: there is at least one node"),
        (NodeOptions(2, 2, "head"), "--node-rank 2: nodes are counted from 0 to 1"),
        (NodeOptions(2, 1), "2 nodes, and nothing says where they meet"),
        (NodeOptions(2, 1, "head:port"), "'head:port' is no place to meet"),
        (NodeOptions(2, 1, "head:99999"), "'head:99999' is no place to meet"),
    ],
)
def test_options_that_cannot_be_are_refused(options: NodeOptions, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        find_nodes({}, options)


def test_an_endpoint_has_a_name_or_an_address_of_either_kind() -> None:
    assert read_endpoint("head") == ("head", 29400)
    assert read_endpoint("head:80") == ("head", 80)
    assert read_endpoint("[fe80::1]:80") == ("fe80::1", 80)
    assert Nodes(2, 0, "fe80::1", 80).endpoint == "[fe80::1]:80"
    assert Nodes(2, 0, "head", 80).endpoint == "head:80"


def test_a_script_and_a_shell_of_a_job_may_start_tasks_on_its_nodes() -> None:
    assert find_allocation(BATCH) == Nodes(2, 0, "gpu07", 24711, "Slurm", "4711", ("gpu07", "gpu08"))
    shell = {**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_NODES": "1"}
    assert find_allocation(shell) == find_allocation(BATCH)


def test_a_task_of_srun_and_a_machine_without_slurm_may_not() -> None:
    assert find_allocation(STEP) is None
    assert find_allocation({}) is None


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("", []),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,2].ib,x", ["n08.ib", "n09.ib", "n10.ib", "n2.ib", "x"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_slurms_lists_of_hosts_are_spelled_out(names: str, hosts: list[str]) -> None:
    assert list(expand_hosts(names)) == hosts


def test_ranks_are_spread_in_equal_blocks() -> None:
    assert spread_ranks(8, 2) == (range(4), range(4, 8))
    assert spread_ranks(1, 3) == (range(1), range(0), range(0))
    assert [list(one) for one in spread_ranks(2, 3)] == [[0], [1], []]
