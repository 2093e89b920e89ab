"""Communication by process group: shares add up to the step's account, unknown groups are a row of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import GROUPS
from tests.known import total


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def said(group: str, description: str | None = None, elements: int | None = None) -> str:
    described = "" if description is None else f', "Process Group Description": "{description}"'
    sized = "" if elements is None else f', "In msg nelems": {elements}, "Out msg nelems": {elements}, "dtype": "Float"'
    return f'{{"Collective name": "allreduce", "Process Group Name": "{group}"{described}{sized}}}'


def test_each_group_has_its_count_size_and_share_under_its_axis_name(draw: Callable[..., Path]) -> None:
    path = draw(
        f"""
        step ProfilerStep#1    @1   |============|
        call cudaLaunchKernel  @1   |abcde       |
        kernel gemm            @s7  |   eee      |
        kernel nccl_one        @s20 | aaaa       | {said("5", "mesh_tp", 100)}
        kernel nccl_two        @s21 |   bbbb     | {said("7", elements=50)}
        kernel nccl_three      @s22 |        cc  | {said("5", "mesh_tp")}
        kernel nccl_four       @s23 |          dd|
        """,
        distributedInfo={"rank": 0, "pg_config": [{"pg_name": "7", "pg_desc": "EXPERT_MODEL_PARALLEL_GROUP"}]},
    )
    one = analyze(path)
    rows = GROUPS.tabulate([one]).set_index("group")
    assert rows["axis"].to_dict() == {"": "", "5": "tp", "7": "ep"}
    assert rows["count"].to_dict() == {"": 1, "5": 2, "7": 1}
    assert rows["size_bytes"].dropna().to_dict() == {"5": 400, "7": 200}
    assert rows["unsized"].to_dict() == {"": 1, "5": 1, "7": 0}
    # the two share [3, 5), which compute hides; [1, 3) is the first's, [5, 6) and what follows the second's
    assert rows["hidden_ns"].to_dict() == {"": 0, "5": 1000, "7": 2000}
    assert rows["exposed_ns"].to_dict() == {"": 2000, "5": 4000, "7": 1000}
    assert rows["exposed_ns"].sum() == one.steps[0].overlap.exposed_comm_ns
    assert rows["comm_ns"].sum() == one.steps[0].overlap.comm_ns


def test_a_group_that_runs_in_a_step_that_did_not_issue_it_has_time_and_no_count(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1    @1   |=====        |
        step ProfilerStep#2    @1   |     ===     |
        call cudaLaunchKernel  @1   |ab   c       |
        kernel gemm            @s7  |aaa   ccc    |
        kernel ncclKernel      @s20 | bbbbbbbbbb  | {said("3", "default_pg")}
        """)
    )
    table = GROUPS.tabulate([one])
    rows = table[["step", "group", "axis", "count", "exposed_ns"]].values.tolist()
    assert rows == [[1, "3", "", 1, 3000], [2, "3", "", 0, 2000]]
    assert table["size_bytes"].isna().tolist() == [True, False]
    assert [group.count for group in one.accounts.whole.groups] == [1]


def test_a_trace_without_communication_has_no_groups(draw: Callable[..., Path]) -> None:
    one = analyze(draw("step ProfilerStep#1 @1 |===|\ncall cudaLaunchKernel @1 |a |\nkernel gemm @s7 | aa|"))
    assert GROUPS.tabulate([one]).empty
    assert one.accounts.whole.groups == ()


@pytest.mark.parametrize("name", ["ddp_2ranks_rank0", "fsdp2_tp_2x2_rank0"])
def test_groups_of_recorded_runs_add_up_to_their_steps_and_have_their_axes(recorded: Path, name: str) -> None:
    one = analyze(recorded / f"{name}.json.gz")
    accounts = [*zip(one.steps, one.accounts.steps, strict=True)]
    for step, account in accounts:
        assert total(group.exposed_ns for group in account.groups) == step.overlap.exposed_comm_ns
        assert total(group.hidden_ns for group in account.groups) == step.overlap.hidden_comm_ns
        assert sum(group.count for group in account.groups) == sum(purpose.count for purpose in step.purposes)
    assert total(group.exposed_ns for group in one.accounts.whole.groups) == one.whole.exposed_comm_ns
    axes = {group.axis for group in one.accounts.whole.groups}
    assert axes >= ({"replicate"} if name.startswith("ddp") else {"shard", "tensor"})
