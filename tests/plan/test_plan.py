"""Plans: sizes, refusals that say what would work, and formulas checked by hand."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.base.units import MIB
from dtbench.base.vocabulary import Axis, DeviceKind, Operation, Purpose
from dtbench.plan.memory import estimate_least_bytes, estimate_state_bytes
from dtbench.plan.plan import Machine, make_plan, plan_for_check, plan_reference
from dtbench.plan.traffic.ddp import ddp_bucket_bytes
from dtbench.plan.traffic.formula import find_own_purposes
from dtbench.plan.traffic.parameters import known_parameters, list_parameters
from dtbench.scenario.schema.model import Mlp, Timed
from dtbench.scenario.schema.model import Transformer as TransformerSettings
from dtbench.scenario.schema.scenario import Ddp, Scenario

Make = Callable[..., Scenario]
MLP = {"kind": "mlp", "layers": 3, "dim": 48, "hidden_dim": 64, "bias": False}
TIMED = {"kind": "timed", "layers": 3, "forward_ms": 20.0, "backward_ms": 40.0}
LAPTOP = Machine(cpu_cores=2, cuda_devices=0)


def test_the_mesh_has_the_outermost_axis_first(scenario: Make) -> None:
    plan = make_plan(scenario(parallel={"kind": "fsdp2", "shards": 2, "tensor": 2}), LAPTOP)
    assert [(axis.name, axis.size) for axis in plan.mesh] == [(Axis.SHARD, 2), (Axis.TENSOR, 2)]
    assert (plan.ranks, plan.data_ranks, plan.rows_per_rank) == (4, 2, 4)


def test_a_cpu_plan_says_that_loopback_takes_cores(scenario: Make) -> None:
    notes = make_plan(scenario(), LAPTOP).notes
    assert "loopback communication takes cores from compute: trust step times more than what seems hidden" in notes


ONE_GPU = Machine(cpu_cores=2, cuda_devices=1)


def test_without_gpus_gloo_is_offered_only_where_it_would_run(scenario: Make) -> None:
    mixed = {"kind": "ddp", "replicas": 1, "mixed_precision": {"param_dtype": "bfloat16"}}
    with pytest.raises(PlanError) as refused:
        make_plan(scenario(device="cuda", parallel=mixed), LAPTOP)
    assert "would not run either: DDP's mixed precision copies parameters on CUDA streams" in str(refused.value)
    assert "--set device=cpu" not in str(refused.value)


@pytest.mark.parametrize("kind", ["ddp", "fsdp1"])
def test_one_rank_on_a_device_sends_nothing_and_over_gloo_what_any_rank_sends(scenario: Make, kind: str) -> None:
    lone = {"kind": kind, "replicas" if kind == "ddp" else "shards": 1}
    assert make_plan(scenario(device="cuda", parallel=lone), ONE_GPU).traffic == ()
    on_cpu = make_plan(scenario(device="cpu", parallel=lone), ONE_GPU).traffic or ()
    assert [line.purpose for line in on_cpu] == [Purpose.GRAD_REDUCE]


def test_of_a_mesh_on_devices_only_axes_of_one_rank_send_nothing(scenario: Make) -> None:
    wanted = scenario(device="cuda", parallel={"kind": "ddp", "replicas": 1, "tensor": 2})
    traffic = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=2)).traffic or ()
    assert {line.axis for line in traffic} == {Axis.TENSOR}


@pytest.mark.parametrize(
    ("device", "kind", "asked", "steps"),
    [("cuda", "ddp", 8, 10), ("cuda", "ddp", 12, 12), ("cuda", "fsdp2", 8, 8), ("cpu", "ddp", 8, 8)],
)
def test_on_devices_ddp_warms_up_until_its_logger_no_longer_waits(
    scenario: Make, device: str, kind: str, asked: int, steps: int
) -> None:
    warmup = {"min_steps": asked, "max_steps": asked}
    lone = {"kind": kind, "replicas" if kind == "ddp" else "shards": 1}
    plan = make_plan(scenario(device=device, parallel=lone, measure={"warmup": warmup}), ONE_GPU)
    assert (plan.min_warmup_steps, plan.max_warmup_steps) == (steps, steps)


@pytest.mark.parametrize(
    ("mixed", "element_bytes"),
    [
        ({"param_dtype": "bfloat16"}, 2),
        ({"param_dtype": "bfloat16", "reduce_dtype": "float32"}, 4),
        ({}, 4),
    ],
)
def test_ddp_reduces_in_the_dtype_of_its_copies_unless_told_another(
    scenario: Make, mixed: dict[str, Any], element_bytes: int
) -> None:
    wanted = scenario(device="cuda", model=MLP, parallel={"kind": "ddp", "replicas": 2, "mixed_precision": mixed})
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=2))
    (line,) = plan.traffic or ()
    assert plan.parameters is not None
    assert line.size_bytes == plan.parameters * element_bytes


LINK = {"kind": "emulated", "latency_us": 50.0, "bandwidth_gb_per_s": 1.0}


@pytest.mark.parametrize(
    ("knobs", "own", "planned"),
    [
        ({"kind": "ddp", "comm_hook": {"kind": "custom", "function": "a:b"}}, ("grad_reduce",), ()),
        ({"kind": "ddp", "comm_hook": {"kind": "noop"}}, (), ()),
        ({"kind": "fsdp2", "all_gather": "a:b"}, ("unshard",), ("grad_reduce",)),
        ({"kind": "fsdp2", "reduce_scatter": "a:b"}, ("grad_reduce",), ("unshard",)),
        ({"kind": "fsdp2", "all_reduce_hook": "a:b"}, ("grad_reduce",), ("unshard",)),
        ({"kind": "fsdp2"}, (), ("unshard", "grad_reduce")),
    ],
    ids=str,
)
def test_no_plan_says_what_functions_of_ones_own_send(
    scenario: Make, knobs: dict[str, Any], own: tuple[str, ...], planned: tuple[str, ...]
) -> None:
    along = {"replicas": 2} if knobs["kind"] == "ddp" else {"shards": 2}
    wanted = scenario(parallel={**knobs, **along}, correctness={"enabled": False})
    plan = make_plan(wanted, LAPTOP)
    assert find_own_purposes(wanted) == set(own)
    assert {line.purpose for line in plan.traffic or ()} == set(planned)
    assert [note for note in plan.notes if "function of your own" in note] == [
        f"a function of your own does what {purpose} is for: nothing is planned of it, nor compared" for purpose in own
    ]


def test_on_an_emulated_link_the_note_is_about_the_link(scenario: Make) -> None:
    notes = make_plan(scenario(network=LINK), LAPTOP).notes
    assert not any("loopback" in note for note in notes)
    assert any("what the emulated link says" in note for note in notes)


@pytest.mark.parametrize(("network", "shows"), [({"kind": "real"}, "communication"), (LINK, "host time")])
def test_ranks_that_share_cores_are_told_where_their_turns_show(
    scenario: Make, network: dict[str, Any], shows: str
) -> None:
    wanted = scenario(network=network, parallel={"kind": "ddp", "replicas": 4})
    assert f"4 ranks share 2 cores: ranks wait for each other's turns, and that shows as {shows}" in (
        make_plan(wanted, LAPTOP).notes
    )


def test_the_reference_has_no_link(scenario: Make) -> None:
    wanted = scenario(network=LINK)
    single, _ = plan_reference(wanted, make_plan(wanted, LAPTOP))
    assert single.network.kind == "real"


def test_what_nccl_carries_can_only_be_left_out_behind_a_link(scenario: Make) -> None:
    gpus = Machine(cpu_cores=2, cuda_devices=2)
    ablation = {"exposure": ["trace", "ablation"]}
    with pytest.raises(PlanError, match=r"measure\.exposure=\[trace, wait\] works, or network\.kind=emulated"):
        make_plan(scenario(measure=ablation, device="cuda"), gpus)
    make_plan(scenario(measure=ablation, network=LINK, device="cuda"), gpus)
    make_plan(scenario(measure={"exposure": ["trace", "wait"]}, device="cuda"), gpus)


def test_the_reference_takes_no_time_that_is_only_given(scenario: Make) -> None:
    wanted = scenario(model={**TIMED, "slow_rank": {"rank": 1, "factor": 2.0}})
    single, _ = plan_reference(wanted, make_plan(wanted, LAPTOP))
    assert isinstance(single.model, Timed)
    assert set(single.model.cost_ns(0).values()) == {0}
    assert single.model.mlp == Mlp(kind="mlp", layers=3, dim=256, hidden_dim=512, bias=False)


@pytest.mark.parametrize("ranks", range(2, 13))
def test_the_number_of_ranks_per_node_that_a_refusal_names_is_planned(scenario: Make, ranks: int) -> None:
    def plan(ranks_per_node: int) -> None:
        nodes = {"ranks_per_node": ranks_per_node, "bandwidth_gb_per_s": 0.1}
        parallel = {"kind": "ddp", "replicas": ranks}
        data = {"global_batch": ranks, "sequence_length": 8}
        make_plan(scenario(network={**LINK, "between_nodes": nodes}, parallel=parallel, data=data), LAPTOP)

    fitting = [size for size in range(1, ranks) if ranks % size == 0]
    for ranks_per_node in {*range(1, ranks + 3)} - {*fitting}:
        with pytest.raises(PlanError) as refused:
            plan(ranks_per_node)
        named, nodes = map(int, re.findall(r": (\d+) makes (\d+) nodes", str(refused.value))[0])
        assert named * nodes == ranks
        plan(named)


def test_one_rank_has_no_nodes_to_cross(scenario: Make) -> None:
    nodes = {"ranks_per_node": 1, "bandwidth_gb_per_s": 0.1}
    with pytest.raises(PlanError, match=r"one rank sends nothing between nodes; leave network\.between_nodes out"):
        make_plan(scenario(network={**LINK, "between_nodes": nodes}, parallel={"kind": "ddp", "replicas": 1}), LAPTOP)


def test_a_timed_model_is_planned_as_the_mlp_that_it_is_and_claims_no_flops(scenario: Make) -> None:
    parallel = {"kind": "fsdp2", "shards": 2, "tensor": 2}
    plan = make_plan(scenario(model=TIMED, parallel=parallel), LAPTOP)
    sizes = {**MLP, "dim": 256, "hidden_dim": 512}
    same = make_plan(scenario(model=sizes, parallel=parallel), LAPTOP)
    assert (plan.parameters, plan.traffic, plan.state_bytes) == (same.parameters, same.traffic, same.state_bytes)
    assert plan.flops_per_step is None


def test_the_notes_say_whose_time_it_is_which_rank_is_slow_and_what_is_rarely_exact(scenario: Make) -> None:
    slow = {**TIMED, "backward_ms": 5, "slow_rank": {"rank": 1, "factor": 1.5}}
    notes = make_plan(scenario(model=slow), LAPTOP).notes
    assert "compute costs what the timed model says: its times are the scenario's, not the machine's" in notes
    assert "blocks of rank 1 take 1.5 times as long, as asked" in notes
    assert any(note.startswith("model.backward_ms=5: a CPU can rarely sleep so briefly") for note in notes)
    others = make_plan(scenario(model={**TIMED, "forward_ms": 0}), LAPTOP).notes
    assert not any("rarely" in note or "as asked" in note for note in others)


def test_on_gpus_a_link_needs_queues_for_its_lanes(scenario: Make) -> None:
    gpus = Machine(cpu_cores=2, cuda_devices=2)
    notes = make_plan(scenario(network=LINK, device="cuda"), gpus).notes
    assert any("what the emulated link says" in note for note in notes)
    with pytest.raises(PlanError, match="up compute; 8 or more works, or leave it out"):
        make_plan(scenario(network=LINK, device="cuda", env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), gpus)
    for queues in ("8", "32"):
        make_plan(scenario(network=LINK, device="cuda", env={"CUDA_DEVICE_MAX_CONNECTIONS": queues}), gpus)
    make_plan(scenario(device="cuda", env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), gpus)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        (
            {"network": {**LINK, "between_nodes": {"ranks_per_node": 2, "bandwidth_gb_per_s": 0.1}}},
            "all 2 ranks on one node, so that nothing would cross; it must divide 2 and be below it: 1 makes 2 nodes",
        ),
        (
            {
                "network": {**LINK, "between_nodes": {"ranks_per_node": 3, "bandwidth_gb_per_s": 0.1}},
                "parallel": {"kind": "ddp", "replicas": 4},
            },
            "ranks_per_node=3: 4 ranks do not fill such nodes; it must divide 4 and be below it: 2 makes 2 nodes",
        ),
        (
            {"network": {**LINK, "slow_rank": {"rank": 2, "factor": 2.0}}},
            "network.slow_rank.rank=2 is none of the 2 ranks; 1 is the last",
        ),
        (
            {"model": {**TIMED, "slow_rank": {"rank": 2, "factor": 2.0}}},
            "model.slow_rank.rank=2 is none of the 2 ranks; 1 is the last",
        ),
        (
            {
                "model": {**TIMED, "slow_rank": {"rank": 3, "factor": 2.0}},
                "parallel": {"kind": "ddp", "replicas": 1},
            },
            "model.slow_rank.rank=3 is none of the ranks; there is only rank 0",
        ),
        (
            {"model": {**TIMED, "activation_checkpointing": {"kind": "full"}}},
            "model.activation_checkpointing would change what a `timed` block is said to take; leave it out",
        ),
        ({"model": {**TIMED, "compile": {"backend": "eager"}}}, "model.compile would change what a `timed` block"),
        (
            {"model": {**TIMED, "slow_rank": {"rank": 1, "factor": 500}}},
            "3 blocks take 60 s in a row, and a rank without progress for measure.stall_timeout_s=60 is taken for hung",
        ),
        (
            {"model": TIMED, "parallel": {"kind": "ddp", "replicas": 2, "tensor": 2, "loss_parallel": True}},
            "parallel.loss_parallel is not there for a model of kind `timed`",
        ),
        (
            {"model": TIMED, "parallel": {"kind": "ddp", "replicas": 2, "tensor": 3}},
            "model.hidden_dim=512 is not a multiple of parallel.tensor=3",
        ),
        (
            {"data": {"global_batch": 7, "sequence_length": 8}},
            "data.global_batch=7 cannot be shared equally by 2 data-parallel ranks; 6 or 8 can",
        ),
        ({"model": {"heads": 5}}, "model.dim=64 is not a multiple of model.heads=5"),
        ({"model": {"kv_heads": 3}}, "model.heads=4 is not a multiple of model.kv_heads=3"),
        ({"model": {"heads": 64, "kv_heads": 64}}, "head size"),
        (
            {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 3}},
            "model.heads=4 is not a multiple of parallel.tensor=3",
        ),
        ({"parallel": {"kind": "fsdp2", "shards": 2, "sequence_parallel": True}}, "needs parallel.tensor above 1"),
        (
            {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}, "precision": {"autocast": "bfloat16"}},
            "parallel.mixed_precision.param_dtype=bfloat16",
        ),
        (
            {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}, "model": {"tied_head": True}},
            "use tied_head=false or tensor=1",
        ),
        ({"optimizer": {"kind": "adamw", "foreach": True, "fused": True}}, "exclude each other"),
        ({"precision": {"dtype": "float16"}}, "optimizer.eps=1e-08 is 0 in float16"),
        ({"accumulation": {"micro_batches": 3}}, "2 data-parallel ranks with 3 micro-batches each; 6 or 12 can"),
        (
            {"accumulation": {"micro_batches": 2, "sync": "reduce_scatter"}},
            "needs FSDP2 with parallel.replicas above 1",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1, "bucket_cap_mb_list": [1, 2]}},
            "parallel.bucket_cap_mb and parallel.bucket_cap_mb_list exclude each other",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb_list": []}},
            "is empty; name at least one capacity",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "skip_all_reduce_unused_params": True}},
            "needs parallel.find_unused_parameters=true",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "optimizer_in_backward": True}, "gradient_clip_norm": 1.0},
            "leave gradient_clip_norm out",
        ),
        (
            {
                "parallel": {
                    "kind": "ddp",
                    "replicas": 2,
                    "optimizer_in_backward": True,
                    "comm_hook": {"kind": "fp16_compress"},
                }
            },
            "leave parallel.comm_hook out",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "delay_all_reduce": ["layer"]}},
            "names no parameter or module",
        ),
        (
            {"parallel": {"kind": "ddp", "replicas": 2, "delay_all_reduce": ["embedding"]}},
            "must leave out `embedding.weight`",
        ),
        ({"parallel": {"kind": "ddp", "replicas": 2, "loss_parallel": True}}, "needs parallel.tensor above 1"),
        (
            {"parallel": {"kind": "fsdp1", "shards": 2, "sharding_strategy": "HYBRID_SHARD"}},
            "needs parallel.replicas above 1; or use FULL_SHARD",
        ),
        ({"parallel": {"kind": "fsdp1", "shards": 2, "replicas": 2}}, "needs parallel.sharding_strategy=HYBRID_SHARD"),
        (
            {"parallel": {"kind": "fsdp2", "shards": 2, "reshard_after_backward": False}},
            "needs accumulation.micro_batches above 1",
        ),
        ({"parallel": {"kind": "fsdp2", "shards": 4, "reshard_after_forward": 3}}, "must divide parallel.shards=4"),
        (
            {
                "model": {"activation_checkpointing": {"kind": "operators", "save": ["_c10d_functional.all_reduce"]}},
                "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2},
            },
            "save operators that compute",
        ),
        (
            {"model": MLP, "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2, "sequence_parallel": True}},
            "parallel.sequence_parallel is not there for a model of kind `mlp`",
        ),
        (
            {"model": MLP, "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2, "loss_parallel": True}},
            "parallel.loss_parallel is not there for a model of kind `mlp`",
        ),
        (
            {"model": MLP, "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 3}},
            "model.hidden_dim=64 is not a multiple of parallel.tensor=3",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_would(scenario: Make, sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as error:
        make_plan(scenario(**sections), LAPTOP)
    assert sentence in str(error.value)


def test_all_reasons_are_named_at_once(scenario: Make) -> None:
    with pytest.raises(PlanError) as error:
        make_plan(scenario(model={"heads": 5}, data={"global_batch": 7}), LAPTOP)
    assert len(str(error.value).splitlines()) == 3, "dim and heads, heads and kv_heads, batch and ranks"


@pytest.mark.parametrize(("gpus", "found"), [(0, "no CUDA device"), (1, "1 CUDA device")])
def test_too_few_gpus_are_refused_with_what_is_needed_and_what_would_run(scenario: Make, gpus: int, found: str) -> None:
    with pytest.raises(PlanError) as error:
        make_plan(scenario(device="cuda"), Machine(cpu_cores=8, cuda_devices=gpus))
    text = str(error.value)
    assert "needs 2 CUDA devices" in text
    assert found in text
    assert "--set device=cpu" in text


def test_auto_takes_gpus_where_there_are_any(scenario: Make) -> None:
    assert make_plan(scenario(device="auto"), Machine(cpu_cores=8, cuda_devices=2)).backend == "nccl"
    assert make_plan(scenario(device="auto"), LAPTOP).device is DeviceKind.CPU


def test_a_check_plans_for_gpus_that_are_not_there(scenario: Make) -> None:
    plan = plan_for_check(scenario(device="cuda", parallel={"kind": "fsdp2", "shards": 8}))
    assert (plan.backend, plan.ranks) == ("nccl", 8)


def test_the_reference_is_one_float32_process_on_the_whole_batch(scenario: Make) -> None:
    wanted = scenario(precision={"autocast": "bfloat16"}, optimizer={"kind": "sgd", "momentum": 0.5})
    reference, plan = plan_reference(wanted, make_plan(wanted, LAPTOP))
    assert (plan.ranks, plan.rows_per_rank, plan.traffic) == (1, 8, ())
    assert reference.precision.autocast is None
    assert reference.optimizer == wanted.optimizer


def test_parameters_and_flops_by_hand(scenario: Make) -> None:
    plan = make_plan(scenario(), LAPTOP)
    block = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96  # q and o, k and v, w1 w2 w3
    matrices = 2 * block + 250 * 64
    assert plan.parameters == matrices + 250 * 64 + 5 * 64
    assert plan.tokens_per_step == 8 * 32
    assert plan.flops_per_step == (6 * matrices + 12 * 2 * 64 * 32) * 8 * 32


def test_parameters_and_flops_of_an_mlp_by_hand(scenario: Make) -> None:
    plan = make_plan(scenario(model=MLP), LAPTOP)
    assert plan.parameters == 6 * 48 * 64
    # nobody asks for the gradient of the first block's input: one product less
    assert plan.flops_per_step == (6 * 6 - 2) * 48 * 64 * 8 * 32


def test_a_sharded_model_needs_its_share_and_one_parameter_not_the_whole(scenario: Make) -> None:
    sgd = {"kind": "sgd"}
    model = {"dim": 64, "vocab_size": 250_000, "layers": 1}
    whole = scenario(model=model, optimizer=sgd)
    shared = scenario(model=model, optimizer=sgd, parallel={"kind": "fsdp2", "shards": 8})
    parameters = make_plan(whole, LAPTOP).parameters or 0
    assert estimate_least_bytes(whole) == estimate_state_bytes(whole) == 2 * 4 * parameters
    assert estimate_least_bytes(shared) == 4 * parameters // 8 + 4 * 250_000 * 64
    assert make_plan(shared, LAPTOP).state_bytes == 2 * 4 * parameters // 8  # which is what is called state


def test_ddp_cuts_buckets_in_the_order_of_backward(scenario: Make) -> None:
    model = {"dim": 1024, "heads": 8, "kv_heads": 8, "ffn_dim": 1024, "layers": 1, "vocab_size": 1024}
    written = scenario(model=model, parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 8})
    left_out = scenario(model=model)
    assert isinstance(written.parallel, Ddp)
    assert isinstance(left_out.parallel, Ddp)
    # nine matrices of 4 MiB, three norms of 4 KiB; head, norm, then the block from its end, then the embedding
    norm = 4096
    assert ddp_bucket_bytes(written, written.parallel, known_parameters(written.model) or ()) == (
        8 * MIB + norm,
        8 * MIB,
        8 * MIB + norm,
        8 * MIB,
        4 * MIB + norm,
    )
    assert ddp_bucket_bytes(left_out, left_out.parallel, known_parameters(left_out.model) or ())[0] == 4 * MIB


def test_fsdp2_by_hand(scenario: Make) -> None:
    plan = make_plan(scenario(parallel={"kind": "fsdp2", "shards": 2}), LAPTOP)
    traffic = {(t.purpose, t.operation): (t.count, t.size_bytes) for t in plan.traffic or ()}
    block = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64)
    root = 4 * (2 * 250 * 64 + 64)
    assert traffic[Purpose.UNSHARD, Operation.ALL_GATHER] == (5, 2 * 2 * block + root)
    assert traffic[Purpose.GRAD_REDUCE, Operation.REDUCE_SCATTER] == (3, 2 * block + root)


def test_parameters_are_listed_as_the_module_has_them(scenario: Make) -> None:
    pytest.importorskip("torch", reason="compares with the torch module")
    from dtbench.worker.models.transformer import Transformer

    for tied in (False, True):
        settings = scenario(model={"tied_head": tied}).model
        assert isinstance(settings, TransformerSettings)
        found = {name: tuple(parameter.shape) for name, parameter in Transformer(settings).named_parameters()}
        assert found == {parameter.name: parameter.shape for parameter in list_parameters(settings)}
        assert list(found) == [parameter.name for parameter in list_parameters(settings)]


def test_a_model_that_cannot_fit_is_refused_before_it_is_built(scenario: Make) -> None:
    huge = scenario(model={"dim": 2**20, "heads": 8, "ffn_dim": 2**20})
    machine = Machine(cpu_cores=2, cuda_devices=0, memory_bytes=2**34)
    with pytest.raises(PlanError, match=r"2 ranks need at least .* TiB .* this machine has 16.0 GiB"):
        make_plan(huge, machine)
    assert make_plan(scenario(), machine).ranks == 2


def test_a_gpu_scenario_that_fits_nowhere_here_gets_no_false_advice(scenario: Make) -> None:
    huge = scenario(device="cuda", model={"dim": 2**20, "heads": 8, "ffn_dim": 2**20})
    with pytest.raises(PlanError) as error:
        make_plan(huge, Machine(cpu_cores=2, cuda_devices=0, memory_bytes=2**34))
    assert "device=cpu" not in str(error.value)
    assert "do not fit" in str(error.value)


def test_a_check_that_one_device_can_hardly_hold_is_noted_or_refused(scenario: Callable[..., Scenario]) -> None:
    large = {"kind": "preset", "name": "llama3-8b"}
    parallel = {"kind": "fsdp2", "shards": 16}
    wanted = scenario(model=large, data={"global_batch": 16, "sequence_length": 32}, parallel=parallel, device="cuda")
    plan = plan_for_check(wanted)
    assert any("one process checks the ranks first and needs at least 120 GiB" in note for note in plan.notes)
    assert plan.state_bytes is not None
    assert plan.state_bytes < 8 * 2**30
    unchecked = wanted.model_copy(update={"correctness": wanted.correctness.model_copy(update={"enabled": False})})
    assert plan_for_check(unchecked).notes == ()


def test_a_host_that_holds_the_ranks_but_not_the_check_says_so(scenario: Callable[..., Scenario]) -> None:
    wanted = scenario(precision={"dtype": "bfloat16"}, parallel={"kind": "fsdp2", "shards": 2})
    needed = 2 * estimate_state_bytes(wanted)
    host = Machine(cpu_cores=2, cuda_devices=0, memory_bytes=needed)
    with pytest.raises(PlanError, match=r"the single process that checks .* --set correctness\.enabled=false"):
        make_plan(wanted, host)


def test_more_ranks_than_any_job_has_are_planned_for_nobody(scenario: Make) -> None:
    with pytest.raises(PlanError, match="parallel asks for 200000 ranks, more than 100000"):
        plan_for_check(scenario(parallel={"kind": "ddp", "replicas": 200_000}))


FOUR_RANKS = {"kind": "ddp", "replicas": 4}


def test_threads_gpus_and_memory_are_those_of_a_node(scenario: Make) -> None:
    wanted = scenario(parallel=FOUR_RANKS)
    plan = make_plan(wanted, Machine(cpu_cores=8, cuda_devices=0, nodes=2))
    assert (plan.nodes, plan.ranks_per_node, plan.threads_per_rank) == (2, 2, 4)
    assert plan_reference(wanted, plan)[1].threads_per_rank == 8
    gpus = make_plan(scenario(device="cuda", parallel=FOUR_RANKS), Machine(cpu_cores=8, cuda_devices=2, nodes=2))
    assert gpus.device is DeviceKind.CUDA
    two_of_four = 2 * estimate_least_bytes(wanted)
    lean = scenario(parallel=FOUR_RANKS, correctness={"enabled": False})
    assert make_plan(lean, Machine(cpu_cores=8, cuda_devices=0, memory_bytes=two_of_four, nodes=2)).nodes == 2


def test_cores_that_are_not_known_are_shared_by_the_ranks_that_find_them(scenario: Make) -> None:
    plan = make_plan(scenario(parallel=FOUR_RANKS), Machine(cpu_cores=None, cuda_devices=0, nodes=2))
    assert plan.threads_per_rank is None
    assert [plan.share_cores(cores) for cores in (64, 1)] == [32, 1]
    known = make_plan(scenario(parallel=FOUR_RANKS), Machine(cpu_cores=8, cuda_devices=0, nodes=2))
    assert known.share_cores(64) == 4
    assert plan_reference(scenario(), plan)[1].share_cores(64) == 64


def test_fewer_ranks_than_nodes_are_one_each_on_the_first(scenario: Make) -> None:
    plan = make_plan(scenario(), Machine(cpu_cores=8, cuda_devices=0, nodes=4))
    assert (plan.ranks, plan.nodes, plan.threads_per_rank) == (2, 2, 8)


@pytest.mark.parametrize(
    ("sections", "machine", "sentence"),
    [
        ({}, {"nodes": 3}, "4 ranks cannot be shared equally by 3 nodes; --nodes 1, 2 or 4 can"),
        (
            {"device": "cuda"},
            {"cuda_devices": 1, "nodes": 2},
            "needs 2 CUDA devices on each node, .* each has 1 CUDA dev",
        ),
        ({}, {"memory_bytes": 1, "nodes": 2}, "^2 ranks need at least .*, and each node has 1 B"),
        (
            {"network": {"kind": "emulated", "bandwidth_gb_per_s": 1.0}},
            {"nodes": 2},
            "network.kind=emulated does not work over 2 nodes: .* on the clock of its machine",
        ),
    ],
    ids=["ranks that do not divide", "gpus", "memory", "a link"],
)
def test_what_nodes_cannot_run_is_refused(
    scenario: Make, sections: dict[str, Any], machine: dict[str, int], sentence: str
) -> None:
    wanted = scenario(parallel=FOUR_RANKS, **sections)
    with pytest.raises(PlanError, match=sentence):
        make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0).model_copy(update=machine))


def test_a_link_over_nodes_of_gpus_reckons_with_each_device_alone(scenario: Make) -> None:
    linked = {"kind": "emulated", "bandwidth_gb_per_s": 1.0}
    wanted = scenario(device="cuda", parallel=FOUR_RANKS, network=linked)
    assert make_plan(wanted, Machine(cpu_cores=2, cuda_devices=2, nodes=2)).nodes == 2


def test_over_nodes_no_note_speaks_of_loopback_and_cores_are_those_of_each(scenario: Make) -> None:
    over_nodes = make_plan(scenario(parallel=FOUR_RANKS), Machine(cpu_cores=1, cuda_devices=0, nodes=2)).notes
    assert not any("loopback" in note for note in over_nodes)
    assert any(note.startswith("2 ranks of each node share 1 core:") for note in over_nodes)
    assert any("planned for 2 nodes that are alike" in note for note in over_nodes)
    on_one = make_plan(scenario(parallel=FOUR_RANKS), Machine(cpu_cores=1, cuda_devices=0, nodes=1)).notes
    assert any("loopback" in note for note in on_one)
