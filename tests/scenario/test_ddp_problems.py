"""Options of DDP that do not go together: each is refused with a sentence, and what the sentence names is planned."""

import json
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.plan.plan import Machine, Plan, make_plan, plan_reference
from dtbench.scenario.schema.scenario import Scenario

MACHINE = Machine(cpu_cores=2, cuda_devices=0)
MLP = {"kind": "mlp", "layers": 2, "dim": 16, "hidden_dim": 16}
WATCHING = {**MLP, "running_statistics": True}
UNUSED = {**MLP, "unused_layers": 1}
SPARSE = {
    "kind": "transformer",
    "layers": 1,
    "dim": 16,
    "heads": 2,
    "ffn_dim": 16,
    "vocab_size": 50,
    "sparse_embedding": True,
}
SGD = {"kind": "sgd"}
JOINED = {"global_batch": 12, "sequence_length": 8, "iterations": [2, 3]}
NOOP = {"comm_hook": {"kind": "noop"}}
PYTHON = {"python_reducer": True}


def plan(parallel: dict[str, Any], **sections: Any) -> Plan:
    fields = {
        "schema_version": 1,
        "device": "cpu",
        "model": MLP,
        "data": {"global_batch": 12, "sequence_length": 8},
        "parallel": {"kind": "ddp", "replicas": 2, **parallel},
        **sections,
    }
    return make_plan(Scenario.model_validate_json(json.dumps(fields)), MACHINE)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "parallel.comm_hook.kind=noop": (NOOP, {}),
    "model.unused_layers": ({}, {"model": UNUSED}),
    "parallel.skip_all_reduce_unused_params": ({"skip_all_reduce_unused_params": True}, {}),
    "parallel.buffer_comm_hook is not called": (
        {"buffer_comm_hook": {}, "broadcast_buffers": False},
        {"model": WATCHING},
    ),
    "parallel.wrap=false leaves gradients": ({"wrap": False}, {}),
    "parallel.static_graph is a knob of the wrapper": ({"wrap": False, "replicas": 1, "static_graph": True}, {}),
    "parallel.compiled_autograd compiles backward with": ({**PYTHON, "compiled_autograd": True}, {}),
    "needs parallel.python_reducer=true": (
        {"compiled_autograd": True},
        {"model": {**MLP, "compile": {"backend": "eager"}}},
    ),
    "parallel.bucket_cap_mb is about these": ({**PYTHON, "bucket_cap_mb": 1}, {}),
    "parallel.join needs data.iterations": ({"join": {}}, {}),
    "data.iterations that differ make plain DDP hang": ({}, {"data": JOINED, "optimizer": SGD}),
    "data.iterations has 2 numbers for parallel.replicas=3": (
        {"join": {}, "replicas": 3},
        {"data": JOINED, "optimizer": SGD},
    ),
    "cannot be cut into 5 equal parts": ({"join": {}}, {"data": {**JOINED, "iterations": [5, 2]}, "optimizer": SGD}),
    "leaves the optimizer's state": ({"join": {}}, {"data": JOINED}),
    "data.iterations and parallel.ignore": (
        {"join": {}, "ignore": ["layers.1"]},
        {"data": JOINED, "optimizer": SGD},
    ),
    "leave gradient_clip_norm out": ({"join": {}}, {"data": JOINED, "optimizer": SGD, "gradient_clip_norm": 1.0}),
    "measure.exposure=[trace] works": (
        {"join": {}},
        {"data": JOINED, "optimizer": SGD, "measure": {"exposure": ["wait"]}},
    ),
    "parallel.lifecycle is done to plain DDP; leave parallel.static_graph out": (
        {"lifecycle": ["pickle"], "static_graph": True},
        {},
    ),
    "parallel.lifecycle=sparse_metadata needs": ({"lifecycle": ["sparse_metadata"]}, {}),
    "model.sparse_embedding needs optimizer.kind=sgd": ({}, {"model": SPARSE}),
    "torch clips no sparse gradients": ({}, {"model": SPARSE, "optimizer": SGD, "gradient_clip_norm": 1.0}),
    "parallel.ignore: `layers.9` names no parameter": ({"ignore": ["layers.9"]}, {}),
    "parallel.ignore leaves DDP nothing": ({"ignore": ["layers"]}, {}),
    "name the same parameter": ({"ignore": ["layers.1"], "delay_all_reduce": ["layers.1"]}, {}),
    "cuts model.dim=16 into more parts": ({}, {"model": {**MLP, "outputs": 17}}),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_go_together_is_refused_in_a_sentence(sentence: str) -> None:
    parallel, sections = REFUSED[sentence]
    with pytest.raises(PlanError) as refused:
        plan(parallel, **sections)
    assert sentence in str(refused.value)


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (NOOP, {"correctness": {"enabled": False}}),
    ({"find_unused_parameters": True}, {"model": UNUSED}),
    ({"static_graph": True}, {"model": UNUSED}),
    ({"buffer_comm_hook": {}}, {"model": WATCHING}),
    ({"wrap": False, "replicas": 1}, {}),
    ({**PYTHON, "compiled_autograd": True}, {"model": {**MLP, "compile": {"backend": "eager"}}}),
    ({"join": {}}, {"data": JOINED, "optimizer": SGD}),
    ({"join": {}}, {"data": JOINED, "correctness": {"enabled": False}}),
    ({}, {"data": {**JOINED, "iterations": [3, 3]}}),
    ({"lifecycle": ["pickle"]}, {}),
    ({}, {"model": SPARSE, "optimizer": SGD}),
    ({"ignore": ["layers.1", "layers.0.running_mean"]}, {"model": WATCHING}),
]


@pytest.mark.parametrize(("parallel", "sections"), ACCEPTED)
def test_what_the_sentences_name_is_planned(parallel: dict[str, Any], sections: dict[str, Any]) -> None:
    assert plan(parallel, **sections).ranks >= 1


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": UNUSED}, "model.unused_layers needs parallel.kind=ddp"),
        ({"model": SPARSE}, "model.sparse_embedding needs parallel.kind=ddp"),
        ({"data": JOINED}, "data.iterations counts the iterations of DDP's ranks"),
    ],
)
def test_what_only_ddp_has_is_refused_elsewhere(kind: str, sections: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan({"kind": kind, "shards": 2, "replicas": 1}, **sections)


def test_the_single_process_has_the_iterations_of_all_ranks() -> None:
    fields = {
        "schema_version": 1,
        "device": "cpu",
        "model": UNUSED,
        "data": JOINED,
        "optimizer": SGD,
        "parallel": {
            "kind": "ddp",
            "replicas": 2,
            "find_unused_parameters": True,
            "join": {"divide_by_initial_world_size": False},
        },
    }
    wanted = Scenario.model_validate_json(json.dumps(fields))
    planned = make_plan(wanted, MACHINE)
    reference, single = plan_reference(wanted, planned)
    assert (single.ranks, single.rows_per_rank, single.traffic) == (1, 12, ())
    assert reference.data.iterations == (2, 3)
    assert planned.tokens_per_step == 10 * 8, "rank 0 leaves two of its rows out"
