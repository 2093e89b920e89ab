"""Activation checkpointing and compilation: results stay, receipts say what happened, traffic is the formula's."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.errors import MissingError, PlanError
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.models.built import BuiltModel

# dynamo looks at .grad of every input, leaf or not, and torch warns of that
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

Make = Callable[..., Scenario]
MLP = {"kind": "mlp", "layers": 3, "dim": 48, "hidden_dim": 64}
TENSOR = {"kind": "fsdp2", "shards": 1, "tensor": 2}


def build(scenario: Make, **options: Any) -> BuiltModel:
    """Return a real MLP with options applied; no process group."""
    from dtbench.worker.loop.building import make_model

    built = make_model(scenario(model={**MLP, **options}), torch.device("cpu"))
    built.apply_options()
    built.materialize(built.module)
    return built


def train(built: BuiltModel) -> tuple[float, dict[str, Any]]:
    from dtbench.worker.parallelize.parallelized import plain_fqn

    batch = built.make_batch(torch.Generator().manual_seed(0), 4)
    loss = built.compute_loss(built.compute_output(built.module, batch), batch)
    loss.backward()
    return float(loss.detach()), {plain_fqn(name): item.grad for name, item in built.module.named_parameters()}


def receipts(built: BuiltModel) -> dict[str, Receipt]:
    assert built.options is not None
    return {receipt.knob.removeprefix("model."): receipt for receipt in built.options.read_receipts()}


OPTIONS: dict[str, dict[str, Any]] = {
    "full": {"activation_checkpointing": {"kind": "full"}},
    "selective": {"activation_checkpointing": {"kind": "selective", "every": 2}},
    "operators": {"activation_checkpointing": {"kind": "operators", "save": ["aten.addmm", "aten.addmm.default"]}},
    "compiled blocks": {"compile": {"backend": "eager", "fullgraph": True}},
    "compiled model": {"compile": {"what": "model", "backend": "aot_eager"}},
    "both": {"compile": {"backend": "aot_eager"}, "activation_checkpointing": {"kind": "full"}},
}


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    for counts in (torch._dynamo.utils.counters, torch._dynamo.utils.compilation_time_metrics):
        counts.clear()


@pytest.mark.parametrize("name", OPTIONS)
def test_options_change_neither_loss_nor_gradients_and_receipts_agree(scenario: Make, name: str) -> None:
    plain_loss, plain = train(build(scenario))
    built = build(scenario, **OPTIONS[name])
    loss, gradients = train(built)
    assert loss == pytest.approx(plain_loss, rel=1e-6)
    assert set(gradients) == set(plain)
    assert all(torch.allclose(gradients[fqn], plain[fqn], rtol=1e-5, atol=1e-7) for fqn in plain)
    assert {receipt.outcome for receipt in receipts(built).values()} == {ReceiptOutcome.AGREES}


def test_recomputation_that_did_not_happen_disagrees(scenario: Make) -> None:
    built = build(scenario, **OPTIONS["full"])
    assert receipts(built)["activation_checkpointing.kind"].got == "3 blocks", "wrapped, but no backward has run"
    for index, block in enumerate(built.module.layers):
        built.module.layers[index] = block._checkpoint_wrapped_module
    train(built)
    assert receipts(built)["activation_checkpointing.kind"].outcome is ReceiptOutcome.DISAGREES


def test_an_operator_that_no_block_runs_is_said_to_have_no_effect(scenario: Make) -> None:
    built = build(scenario, activation_checkpointing={"kind": "operators", "save": ["aten.addmm", "aten.bmm"]})
    receipt = receipts(built)["activation_checkpointing.save"]
    assert receipt.outcome is ReceiptOutcome.DISAGREES, "nothing has run"
    train(built)
    receipt = receipts(built)["activation_checkpointing.save"]
    assert (receipt.outcome, receipt.note) == (ReceiptOutcome.NO_EFFECT, "no block runs aten.bmm")


@pytest.mark.parametrize(("field", "other"), [("dynamic", True), ("fullgraph", True)])
def test_how_a_model_was_compiled_is_read_from_its_context(scenario: Make, field: str, other: object) -> None:
    built = build(scenario, compile={"backend": "eager"})
    train(built)
    assert built.options is not None
    asked = built.options.asked
    assert asked.compile is not None
    other_wish = asked.model_copy(update={"compile": asked.compile.model_copy(update={field: other})})
    built.options.asked = other_wish
    assert receipts(built)[f"compile.{field}"].outcome is ReceiptOutcome.DISAGREES


def test_selective_wraps_every_so_manyth_block_from_the_first(scenario: Make) -> None:
    built = build(scenario, **OPTIONS["selective"])
    train(built)
    assert "2 blocks recomputed" in receipts(built)["activation_checkpointing.kind"].note
    assert receipts(built)["activation_checkpointing.every"].got == "2"


def test_compilation_that_did_not_happen_disagrees(scenario: Make) -> None:
    built = build(scenario, **OPTIONS["compiled blocks"])
    assert receipts(built)["compile.what"].got == "no graph was compiled"
    for block in built.module.layers:
        block._compiled_call_impl = None
    train(built)
    assert receipts(built)["compile.what"].outcome is ReceiptOutcome.DISAGREES


def test_the_backend_that_ran_is_told_from_its_traces(scenario: Make) -> None:
    built = build(scenario, compile={"backend": "eager"})
    train(built)
    assert receipts(built)["compile.backend"].got == "eager"
    assert built.options is not None
    built.options.asked = scenario(model={**MLP, "compile": {"backend": "aot_eager"}}).model
    assert receipts(built)["compile.backend"].outcome is ReceiptOutcome.DISAGREES


def test_graphs_recompiles_and_time_are_counted(scenario: Make) -> None:
    from dtbench.worker.models.options import read_compilation

    assert read_compilation().graphs == 0
    train(build(scenario, compile={"backend": "eager"}))
    found = read_compilation()
    # blocks share their code: one graph for the first, whose input needs no gradient, one for all others
    assert (found.graphs, found.recompiles, found.graph_breaks) == (2, 1, 0)
    assert found.duration_ns > 1_000_000


def test_an_unknown_operator_is_refused(scenario: Make) -> None:
    with pytest.raises(PlanError, match=r"torch has no operator `aten.nm`; write it as `aten.mm`"):
        build(scenario, activation_checkpointing={"kind": "operators", "save": ["aten.nm"]})


def test_inductor_without_a_compiler_is_refused(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingError, match="needs a C\\+\\+ compiler"):
        build(scenario, compile={"backend": "inductor"})


RANKS: dict[str, dict[str, Any]] = {
    "tensor, full": {"model": OPTIONS["full"], "parallel": TENSOR},
    "tensor and sequence, every second block": {
        "model": {**OPTIONS["selective"], "layers": 3},
        "parallel": {**TENSOR, "sequence_parallel": True},
    },
    "tensor, operators": {
        "model": {"activation_checkpointing": {"kind": "operators", "save": ["aten.mm"]}},
        "parallel": {"kind": "ddp", "replicas": 1, "tensor": 2},
    },
    "mlp, tensor, full": {"model": {**MLP, **OPTIONS["full"]}, "parallel": TENSOR},
    "fsdp1, full": {"model": OPTIONS["full"], "parallel": {"kind": "fsdp1", "shards": 2}},
    "fsdp2, compiled, full": {"model": OPTIONS["both"], "parallel": {"kind": "fsdp2", "shards": 2}},
    "tensor, compiled, full": {"model": {**MLP, **OPTIONS["both"]}, "parallel": TENSOR},
    "ddp, compiled": {"model": OPTIONS["compiled blocks"], "parallel": {"kind": "ddp", "replicas": 2}},
}


@pytest.mark.quick(
    "tensor and sequence, every second block",
    "fsdp2, compiled, full",
)
@pytest.mark.ranks
@pytest.mark.parametrize("name", RANKS)
def test_real_ranks_equal_the_plain_single_process_and_the_formula(
    launch: Callable[..., Any], scenario: Make, name: str
) -> None:
    wanted = scenario(**RANKS[name], gradient_clip_norm=1.0)
    launched = launch(wanted)
    assert launched.correctness.passed
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    planned = {(str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in plan.traffic or ()}
    assert launched.traffic == planned
    record = launched.rank()
    wrong = [receipt for receipt in record.receipts if receipt.outcome is ReceiptOutcome.DISAGREES]
    assert not wrong
    assert (record.compilation is not None) == ("compiled" in name)
    assert record.compilation is None or record.compilation.graphs > 0
