"""A TrainJob is one that Kubeflow Trainer takes.

``SCHEMA`` is a small copy, written by hand, of what the fields in use may hold: kubeflow/trainer,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` (commit 0015772c), its kubebuilder markers and comments: required
fields, lengths, patterns, types. Of Kubernetes' own types (EnvVar, Volume, ResourceRequirements) it has what is used.
Unlike the real one it knows no other fields: a misspelled one would be pruned there, and is refused here.
"""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dtbench.base.errors import PlanError
from dtbench.launch.submit.shape import NodeShape
from dtbench.launch.submit.trainjob import TrainJob, follow_commands, render_train_job


def mapping(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def text(most: int, pattern: str = "") -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": pattern}


INT32 = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
QUANTITIES = {"type": "object", "additionalProperties": text(64, r"^\d+(\.\d+)?([KMGT]i?|m)?$")}
VOLUMES = {
    "type": "array",
    "maxItems": 128,
    "items": mapping(("name",), name=text(63), persistentVolumeClaim=mapping(("claimName",), claimName=text(253))),
}
CONTAINERS = {
    "type": "array",
    "maxItems": 64,
    "items": mapping(
        ("name",),
        name=text(253),
        volumeMounts={"type": "array", "items": mapping(("name", "mountPath"), name=text(63), mountPath=text(4096))},
    ),
}
JOB = mapping(
    ("name",),
    name=text(253, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    template=mapping(spec=mapping(template=mapping(spec=mapping(volumes=VOLUMES, containers=CONTAINERS)))),
)
PATCH = mapping(
    ("manager",),
    manager=text(253),
    trainingRuntimeSpec=mapping(template=mapping(spec=mapping(replicatedJobs={"type": "array", "items": JOB}))),
)
WORDS = {"type": "array", "maxItems": 128, "items": {"type": "string", "maxLength": 65536}}
TRAINER = mapping(
    image=text(500),
    command=WORDS,
    args=WORDS,
    numNodes=INT32,
    numProcPerNode=INT32,
    resourcesPerNode=mapping(requests=QUANTITIES, limits=QUANTITIES),
)
SCHEMA = mapping(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=mapping(("name",), name=text(63, r"^[a-z]([-a-z0-9]*[a-z0-9])?$")),
    spec=mapping(
        ("runtimeRef",),
        runtimeRef=mapping(("name",), name=text(253), apiGroup=text(253), kind=text(253)),
        trainer=TRAINER,
        runtimePatches={"type": "array", "maxItems": 16, "items": PATCH},
        suspend={"type": "boolean"},
    ),
)
RESULTS = Path("/mnt/results")


def make_job(name: str = "fsdp2_tp", shape: NodeShape | None = None, **more: Any) -> TrainJob:
    run = RESULTS / name / "20261130T120000-0a1b"
    given = {"nodes": 2, "ranks_per_node": 4, "image": "ghcr.io/me/dtbench:1", **more}
    return TrainJob(run=run, results=RESULTS, shape=shape or NodeShape(), **given)


@pytest.mark.parametrize(
    ("name", "shape", "claim"),
    [
        ("fsdp2_tp", NodeShape(), None),
        ("ddp", NodeShape(cores=8, gpus=4, memory_bytes=2**36), "results"),
        ("A" * 200, NodeShape(gpus=0), "my.results"),
        ("8_gpus...", NodeShape(cores=1), None),
    ],
)
def test_every_train_job_is_one_that_kubeflow_takes(name: str, shape: NodeShape, claim: str | None) -> None:
    document = yaml.safe_load(render_train_job(make_job(name, shape, claim=claim)))
    jsonschema.validate(document, SCHEMA)


def test_the_schema_refuses_what_kubeflow_would() -> None:
    document = yaml.safe_load(render_train_job(make_job()))
    for path, wrong in ((("metadata", "name"), "Fsdp2_TP"), (("spec", "trainer", "numNodes"), "2")):
        at = document
        for key in path[:-1]:
            at = at[key]
        right, at[path[-1]] = at[path[-1]], wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, SCHEMA)
        at[path[-1]] = right
    jsonschema.validate(document, SCHEMA)


def test_each_pod_executes_the_run_with_what_a_person_said_of_it() -> None:
    job = make_job(shape=NodeShape(cores=8, gpus=4, memory_bytes=2**36), claim="results")
    spec = yaml.safe_load(render_train_job(job))["spec"]
    asked = {"cpu": "8", "memory": "65536Mi", "nvidia.com/gpu": "4"}
    assert spec["runtimeRef"] == {"name": "torch-distributed"}
    assert spec["trainer"] == {
        "image": "ghcr.io/me/dtbench:1",
        "command": ["dtbench", "execute", "/mnt/results/fsdp2_tp/20261130T120000-0a1b"],
        "numNodes": 2,
        "numProcPerNode": 4,
        "resourcesPerNode": {"requests": asked, "limits": asked},
    }
    (patch,) = spec["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "dtbench-results", "persistentVolumeClaim": {"claimName": "results"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "dtbench-results", "mountPath": "/mnt/results"}]


def test_what_is_not_known_of_pods_is_left_to_the_runtime() -> None:
    spec = yaml.safe_load(render_train_job(make_job(runtime="torch-gpu")))["spec"]
    assert spec["runtimeRef"] == {"name": "torch-gpu"}
    assert "resourcesPerNode" not in spec["trainer"]
    assert "runtimePatches" not in spec


def test_names_that_kubernetes_does_not_take_are_refused() -> None:
    with pytest.raises(PlanError, match="--claim 'My Results' is no name in Kubernetes"):
        render_train_job(make_job(claim="My Results"))


def test_a_job_is_followed_by_its_name_where_it_was_submitted() -> None:
    job = make_job()
    first, logs, _ = follow_commands(job, ["--namespace=team"])
    assert first == f"kubectl --namespace=team get trainjob {job.name}"
    assert logs.endswith(f"--selector jobset.sigs.k8s.io/jobset-name={job.name}")
