"""A person's own model: found, called, trained like dtbench's own; and what goes wrong is a sentence."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from torch import nn

from dtbench import TrainingModel
from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import Purpose
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.worker.models.built import BuiltModel
from tests.newer_torch import skip_where_torch_lacks

Make = Callable[..., Scenario]
HERE = str(Path(__file__).parent)
BUILD = {"kind": "custom", "factory": "example_model:build", "arguments": {"width": 16}}


def build(scenario: Scenario, *folders: str) -> BuiltModel:
    from dtbench.worker.loop.building import make_model

    return make_model(scenario, torch.device("cpu"), folders or (HERE,))


def refusal(scenario: Make, factory: str, *folders: str, **arguments: Any) -> str:
    with pytest.raises(PlanError) as caught:
        build(scenario(model={"kind": "custom", "factory": factory, "arguments": arguments}), *folders)
    return str(caught.value)


def test_a_factory_becomes_a_model_with_the_members_of_its_largest_list_as_units(scenario: Make) -> None:
    built = build(scenario(model=BUILD))
    assert built.blocks == ("blocks.0", "blocks.1", "blocks.2")
    batch = built.make_batch(torch.Generator(), 4)
    assert built.compute_loss(built.compute_output(built.module, batch), batch).dim() == 0


def test_the_seed_decides_the_weights_and_the_precision_their_dtype_but_not_that_of_buffers(scenario: Make) -> None:
    first, again = (dict(build(scenario(model=BUILD, seed=3)).module.named_parameters()) for _ in range(2))
    other = dict(build(scenario(model=BUILD, seed=4)).module.named_parameters())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encode.weight"], other["encode.weight"])
    low = build(scenario(model=BUILD, precision={"dtype": "bfloat16"})).module
    assert {parameter.dtype for parameter in low.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in low.buffers()} == {torch.float32}


@pytest.mark.parametrize(
    ("factory", "arguments", "told"),
    [
        ("no_such_module:build", {}, f"there is no module `no_such_module` in {HERE}, what is installed"),
        ("example_model:biuld", {}, "there is no function `biuld`"),
        ("example_model:build", {"wide": 3}, "does not take model.arguments (wide): missing a required argument"),
        ("example_model:build_nothing", {}, "returned a NoneType; return a dtbench.TrainingModel"),
        ("example_model:build_and_raise", {}, "raised RuntimeError: no such layer ("),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused(
    scenario: Make, factory: str, arguments: dict[str, Any], told: str
) -> None:
    assert told in refusal(scenario, factory, **arguments)


def test_a_module_that_fails_to_import_says_where(scenario: Make, tmp_path: Path) -> None:
    (tmp_path / "broken_model.py").write_text("\nimport nothing_of_that_name\n")
    told = refusal(scenario, "broken_model:build", str(tmp_path))
    assert "importing `broken_model` raised ModuleNotFoundError: No module named 'nothing_of_that_name'" in told
    assert "broken_model.py, line 2" in told


def test_a_module_with_the_name_of_a_loaded_one_is_told_apart(scenario: Make, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("def build(): ...\n")
    assert "which is loaded already; rename your module" in refusal(scenario, "random:build", str(tmp_path))


def test_the_first_folder_wins(scenario: Make, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice_there.py").write_text(f"def build():\n    raise RuntimeError('{folder}')\n")
    told = refusal(scenario, "twice_there:build", str(tmp_path / "first"), str(tmp_path / "second"))
    assert "RuntimeError: first" in told


def test_a_batch_with_other_rows_is_refused(scenario: Make) -> None:
    built = build(scenario(model={"kind": "custom", "factory": "example_model:build_with_one_row_too_many"}))
    with pytest.raises(PlanError, match=r"asked for 8 rows on dim 0 and gave shape \(9, 8\)"):
        built.make_batch(torch.Generator(), 8)


def test_an_output_that_is_no_loss_is_refused(scenario: Make) -> None:
    built = build(scenario(model={"kind": "custom", "factory": "example_model:build_without_loss"}))
    batch = built.make_batch(torch.Generator(), 8)
    with pytest.raises(PlanError, match=r"a tensor of shape \(8, 1\), which is no loss"):
        built.compute_loss(built.compute_output(built.module, batch), batch)


def test_dropout_is_refused_where_results_are_compared(scenario: Make) -> None:
    from dtbench.worker.models.custom import require_no_dropout

    built = build(scenario(model={"kind": "custom", "factory": "example_model:build_with_dropout"}))
    with pytest.raises(PlanError, match=r"the model has dropout \(1\)"):
        require_no_dropout(built.module)


@pytest.mark.parametrize(
    ("shard_by", "units"), [((nn.Linear,), ("0", "1.0")), ((nn.Sequential,), ("1",)), ((), ())], ids=str
)
def test_units_are_instances_of_the_classes_asked_for(shard_by: tuple[type, ...], units: tuple[str, ...]) -> None:
    from dtbench.worker.models.custom import find_units

    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    assert find_units(TrainingModel(module=module, make_batch=torch.randn, shard_by=shard_by)) == units


@pytest.mark.parametrize(
    ("shard_by", "told"),
    [((nn.Conv2d,), "no part of Conv2d"), ((nn.Sequential, nn.Linear), "`1.0` lies inside `1`")],
    ids=str,
)
def test_units_that_cannot_be_are_refused(shard_by: tuple[type, ...], told: str) -> None:
    from dtbench.worker.models.custom import find_units

    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(PlanError) as caught:
        find_units(TrainingModel(module=module, make_batch=torch.randn, shard_by=shard_by))
    assert told in str(caught.value)


def test_a_plan_for_an_unknown_model_says_that_it_does_not_know(scenario: Make) -> None:
    from dtbench.plan.plan import Machine, make_plan

    plan = make_plan(scenario(model=BUILD), Machine(cpu_cores=2, cuda_devices=0))
    assert (plan.parameters, plan.flops_per_step, plan.traffic) == (None, None, None)


STRATEGIES: tuple[dict[str, Any], ...] = (
    {"kind": "ddp", "replicas": 2},
    {"kind": "fsdp1", "shards": 2},
    {"kind": "fsdp2", "shards": 2},
    {"kind": "fsdp2", "shards": 1, "tensor": 2},
)


@pytest.mark.quick(
    str(STRATEGIES[0]),
    str(STRATEGIES[3]),
)
@pytest.mark.ranks
@pytest.mark.parametrize("parallel", STRATEGIES, ids=str)
def test_real_ranks_train_it_as_one_process_does_and_issue_what_the_formulas_say(
    launch: Callable[..., Any], scenario: Make, parallel: dict[str, Any]
) -> None:
    launched = launch(scenario(model=BUILD, parallel=parallel))
    assert launched.correctness.passed
    assert launched.correctness.loss_error < 1e-6
    record = launched.rank()
    if "tensor" in parallel:
        assert record.planned == ()
        return
    for expected in record.planned:
        issued = [item for item in record.traffic if item.purpose is expected.purpose]
        assert sum(item.size_bytes for item in issued) == expected.size_bytes
        assert expected.count in (None, sum(item.count for item in issued))
    assert sum(expected.size_bytes for expected in record.planned) > 0


@pytest.mark.ranks
def test_parameters_that_keep_their_dtype_are_gathered_in_one_with_those_that_do_not(
    launch: Callable[..., Any], scenario: Make
) -> None:
    skip_where_torch_lacks("parallel.mixed_precision.keep_dtype")
    model = {**BUILD, "factory": "example_model:build_careful"}
    policy = {"param_dtype": "bfloat16", "keep_dtype": ["blocks.0.norm", "blocks.2.norm.weight", "blocks.2.norm.bias"]}
    launched = launch(scenario(model=model, parallel={"kind": "fsdp2", "shards": 2, "mixed_precision": policy}))
    assert launched.correctness.passed
    record = launched.rank()
    (gathers,) = (one for one in record.planned if one.purpose is Purpose.UNSHARD)
    matrix, kept = 16 * 16 + 16, 4 * 16
    assert gathers.size_bytes == 2 * (
        3 * 2 * (matrix + 2 * 16) + 2 * kept
    )  # each gathered twice, and two bytes more of what is kept
    assert sum(one.size_bytes for one in record.traffic if one.purpose is Purpose.UNSHARD) == gathers.size_bytes


@pytest.mark.quick("fsdp2")
@pytest.mark.ranks
@pytest.mark.parametrize(
    "parallel",
    [
        {"kind": "ddp", "replicas": 2, "tensor": 2},
        {"kind": "fsdp2", "shards": 2, "tensor": 2},
        {"kind": "fsdp2", "shards": 2, "replicas": 2, "tensor": 2},
    ],
    ids=["ddp", "fsdp2", "hsdp"],
)
def test_the_norm_that_clips_is_over_layers_that_are_cut_and_layers_that_are_not(
    launch: Callable[..., Any], scenario: Make, parallel: dict[str, Any]
) -> None:
    uneven = {"factory": "example_model:build_uneven", "arguments": {"width": 16, "hidden": [24, 40]}}
    launched = launch(scenario(model={"kind": "custom", **uneven}, parallel=parallel, gradient_clip_norm=0.01))
    result = launched.correctness
    assert result.passed, result
    assert result.gradient_error < 1e-5
    (receipt,) = (one for one in launched.rank().receipts if one.knob == "gradient_clip_norm")
    assert receipt.outcome is ReceiptOutcome.AGREES


@pytest.mark.quick(
    str(STRATEGIES[3]),
)
@pytest.mark.ranks
@pytest.mark.parametrize("parallel", [STRATEGIES[0], STRATEGIES[2], STRATEGIES[3]], ids=str)
def test_a_llama_of_the_transformers_library_trains_on_real_ranks(
    launch: Callable[..., Any], scenario: Make, parallel: dict[str, Any]
) -> None:
    if find_spec("transformers") is None:  # importing it here would take seconds and its warnings for errors
        pytest.skip("transformers is a model to train, not a dependency; install the extra `test`")
    model = {"kind": "custom", "factory": "transformers_model:build", "arguments": {"layers": 2, "dim": 64}}
    launched = launch(scenario(model=model, parallel=parallel))
    assert launched.correctness.passed
    assert launched.correctness.loss_error < 1e-6
    for expected in launched.rank().planned:
        issued = [item for item in launched.rank().traffic if item.purpose is expected.purpose]
        assert sum(item.size_bytes for item in issued) == expected.size_bytes


def _delay(*prefixes: str) -> str:
    from dtbench.worker.parallelize.ddp import LocalParameter, _check_delayed

    parameters = [
        LocalParameter(name, name, nn.Parameter(torch.ones(2)), None) for name in ("in.weight", "out.weight", "scale")
    ]
    with pytest.raises(PlanError) as caught:
        _check_delayed(tuple(parameters), [item for item in parameters if item.fqn.startswith(prefixes)])
    return str(caught.value)


def test_a_delayed_all_reduce_that_does_not_fit_the_names_of_the_model_is_refused() -> None:
    assert "no parameter's name starts so; `scale` is one" in _delay("zzz")
    assert "`in.weight`, the first parameter" in _delay("in")
    assert "torch delays no parameter of the root" in _delay("scale")


def test_a_single_number_among_the_parameters_has_a_plan_too(scenario: Make) -> None:
    from dtbench.worker.models.custom import expect_traffic

    module = nn.Module()
    module.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    wanted = scenario(model=BUILD, parallel={"kind": "fsdp2", "shards": 2})
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    assert [item.size_bytes for item in expect_traffic(module, (), wanted, plan)] == [8, 8]


@pytest.mark.parametrize(("device", "count"), [("cpu", None), ("cuda", 0)])
def test_a_lone_rank_reduces_over_gloo_and_not_over_nccl(scenario: Make, device: str, count: int | None) -> None:
    from dtbench.worker.models.custom import expect_traffic

    wanted = scenario(model=BUILD, device=device, parallel={"kind": "ddp", "replicas": 1})
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=1))
    (reduced,) = [
        item for item in expect_traffic(nn.Linear(2, 3), (), wanted, plan) if item.purpose is Purpose.GRAD_REDUCE
    ]
    assert reduced.count == count
    assert (reduced.size_bytes > 0) == (device == "cpu")
