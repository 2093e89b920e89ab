"""What a node has, as Slurm and people say it."""

import pytest

from dtbench.launch.submit.shape import NodeShape, count_gpus, first_known, read_allocation, read_memory, read_nodes

GIB = 2**30
NODES = """\
NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4(S:0-1) RealMemory=524288 Partitions=gpu,debug
NodeName=n2 Arch=x86_64 CPUAlloc=9 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4(S:0-1) RealMemory=262144 Partitions=gpu
NodeName=n3 Arch=x86_64 CPUAlloc=0 CPUTot=32 Gres=(null) RealMemory=65536 Partitions=cpu
"""


def test_an_allocation_says_what_it_has_of_each_node() -> None:
    told = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "32", "SLURM_GPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "65536"}
    assert read_allocation(told) == NodeShape(cores=32, gpus=4, memory_bytes=64 * GIB)
    assert read_allocation({**told, "SLURM_MEM_PER_NODE": "0"}).memory_bytes is None  # all of it, whatever that is
    assert read_allocation({"SLURM_JOB_ID": "7"}) == NodeShape()


def test_outside_of_an_allocation_variables_say_nothing() -> None:
    assert read_allocation({"SLURM_CPUS_ON_NODE": "32"}) == NodeShape()


def test_nodes_of_a_partition_are_known_in_what_they_have_alike() -> None:
    assert read_nodes(NODES, "gpu") == NodeShape(cores=62, gpus=4, memory_bytes=None)
    assert read_nodes(NODES, "cpu") == NodeShape(cores=32, gpus=0, memory_bytes=64 * GIB)
    assert read_nodes(NODES, None) == NodeShape()
    assert read_nodes(NODES, "none such") == NodeShape()
    assert read_nodes("slurm_load_node error: Unable to contact slurm controller", "gpu") == NodeShape()


def test_of_each_fact_counts_who_says_it_first() -> None:
    assert first_known(NodeShape(gpus=0), NodeShape(cores=8, gpus=4)) == NodeShape(cores=8, gpus=0)


@pytest.mark.parametrize(
    ("words", "size"),
    [("512G", 512 * GIB), ("512Gi", 512 * GIB), ("512GB", 512 * GIB), ("1024", GIB), ("1t", 1024 * GIB), ("0", None)],
)
def test_memory_is_read_as_slurm_and_kubernetes_spell_it(words: str, size: int) -> None:
    assert read_memory(words) == size


@pytest.mark.parametrize("words", ["many", "-4G", "4X", "", "4 G"])
def test_what_is_no_size_is_none(words: str) -> None:
    assert read_memory(words) is None


def test_gpus_of_all_kinds_add_up() -> None:
    assert count_gpus("gpu:2,gpu:h100:4(S:0),nic:2") == 6
    assert count_gpus("gpumem:80") == 0
