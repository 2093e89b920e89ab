"""What an advice says applies to what was run, and what it can gain is bounded by what it took."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose, Runtime
from dtbench.plan.rules.newer_knobs import NEWER
from dtbench.plan.traffic.ddp import fill_buckets
from dtbench.plan.traffic.parameters import known_parameters
from dtbench.report.words.advice import Loss, advise, advise_loss
from dtbench.report.words.cell_knobs import describe_scenario
from dtbench.report.words.knobs import FIRST, OF_PRECISION, Knob, Library, Ran, describe_traces, read_releases
from dtbench.report.words.trace_words import advise_traces
from dtbench.scenario.load import load_scenario_file
from dtbench.scenario.schema.network import BetweenNodes, EmulatedNetwork, RealNetwork
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Parallel, Scenario
from dtbench.traces.causes.exposed_owners import Carried
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.time.intervals import unite
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.strategy import Strategy
from tests.traces.conftest import draw_events

ROOT = Path(__file__).parents[2]
CELLS = [
    pytest.param(cell.scenario, id=f"{path.stem}-{cell.name}")
    for path in sorted((ROOT / "scenarios").rglob("*.yaml"))
    for cell in load_scenario_file(path).cells
]
NOT_KNOWN = Ran(is_device=True)


IN_NODES = {Strategy.FSDP1: "`HYBRID_SHARD` inside a node", Strategy.FSDP2: "HSDP inside a node"}
WHERE_SEVERAL = " where ranks are on several"


@pytest.mark.parametrize("strategy", IN_NODES)
@pytest.mark.parametrize(
    ("shards", "near", "said"),
    [
        *((2, near, None) for near in (None, 1, 2)),
        *((8, near, None) for near in (1, 8)),
        *((8, near, "") for near in (2, 4)),
        *((shards, None, WHERE_SEVERAL) for shards in (8, None)),
        (None, 4, ""),
    ],
)
def test_sharding_inside_nodes_is_advised_where_they_divide_the_shards(
    strategy: Strategy, shards: int | None, near: int | None, said: str | None
) -> None:
    ran = Ran(is_device=True, strategy=strategy, shards=shards, shards_in_node=near)
    words = advise_loss(loss(Cause.BANDWIDTH, Purpose.UNSHARD, Operation.ALL_GATHER), ran)
    if said is None:
        assert "node" not in words
    else:
        assert re.search(rf"{IN_NODES[strategy]}{said}[,)]", words)


def test_a_scenarios_shards_on_a_node_are_those_of_its_link_or_of_its_machines() -> None:
    (cell,) = load_scenario_file(ROOT / "scenarios" / "strategies" / "fsdp2.yaml").cells[:1]
    parallel = Fsdp2(kind="fsdp2", shards=4, tensor=2)
    real = cell.scenario.model_copy(update={"parallel": parallel, "network": RealNetwork(kind="real")})
    link = EmulatedNetwork(kind="emulated", bandwidth_gb_per_s=1)
    tiers = link.model_copy(update={"between_nodes": BetweenNodes(bandwidth_gb_per_s=1, ranks_per_node=4)})
    found = [
        describe_scenario(scenario, None, is_device=False, ranks_per_host=ranks).shards_in_node
        for scenario, ranks in (
            *((real, ranks) for ranks in (None, 8, 4, 1)),
            (real.model_copy(update={"network": link}), 2),
            (real.model_copy(update={"network": tiers}), 8),
        )
    ]
    assert found == [None, 4, 2, 1, 4, 2]


@pytest.mark.parametrize(
    ("hosts", "near"),
    [("aaaa", 4), ("aabb", 2), ("aab", None), ("abcd", 1), (["a", "a", "b", None], None)],
)
def test_shards_on_a_node_are_counted_by_the_hosts_of_the_traces_of_a_whole_group(
    hosts: Sequence[str | None], near: int | None, tmp_path: Path
) -> None:
    gather = {
        "Collective name": "_allgather_base", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]",
        "Group size": 4,
    }  # fmt: skip
    for rank, host in enumerate(hosts):
        events = draw_events("""
            range FSDP::pre_forward (layers.0) @0 |aaaaaa  |
            op record_param_comms @0 | bb     |
            call cudaLaunchKernel @0 |  d     |
            kernel ncclDevKernel_AllGather_RING_LL @7 |   dddd |
        """)
        for event in events:
            if event["name"] == "record_param_comms":
                event["args"] = {**event.get("args", {}), **gather}
        said = {"traceEvents": events, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(said | ({"host_name": host} if host else {})))
    ran = describe_traces(analyze_traces([tmp_path]))
    assert (ran.shards, ran.shards_in_node) == (4, near)


def test_two_shards_on_one_gpu_are_not_told_to_shard_inside_a_node() -> None:
    traces = analyze_traces([QUEUES / "two_ranks_one_gpu" / "fsdp2"])
    words = [one.words for one in advise_traces(traces)]
    assert any("`reshard_after_forward=False`" in one for one in words)
    assert not any("node" in one for one in words)


def queue_head(purpose: Purpose, group: str = "dp") -> Collective:
    operation = Operation.ALL_GATHER if purpose is Purpose.UNSHARD else Operation.REDUCE_SCATTER
    return Collective(
        group=group, axis=None, seq=1, operation=operation, purpose=purpose, owner="layers.1", size_bytes=None,
        issue_ns=0, issue_end_ns=0, span=unite(np.array([0]), np.array([1])), above=(),
    )  # fmt: skip


def loss(cause: Cause, purpose: Purpose, operation: Operation = Operation.ALL_REDUCE, **more: object) -> Loss:
    told = {"owner": "bucket 0", "exposed_ns": 5, "carried": Carried(at_most_ns=9), **more}
    return Loss(purpose=purpose, operation=operation, cause=cause, **told)  # type: ignore[arg-type]


def every_loss() -> Iterator[Loss]:
    behinds = (None, *(queue_head(purpose) for purpose in Purpose))
    for cause, purpose, operation in itertools.product(Cause, Purpose, Operation):
        for behind in behinds if cause is Cause.QUEUED else (None,):
            for missing in [(one,) for one in MissingInput] if cause is Cause.UNKNOWN else [()]:
                yield loss(cause, purpose, operation, behind=behind, missing=missing)


Says = Callable[[Scenario, bool], bool]


def low_precision(one: Scenario) -> bool:
    return one.precision.dtype != "float32"


def of_ddp(holds: Callable[[Scenario, Ddp], bool]) -> Says:
    return lambda one, _: isinstance(one.parallel, Ddp) and one.parallel.wrap and holds(one, one.parallel)


def of_fsdp1(holds: Callable[[Scenario, Fsdp1], bool]) -> Says:
    return lambda one, _: isinstance(one.parallel, Fsdp1) and holds(one, one.parallel)


def of_fsdp2(holds: Callable[[Scenario, Fsdp2], bool]) -> Says:
    return lambda one, _: isinstance(one.parallel, Fsdp2) and holds(one, one.parallel)


def hookable(one: Scenario, ddp: Ddp) -> bool:
    return (ddp.comm_hook is None or ddp.comm_hook.kind == "allreduce") and not low_precision(one)


def nodes_divide(one: Scenario, fsdp: Fsdp1 | Fsdp2) -> bool:
    if not isinstance(one.network, EmulatedNetwork):
        return fsdp.shards > 2
    between = one.network.between_nodes
    return between is not None and fsdp.tensor < between.ranks_per_node < fsdp.shards * fsdp.tensor


APPLIES: dict[str, Says] = {
    "bucket_cap_mb": of_ddp(lambda _, ddp: not ddp.python_reducer),
    "bucket_cap_mb_list": of_ddp(lambda _, ddp: ddp.bucket_cap_mb_list is not None),
    "bf16_compress_hook": lambda one, device: device and of_ddp(hookable)(one, device),
    "fp16_compress_hook": lambda one, device: not device and of_ddp(hookable)(one, device),
    "powerSGD_hook": of_ddp(lambda _, ddp: ddp.comm_hook is None or ddp.comm_hook.kind == "allreduce"),
    "python_reducer": of_ddp(lambda _, ddp: ddp.python_reducer),
    "forward_prefetch=True": of_fsdp1(lambda _, fsdp: not fsdp.forward_prefetch),
    "SHARD_GRAD_OP": of_fsdp1(lambda _, fsdp: fsdp.sharding_strategy == "FULL_SHARD"),
    "HYBRID_SHARD": of_fsdp1(
        lambda one, fsdp: fsdp.sharding_strategy in ("FULL_SHARD", "SHARD_GRAD_OP") and nodes_divide(one, fsdp)
    ),
    "MixedPrecision(param_dtype": of_fsdp1(
        lambda one, fsdp: fsdp.mixed_precision.param_dtype is None and not low_precision(one)
    ),
    "MixedPrecision(reduce_dtype": of_fsdp1(
        lambda one, fsdp: fsdp.mixed_precision.reduce_dtype is None and not low_precision(one)
    ),
    "set_modules_to_forward_prefetch": of_fsdp2(lambda _, fsdp: not fsdp.forward_prefetch),
    "set_modules_to_backward_prefetch": of_fsdp2(lambda _, fsdp: fsdp.backward_prefetch is None),
    "_set_unshard_async_op": lambda one, device: (
        not device and of_fsdp2(lambda _, fsdp: not fsdp.unshard_async_op)(one, device)
    ),
    "set_separate_reduce_scatter_group": of_fsdp2(lambda _, fsdp: not fsdp.separate_reduce_scatter_group),
    "reshard_after_forward=False": of_fsdp2(lambda _, fsdp: fsdp.reshard_after_forward is not False),
    "MixedPrecisionPolicy(param_dtype": of_fsdp2(
        lambda one, fsdp: fsdp.mixed_precision.param_dtype is None and not low_precision(one)
    ),
    "MixedPrecisionPolicy(reduce_dtype": of_fsdp2(
        lambda one, fsdp: fsdp.mixed_precision.reduce_dtype is None and not low_precision(one)
    ),
    "HSDP": of_fsdp2(lambda one, fsdp: fsdp.replicas == 1 and nodes_divide(one, fsdp)),
    "FSDP2": lambda one, _: isinstance(one.parallel, Ddp) and one.parallel.tensor > 1,
    "FSDP1": of_fsdp1(lambda *_: True),
    "FSDP's": lambda one, _: not isinstance(one.parallel, Ddp),
    "DDP": lambda one, _: isinstance(one.parallel, Ddp),
    "asynchronous tensor parallelism": lambda _, device: device,
    "NCCL_MAX_CTAS": lambda one, device: device and "NCCL_MAX_CTAS" not in one.env,
    "CUDA_DEVICE_MAX_CONNECTIONS": lambda one, device: device and "CUDA_DEVICE_MAX_CONNECTIONS" not in one.env,
    "gloo": lambda _, device: not device,
}
"""Words that an advice may say, by what must hold of a scenario, read here and not by the code under test."""


def inapplicable(words: str, one: Scenario, *, is_device: bool) -> list[str]:
    return [word for word, holds in APPLIES.items() if word in words and not holds(one, is_device)]


@pytest.mark.parametrize("scenario", CELLS)
def test_every_advice_applies_to_every_shipped_cell(scenario: Scenario) -> None:
    for is_device in {scenario.device == "cuda", scenario.device != "cpu"}:
        ran = describe_scenario(scenario, Runtime.CUDA if is_device else None, is_device=is_device)
        for one in every_loss():
            if one.cause is Cause.SERIALIZED and not is_device:
                continue  # found on devices only
            words = advise_loss(one, ran)
            assert words.endswith(".")
            assert not inapplicable(words, scenario, is_device=is_device), (one.cause, one.purpose, words)


def test_every_knob_is_named_for_some_strategy_and_none_where_nothing_is_known() -> None:
    losses = list(every_loss())
    known = [Ran(is_device, strategy, is_set_down=True) for is_device in (True, False) for strategy in Strategy]
    known += [Ran(is_device=True, runtime=runtime, uses_nccl=True) for runtime in Runtime]
    said = " ".join(advise_loss(one, ran) for ran in known for one in losses)
    assert [knob for knob in Knob if knob.value not in said] == []
    untold = " ".join(advise_loss(one, NOT_KNOWN) for one in losses)
    assert [knob for knob in Knob if knob.value in untold] == []


def embedding_last(cap: float, **parallel: object) -> Scenario:
    (cell,) = load_scenario_file(ROOT / "scenarios" / "strategies" / "ddp.yaml").cells[:1]
    model = cell.scenario.model.model_copy(update={"vocab_size": 4096})
    chosen: Parallel = Ddp.model_validate({"kind": "ddp", "replicas": 2, "bucket_cap_mb": cap, **parallel})
    return cell.scenario.model_copy(update={"model": model, "parallel": chosen})


def last_bucket(scenario: Scenario) -> Loss:
    assert isinstance(scenario.parallel, Ddp)
    parameters = known_parameters(scenario.model)
    assert parameters is not None
    names = tuple(one.name for one in fill_buckets(scenario, scenario.parallel, parameters)[-1])
    return loss(Cause.TAIL, Purpose.GRAD_REDUCE, carried=Carried(at_most_ns=9, parameters=names))


def test_a_cap_is_no_advice_for_a_bucket_that_one_parameter_fills() -> None:
    scenario = embedding_last(1)
    words = advise_loss(last_bucket(scenario), describe_scenario(scenario, None, is_device=False))
    assert "one parameter (`embedding.weight`" in words
    assert "4.00 MiB of 4." in words
    assert "bucket_cap_mb" not in words
    assert "`fp16_compress_hook`" in words


def test_a_cap_is_advised_where_it_would_cut_the_last_bucket() -> None:
    scenario = embedding_last(1000)
    shrunk = scenario.model_copy(update={"model": scenario.model.model_copy(update={"vocab_size": 16})})
    words = advise_loss(last_bucket(shrunk), describe_scenario(shrunk, None, is_device=False))
    assert "a smaller `bucket_cap_mb`." in words


def test_a_hook_that_is_set_is_not_advised() -> None:
    scenario = embedding_last(1, comm_hook={"kind": "fp16_compress"})
    words = advise_loss(last_bucket(scenario), describe_scenario(scenario, None, is_device=False))
    assert "hook" not in words
    assert words.endswith(": shard or shrink it.")


def test_a_bucket_whose_parameters_nobody_knows_gets_a_cap_with_the_doubt() -> None:
    ran = Ran(is_device=True, strategy=Strategy.DDP, done=frozenset({Knob.BUCKET_CAPS}))
    words = advise_loss(loss(Cause.TAIL, Purpose.GRAD_REDUCE), ran)
    assert "`bucket_cap_mb`, which helps where that is more than one parameter" in words


def test_what_crosses_the_wire_in_sixteen_bits_is_not_told_to_be_sent_in_sixteen() -> None:
    ran = Ran(is_device=True, strategy=Strategy.FSDP2)
    full = loss(Cause.BANDWIDTH, Purpose.GRAD_REDUCE, carried=Carried(at_most_ns=9, dtype="Float"))
    half = replace(full, carried=replace(full.carried, dtype="BFloat16"))
    assert "reduce_dtype" in advise_loss(full, ran)
    assert "reduce_dtype" not in advise_loss(half, ran)


def test_reductions_that_have_a_group_of_their_own_are_not_given_one() -> None:
    ran = Ran(is_device=True, strategy=Strategy.FSDP2)
    row = loss(Cause.QUEUED, Purpose.GRAD_REDUCE, behind=queue_head(Purpose.UNSHARD), carried=Carried(group="dp"))
    assert "set_separate_reduce_scatter_group" in advise_loss(row, ran)
    apart = replace(row, carried=Carried(group="reductions"))
    assert "set_separate_reduce_scatter_group" not in advise_loss(apart, ran)


def test_a_reduction_behind_a_reduction_is_not_sent_to_another_group() -> None:
    ran = Ran(is_device=True, strategy=Strategy.FSDP2)
    row = loss(Cause.QUEUED, Purpose.GRAD_REDUCE, behind=queue_head(Purpose.GRAD_REDUCE))
    assert "process group" not in advise_loss(row, ran)


def test_on_gloo_a_late_gather_needs_more_than_prefetch() -> None:
    row = loss(Cause.LATE_ISSUE, Purpose.UNSHARD)
    on_gloo = advise_loss(row, Ran(is_device=False, strategy=Strategy.FSDP2))
    on_nccl = advise_loss(row, Ran(is_device=True, strategy=Strategy.FSDP2, done=frozenset({Knob.UNSHARD_ASYNC})))
    assert "_set_unshard_async_op(True)" in on_gloo
    assert "_set_unshard_async_op" not in on_nccl
    assert "set_modules_to_forward_prefetch" in on_nccl


SMALL_CAUSES = (Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH)


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("cause", SMALL_CAUSES)
def test_what_carries_a_few_bytes_is_told_to_be_issued_in_fewer_larger_ones(cause: Cause, purpose: Purpose) -> None:
    for strategy in (None, *Strategy):
        small = loss(cause, purpose, carried=Carried(at_most_ns=9, size_bytes=16))
        words = advise_loss(small, Ran(is_device=True, strategy=strategy))
        assert words == "The largest seen carries 16 B: issue fewer, larger ones."
        larger = replace(small, carried=replace(small.carried, size_bytes=1 << 20))
        assert "larger ones" not in advise_loss(larger, Ran(is_device=True, strategy=strategy))


def test_one_gather_that_outweighs_the_others_of_a_tensor_axis_is_told_to_go_away() -> None:
    carried = Carried(at_most_ns=9, size_bytes=32 << 20, outsized_bytes=32 << 20)
    row = loss(Cause.NEEDED_AT_ONCE, Purpose.TENSOR, Operation.ALL_GATHER, owner="lm_head", carried=carried)
    words = advise_loss(row, Ran(is_device=True, tensor=2))
    assert words == (
        "One gather of 32.0 MiB outweighs the others: leave its output sharded (`Shard(-1)`), and of logits compute "
        "the loss on the shards (`loss_parallel`)."
    )
    assert "loss_parallel" not in advise_loss(row, Ran(is_device=True, tensor=2, keeps_logits=True))
    for other in (
        replace(row, operation=Operation.ALL_REDUCE),
        replace(row, purpose=Purpose.UNSHARD),
        replace(row, cause=Cause.SKEW),
        replace(row, carried=replace(carried, outsized_bytes=None)),
    ):
        assert "Shard(-1)" not in advise_loss(other, Ran(is_device=True, tensor=2))


def gain(*rows: Loss, step_ns: float = 484_000_000, comm_ns: float = float("nan")) -> list[str]:
    ran = Ran(is_device=False)
    return [one.words for one in advise(rows, ran, step_ns=step_ns, comm_ns=comm_ns)]


def test_who_waits_for_gradients_where_they_are_reduced_is_told_to_wait_later_not_to_send_less() -> None:
    row = loss(Cause.NEEDED_AT_ONCE, Purpose.GRAD_REDUCE, carried=Carried(at_most_ns=9, size_bytes=4 << 20))
    for ran in (NOT_KNOWN, Ran(is_device=False), Ran(is_device=False, strategy=Strategy.DDP)):
        words = advise_loss(row, ran)
        assert "wait when backward is over" in words
        assert "less" not in words


def test_a_barrier_is_told_nothing_of_input_size_or_result() -> None:
    for cause in (Cause.SYNC_OP, Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH, Cause.LATE_ISSUE, Cause.LATE_READY):
        for ran in (NOT_KNOWN, Ran(is_device=False)):
            words = advise_loss(loss(cause, Purpose.OTHER, Operation.BARRIER), ran)
            assert "leave it out" in words
            assert not any(word in words for word in ("result", "input", "end less", "blocking", "link"))


def test_of_what_blocks_it_is_not_claimed_that_anything_could_run_before_its_result_is_used() -> None:
    """A tensor-parallel all-reduce is consumed at once: issued without blocking it takes as long."""
    said = advise_loss(loss(Cause.SYNC_OP, Purpose.TENSOR, Operation.ALL_REDUCE), NOT_KNOWN)
    assert said.endswith("that helps only where something else can run before, which no trace tells.")


def test_what_blocks_is_told_how_to_go_on_by_what_it_leaves_behind() -> None:
    said = {one: advise_loss(loss(Cause.SYNC_OP, Purpose.PIPELINE, one), NOT_KNOWN) for one in Operation}
    assert "`isend`" in said[Operation.SEND]
    assert "result" not in said[Operation.SEND]
    assert "`irecv`" in said[Operation.RECV]
    assert "result is used" in said[Operation.ALL_REDUCE]


def test_a_gain_is_bounded_by_the_transfer_and_never_by_what_is_exposed() -> None:
    row = loss(
        Cause.TAIL,
        Purpose.TENSOR,
        exposed_ns=100,
        carried=Carried(at_most_ns=41_000_000, transfer_ns=82_000_000, skew_wait_ns=7_000_000),
    )
    (words,) = gain(row)
    assert words.endswith(" At most 41.0 ms of 484 ms: all the transfer of its collectives, hidden or not.")


@pytest.mark.parametrize(
    ("carried", "words"),
    [
        (
            Carried(at_most_ns=6_000_000, transfer_ns=6_000_000, skew_wait_ns=0),
            "all the transfer of its collectives, hidden or not.",
        ),
        (
            Carried(at_most_ns=6_000_000, skew_wait_ns=1),
            "all that its collectives took after the last rank began, hidden or not.",
        ),
        (
            Carried(at_most_ns=6_000_000),
            "all that its collectives took, hidden or not, waiting for other ranks included.",
        ),
    ],
)
def test_a_gain_is_called_transfer_only_where_waiting_for_other_ranks_is_known(carried: Carried, words: str) -> None:
    (said,) = gain(loss(Cause.TAIL, Purpose.TENSOR, carried=carried))
    assert said.endswith(f" At most 6.00 ms of 484 ms: {words}")


def test_a_gain_sums_the_owners_that_an_advice_is_for_and_is_no_longer_than_the_step() -> None:
    rows = [
        loss(Cause.TAIL, Purpose.TENSOR, owner=owner, exposed_ns=exposed_ns, carried=Carried(at_most_ns=3_000_000))
        for owner, exposed_ns in (("a", 5), ("b", 7))
    ]
    (both,), (one,) = gain(*rows), gain(rows[0])
    one = one.replace("3.00 ms", "6.00 ms").replace("all that its", "all that their")
    assert both == one.removesuffix(".") + ", each on the rank where it took longest."
    (capped,) = gain(*rows, step_ns=4_000_000)
    assert "At most 4.00 ms of 4.00 ms" in capped
    assert capped.endswith(": the whole of it, as their collectives together took longer.")


def test_gains_of_the_same_collectives_are_said_not_to_add_up() -> None:
    carried = Carried(at_most_ns=3_000_000, waited_at_most_ns=2_000_000)
    tail = loss(Cause.TAIL, Purpose.TENSOR, owner="a", exposed_ns=9, carried=carried)
    others = [loss(Cause.SKEW, Purpose.TENSOR, owner=owner, exposed_ns=3, carried=carried) for owner in "ab"]
    first, second = gain(tail, *others[:1])
    assert "add up" not in first
    assert second.endswith(" These are the same collectives as before: the gains do not add up.")
    assert gain(tail, *others)[1].endswith(
        " These are in part the same collectives as before: the gains do not add up."
    )
    assert "add up" not in " ".join(gain(tail, others[1]))


def test_a_gain_is_no_longer_than_all_communication_of_a_step() -> None:
    rows = [
        loss(Cause.TAIL, Purpose.TENSOR, owner=owner, exposed_ns=5, carried=Carried(at_most_ns=3_000_000))
        for owner in "ab"
    ]
    (capped,) = gain(*rows, comm_ns=4_000_000)
    assert capped.endswith(
        " At most 4.00 ms of 484 ms: all of its communication, as their collectives together took longer."
    )


def test_what_is_waited_for_one_rank_asks_for_that_and_else_for_all_that_come_last() -> None:
    (one,) = gain(loss(Cause.SKEW, Purpose.TENSOR, waited_for=3))
    (several,) = gain(loss(Cause.SKEW, Purpose.TENSOR))
    assert one.startswith("Find what the last rank did meanwhile: ")
    assert several.startswith("Find what the ranks that come last did meanwhile: ")


def test_a_gain_by_skew_is_what_was_waited_for_other_ranks_on_the_rank_that_waited_most() -> None:
    carried = Carried(at_most_ns=1, waited_at_most_ns=3_000_000, skew_wait_ns=4_000_000)
    rows = [loss(Cause.SKEW, Purpose.TENSOR, owner=owner, exposed_ns=5, carried=carried) for owner in "ab"]
    assert gain(*rows)[0].endswith(
        "At most 6.00 ms of 484 ms: all that their collectives waited for other ranks,"
        " each on the rank where it waited longest."
    )


def test_what_is_issued_otherwise_may_gain_the_waiting_too_and_what_is_waited_more_than_one_rank_communicates() -> None:
    carried = Carried(
        at_most_ns=400, waited_at_most_ns=3_600, taken_at_most_ns=4_000, transfer_ns=400, skew_wait_ns=3_600
    )
    said = {
        cause: gain(loss(cause, Purpose.TENSOR, carried=carried), step_ns=4_400, comm_ns=2_200)[0]
        for cause in (Cause.SYNC_OP, Cause.SKEW, Cause.NEEDED_AT_ONCE)
    }
    assert said[Cause.SYNC_OP].endswith(
        "At most 4.00 us of 4.40 us: all that its collectives took, hidden or not, waiting for other ranks included."
    )
    assert said[Cause.SKEW].endswith("At most 3.60 us of 4.40 us: all that its collectives waited for other ranks.")
    assert said[Cause.NEEDED_AT_ONCE].endswith(
        "At most 400 ns of 4.40 us: all the transfer of its collectives, hidden or not."
    )


def test_where_no_time_is_known_or_the_cause_is_not_nothing_is_promised() -> None:
    assert "At most" not in gain(loss(Cause.TAIL, Purpose.TENSOR, carried=Carried()))[0]
    assert "At most" not in gain(loss(Cause.UNKNOWN, Purpose.TENSOR, missing=(MissingInput.RANKS,)))[0]
    assert "At most" not in gain(loss(Cause.TAIL, Purpose.TENSOR), step_ns=float("nan"))[0]


def test_the_advice_for_most_of_the_exposed_time_comes_first_however_many_owners_share_it() -> None:
    one = loss(Cause.TAIL, Purpose.TENSOR, owner="a", exposed_ns=40)
    many = [loss(Cause.SKEW, Purpose.UNSHARD, owner=f"b{i}", exposed_ns=15) for i in range(4)]
    found = advise([one, *many], Ran(is_device=False), step_ns=1_000, comm_ns=1_000)
    assert [(advice.exposed_ns, advice.why) for advice in found] == [
        (60, "waited for other ranks (unshard)"),
        (40, "nothing left to hide behind (tensor)"),
    ]


def test_where_more_is_unknown_than_any_cause_explains_what_would_tell_it_comes_first() -> None:
    missing = (MissingInput.RANKS, MissingInput.HOST)
    unknown = [loss(Cause.UNKNOWN, Purpose.UNSHARD, owner=str(one), exposed_ns=30, missing=(one,)) for one in missing]
    for late_ns, causes in ((40, "usu"), (70, "suu")):
        skew = loss(Cause.SKEW, Purpose.TENSOR, owner="late", exposed_ns=late_ns)
        found = advise([skew, *unknown], Ran(is_device=True), step_ns=1_000, comm_ns=1_000)
        assert "".join("u" if one.is_unknown else "s" for one in found) == causes


QUEUES = ROOT / "tests" / "traces" / "recorded"


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("one_hardware_queue/queue1", "fsdp2"),
        ("one_hardware_queue/queue8", "fsdp2"),
        ("ddp_2ranks_rank0.json.gz", "ddp"),
        ("fsdp2_tp_2x2_rank0.json.gz", "fsdp2"),
    ],
)
def test_a_traces_advice_names_only_what_its_strategy_has(name: str, strategy: str) -> None:
    traces = analyze_traces([QUEUES / name])
    words = " ".join(one.words for one in advise_traces(traces))
    foreign = {"fsdp2": ("bucket_cap_mb", "compress_hook", "DDP", "FSDP1"), "ddp": ("set_modules", "_unshard_", "FSDP")}
    assert words
    assert not [word for word in foreign[strategy] if word in words]


SIZE_CAUSES = (Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH)


@pytest.mark.parametrize("cause", SIZE_CAUSES)
@pytest.mark.parametrize("strategy", [None, *Strategy])
def test_collectives_of_few_bytes_are_told_to_be_fewer_and_never_smaller(
    cause: Cause, strategy: Strategy | None
) -> None:
    for purpose, operation in itertools.product(Purpose, Operation):
        small = loss(cause, purpose, operation, carried=Carried(at_most_ns=9, size_bytes=8))
        said = advise_loss(small, Ran(is_device=True, strategy=strategy))
        if operation is not Operation.BARRIER:
            assert "fewer, larger" in said
            assert not any(word in said for word in ("smaller", "less", "bits", "faster"))


@pytest.mark.parametrize("cause", SIZE_CAUSES)
@pytest.mark.parametrize("strategy", [None, *Strategy])
def test_experts_and_context_have_advice_of_their_own_and_no_knob_of_fsdp_or_ddp(
    cause: Cause, strategy: Strategy | None
) -> None:
    ran = Ran(is_device=True, strategy=strategy)
    for operation in (Operation.ALL_TO_ALL, Operation.ALL_GATHER, Operation.SEND):
        of_experts = advise_loss(loss(cause, Purpose.EXPERT, operation), ran)
        of_context = advise_loss(loss(cause, Purpose.CONTEXT, operation), ran)
        assert "experts" in of_experts
        assert "keys and values" in of_context
        assert not any(str(knob) in of_experts + of_context for knob in Knob)


def test_a_bubble_is_bounded_by_its_waiting_and_by_nothing_where_that_is_not_known() -> None:
    known, untold = Carried(at_most_ns=9, waited_at_most_ns=4), Carried(at_most_ns=9)
    for carried, bound in (
        (known, "At most 4.00 ns of 20.0 ns: all that its collectives waited for other ranks."),
        (untold, ""),
    ):
        (said,) = advise([loss(Cause.BUBBLE, Purpose.PIPELINE, carried=carried)], NOT_KNOWN, step_ns=20, comm_ns=20)
        assert "micro-batches" in said.words
        assert said.words.partition("equally long. ")[2] == bound


def test_all_purposes_that_an_advice_is_for_are_named() -> None:
    rows = [
        loss(Cause.TAIL, purpose, owner=owner, exposed_ns=exposed_ns)
        for owner, purpose, exposed_ns in [
            ("a", Purpose.TENSOR, 3),
            ("b", Purpose.UNSHARD, 9),
            ("c", Purpose.OTHER, 5),
            ("d", Purpose.TENSOR, 1),
        ]
    ]
    (one,) = advise(rows, Ran(is_device=True), step_ns=100, comm_ns=100)
    assert one.why == "nothing left to hide behind (unshard, other, tensor)"


@pytest.mark.parametrize(("is_after", "named"), [(True, True), (False, False), (None, False)])
def test_what_follows_an_update_is_said_of_gathers_that_do(is_after: bool | None, named: bool) -> None:
    row = loss(Cause.NEEDED_AT_ONCE, Purpose.UNSHARD, Operation.ALL_GATHER, owner="module 1")
    (one,) = advise([row], Ran(is_device=True, gathers_after_update=is_after), step_ns=100, comm_ns=100)
    assert ("when its update is done" in one.words) is named


@pytest.mark.parametrize(
    ("calls", "kernel", "named"),
    [
        (
            "cudaLaunchKernel",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL()",
            [Knob.CONNECTIONS, Knob.MAX_CTAS, Knob.CTA_POLICY],
        ),
        ("cudaLaunchKernel", "oneccl_allreduce_pcie", [Knob.CONNECTIONS]),
        ("hipLaunchKernel", "ncclDevKernel_Generic()", [Knob.HIP_QUEUES]),
        ("urEnqueueKernelLaunch", "oneccl_allreduce_pcie", []),
        ("musaLaunchKernel", "mcclKernel_AllReduce_RING_LL_Sum_float()", []),
    ],
)
def test_only_knobs_of_the_runtime_and_the_library_that_a_trace_names_are_advised(
    tmp_path: Path, calls: str, kernel: str, named: list[Knob]
) -> None:
    drawing = f"""
        call {calls}    @1 |ab    |
        kernel gemm     @7 | aaaa |
        kernel {kernel} @8 |  bbb |
    """
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": draw_events(drawing)}))
    ran = describe_traces(analyze_traces([path]))
    words = advise_loss(loss(Cause.SERIALIZED, Purpose.GRAD_REDUCE), ran)
    of_device = (Knob.CONNECTIONS, Knob.HIP_QUEUES, Knob.MAX_CTAS, Knob.CTA_POLICY)
    assert [knob for knob in of_device if knob.value in words] == named
    assert words.startswith("Compute stood in line behind it: ")


@pytest.mark.parametrize(
    ("category", "is_named"),
    [("cuda_runtime", True), ("Runtime", True), ("xpu_runtime", False), ("privateuse1_driver", False)],
)
def test_who_borrows_the_names_of_cudas_calls_borrows_no_knob(tmp_path: Path, category: str, is_named: bool) -> None:
    events = draw_events("""
        call cudaLaunchKernel  @1 |ab    |
        kernel gemm            @7 | aaaa |
        kernel ncclDevKernel_X @8 |  bbb |
    """)
    for event in events:
        if event.get("cat") == "cuda_runtime":
            event["cat"] = category
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    words = advise_loss(loss(Cause.SERIALIZED, Purpose.GRAD_REDUCE), describe_traces(analyze_traces([path])))
    assert (Knob.CONNECTIONS.value in words) is is_named
    assert (Knob.MAX_CTAS.value in words) is is_named


@pytest.mark.parametrize(
    ("nccl", "named"),
    [
        ("2.28.9", "(`NCCL_MAX_CTAS` or `NCCL_CTA_POLICY`)."),
        ("2.26.2", "(`NCCL_MAX_CTAS`)."),
        ("2.14.3", "while it runs."),
        (None, "(`NCCL_MAX_CTAS` of NCCL 2.17 or newer or `NCCL_CTA_POLICY` of NCCL 2.27 or newer)."),
    ],
)
def test_of_the_knobs_of_nccl_a_trace_is_advised_those_that_its_version_has(
    tmp_path: Path, nccl: str | None, named: str
) -> None:
    events = draw_events("""
        call cudaLaunchKernel  @1 |ab    |
        kernel gemm            @7 | aaaa |
        kernel ncclDevKernel_X @8 |  bbb |
    """)
    path = tmp_path / "trace.json"
    info = {} if nccl is None else {"distributedInfo": {"rank": 0, "world_size": 1, "nccl_version": nccl}}
    path.write_text(json.dumps({**info, "traceEvents": events}))
    words = advise_loss(loss(Cause.SERIALIZED, Purpose.GRAD_REDUCE), describe_traces(analyze_traces([path])))
    assert words.endswith(named)


@pytest.mark.parametrize(
    ("torch", "named"),
    [("2.12.1+cu130", None), ("2.13.0", "`)."), (None, "` of torch 2.13 or newer).")],
)
def test_a_knob_that_torch_has_since_a_version_is_named_where_it_has_it_or_with_the_version(
    torch: str | None, named: str | None
) -> None:
    ran = Ran(is_device=True, strategy=Strategy.FSDP2, releases=read_releases(torch=torch))
    row = loss(Cause.QUEUED, Purpose.GRAD_REDUCE, behind=queue_head(Purpose.UNSHARD), carried=Carried(group="dp"))
    words = advise_loss(row, ran)
    assert ("set_separate_reduce_scatter_group" in words) is (named is not None)
    assert words.endswith(named or "Send less before it.")


def test_since_when_torch_has_a_knob_is_one_fact() -> None:
    (newer,) = (one for one in NEWER if one.knob == "parallel.separate_reduce_scatter_group")
    assert FIRST[Knob.SEPARATE_GROUP] == (Library.TORCH, newer.first)


def test_of_the_versions_that_ranks_tell_the_oldest_counts_and_what_is_none_is_not_known() -> None:
    assert read_releases(torch="nightly", nccl=("2.28.9", "2.5.1")) == {Library.NCCL: (2, 5)}


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("dtype", ["", "Float", "BFloat16"])
def test_a_precision_is_advised_only_where_what_is_sent_is_told_or_settings_are(strategy: Strategy, dtype: str) -> None:
    row = loss(Cause.BANDWIDTH, Purpose.GRAD_REDUCE, carried=Carried(at_most_ns=9, dtype=dtype))
    of_precision = {one.value for one in OF_PRECISION}
    seen = advise_loss(row, Ran(is_device=True, strategy=strategy))
    assert any(word in seen for word in of_precision) is (dtype == "Float")
    told = advise_loss(row, Ran(is_device=True, strategy=strategy, is_set_down=True))
    assert any(word in told for word in of_precision) is (dtype != "BFloat16")


def test_another_vendors_trace_gets_no_knob_of_cuda() -> None:
    path = ROOT / "tests" / "traces" / "cases" / "xpu.json"
    words = advise_loss(loss(Cause.SERIALIZED, Purpose.GRAD_REDUCE), describe_traces(analyze_traces([path])))
    assert not any(knob.value in words for knob in Knob)
