"""Flags of sbatch: read as sbatch reads them, refused where dtbench says it, and what is asked for beside them."""

import pytest

from dtbench.base.errors import PlanError
from dtbench.launch.submit.flags import ask_for, name_flags, read_flags, read_request
from dtbench.launch.submit.shape import NodeShape

GIB = 2**30


def lines(said: NodeShape, *words: str) -> list[str]:
    return [flag.line for flag in ask_for(said, read_flags(words))]


def test_short_and_long_ones_with_and_without_an_equals_sign_are_told_apart() -> None:
    flags = read_flags(["-p", "gpu", "-c8", "--time", "1:00:00", "--qos=high", "--exclusive", "--comment=two words"])
    assert name_flags(flags) == {
        "partition": "gpu",
        "cpus-per-task": "8",
        "time": "1:00:00",
        "qos": "high",
        "exclusive": None,
        "comment": "two words",
    }
    assert flags[-1].line == "#SBATCH '--comment=two words'"
    assert flags[0].line == "#SBATCH -p gpu"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--array=0-3"], "`--array=0-3` is not a flag to give: one allocation is one run"),
        (["-a", "0-3"], "no array of jobs"),
        (["-N2"], "their number is what --nodes of dtbench says"),
        (["--ntasks=8"], "one task on each node"),
        (["gpu"], "`gpu` is no flag of sbatch"),
        (["--partition=gpu", "a", "b"], "`a` is no flag|`b` is no flag"),
        (["--comment=a\n#SBATCH --array=1"], "no flag of sbatch has such characters"),
    ],
)
def test_what_is_no_flag_to_give_is_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        read_flags(words)


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["--gpus-per-node=a100:4", "-c", "16", "--mem=64G"], NodeShape(cores=16, gpus=4, memory_bytes=64 * GIB)),
        (["--gres=gpu:a100:4,nvme:1"], NodeShape(gpus=4)),
        (["-G", "8"], NodeShape(gpus=4)),
        (["--gpus=a100:2,h100:2"], NodeShape(gpus=2)),
        (["--gpus-per-task=4"], NodeShape(gpus=4)),
        (["--mem=0"], NodeShape()),
        (["--gpus-per-node=some"], NodeShape()),
    ],
)
def test_what_flags_ask_of_each_of_two_nodes_is_known(words: list[str], shape: NodeShape) -> None:
    assert read_request(read_flags(words), 2) == shape


def test_gpus_that_nodes_cannot_share_equally_are_refused() -> None:
    with pytest.raises(PlanError, match="--gpus=3 cannot be shared equally by 2 nodes; give --gpus-per-node"):
        read_request(read_flags(["--gpus=3"]), 2)


def test_a_job_has_whole_nodes_unless_its_flags_say_how_many_cores_it_wants() -> None:
    assert lines(NodeShape()) == ["#SBATCH --exclusive", "#SBATCH --mem=0"]
    assert lines(NodeShape(), "--mem=8G") == ["#SBATCH --exclusive"]
    assert lines(NodeShape(), "-c", "8") == []
    assert lines(NodeShape(), "--exclusive") == []


def test_what_a_person_said_of_nodes_is_asked_for() -> None:
    said = NodeShape(cores=8, gpus=4, memory_bytes=64 * GIB)
    asked = ["#SBATCH --cpus-per-task=8", "#SBATCH --gpus-per-node=4", "#SBATCH --mem=65536M"]
    assert lines(said) == asked
    assert lines(said, "--exclusive") == asked
    with pytest.raises(PlanError, match="--gpus-per-node and --gres both say what a node has; leave one of them out"):
        lines(said, "--gres=gpu:4")
