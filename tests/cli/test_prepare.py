"""``dtbench run --prepare``: the commands that someone else runs."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.cli.main import main
from dtbench.plan.plan import Machine

SWEEP = """\
# Do commands carry what a cell asks for?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 2}
correctness: {enabled: false}
matrix:
  env.NCCL_ALGO: [null, "Ring, Tree"]
  python: [null, "/opt/my torch/bin/python"]
"""


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    (tmp_path / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dtbench.launch.machine.read_machine", lambda: Machine(cpu_cores=2, cuda_devices=0))

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main(["run", "./sweep.yaml", "--prepare", *arguments])
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def test_each_command_has_the_variables_and_the_interpreter_of_its_cell(prepare: Callable[..., str]) -> None:
    _, _, *commands = prepare().strip().splitlines()
    words = [shlex.split(command) for command in commands]
    assert [line[:2] for line in words] == [
        ["PYTHONSAFEPATH=1", "torchrun"],
        ["PYTHONSAFEPATH=1", "/opt/my torch/bin/python"],
        ["PYTHONSAFEPATH=1", "NCCL_ALGO=Ring, Tree"],
        ["PYTHONSAFEPATH=1", "NCCL_ALGO=Ring, Tree"],
    ]
    assert words[1][2:6] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    assert all(Path(line[-1]).is_file() for line in words)


def plain(printed: str) -> str:
    return " ".join(printed.replace("│", " ").split())


def test_a_run_is_planned_for_nodes_that_are_not_this_machine(
    prepare: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtbench.launch.machine.read_machine", lambda: pytest.fail("this machine is not asked"))
    execute, said, meet, *commands = prepare("--nodes", "2", "--cores-per-node", "16").strip().splitlines()
    assert execute.startswith("# on every node: dtbench execute ")
    assert "dtbench analyze" in said
    assert "HEAD_NODE" in meet
    assert all("--nnodes 2 --nproc-per-node 1" in command for command in commands)
    order = json.loads(Path(shlex.split(commands[0])[-1]).read_text(encoding="utf-8"))
    assert (order["plan"]["nodes"], order["plan"]["threads_per_rank"]) == (2, 16)


def test_resume_names_the_commands_that_are_left(prepare: Callable[..., str]) -> None:
    before = prepare()
    assert prepare("--resume") == before
    assert "no prepared run that lacks a launch of `sweep` is here" in prepare("--resume", "--results", "elsewhere")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--cores-per-node", "4"), "--cores-per-node is about the nodes of --nodes"),
        (("--nodes", "2", "--memory-per-node", "much"), "`much` is no size of memory; 512G is"),
        (("--nodes", "2", "--resume"), "a prepared run goes on as it was planned; leave --nodes out"),
    ],
)
def test_what_nodes_are_said_to_be_must_make_sense(
    prepare: Callable[..., str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in plain(prepare(*arguments))


def test_cells_that_train_the_same_share_one_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["run", "fsdp1", "--prepare", "--json"])
    assert caught.value.code == 0
    commands = json.loads(capsys.readouterr().out)["commands"]
    assert sum("/reference/" in command for command in commands) == 1
    assert len(commands) == 4
