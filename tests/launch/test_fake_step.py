"""``dtbench check --execute``: a step of rank 0 at the scenario's number of ranks, held against the plan."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import DtbenchError, LaunchError, PlanError
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.cli.main import main
from dtbench.launch.fake_step import cut_scenario, execute_step
from dtbench.plan.plan import plan_for_check
from dtbench.scenario.catalog import list_scenarios, open_scenario
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.executed import Executed

LLAMA = {"kind": "preset", "name": "llama3-8b"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "DDP": {"kind": "ddp", "replicas": 1024},
    "FSDP1": {"kind": "fsdp1", "shards": 1024},
    "FSDP2": {"kind": "fsdp2", "shards": 1024},
    "FSDP2 and TP": {"kind": "fsdp2", "shards": 128, "tensor": 8, "sequence_parallel": True},
    "HSDP and TP": {"kind": "fsdp2", "replicas": 16, "shards": 8, "tensor": 8, "sequence_parallel": True},
}


def execute(
    folder: Path, parallel: dict[str, Any], model: dict[str, Any] = LLAMA, forked: tuple[str, ...] = ()
) -> Executed:
    """Execute a scenario of one cell that is written into a folder."""
    ranks = parallel.get("replicas", 1) * parallel.get("shards", 1)
    data = {"global_batch": 2 * ranks, "sequence_length": 8192}
    fields = {"schema_version": 1, "device": "cpu", "model": model, "data": data, "parallel": parallel}
    path = folder / "mine.yaml"
    path.write_text(f"# What is issued?\n{json.dumps(fields)}\n")
    file = open_scenario(str(path), ())
    return execute_step(file.cells[0], file, forked=forked)


@pytest.mark.parametrize("ranks", [64, 1024])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_of_many_ranks_issues_what_the_plan_says(
    layout: str, ranks: int, tmp_path: Path, forked: tuple[str, ...]
) -> None:
    parallel = dict(LAYOUTS[layout])
    widest = max(("replicas", "shards"), key=lambda axis: parallel.get(axis, 1))
    parallel[widest] //= 1024 // ranks
    executed = execute(tmp_path, parallel, forked=forked)
    assert executed.plan.ranks == ranks
    assert executed.is_planned, [line for line in executed.lines if not line.is_planned]
    assert "layers 32 -> 2" in executed.cut
    assert sum(line.issued.count for line in executed.lines if line.issued) == len(executed.step.issues)
    sizes = {group.axis: len(group.ranks) for group in executed.step.groups if group.axis is not None}
    assert sizes == {axis.name: axis.size for axis in executed.plan.mesh}
    assert executed.step.cpu_ns < 60_000_000_000


def test_the_order_of_issue_is_that_of_a_step(tmp_path: Path, forked: tuple[str, ...]) -> None:
    """FSDP2 gathers its root, then each unit before its forward; in backward the unit before, then reduces this one."""
    issues = execute(tmp_path, {"kind": "fsdp2", "shards": 4}, forked=forked).step.issues
    gathers, reductions = Purpose.UNSHARD, Purpose.GRAD_REDUCE
    assert [one.purpose for one in issues] == 5 * [gathers] + 3 * [reductions]  # of two blocks each is prefetched
    root, block = issues[0].size_bytes, issues[1].size_bytes
    assert [one.size_bytes for one in issues] == [root, *6 * [block], root]


def test_what_is_issued_beside_the_plan_or_not_at_all_is_no_pass(tmp_path: Path) -> None:
    executed = execute(tmp_path, {"kind": "ddp", "replicas": 2})
    assert executed.is_planned
    (line,) = executed.plan.traffic or ()
    wrong = [
        (line.model_copy(update={"size_bytes": line.size_bytes + 4}),),
        (line.model_copy(update={"count": line.count + 1}),),
        (line.model_copy(update={"operation": Operation.ALL_GATHER}),),
        (line.model_copy(update={"axis": Axis.SHARD}),),
        (line, line.model_copy(update={"purpose": Purpose.UNSHARD})),
        (),
    ]
    for traffic in wrong:
        assert replace(executed, plan=executed.plan.model_copy(update={"traffic": traffic})).is_planned is False
    assert replace(executed, plan=executed.plan.model_copy(update={"traffic": None})).is_planned is None


def list_cells() -> list[tuple[str, str]]:
    found = []
    for one in list_scenarios():
        if one.error is None:
            found += [(one.entry.name, cell.name) for cell in open_scenario(one.entry.name, ()).cells]
    return found


def test_every_cell_that_is_shipped_can_be_cut_and_planned() -> None:
    """What is cut stays what it was but for its sizes: the same mesh, strategy and kinds of collectives."""
    cells, refused = list_cells(), []
    assert len(cells) > 40
    for scenario, cell in cells:
        asked = next(one for one in open_scenario(scenario, ()).cells if one.name == cell).scenario
        try:
            before = plan_for_check(asked.model_copy(update={"device": "cpu"}))
        except PlanError:  # of GPUs alone
            refused.append(cell)
            with pytest.raises(PlanError):
                cut_scenario(asked)
            continue
        made, after, _ = cut_scenario(asked)
        assert after.mesh == before.mesh, (scenario, cell)
        assert made.parallel == asked.parallel
        kinds = [{(one.purpose, one.axis, one.operation) for one in plan.traffic or ()} for plan in (before, after)]
        assert kinds[0] == kinds[1], (scenario, cell)
    assert len(refused) < 10


@pytest.mark.parametrize(
    ("scenario", "cell"),
    [pytest.param(*one, marks=[] if "gpu" in one[0] else pytest.mark.thorough) for one in list_cells()],
)
def test_every_cell_that_is_shipped_issues_what_its_plan_says(
    scenario: str, cell: str, forked: tuple[str, ...]
) -> None:
    file = open_scenario(scenario, ())
    asked = next(one for one in file.cells if one.name == cell)
    try:
        cut_scenario(asked.scenario)
    except PlanError as error:
        pytest.skip(f"not on a CPU: {error}")
    executed = execute_step(asked, file, forked=forked)
    assert executed.is_planned is not False, [line for line in executed.lines if not line.is_planned]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_says_what_was_issued_against_what_was_planned(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(
        "# What is issued?\nschema_version: 1\ndevice: cpu\nmodel: {kind: preset, name: gpt2}\n"
        "data: {global_batch: 64, sequence_length: 512}\nparallel: {kind: fsdp2, shards: 64}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["check", str(file), "--execute", *(["--json"] if as_json else [])])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    if as_json:
        (cell,) = json.loads(printed)["cells"]
        assert cell["executed"]["is_planned"] is True
        assert {one["purpose"] for one in cell["executed"]["step"]["issues"]} == {"unshard", "grad_reduce"}
    else:
        assert "executed on a CPU, at 64 ranks, made smaller (layers 12 -> 2" in printed


def test_a_plan_that_a_step_does_not_meet_ends_with_code_8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_wrongly(scenario: Scenario) -> Any:
        plan = plan_for_check(scenario)
        return plan.model_copy(update={"traffic": (plan.traffic or ())[:-1]})

    monkeypatch.setattr("dtbench.launch.fake_step.plan_for_check", plan_wrongly)
    with pytest.raises(SystemExit) as ended:
        main(["check", "quickstart", "--cell", "ddp", "--execute"])
    assert ended.value.code == 8
    told = capsys.readouterr()
    assert "NOT AS PLANNED: `ddp`" in told.out
    assert "what a step issues is not what the plan says: `ddp`" in " ".join(told.err.split())


def test_a_model_that_does_not_run_says_why_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise ValueError('no weights here')\n")
    model = {"kind": "custom", "factory": "mine:make"}
    with pytest.raises(LaunchError, match="no weights here") as caught:
        execute(tmp_path, {"kind": "ddp", "replicas": 8}, model)
    assert isinstance(caught.value, DtbenchError)
    assert "rank 0 of 8" in str(caught.value)
