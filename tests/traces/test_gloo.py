"""CPU traces: who computes, which span belongs to which issue, and what for."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import PURPOSES
from dtbench.traces.time.overlap import Overlap
from tests.known import known, total

STEPS = (10, 11, 12)
LABEL = "dtbench::collective group={group} seq={seq} op={op} bytes={size} axis={axis} async=1 owner={owner}"


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def by_purpose(one: TraceAnalysis) -> dict[int, dict[str, tuple[float, int]]]:
    return {step.step: {str(p.purpose): (p.count, known(p.size_bytes)) for p in step.purposes} for step in one.steps}


def test_the_innermost_open_span_of_a_model_thread_decides_what_computes(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1                             @1 |====================|
        range FSDP::pre_forward (0)                     @1 |  ========          |
        op autograd::engine::evaluate_function: Mm      @1 |          ==========|
        op MmBackward0                                  @1 |           =======  |
        op aten::mm                                     @1 |            ====    |
        op aten::resolve_conj                           @1 |             =      |
        op aten::copy_                                  @1 |    ==              |
        op _c10d_functional::wait_tensor                @1 |              =     |
        op aten::mul                                    @9 |====================|
        """)
    )
    assert one.steps[0].overlap == Overlap(20000, 2000 + 3000, 0, 0, 0, 0, 15000)


def test_a_block_that_takes_a_given_time_computes_meanwhile_and_owns_nothing(draw: Callable[..., Path]) -> None:
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=16, axis="replicate", owner="bucket 0")
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                       @1 |====================|
        op _TakeTime                                              @1 | ======             |
        range dtbench::timed layers.0 forward                     @1 |  ====              |
        op aten::mm                                               @1 |       ==           |
        op autograd::engine::evaluate_function: _TakeTimeBackward @1 |          ======    |
        range dtbench::timed layers.0 backward                    @1 |            ===     |
        range {label}                                             @1 |           =        |
        range gloo:all_reduce                                     @2 |           =====    | {moved}
        """)
    )
    assert one.steps[0].overlap == Overlap(20000, 4000 + 2000 + 3000, 5000, 3000, 2000, 0, 9000)
    (bucket,) = one.collectives
    assert (bucket.owner, bucket.above) == (
        "bucket 0",
        ("autograd::engine::evaluate_function: _TakeTimeBackward", "ProfilerStep#1"),
    )


def test_operators_on_glooes_threads_do_not_compute(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1           @1 |==========|
        op aten::mm                   @1 |===       |
        op c10d::_reduce_scatter_base_ @1 |   =      | {"Input Dims": [[2], [4]], "Input type": ["float", "float"]}
        range gloo:all_reduce         @2 |    ====  | {"Input Dims": [[4]], "Input type": ["float"]}
        op aten::copy_                @2 |     ==   |
        """)
    )
    assert one.steps[0].overlap == Overlap(10000, 3000, 4000, 0, 4000, 0, 3000)
    assert one.collectives[0].size_bytes == 16
    assert str(one.collectives[0].operation) == "reduce_scatter"


def test_the_last_step_ends_with_the_collectives_that_it_issued(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1           @1 |=====         |
        op aten::mm                   @1 |===           |
        op c10d::allreduce_           @1 |   =          |
        range gloo:all_reduce         @2 |    ======    |
        """)
    )
    assert one.steps[0].overlap.step_ns == 10000


def test_a_span_that_was_open_when_the_profiler_stopped_ends_with_its_consumer(draw: Callable[..., Path]) -> None:
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=16, axis="replicate", owner="bucket 0")
    one = analyze(
        draw(f"""
        step ProfilerStep#1           @1 |==========    |
        op aten::mm                   @1 |===           |
        range {label}                 @1 |   =          |
        range dtbench::wait group=0 seq=1 @1 |     ==       |
        range gloo:all_reduce         @2 |    ==========| {{"finished": false}}
        """)
    )
    assert one.steps[0].overlap.step_ns == 10000
    assert one.steps[0].overlap.comm_ns == 3000
    assert one.steps[0].overlap.exposed_comm_ns == 3000


def test_a_blocking_call_whose_span_was_open_ended_when_its_thread_went_on(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1           @1 |=======       |
        op aten::mm                   @1 |=    =        |
        op c10d::allreduce_           @1 | =            | {"Concrete Inputs": ["", "False", "-1"]}
        range gloo:all_reduce         @2 |  ============| {"finished": false}
        """)
    )
    (step,) = one.steps
    assert (step.overlap.step_ns, step.overlap.comm_ns) == (7000, 3000)
    assert [purpose.wait_ns for purpose in step.purposes] == [3000]


@pytest.mark.parametrize("said", ['{"Concrete Inputs": ["", "True", "-1"]}', "{}"], ids=["asynchronous", "not said"])
def test_a_span_that_was_open_and_that_nobody_is_seen_to_wait_for_has_no_time(
    draw: Callable[..., Path], said: str
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1           @1 |=======       |
        step ProfilerStep#2           @1 |       =====  |
        op aten::mm                   @1 |==  = ====    |
        op c10d::allreduce_           @1 |  =           | {said}
        range gloo:all_reduce         @2 |   ===========| {{"finished": false}}
        """)
    )
    first, second = one.steps
    assert (first.overlap.step_ns, first.overlap.comm_ns, first.overlap.exposed_comm_ns) == (7000, None, None)
    assert (first.lost, first.unattributed_ns, one.unseen) == (1, None, 1)
    assert [(row.comm_ns, row.wait_ns, row.is_wait_least) for row in first.purposes] == [(None, None, True)]
    assert (second.overlap.step_ns, second.overlap.comm_ns) == (5000, 0)


def test_threads_are_learnt_to_belong_to_groups_where_size_does_not_tell(draw: Callable[..., Path]) -> None:
    def label(group: int, seq: int, size: int) -> str:
        return LABEL.format(group=group, seq=seq, op="all_reduce", size=size, axis="", owner="")

    one = analyze(
        draw(f"""
        step ProfilerStep#1          @1  |====================|
        op aten::mm                  @1  |                 == |
        range {label(1, 1, 40)}      @1  |=                   |
        range {label(3, 1, 80)}      @1  | =                  |
        range {label(3, 2, 8)}       @1  |      =             |
        range {label(1, 2, 8)}       @1  |       =            |
        range gloo:all_reduce        @21 |   ==               | {{"Input Dims": [[10]], "Input type": ["float"]}}
        range gloo:all_reduce        @23 |   ==               | {{"Input Dims": [[20]], "Input type": ["float"]}}
        range gloo:all_reduce        @21 |          ==        | {{"Input Dims": [[2]], "Input type": ["float"]}}
        range gloo:all_reduce        @23 |            ==      | {{"Input Dims": [[2]], "Input type": ["float"]}}
        """)
    )
    rows = COLLECTIVES.tabulate([one])[["group", "seq", "start_ns"]].itertuples(index=False)
    assert sorted(tuple(row) for row in rows) == [("1", 1, 3000), ("1", 2, 10000), ("3", 1, 3000), ("3", 2, 12000)]


def test_over_an_emulated_link_a_collective_lies_where_the_link_serves_it(draw: Callable[..., Path]) -> None:
    labels = [LABEL.format(group=0, seq=seq, op="all_reduce", size=16, axis="replicate", owner="") for seq in (1, 2)]
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                              @1 |============|
        op aten::mm                                      @1 |====        |
        range {labels[0]}                                @1 |=           |
        range {labels[1]}                                @1 | =          |
        range gloo:all_reduce                            @2 |=           | {moved}
        range gloo:all_reduce                            @2 | =          | {moved}
        range dtbench::link group=0 seq=1 begun_ns=1000  @3 |  ===       |
        range dtbench::link group=0 seq=2 begun_ns=0     @3 |     ====   |
        """)
    )
    first, second = one.collectives
    assert (second.start_ns - first.start_ns, second.end_ns - second.start_ns) == (4000, 4000)
    assert first.end_ns - first.start_ns == 4000
    assert first.dtype == "float"
    assert one.steps[0].overlap == Overlap(12000, 2000, 8000, 2000, 6000, 0, 4000)  # gloo's own spans count for nothing
    assert one.timeline.exposed_ns == (2000, 4000)


def test_an_issue_without_a_span_is_counted_and_said(draw: Callable[..., Path]) -> None:
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=8, axis="replicate", owner="bucket 0")
    one = analyze(
        draw(f"""
        step ProfilerStep#1            @1 |==========|
        range dtbench::region backward @1 |==========|
        op aten::mm                    @1 |===       |
        range {label} @1 |   =      |
        """)
    )
    assert one.unmatched == 1
    assert by_purpose(one) == {1: {"grad_reduce": (1, 8)}}


def test_a_span_that_nobody_issued_in_the_trace_is_other_and_still_exposed(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1    @1 |==========|
        op aten::mm            @1 |===       |
        range gloo:broadcast   @2 | ====     |
        """)
    )
    (other,) = one.steps[0].purposes
    assert (str(other.purpose), other.count, other.exposed_ns, other.hidden_ns) == ("other", 1, 2000, 2000)
    assert COLLECTIVES.tabulate([one])["step"].tolist() == [1]


def test_counts_and_bytes_of_a_recorded_ddp_run_are_exact(recorded: Path) -> None:
    one = analyze(recorded / "ddp_2ranks_rank0.json.gz")
    # three pairs of 512 x 1024 float32 weights, one bucket of 4 MiB each
    assert by_purpose(one) == {step: {"grad_reduce": (3, 3 * 4_194_304)} for step in STEPS}
    assert set(COLLECTIVES.tabulate([one])["owner"]) == {"bucket 0", "bucket 1", "bucket 2"}
    assert one.unmatched == 0


def test_counts_and_bytes_of_a_recorded_fsdp_and_tensor_parallel_run_are_exact(recorded: Path) -> None:
    one = analyze(recorded / "fsdp2_tp_2x2_rank0.json.gz")
    # a unit's half of 2 x 512 x 1024 float32 weights is 2 MiB: gathered in forward and in backward, reduced once
    assert by_purpose(one) == {
        step: {
            "unshard": (6, 6 * 2_097_152),
            "grad_reduce": (3, 3 * 2_097_152),
            "tensor": (5, 5 * 131_072),
            "other": (2, 2 * 24),  # the gradients' norm, over shard and over tensor
        }
        for step in STEPS
    }
    table = COLLECTIVES.tabulate([one])
    units = table[table["purpose"].isin(["unshard", "grad_reduce"])]
    assert units.groupby(["owner", "purpose"]).size().to_dict() == {
        (unit, purpose): count for unit in "012" for purpose, count in (("unshard", 6), ("grad_reduce", 3))
    }
    assert set(units["axis"]) == {"shard"}
    assert one.unmatched == 0


@pytest.mark.parametrize("name", ["ddp_2ranks_rank0", "fsdp2_tp_2x2_rank0"])
def test_every_step_of_a_recorded_run_adds_up(recorded: Path, name: str) -> None:
    one = analyze(recorded / f"{name}.json.gz")
    assert [step.step for step in one.steps] == list(STEPS)
    for step in one.steps:
        overlap = step.overlap
        assert (
            total((overlap.compute_ns, overlap.exposed_comm_ns, overlap.exposed_copy_ns, overlap.idle_ns))
            == overlap.step_ns
        )
        assert total(purpose.exposed_ns for purpose in step.purposes) == known(overlap.exposed_comm_ns) > 0
        assert total(purpose.comm_ns for purpose in step.purposes) == overlap.comm_ns
    assert PURPOSES.tabulate([one])["wait_ns"].min() > 0


def test_without_our_ranges_the_same_run_is_understood_from_torchs_own(recorded: Path, tmp_path: Path) -> None:
    import gzip
    import json

    content = json.loads(gzip.decompress((recorded / "fsdp2_tp_2x2_rank0.json.gz").read_bytes()))
    content["traceEvents"] = [event for event in content["traceEvents"] if not event["name"].startswith("dtbench::")]
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(content))
    one = analyze(path)
    # the norm's functional all-reduce cannot be told from DTensor's without knowing the region
    assert by_purpose(one) == {
        step: {"unshard": (6, 6 * 2_097_152), "grad_reduce": (3, 3 * 2_097_152), "tensor": (7, 5 * 131_072 + 2 * 24)}
        for step in STEPS
    }
    own = analyze(recorded / "fsdp2_tp_2x2_rank0.json.gz")
    theirs, ours = ([step.overlap for step in found.steps] for found in (one, own))
    between_ns = [known(their.step_ns) - known(our.step_ns) for their, our in zip(theirs, ours, strict=True)]
    assert all(time_ns > 0 for time_ns in between_ns[:-1]), "others' steps run up to the next one, ours end"
    assert between_ns[-1] == 0
    assert theirs == [
        replace(our, step_ns=known(our.step_ns) + time_ns, idle_ns=known(our.idle_ns) + time_ns)
        for our, time_ns in zip(ours, between_ns, strict=True)
    ]


def test_what_is_between_steps_of_ours_is_in_none(draw: Callable[..., Path]) -> None:
    def issue(seq: int) -> str:
        return LABEL.format(group=0, seq=seq, op="all_reduce", size=8, axis="", owner="")

    lines = f"""
        step ProfilerStep#1                     @1 |==========                    |
        step ProfilerStep#2                     @1 |                    ==========|
        {{region}}                              @1 |==========          ==========|
        op aten::mm                             @1 | ==       ==         ==       |
        range {issue(1)}                        @1 |        =                     |
        range {issue(2)}                        @1 |             =                |
        range gloo:all_reduce                   @2 |         =====                |
        range gloo:all_reduce                   @2 |               ===            |
        """
    ours = analyze(draw(lines.format(region="range dtbench::region forward")))
    assert [step.overlap.step_ns for step in ours.steps] == [14_000, 10_000], "up to the end of what it issued"
    assert [step.overlap.comm_ns for step in ours.steps] == [5_000, 0]
    theirs = analyze(draw(lines.format(region="range forward")))
    assert [step.overlap.step_ns for step in theirs.steps] == [20_000, 10_000]
    assert [step.overlap.comm_ns for step in theirs.steps] == [8_000, 0]


@pytest.mark.parametrize(
    ("around", "purpose"),
    [("FSDP::all_gather (a)", "unshard"), ("_c10d_functional::all_gather_into_tensor", "other"), ("mine", "other")],
)
def test_a_labelled_collective_without_an_axis_is_known_by_what_lies_around_it(
    draw: Callable[..., Path], around: str, purpose: str
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region forward           @1 |==========|
        op {around}                             @1 | =====    |
        range {LABEL.format(group=0, seq=1, op="all_gather", size=8, axis="", owner="")} @1 |  ===     |
        range gloo:all_gather                   @2 |   ====   |
        """)
    )
    assert [str(collective.purpose) for collective in one.collectives] == [purpose]


@pytest.mark.parametrize(
    ("unit", "owner"), [("dtbench::unit (layers.0)", "layers.0"), ("dtbench::unit (root)", "root")]
)
def test_an_fsdp1_unit_is_named_by_the_workers_range_around_its_collective(
    draw: Callable[..., Path], unit: str, owner: str
) -> None:
    label = LABEL.format(group=0, seq=1, op="all_gather", size=8, axis="shard", owner="")
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                     @1 |==========|
        range dtbench::region forward                           @1 |==========|
        range FullyShardedDataParallel._pre_forward             @1 |========= |
        range {unit}                                            @1 | =======  |
        range {label} @1 |  ===     |
        range gloo:all_gather                                   @2 |   ====   |
        """)
    )
    assert [collective.owner for collective in one.collectives] == [owner]


def test_what_the_total_norm_of_the_gradients_takes_is_the_clippings(draw: Callable[..., Path]) -> None:
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=8, axis="shard", owner="")
    one = analyze(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region optimizer         @1 |==========|
        range dtbench::clip_grad_norm_          @1 | =======  |
        range {label} @1 |  ===     |
        range gloo:all_reduce                   @2 |   ====   |
        """)
    )
    assert [(collective.owner, str(collective.purpose)) for collective in one.collectives] == [
        ("clip_grad_norm_", "other")
    ]


@pytest.mark.parametrize(
    ("around", "owner"),
    [("FSDP::post_backward_reduce (a.b)", "a.b"), ("FullyShardedDataParallel._post_backward_hook", "")],
)
def test_an_all_reduce_over_replicas_in_fsdp_is_its_units_and_no_bucket(
    draw: Callable[..., Path], around: str, owner: str
) -> None:
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=8, axis="replicate", owner="bucket 0")
    one = analyze(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region backward          @1 |==========|
        range {around}  @1 | =======  |
        range {label} @1 |  ===     |
        range gloo:all_reduce                   @2 |   ====   |
        """)
    )
    assert [collective.owner for collective in one.collectives] == [owner]


def test_buckets_are_counted_anew_in_each_backward_of_a_step(draw: Callable[..., Path]) -> None:
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    one = analyze(
        draw(f"""
        step ProfilerStep#1             @1 |====================|
        range dtbench::region backward  @1 |==========          |
        range dtbench::region backward  @1 |          --------  |
        range DistributedDataParallel.forward @3 |=                   |
        op {node}                       @1 |========  --------  |
        op c10d::allreduce_             @1 | =   =     =   =    |
        range gloo:all_reduce           @2 |  ==  ==    ==  ==  |
        """)
    )
    assert [collective.owner for collective in one.collectives] == ["bucket 0", "bucket 1", "bucket 0", "bucket 1"]


@pytest.mark.parametrize(
    ("around", "issue", "owner"),
    [
        ("op aten::_log_softmax", "all_reduce", "aten::_log_softmax"),
        ("range exchange counts", "all_gather", "exchange counts"),
        ("range DistributedDataParallel.forward", "broadcast", "buffers"),
        ("range Optimizer.step#PostLocalSGDOptimizer.step", "all_reduce", "PostLocalSGDOptimizer"),
    ],
)
@pytest.mark.parametrize("is_labelled", [False, True])
def test_who_asked_is_named_on_cpus_as_on_devices(
    draw: Callable[..., Path], around: str, issue: str, owner: str, *, is_labelled: bool
) -> None:
    label = LABEL.format(group=0, seq=1, op=issue, size=8, axis="", owner="")
    operator = f"op c10d::{issue.replace('all_reduce', 'allreduce').replace('all_gather', 'allgather')}_"
    one = analyze(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        {around}                                @1 | =====    |
        {f"range {label}" if is_labelled else "op record_param_comms"} @1 |  ===     |
        {operator}                              @1 |  ===     |
        range gloo:{issue}                      @2 |   ====   |
        """)
    )
    assert [collective.owner for collective in one.collectives] == [owner]


@pytest.mark.parametrize(
    ("around", "axis", "said", "caller", "owner"),
    [
        ("range dtbench::region forward", "", "", "caller=train.sum_losses ", "train.sum_losses"),
        ("range dtbench::region forward", "", "", "", ""),
        ("range sum of losses", "", "", "caller=train.sum_losses ", "sum of losses"),
        ("range dtbench::module layers.0", "tensor", "", "caller=train.sum_losses ", "layers.0"),
        ("range dtbench::unit (layers.0)", "shard", "", "caller=train.sum_losses ", "layers.0"),
        ("range dtbench::reduces (bucket 2)", "replicate", "", "caller=train.sum_losses ", "bucket 2"),
        ("range dtbench::clip_grad_norm_", "", "", "caller=train.sum_losses ", "clip_grad_norm_"),
        ("range Torch-Compiled Region: 0/0", "replicate", "", "caller=train.sum_losses ", "Compiled Region: 0/0"),
        ("range Optimizer.step#Muon.step", "", "", "caller=train.sum_losses ", "Muon"),
        ("range dtbench::region backward", "replicate", "bucket 1", "caller=train.sum_losses ", "bucket 1"),
    ],
)
def test_a_function_that_asked_owns_what_nothing_else_does(
    draw: Callable[..., Path], around: str, axis: str, said: str, caller: str, owner: str
) -> None:
    region = "backward" if axis in ("shard", "replicate") else "forward"
    label = LABEL.format(group=0, seq=1, op="all_reduce", size=8, axis=axis, owner=said)
    one = analyze(
        draw(f"""
        step ProfilerStep#1                     @1 |==========|
        range dtbench::region {region}          @1 |==========|
        {around}                                @1 | =====    |
        range {label.replace("owner=", f"{caller}owner=")} @1 |  ===     |
        op c10d::allreduce_                     @1 |  ===     |
        range gloo:all_reduce                   @2 |   ====   |
        """)
    )
    assert [collective.owner for collective in one.collectives] == [owner]
    assert one.whole_unattributed_ns == (0 if owner else 4000)
    assert one.unknown_words == ()


@pytest.mark.parametrize(("caller", "owner"), [("caller=ring.rotate ", "ring.rotate"), ("", "to rank 1")])
def test_a_send_that_nothing_names_is_of_the_function_that_asked_before_it_is_called_by_its_peer(
    draw: Callable[..., Path], caller: str, owner: str
) -> None:
    label = LABEL.format(group=0, seq=1, op="send", size=16, axis="", owner="")
    one = analyze(
        draw(
            f"""
            step ProfilerStep#1                 @1 |==========|
            range dtbench::region forward       @1 |==========|
            range {label.replace("owner=", f"{caller}owner=")} @1 | ==       |
            op c10d::send                       @1 | ==       | {{"Concrete Inputs": ["", "", "1", "0"]}}
            range gloo:send                     @1 |  ======  |
            """,
            distributedInfo={
                "rank": 0,
                "world_size": 2,
                "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}],
            },
        )
    )
    assert [(collective.owner, collective.peer) for collective in one.collectives] == [(owner, 1)]


@pytest.mark.parametrize("summed", ["aten::mm", "c10d::allreduce_"], ids=["shards", "tensor"])
def test_compiled_functional_collectives_have_owners_and_the_purposes_that_they_show(
    draw: Callable[..., Path], summed: str
) -> None:
    """SimpleFSDP's: backward reduces what forward gathered and hands it over; what sums in forward is tensor's."""
    forward = '{"Sequence number": 7, "Fwd thread id": 0}'
    backward = '{"Sequence number": 7, "Fwd thread id": 1}'
    whole = '{"Input Dims": [[512]], "Input type": ["float"]}'
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                               @1 |=================|
        range Torch-Compiled Region: 0/0                                  @1 |=======          |
        op CompiledFunction                                               @1 |=======          | {forward}
        op _c10d_functional::all_gather_into_tensor                       @1 | =               |
        op c10d::allgather_into_tensor_coalesced_                         @1 | =               |
        op _c10d_functional::any                                          @1 |     =           |
        op {summed}                                               @1 |     =           |
        op autograd::engine::evaluate_function: CompiledFunctionBackward  @1 |         ======= | {backward}
        op CompiledFunctionBackward                                       @1 |         ======= | {backward}
        op _c10d_functional::reduce_scatter_tensor                        @1 |          =      |
        op c10d::reduce_scatter_tensor_coalesced_                         @1 |          =      |
        op {node}                                                         @1 |                =|
        range gloo:all_gather                                             @2 |  ==             | {whole}
        range gloo:all_reduce                                             @3 |      ==         | {whole}
        range gloo:reduce_scatter                                         @2 |           ==    | {whole}
        """)
    )
    gather, scatter = (
        next(made for made in one.collectives if made.operation is operation)
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    )
    assert [gather.owner, scatter.owner] == ["Compiled Region: 0/0"] * 2
    expected = ["unshard", "grad_reduce"] if summed == "aten::mm" else ["tensor", "tensor"]
    assert [gather.purpose, scatter.purpose] == expected


@pytest.mark.parametrize(
    ("groups", "size_bytes"),
    [
        ([[0, 1]], 16),
        ([[0, 1], [0]], 16),
        ([[0, 1], [0, 2, 4, 6]], None),
        ([], None),
    ],
)
@pytest.mark.parametrize(
    ("operator", "given"),
    [
        ("allgather_", "[[], [[2]], [], [], []]"),
        ("reduce_scatter_", "[[[2]], [], [], [], []]"),
        ("gather_", "[[], [[2]], [], [], [], []]"),
        ("scatter_", "[[[2]], [], [], [], []]"),
    ],
)
def test_what_goes_through_a_list_is_as_large_as_the_parts_of_all_ranks_or_not_known(
    draw: Callable[..., Path], operator: str, given: str, groups: list[list[int]], size_bytes: int | None
) -> None:
    types = ["TensorList" if "[[2]]" in part else "" for part in given[1:-1].split(", ")]
    said = json.dumps({"Input Dims": json.loads(given), "Input type": types})
    runs_as = {"allgather_": "all_gather", "reduce_scatter_": "all_reduce"}
    operation = runs_as.get(operator, operator.rstrip("_"))
    one = analyze(
        draw(
            f"""
            step ProfilerStep#1    @1 |==========|
            op aten::mm            @1 |==        |
            op c10d::{operator}    @1 |  ==      | {said}
            range gloo:{operation}  @2 |   ===    | {{"Input Dims": [[2]], "Input type": ["float"]}}
            """,
            distributedInfo={
                "rank": 0,
                "world_size": 8,
                "pg_config": [
                    {"pg_name": str(number), "pg_desc": "undefined", "pg_size": len(ranks), "ranks": ranks}
                    for number, ranks in enumerate(groups)
                ],
            },
        )
    )
    assert [made.size_bytes for made in one.collectives] == [size_bytes]


@pytest.mark.parametrize(
    ("operation", "whole_bytes", "part_bytes"),
    [("all_gather", 16, None), ("gather", 16, None), ("all_reduce", 8, 8), ("broadcast", 8, 8), ("scatter", 8, 8)],
)
@pytest.mark.parametrize("label", ["", "dtbench::collective group=0 seq=1 op={operation} axis= async=1 owner="])
@pytest.mark.parametrize("is_told", [True, False], ids=["one group", "groups not told"])
def test_of_a_span_alone_it_is_known_whether_it_is_of_one_ranks_part(
    draw: Callable[..., Path], operation: str, whole_bytes: int, part_bytes: int | None, label: str, *, is_told: bool
) -> None:
    issue = label.format(operation=operation)
    config = [{"pg_name": "0", "pg_desc": "undefined", "pg_size": 2, "ranks": [0, 1]}]
    one = analyze(
        draw(
            f"""
            step ProfilerStep#1    @1 |==========|
            op aten::mm            @1 |==        |
            {f"range {issue}" if issue else "op aten::mul"} @1 |  ==      |
            range gloo:{operation} @2 |   ===    | {_PART}
            """,
            distributedInfo={"rank": 0, "world_size": 8, "pg_config": config if is_told else []},
        )
    )
    assert [made.size_bytes for made in one.collectives] == [whole_bytes if is_told else part_bytes]


def test_of_a_reduce_scatter_of_which_only_one_of_its_spans_tells_the_size_is_not_known(
    draw: Callable[..., Path],
) -> None:
    issue = "dtbench::collective group=0 seq=1 op=reduce_scatter axis= async=1 owner="
    one = analyze(
        draw(f"""
        step ProfilerStep#1    @1 |==========|
        op aten::mm            @1 |==        |
        range {issue}          @1 |  ==      |
        range gloo:all_reduce  @2 |   ===    | {_PART}
        """)
    )
    assert [(made.span.length_ns, made.size_bytes) for made in one.collectives] == [(3_000, None)]


@pytest.mark.parametrize(
    ("elements", "size_bytes"), [(2, None), (8, 32)], ids=["of one that is given to", "of the one that gives"]
)
def test_a_scatters_span_is_its_own_on_every_rank(
    draw: Callable[..., Path], elements: int, size_bytes: int | None
) -> None:
    given = '{"Input Dims": [[[2]], [], [], [], []], "Input type": ["TensorList", "", "", "Scalar", "Scalar"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1    @1 |==========|
        op aten::mm            @1 |==        |
        op c10d::scatter_      @1 |  ==      | {given}
        range gloo:scatter     @2 |   ===    | {{"Input Dims": [[{elements}]], "Input type": ["float"]}}
        """)
    )
    assert [(str(made.operation), made.issue_ns, made.span.length_ns, made.size_bytes) for made in one.collectives] == [
        ("scatter", 2_000, 3_000, size_bytes)
    ]


_FROM_LIST = '{"Input Dims": [[[2]], [], [], [], [], []], "Input type": ["TensorList", "", "", "", "Scalar", "Scalar"]}'
_WHOLE = '{"Input Dims": [[[2]]], "Input type": ["TensorList"]}'
_PART = '{"Input Dims": [[2]], "Input type": ["float"]}'


@pytest.mark.parametrize("ranks", [[[0, 1]], []], ids=["ranks said", "ranks not said"])
def test_a_reduce_scatter_from_lists_is_one_collective_of_as_many_all_reduces_as_ranks(
    draw: Callable[..., Path], ranks: list[list[int]]
) -> None:
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": one} for one in ranks]
    one = analyze(
        draw(
            f"""
            step ProfilerStep#1         @1 |====================|
            op aten::mm                 @1 |==                  |
            op c10d::reduce_scatter_    @1 |  ==       ==       | {_FROM_LIST}
            range gloo:all_reduce       @2 |   ===      ==      | {_PART}
            range gloo:all_reduce       @3 |    =====     ===   | {_PART}
            op c10d::allreduce_         @1 |                 =  | {_WHOLE}
            range gloo:all_reduce       @4 |                  = | {_PART}
            """,
            distributedInfo={"rank": 0, "world_size": 2, "pg_config": config},
        )
    )
    found = [(str(made.operation), made.issue_ns, made.start_ns, made.end_ns) for made in one.collectives]
    assert found == [
        ("reduce_scatter", 2_000, 3_000, 9_000),
        ("reduce_scatter", 11_000, 12_000, 17_000),
        ("all_reduce", 17_000, 18_000, 19_000),
    ]
    assert [made.size_bytes for made in one.collectives] == ([16, 16, 8] if ranks else [None, None, 8])


def test_a_coalesced_reduce_scatter_is_one_collective_of_an_all_reduce_for_each_tensor(
    draw: Callable[..., Path],
) -> None:
    given = (
        '{"Input Dims": [[[2], [3]], [[4], [6]], [], [], [], []],'
        ' "Input type": ["TensorList", "TensorList", "", "", "Scalar", "Scalar"]}'
    )
    one = analyze(
        draw(f"""
        step ProfilerStep#1                          @1 |==========|
        op aten::mm                                  @1 |==        |
        op c10d::reduce_scatter_tensor_coalesced_    @1 |  ==      | {given}
        range gloo:all_reduce                        @2 |   ===    | {{"Input Dims": [[4]], "Input type": ["float"]}}
        range gloo:all_reduce                        @3 |   =====  | {{"Input Dims": [[6]], "Input type": ["float"]}}
        """)
    )
    (made,) = one.collectives
    assert (str(made.operation), made.start_ns, made.end_ns, made.size_bytes) == ("reduce_scatter", 3_000, 8_000, 40)


@pytest.mark.parametrize(
    ("operator", "values", "root"),
    [
        ("broadcast_", '["", "", "3", "0", "True", "-1"]', 3),
        ("reduce_", '["", "", "", "3", "0", "True", "-1"]', 3),
        ("gather_", '["", "", "", "3", "True", "-1"]', 3),
        ("scatter_", '["", "", "", "3", "True", "-1"]', 3),
        ("broadcast_", '["", ""]', None),
        ("allreduce_", '["", "", "", "", "True", "-1"]', None),
    ],
)
@pytest.mark.parametrize("is_labelled", [True, False])
def test_who_gives_or_gets_all_is_told_by_torchs_operator(
    draw: Callable[..., Path], operator: str, values: str, root: int | None, *, is_labelled: bool
) -> None:
    operation = {"allreduce_": "all_reduce"}.get(operator, operator.rstrip("_"))
    label = LABEL.format(group=0, seq=1, op=operation, size=8, axis="", owner="")
    one = analyze(
        draw(f"""
        step ProfilerStep#1    @1 |==========|
        op aten::mm            @1 |==        |
        {f"range {label}" if is_labelled else "op aten::mul"} @1 |  ===     |
        op c10d::{operator}    @1 |  ==      | {{"Concrete Inputs": {values}}}
        range gloo:{operation} @2 |   ===    | {_PART}
        """)
    )
    assert [made.root for made in one.collectives] == [root]
