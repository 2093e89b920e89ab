"""A TrainJob of Kubeflow Trainer for a prepared run: every pod runs ``dtbench execute`` on it.

Fields: ``pkg/apis/trainer/v1alpha1/trainjob_types.go`` of kubeflow/trainer; ``runtimePatches``, which mount a claim,
are there from v2.2 on. The torch runtime tells each pod which node it is (``PET_NNODES``, ``PET_NODE_RANK``, ...).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.commands import spell_command
from dtbench.base.errors import PlanError
from dtbench.launch.submit.shape import NodeShape

TORCH_RUNTIME: Final = "torch-distributed"
"""The runtime for torch that Kubeflow Trainer brings."""
_MOST_NAME: Final = 63
_VOLUME: Final = "dtbench-results"
_NODE: Final = "node"
"""What Trainer calls the job, and the container in it, that trains."""


@dataclass(frozen=True)
class TrainJob:
    """What a TrainJob of a prepared run says.

    Attributes:
        run: folder of the run, which every pod sees under this path.
        results: folder of all runs, where a claim is mounted.
        nodes: how many pods.
        ranks_per_node: the most that a cell starts on one.
        shape: what each pod may use, as far as it is known.
        image: that has dtbench and torch.
        runtime: name of the ClusterTrainingRuntime.
        claim: name of the PersistentVolumeClaim that holds the results; None: the runtime mounts them.
    """

    run: Path
    results: Path
    nodes: int
    ranks_per_node: int
    shape: NodeShape
    image: str
    runtime: str = TORCH_RUNTIME
    claim: str | None = None

    @property
    def name(self) -> str:
        """Its name, one that Kubernetes takes (RFC 1035), by the scenario and the run."""
        words = f"dtbench-{self.run.parent.name}".lower()
        run = re.sub(r"[^a-z0-9]+", "-", self.run.name.lower())
        fitting = re.sub(r"[^a-z0-9]+", "-", words)[: _MOST_NAME - len(run) - 1].rstrip("-")
        return f"{fitting}-{run}".rstrip("-")


def render_train_job(job: TrainJob) -> str:
    """Return the TrainJob as YAML.

    Raises:
        PlanError: a name is none that Kubernetes takes.
    """
    import yaml

    for what, name in (("--runtime", job.runtime), ("--claim", job.claim)):
        if name is not None and not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", name):
            raise PlanError(f"{what} {name!r} is no name in Kubernetes: small letters, digits, - and . are")
    trainer: dict[str, object] = {
        "image": job.image,
        "command": ["dtbench", "execute", str(job.run)],
        "numNodes": job.nodes,
        "numProcPerNode": job.ranks_per_node,
    }
    resources = _spell_resources(job.shape)
    if resources:
        trainer["resourcesPerNode"] = {"requests": resources, "limits": resources}
    spec: dict[str, object] = {"runtimeRef": {"name": job.runtime}, "trainer": trainer}
    if job.claim is not None:
        spec["runtimePatches"] = [_mount(job.claim, job.results)]
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": spec,
    }
    return yaml.dump(document, Dumper=_without_aliases(), sort_keys=False)


def _without_aliases() -> type:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    return Plain


def _spell_resources(shape: NodeShape) -> dict[str, str]:
    """Return what a pod asks for, in the units of Kubernetes; what is not known is left to the runtime."""
    return {
        **({} if shape.cores is None else {"cpu": str(shape.cores)}),
        **({} if shape.memory_bytes is None else {"memory": f"{shape.memory_bytes // 2**20}Mi"}),
        **({} if not shape.gpus else {"nvidia.com/gpu": str(shape.gpus)}),
    }


def _mount(claim: str, results: Path) -> dict[str, object]:
    """Return the patch of the runtime that mounts a claim where results are."""
    pod = {
        "volumes": [{"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": _NODE, "volumeMounts": [{"name": _VOLUME, "mountPath": str(results)}]}],
    }
    job = {"name": _NODE, "template": {"spec": {"template": {"spec": pod}}}}
    return {"manager": "dtbench", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def follow_commands(job: TrainJob, flags: Sequence[str]) -> Sequence[str]:
    """Return the commands that show how far a submitted job is; ``flags``: of kubectl, as it was submitted with."""
    pods = f"jobset.sigs.k8s.io/jobset-name={job.name}"
    return (
        spell_command("kubectl", *flags, "get", "trainjob", job.name),
        spell_command("kubectl", *flags, "logs", "--follow", "--prefix", "--selector", pods),
        spell_command("dtbench", "report", job.run),
    )
