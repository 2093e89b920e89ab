"""What functional collectives on a group without an axis are for: each claim by its own evidence, else `other`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.purposes import DataParallel, Functional, find_purpose

NODE = "autograd::engine::evaluate_function: "
GATHER = "_c10d_functional::all_gather_into_tensor"
SCATTER = "_c10d_functional::reduce_scatter_tensor"
SUM = "_c10d_functional::all_reduce"
SHARDS = {"all_gather": "unshard", "reduce_scatter": "grad_reduce"}
NOTHING = {"all_gather": "other", "reduce_scatter": "other"}


def purposes(path: Path) -> dict[str, str]:
    """Return the purpose of each operation; all collectives of one have one."""
    one = analyze_trace(read_trace(path))
    found = {(str(made.operation), str(made.purpose)) for made in one.collectives}
    assert len(found) == len(dict(found))
    return dict(found)


def size(elements: int) -> str:
    return f'{{"Input Dims": [[{elements}]], "Input type": ["float"]}}'


@pytest.mark.parametrize(
    ("compute", "node", "after", "expected"),
    [
        ("=   =      ", "RedistributeBackward", "AccumulateGrad", SHARDS),
        ("=   =      ", "RedistributeBackward", "ReluBackward0", NOTHING),
        ("=   =      ", "GeneratedBackwardFor_c10d_functional_allBackward", "AddmmBackward0", NOTHING),
    ],
    ids=["parameters", "a column-wise layer over the sequence", "keys and values"],
)
def test_gathers_that_backward_answers_are_of_parameters_where_gradients_are_handed_over_at_once(
    draw: Callable[..., Path], compute: str, node: str, after: str, expected: dict[str, str]
) -> None:
    assert (
        purposes(
            draw(f"""
            step ProfilerStep#1                     @1 |=======================|
            op {GATHER}                             @1 | ==   ==               |
            op c10d::allgather_into_tensor_         @1 | =    =                |
            op aten::mm                             @1 |   {compute}           |
            op {NODE}{node}                         @1 |         ===    ===    |
            op {SCATTER}                            @1 |          =      =     |
            op c10d::reduce_scatter_tensor_         @1 |          =      =     |
            op {NODE}{after}                        @1 |            =      =   |
            op {NODE}MulBackward0                   @1 |             ==      = |
            op {NODE}AccumulateGrad                 @1 |               =      =|
            range gloo:all_gather                   @2 |  ==   ==              | {size(512)}
            range gloo:reduce_scatter               @2 |           ==     ==   | {size(512)}
            """)
        )
        == expected
    )


@pytest.mark.parametrize(
    ("gathers", "handed", "expected"),
    [
        ("= =", "== ", SHARDS),
        ("= =", "===", NOTHING),  # a node that hands over more than it reduced: which of them, nobody knows
        ("= =", "=  ", NOTHING),
        ("=  ", "== ", NOTHING),  # a gather that nothing answers
    ],
)
def test_a_compiled_backward_shows_its_gradients_by_how_many_it_hands_over(
    draw: Callable[..., Path], gathers: str, handed: str, expected: dict[str, str]
) -> None:
    nodes = "\n".join(
        f"op {NODE}torch::autograd::AccumulateGrad @1 |{' ' * (13 + place)}={' ' * (6 - place)}|"
        for place, mark in enumerate(handed)
        if mark == "="
    )
    path = draw(f"""
        step ProfilerStep#1                        @1 |====================|
        range Torch-Compiled Region: 0/0           @1 |=====               |
        op {GATHER}                                @1 | {gathers}                |
        op c10d::allgather_into_tensor_            @1 | {gathers}                |
        op {NODE}CompiledFunctionBackward          @1 |       ======       |
        op {SCATTER}                               @1 |        = =         |
        op c10d::reduce_scatter_tensor_            @1 |        = =         |
        {nodes}
        range gloo:all_gather                      @2 |  {gathers}               | {size(512)}
        range gloo:reduce_scatter                  @2 |         = =        | {size(512)}
        """)
    assert purposes(path) == expected


@pytest.mark.parametrize(
    ("elements", "after", "expected"),
    [(512, "ReluBackward0", "tensor"), (1, "ReluBackward0", "other"), (1, "AccumulateGrad", "other")],
    ids=["activations", "a loss", "a loss beside"],
)
def test_a_sum_in_forward_is_of_products_unless_it_is_of_a_number(
    draw: Callable[..., Path], elements: int, after: str, expected: str
) -> None:
    path = draw(f"""
        step ProfilerStep#1                     @1 |====================|
        op aten::mm                             @1 |=                   |
        op {SUM}                                @1 | ==                 |
        op c10d::allreduce_                     @1 | =                  |
        op {NODE}{after}                        @1 |      ==            |
        range gloo:all_reduce                   @2 |  ==                | {size(elements)}
        """)
    assert purposes(path) == {"all_reduce": expected}


def test_what_forward_alone_gathers_or_sends_around_is_for_nobody_knows_what(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1                     @1 |====================|
        op {GATHER}                             @1 | ==                 |
        op c10d::allgather_into_tensor_         @1 | =                  |
        op aten::mm                             @1 |     =              |
        op _c10d_functional::all_to_all_single  @1 |      ==            |
        op c10d::alltoall_base_                 @1 |      =             |
        range gloo:all_gather                   @2 |  ==                | {size(512)}
        range gloo:all_to_all                   @2 |       ==           | {size(512)}
        """)
    assert purposes(path) == {"all_gather": "other", "all_to_all": "other"}


@pytest.mark.parametrize(("after", "expected"), [("AccumulateGrad", "grad_reduce"), ("ReluBackward0", "other")])
def test_gradients_of_whole_parameters_are_summed_and_handed_over_where_forward_gathers_nothing(
    draw: Callable[..., Path], after: str, expected: str
) -> None:
    path = draw(f"""
        step ProfilerStep#1                     @1 |====================|
        op aten::mm                             @1 |=                   |
        op {NODE}RedistributeBackward           @1 |   ===              |
        op {SUM}                                @1 |    =               |
        op c10d::allreduce_                     @1 |    =               |
        op {NODE}{after}                        @1 |      ==            |
        range gloo:all_reduce                   @2 |     ==             | {size(512)}
        """)
    assert purposes(path) == {"all_reduce": expected}


def test_each_group_shows_its_own(draw: Callable[..., Path]) -> None:
    def says(collective: str, group: str) -> str:
        return (
            f'{{"Collective name": "{collective}", "dtype": "Float", "In msg nelems": 512, "Out msg nelems": 512, '
            f'"Group size": 2, "Process Group Name": "{group}", "Process Group Description": "undefined"}}'
        )

    one = analyze_trace(
        read_trace(
            draw(f"""
            step ProfilerStep#1                 @1  |=====================|
            op {GATHER}                         @1  | =                   |
            op {SUM}                            @1  |    =                |
            op {NODE}RedistributeBackward       @2  |       ==            |
            op {SCATTER}                        @2  |        =            |
            op {NODE}AccumulateGrad             @2  |         =           |
            op aten::mm                         @1  |  =                  |
            call cudaLaunchKernel               @1  | ab c                |
            call cudaLaunchKernel               @2  |        d            |
            kernel ncclDevKernel_AllGather      @s9 |  aa                 | {says("_allgather_base", "1")}
            kernel gemm                         @s7 |    b                |
            kernel ncclDevKernel_AllReduce      @s9 |      cc             | {says("allreduce", "2")}
            kernel ncclDevKernel_ReduceScatter  @s9 |          dd         | {says("_reduce_scatter_base", "1")}
            """)
        )
    )
    assert [str(made.purpose) for made in one.collectives] == ["unshard", "tensor", "grad_reduce"]


def test_where_fsdp_or_ddp_left_their_marks_parameters_are_theirs() -> None:
    for shown in (DataParallel(has_fsdp=True), DataParallel(has_reducer=True)):
        found = find_purpose(None, Operation.ALL_GATHER, None, (GATHER,), shown, Functional.PARAMETERS)
        assert found is Purpose.OTHER
        assert find_purpose(None, Operation.ALL_GATHER, None, (GATHER,), shown, Functional.PRODUCTS) is Purpose.TENSOR


@pytest.mark.parametrize(
    "between",
    ["_c10d_functional_autograd::all_to_all_single", "GeneratedBackwardFor__c10d_functional_all_to_all_single_default"],
)
def test_what_lies_between_who_asks_and_a_functional_collective_owns_nothing(
    draw: Callable[..., Path], between: str
) -> None:
    one = analyze_trace(
        read_trace(
            draw(f"""
            step ProfilerStep#1                     @1 |====================|
            op aten::mm                             @1 |=                   |
            range my.dispatch                       @1 | ======             |
            op {between}                            @1 | =====              |
            op _c10d_functional::all_to_all_single  @1 |  ==                |
            op c10d::alltoall_base_                 @1 |  =                 |
            range gloo:all_to_all                   @2 |   ===              | {size(512)}
            """)
        )
    )
    assert [(str(made.purpose), made.owner) for made in one.collectives] == [("other", "my.dispatch")]


@pytest.mark.parametrize(("group", "expected"), [("0", "other"), ("1", "other"), ("2", "tensor")])
def test_a_sum_over_the_ranks_that_share_gradients_completes_no_product(
    draw: Callable[..., Path], group: str, expected: str
) -> None:
    """A codebook's statistics over the ranks of DDP, by its group or another of the same ranks; else partial sums."""

    def says(of: str) -> str:
        return (
            '{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 512, "Out msg nelems": 512, '
            f'"Group size": 2, "Process Group Name": "{of}", "Process Group Description": "undefined"}}'
        )

    ranks = {"0": [0, 1], "1": [0, 1], "2": [0, 2]}
    path = draw(
        f"""
        step ProfilerStep#1                 @1  |=====================|
        op aten::mm                         @1  |=                    |
        op {SUM}                            @1  | ==                  |
        op c10d::allreduce_                 @1  | =                   |
        op {NODE}AccumulateGrad             @2  |       ==            |
        op c10d::allreduce_                 @2  |        =            |
        call cudaLaunchKernel               @1  |ab                   |
        call cudaLaunchKernel               @2  |        c            |
        kernel gemm                         @s7 |  aa                 |
        kernel ncclDevKernel_AllReduce      @s9 |    bb               | {says(group)}
        kernel ncclDevKernel_AllReduce      @s9 |          cc         | {says("0")}
        """,
        distributedInfo={"rank": 0, "pg_config": [{"pg_name": name, "ranks": of} for name, of in ranks.items()]},
    )
    assert [str(made.purpose) for made in analyze_trace(read_trace(path)).collectives] == [expected, "grad_reduce"]
