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


def test_a_run_cannot_be_begun_and_gone_on_with_at_once(prepare: Callable[..., str]) -> None:
    assert "choose one of them" in " ".join(prepare("--resume").replace("│", " ").split())


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
