"""``dtbench submit``: what is prepared, what a client gets, and every refusal."""

import os
import shutil
from pathlib import Path

import pytest
import yaml

from dtbench.base.vocabulary import DeviceKind
from dtbench.cli.main import main
from dtbench.plan.plan import Plan
from dtbench.store.read import read_run
from dtbench.store.walk import find_runs

SCENARIO = """\
# Do nodes share four ranks?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 4, sequence_length: 4}
parallel: {kind: ddp, replicas: 4}
"""
NODES = "NodeName=n1 CPUTot=64 Gres=gpu:4 RealMemory=65536 Partitions=gpu\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a scenario, and a PATH of which tests say what is on it."""
    (tmp_path / "four.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("bash", "cat"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def put(here: Path, name: str, body: str) -> None:
    path = here / "bin" / name
    path.write_text(f"#!{os.path.realpath(here / 'bin' / 'bash')}\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def submit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["submit", "./four.yaml", *arguments])
    printed = capsys.readouterr()
    return caught.value.code, printed.out, " ".join(printed.err.replace("│", " ").split())


def read_plan(run: Path) -> Plan:
    plan = read_run(run).cells[0].plan
    assert isinstance(plan, Plan)
    return plan


def test_a_script_is_shown_for_a_run_that_is_prepared_for_these_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = submit(capsys, "--nodes", "2", "--print", "--", "-p", "gpu", "--time=1:00:00", "-c", "16")
    (run,) = find_runs(Path("results"))
    assert (code, out) == (0, (run / "submit.sh").read_text(encoding="utf-8"))
    assert "#SBATCH -p gpu\n#SBATCH --time=1:00:00\n#SBATCH -c 16\n" in out
    assert f"run={run.resolve()}\n" in out
    assert f"{run.resolve()} is prepared; `sbatch --parsable {run.resolve()}/submit.sh` submits it" in err
    assert read_run(run).prepared
    assert (read_plan(run).nodes, read_plan(run).threads_per_rank) == (2, 8)


def test_what_sbatch_takes_is_submitted_and_how_to_follow_it_is_said(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    put(here, "sbatch", 'echo "$*" > sbatch.log; echo "17;cluster"')
    code, out, _ = submit(capsys, "--nodes", "2", "--", "--partition=gpu")
    (run,) = (path.resolve() for path in find_runs(Path("results")))
    assert code == 0
    assert (here / "sbatch.log").read_text(encoding="utf-8") == f"--parsable {run}/submit.sh\n"
    assert out.splitlines() == [
        f"# submitted: 17;cluster; the run is {run}",
        "squeue --jobs 17",
        f"tail -F {run}/slurm-17.log",
        f"dtbench report {run}",
    ]


def test_what_sbatch_refuses_is_told_and_stays_prepared(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    put(here, "sbatch", 'echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1')
    code, _, err = submit(capsys, "--nodes", "2")
    (run,) = (path.resolve() for path in find_runs(Path("results")))
    assert code == 4
    assert "sbatch does not take it: sbatch: error: invalid partition specified: gpu" in err
    assert f"{run} is prepared; `sbatch --parsable {run}/submit.sh` tries again" in err


def test_whole_nodes_of_a_partition_are_what_slurm_says_they_are(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    put(here, "scontrol", f"echo '{NODES}'")
    asked = ("--nodes", "2", "--print", "--set", "device=auto", "--", "--partition=gpu")
    assert submit(capsys, *asked)[0] == 0
    (run,) = find_runs(Path("results"))
    assert read_plan(run).device is DeviceKind.CUDA  # a job of whole nodes has their GPUs
    assert read_plan(run).threads_per_rank == 32


def test_a_train_job_is_applied_with_the_flags_of_kubectl(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    put(here, "kubectl", 'echo "$*" > kubectl.log; echo "trainjob created"')
    arguments = ("--kind", "trainjob", "--image", "me/dtbench", "--claim", "results", "--", "--namespace=team")
    code, out, _ = submit(capsys, "--nodes", "2", *arguments)
    (run,) = (path.resolve() for path in find_runs(Path("results")))
    assert code == 0
    told = (here / "kubectl.log").read_text(encoding="utf-8")
    assert told == f"--namespace=team apply --filename {run}/submit.yaml\n"
    document = yaml.safe_load((run / "submit.yaml").read_text(encoding="utf-8"))
    assert document["spec"]["trainer"]["numProcPerNode"] == 2
    assert f"kubectl --namespace=team get trainjob {document['metadata']['name']}" in out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--nodes", "2"), 7, "sbatch is not here, so that nothing can be submitted; --print prepares the run"),
        (("--nodes", "2", "--kind", "trainjob", "--image", "x"), 7, "kubectl is not here"),
        (("--nodes", "3", "--print"), 3, "4 ranks cannot be shared equally by 3 nodes; --nodes 1, 2 or 4 can"),
        (("--nodes", "2", "--print", "--", "--array=0-3"), 3, "no array of jobs"),
        (
            ("--nodes", "2", "--print", "--set", "device=cuda"),
            3,
            "needs 2 GPUs on each node, and nothing asks for them: add -- --gpus-per-node=2",
        ),
        (
            ("--nodes", "2", "--print", "--set", "device=cuda", "--", "--gres=gpu:1"),
            3,
            "needs 2 CUDA devices on each node, one for each rank, and each has 1 CUDA device",
        ),
        (("--nodes", "2", "--print", "--kind", "trainjob"), 2, "a TrainJob runs in a container: give --image"),
        (("--nodes", "2", "--print", "--claim", "results"), 2, "--image and --claim are of a TrainJob"),
        (("--nodes", "2", "--print", "--memory-per-node", "lots"), 2, "`lots` is no size of memory"),
        (("--print",), 2, "Missing option '--nodes'"),
        (("--nodes", "2", "--print", "--set", "repeat=auto"), 3, "repeat"),
    ],
    ids=[
        "no sbatch", "no kubectl", "ranks that do not divide", "an array", "no GPU asked for", "too few GPUs",
        "no image", "a claim of Slurm", "no size", "no number of nodes", "a number of launches that is found out",
    ],
)  # fmt: skip
def test_what_cannot_be_submitted_is_said_and_nothing_is_prepared(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    ended, _, err = submit(capsys, *arguments)
    assert (ended, sentence in err) == (code, True), err
    assert not Path("results").exists()
