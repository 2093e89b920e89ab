"""What ranks and launches do not say of what others do: counted, and nothing is judged without it."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import DeviceKind, Phase, Purpose
from dtbench.report.words.sentences import (
    agreeing_words,
    answer_sentence,
    cell_notes,
    check_word,
    compilation_words,
    correctness_words,
    first_step_words,
    memory_words,
    wait_sentence,
)
from dtbench.runs.cell_numbers import find_part
from dtbench.runs.plan_notes import is_linked
from dtbench.runs.reading.lost_evidence import find_lost_evidence
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_run
from dtbench.scenario.checks.values import read_value
from dtbench.scenario.schema.ddp import OF_PLAIN_MODEL, Ddp
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import GRADIENT_HOOKS, Reach
from dtbench.store.layout import RunFolder
from dtbench.store.records.probes import ProbedBranch, ProbedFunction, Probes
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.run import RunStatus
from dtbench.store.write import write_table
from tests.known import known

MEMORY = dict.fromkeys(("host_before_bytes", "host_peak_bytes", "samples", "sampling_cpu_ns"), 1) | dict.fromkeys(
    ("device_before_bytes", "device_peak_bytes")
)
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], RunFolder]:
    return lambda name: RunFolder(shutil.copytree(RESULTS / name, tmp_path / "run"))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_rank_without_the_canarys_result_is_missed(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    edit(run.launch("ddp", 0).path / "ranks" / "rank1.json", lambda rank: rank.update(canary=None))
    cell = summarize_run(run.path).cells[0]
    assert cell.rank_doubts == ("launch0: rank 1 says nothing of the canary",)
    answer = answer_sentence(cell)
    assert answer is not None
    assert answer.endswith("; not judged: launch0: rank 1 says nothing of the canary")
    assert "launch0: rank 1 says nothing of the canary" in cell_notes(cell)


STAGE = {"stage": "gather", "part": "model", "duration_ns": [9], "wait_ns": [4], "memory": MEMORY, "mismatched": 0}
STEPS: dict[str, Any] = {
    **dict.fromkeys(("load_ns", "first_ns", "in_flight", "file_bytes", "mismatched"), 1),
    **dict.fromkeys(("before_ns", "after_ns", "alone_ns", "blocked_ns", "beside_ns", "saved_ns"), (1,)),
}


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"stages": []}, "stages of the training state"),
        ({"stages": [{**STAGE, "part": "optimizer"}, STAGE | {"stage": "read"}]}, "the gather of the model"),
        ({"stages": [{**STAGE, "memory": None}]}, "the gather of the model: host memory"),
        ({"stages": [{**STAGE, "mismatched": "NaN"}]}, "the gather of the model: whether bits are equal"),
        ({"stages": [{**STAGE, "wait_ns": []}]}, "the gather of the model: how long it was stalled"),
        ({"state_steps": None}, "steps around a load and beside saves"),
    ],
)
def test_what_a_rank_does_not_tell_of_the_training_state_is_missed(
    copy: Callable[[str], RunFolder], lost: dict[str, Any], said: str
) -> None:
    run = copy("example")
    whole = {"stages": [STAGE], "state_steps": STEPS}
    ranks = run.launch("ddp", 0).path / "ranks"
    edit(ranks / "rank0.json", lambda record: record.update(whole))
    edit(ranks / "rank1.json", lambda record: record.update({**whole, **lost}))
    cell = summarize_run(run.path).cells[0]
    assert f"launch0: rank 1 says nothing of {said}" in cell.rank_doubts


def test_launches_that_were_not_held_against_a_single_process_are_named(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example_sweep")
    for launch in (1, 3):
        path = run.launch("micro_batches-1", launch).path / "ranks" / "rank0.json"
        edit(path, lambda rank: rank.update(correctness=None))
    cell = next(cell for cell in summarize_run(run.path).cells if cell.name == "micro_batches-1")
    said = "launch1, launch3: no result of the check against a single process, which others have"
    assert cell.rank_doubts == (said,)
    assert said in cell_notes(cell)


def test_a_cell_of_which_no_launch_was_held_against_a_single_process_is_not_judged(
    copy: Callable[[str], RunFolder],
) -> None:
    run = copy("example")
    edit(run.launch("ddp", 0).path / "ranks" / "rank0.json", lambda rank: rank.update(correctness=None))
    cell = summarize_run(run.path).cells[0]
    said = "launch0: no result of the check against a single process, which its scenario asks for"
    assert cell.rank_doubts == (said,)
    assert check_word(cell) == "not judged"
    assert "not there" in correctness_words(cell)
    edit(run.path / "run.json", lambda record: record["cells"][0]["scenario"]["correctness"].update(enabled=False))
    assert summarize_run(run.path).cells[0].rank_doubts == ()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"exposure": ["trace", "ablation"]}, "ranks 0-1 say nothing of steps without communication"),
        ({"probes": ["_data_parallel_utils.sync_grad_hook"]}, "ranks 0-1 say nothing of the functions under study"),
    ],
)
def test_what_a_scenario_asks_of_every_rank_is_missed_where_none_tells_it(
    copy: Callable[[str], RunFolder], asked: dict[str, object], said: str
) -> None:
    run = copy("example")
    edit(run.path / "run.json", lambda record: record["cells"][0]["scenario"]["measure"].update(asked))
    assert summarize_run(run.path).cells[0].rank_doubts == (f"launch0: {said}",)


@pytest.mark.parametrize(("cell", "ranks", "lost"), [("ddp", (1,), 0), ("ddp", (1,), 2), ("fsdp2_tp", (0, 1, 2, 3), 0)])
def test_losses_of_which_some_are_lost_are_of_no_steps(
    copy: Callable[[str], RunFolder], cell: str, ranks: tuple[int, ...], lost: int
) -> None:
    """Which step's each of the others is nobody knows: means of one step of this rank and the next of that are none."""
    run = copy("example")
    for rank in ranks:
        edit(run.launch(cell, 0).path / "ranks" / f"rank{rank}.json", lambda record: record["losses"].pop(lost))
    found = next(one for one in summarize_run(run.path).cells if one.name == cell)
    assert (found.losses, found.launch_losses) == ((), ((),))
    assert found.rank_doubts[0].endswith(f"{'tell' if len(ranks) > 1 else 'tells'} of 15 of 16 losses")


def test_a_rank_that_counts_calls_and_not_their_branches_lost_them() -> None:
    (data,) = read_run_data(RESULTS / "example", cell="ddp").cells
    (launch,) = data.launches
    branch = ProbedBranch(name="plain", calls=4, total_ns=4)
    told = {"file": GRADIENT_HOOKS, "name": "sync_grad_hook", "reach": Reach.DRIVEN, "raised": 0, "total_ns": 4}

    def find(calls: int, *branches: ProbedBranch) -> list[str]:
        functions = [
            ProbedFunction.model_validate(told | {"calls": of_rank, "branches": taken})
            for of_rank, taken in ((4, (branch,)), (calls, branches))
        ]
        records = []
        for record, function in zip(launch.ranks, functions, strict=True):
            probes = Probes(functions=(function,), unprobed=(), unlisted=(), cost_per_call_ns=500)
            extras = record.extras.model_copy(update={"probes": probes})
            records.append(record.model_copy(update={"extras": extras}))
        lost = replace(launch, ranks=tuple(records))
        return list(find_lost_evidence(replace(data, launches=(lost,)), lost))

    assert find(4, branch) == find(0) == []
    assert find(4) == ["rank 1 says nothing of which branches sync_grad_hook took"]


def test_calls_in_the_life_of_a_model_that_ranks_do_not_tell_of_are_missed(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")

    def tell(rank: int, *calls: str) -> None:
        told = [
            {"call": call, "duration_ns": [1], "loss_error": 0.0, "gradient_error": 0.0, "passed": True}
            for call in calls
        ]
        path = run.launch("ddp", 0).path / "ranks" / f"rank{rank}.json"
        edit(path, lambda record: record.update(lived=told))  # as format 1 has them

    asked = ["deepcopy", "pickle"]
    edit(run.path / "run.json", lambda record: record["cells"][0]["scenario"]["parallel"].update(lifecycle=asked))
    silent = "launch0: ranks 0-1 say nothing of the calls in the life of its model"
    assert silent in summarize_run(run.path).cells[0].rank_doubts
    tell(0, *asked)
    tell(1, asked[0])
    said = f"launch0: rank 1 says nothing of the call `{asked[1]}` in the life of its model"
    assert said in summarize_run(run.path).cells[0].rank_doubts
    tell(1, *asked)
    assert not [one for one in summarize_run(run.path).cells[0].rank_doubts if "in the life" in one]


def test_what_records_tell_says_whose_are_there(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example_sweep")
    cell = run.path / "cells" / "micro_batches-1"
    (cell / "launch0" / "ranks" / "rank1.json").unlink()

    def tell() -> tuple[str, str]:
        found = next(one for one in summarize_run(run.path).cells if one.name == cell.name)
        return memory_words(found), first_step_words(found)

    launches = len([*cell.glob("launch*")])
    assert all(f"of {2 * launches - 1} of {2 * launches} rank records: " in words for words in tell())
    for record in cell.glob("launch*/ranks/rank1.json"):
        record.unlink()
    assert all(words.startswith("of rank 0 alone, of 2: ") for words in tell())


COMPILED = {"graphs": 1, "recompiles": 0, "graph_breaks": 0, "duration_ns": 1_500_000_000}


def test_what_one_rank_alone_tells_is_not_said_of_the_slowest(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    ranks = run.launch("ddp", 0).path / "ranks"
    whole = summarize_run(run.path).cells[0]
    assert (whole.first_step_part, compilation_words(whole)) == (None, None)
    edit(ranks / "rank0.json", lambda rank: rank.update(time_to_first_step_ns=None, compilation=COMPILED))
    edit(ranks / "rank0.json", lambda rank: rank["memory"].update(allocated_peak_bytes=9))
    cell = summarize_run(run.path).cells[0]
    assert first_step_words(cell).startswith("of rank 1 alone, of 2: ")
    assert known(compilation_words(cell)).startswith("of rank 0 alone, of 2: 1.50 s: 1 graph")
    for name, part in (("time_to_first_step_ns", "rank 1 alone, of 2"), ("compilation.graphs", "rank 0 alone, of 2")):
        assert str(find_part(cell, read_value(name))) == part
    assert cell.rank_doubts == (
        "launch0: rank 1 says nothing of what was compiled",
        "launch0: rank 1 says nothing of the device's memory",
    )


def test_memory_of_a_device_that_not_every_rank_tells_is_not_known(copy: Callable[[str], RunFolder]) -> None:
    cell = summarize_run(copy("example").path).cells[0]
    assert "device" not in memory_words(cell)
    on_device = cell.model_copy(update={"plan": cell.plan.model_copy(update={"device": DeviceKind.CUDA})})
    assert memory_words(on_device).endswith(" host, n/a allocated on the device, n/a reserved")


def test_a_run_that_was_stopped_before_its_last_launch_is_incomplete(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example_sweep")
    edit(run.path / "run.json", lambda record: record.update(status="running", ended_unix_ns=None))
    assert summarize_run(run.path).status is RunStatus.COMPLETE
    edit(run.path / "run.json", lambda record: [cell["scenario"].update(repeat=5) for cell in record["cells"]])
    summary = summarize_run(run.path)
    assert summary.status is RunStatus.RUNNING
    assert known(summary.reason).startswith("incomplete: ")


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("purposes", lambda rows: rows.drop(columns="count"), "it has no column `count`"),
        ("purposes", lambda rows: pd.concat([rows, rows]), "of rank 0 twice"),
        ("overlap", lambda rows: pd.concat([rows, rows]), "of rank 0 twice"),
        ("groups", lambda rows: pd.concat([rows, rows.iloc[:1]]), "of rank 0 twice"),
        ("lanes", lambda rows: pd.concat([rows, rows.iloc[:1]]), "of rank 0 twice"),
        ("gaps", lambda rows: pd.concat([rows, rows.iloc[:1]]), "of rank 0 twice"),
        ("collectives", lambda rows: pd.concat([rows, rows.iloc[:1]]), "of rank 0 twice"),
        ("steps", lambda rows: rows.assign(duration_ns=0), "is 0, which cannot be"),
        ("steps", lambda rows: rows.assign(duration_ns=-rows["duration_ns"]), "which cannot be"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_a_sentence(
    copy: Callable[[str], RunFolder], table: str, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    run = copy("example")
    path = run.launch("ddp", 0).path / f"{table}.parquet"
    rows = pd.read_parquet(path)
    changed = change(rows)
    changed.attrs = rows.attrs
    write_table(path, changed)
    cell = next(cell for cell in summarize_run(run.path).cells if cell.name == "ddp")
    assert said in cell.unreadable[0]
    assert "no step was profiled" not in " ".join(cell.notes)


def test_where_the_backend_was_slower_than_the_link_times_are_not_the_links(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    linked = next(cell for cell in summarize_run(run.path).cells if is_linked(cell))
    receipts = tuple(
        one.model_copy(update={"got": "real"}) if one.knob == "network.kind" else one for one in linked.receipts
    )
    assert any("emulated link" in note for note in cell_notes(linked))
    slower = linked.model_copy(update={"receipts": receipts})
    assert not is_linked(slower)
    assert not any("what the emulated link says" in note for note in cell_notes(slower))


def test_a_disturbed_profiled_step_is_in_no_table_and_counted(copy: Callable[[str], RunFolder]) -> None:
    """Of three steps, two of which others left alone: half are enough to answer by."""
    run = copy("example")
    launch = run.launch("ddp", 0)
    steps = pd.read_parquet(launch.steps)
    write_table(launch.steps, steps.assign(stolen_fraction=0.9 * (steps["step"] == 17)))
    (data,) = read_run_data(run.path, cell="ddp").cells
    tables = data.launches[0].tables.tables
    assert {name for name, rows in tables.items() if "step" in rows and (rows["step"] == 17).any()} == set()
    cell = summarize_run(run.path).cells[0]
    assert cell.left_out_steps == {Phase.PROFILED: 1}
    assert (
        "launch0: 1 PROFILED step is left out: other virtual machines had 2.0 % of the cores or more in it"
        in cell_notes(cell)
    )
    assert not cell.disturbed


@pytest.mark.parametrize(
    ("lost", "ranks", "said"),
    [
        ("receipts", (0, 1), "ranks 0-1 say nothing of the knobs"),
        ("receipts", (1,), "rank 1 says nothing of the knobs"),
        ("traffic", (0, 1), "ranks 0-1 say nothing of the collectives issued"),
        ("traffic", (1,), "rank 1 says nothing of the collectives issued"),
        ("canary", (0, 1), "ranks 0-1 say nothing of the canary"),
    ],
)
def test_what_every_rank_must_tell_is_missed_where_none_tells_it(
    copy: Callable[[str], RunFolder], lost: str, ranks: tuple[int, ...], said: str
) -> None:
    run = copy("example")
    for rank in ranks:
        edit(
            run.launch("ddp", 0).path / "ranks" / f"rank{rank}.json",
            lambda record: record.update({lost: None if lost == "canary" else []}),
        )
    cell = summarize_run(run.path).cells[0]
    assert cell.rank_doubts == (f"launch0: {said}",)
    assert f"launch0: {said}" in cell_notes(cell)
    assert check_word(cell) == "not judged"
    assert agreeing_words(cell).startswith("n/a" if not cell.receipts else "49 knobs")


@pytest.mark.parametrize(
    ("ranks", "kept", "said"),
    [
        ((1,), lambda knob: knob != "parallel.static_graph", ["rank 1 says nothing of parallel.static_graph"]),
        ((0, 1), lambda knob: knob != "precision.dtype", ["ranks 0-1 say nothing of precision.dtype"]),
        (
            (0, 1),
            lambda knob: not knob.startswith("parallel.mixed"),
            ["ranks 0-1 say nothing of parallel.mixed_precision"],
        ),
        ((0, 1), lambda knob: not knob.startswith("measure."), []),
        (
            (0,),
            lambda knob: not knob.startswith("optimizer."),
            [
                "rank 0 says nothing of optimizer.kind, optimizer.lr, optimizer.betas, optimizer.eps and 3 more knobs",
            ],
        ),
    ],
)
def test_a_knob_that_a_rank_or_a_launch_does_not_read_back_is_named(
    ranks: tuple[int, ...], kept: Callable[[str], bool], said: list[str]
) -> None:
    """Of what the scenario sets of parallelism, optimizer and precision; of other knobs what another rank tells."""
    (data,) = read_run_data(RESULTS / "example", cell="ddp").cells
    (launch,) = data.launches
    records = [
        record.model_copy(update={"receipts": tuple(one for one in record.receipts if kept(one.knob))})
        if record.rank in ranks
        else record
        for record in launch.ranks
    ]
    lost = replace(launch, ranks=tuple(records))
    assert list(find_lost_evidence(replace(data, launches=(lost,)), lost)) == said


def test_of_a_model_without_the_wrapper_only_what_it_has_is_asked_for() -> None:
    (data,) = read_run_data(RESULTS / "example", cell="ddp").cells
    (launch,) = data.launches
    scenario = data.cell.scenario
    assert isinstance(scenario, Scenario)
    assert isinstance(scenario.parallel, Ddp)
    plain = scenario.model_copy(update={"parallel": scenario.parallel.model_copy(update={"wrap": False})})
    told = [
        Receipt(knob=f"parallel.{field}", asked="x", got="x", outcome=ReceiptOutcome.AGREES) for field in OF_PLAIN_MODEL
    ]

    def find(receipts: Sequence[Receipt]) -> list[str]:
        others = tuple(one for one in launch.ranks[0].receipts if not one.knob.startswith("parallel."))
        records = tuple(one.model_copy(update={"receipts": (*receipts, *others)}) for one in launch.ranks)
        cell = data.cell.model_copy(update={"scenario": plain})
        lost = replace(launch, ranks=records)
        return list(find_lost_evidence(replace(data, cell=cell, launches=(lost,)), lost))

    assert find(told) == []
    assert find(told[1:]) == ["ranks 0-1 say nothing of parallel.wrap"]


def test_a_cell_whose_files_are_gone_is_not_said_to_have_never_ended(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example_sweep")
    shutil.rmtree(run.path / "cells" / "micro_batches-2")
    cell = next(cell for cell in summarize_run(run.path).cells if cell.name == "micro_batches-2")
    assert cell.launches == ()
    assert all("has no files, though" in sentence for sentence in cell.unreadable.values())
    assert len(cell.unreadable) == 4
    assert cell.reason == cell.unreadable[0]
    assert wait_sentence(cell, Purpose.GRAD_REDUCE) == "n/a: all of its launches are left out"
    assert {first_step_words(cell), agreeing_words(cell)} == {"n/a: the records that would tell are not there"}


def test_a_launch_of_a_failed_run_that_has_no_files_was_not_deleted(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    failed = {"status": "failed", "reason": "rank 1 raised", "ended_unix_ns": 1}
    edit(run.launch("ddp", 0).launch, lambda launch: launch.update(status="failed", reason="rank 1 raised"))
    edit(run.run, lambda record: (record.update(failed), record["cells"][0].update(launches=[0, 1])))
    cell = summarize_run(run.path).cells[0]
    assert (cell.status, cell.reason) == (RunStatus.FAILED, "rank 1 raised")
    assert not cell.unreadable
    run.launch("ddp", 0).launch.unlink()
    shutil.rmtree(run.launch("ddp", 0).path)
    assert summarize_run(run.path).cells[0].reason == "launch0 did not begin, or its files are gone"


def test_a_launch_without_its_record_may_have_ended(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    run.launch("ddp", 0).launch.unlink()
    assert known(summarize_run(run.path).cells[0].reason) == (
        "launch0 has no record of its end: it was killed, or the record is gone"
    )


def test_a_first_step_that_took_no_time_is_said_to_be_why_it_is_not_known(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    edit(run.launch("ddp", 0).path / "ranks" / "rank1.json", lambda rank: rank.update(time_to_first_step_ns=0))
    cell = summarize_run(run.path).cells[0]
    assert first_step_words(cell) == "n/a: rank 1 of launch0 tells 0 ns: was a clock set meanwhile?"


def test_a_knob_of_which_ranks_got_different_values_does_not_agree(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    count = len(summarize_run(run.path).cells[0].receipts)

    def give_other(rank: dict[str, Any]) -> None:
        next(one for one in rank["receipts"] if one["knob"] == "parallel.bucket_cap_mb")["got"] = "1048576"

    before = agreeing_words(summarize_run(run.path).cells[0])
    edit(run.launch("ddp", 0).path / "ranks" / "rank1.json", give_other)
    cell = summarize_run(run.path).cells[0]
    assert cell.contested_knobs == ("parallel.bucket_cap_mb",)
    agreeing = [int(known(words).split()[0]) for words in (before, agreeing_words(cell))]
    assert agreeing[0] - agreeing[1] == 1
    assert count == len(cell.receipts)


def test_more_steps_than_were_planned_and_more_cpu_time_than_cores_have_are_named(
    copy: Callable[[str], RunFolder],
) -> None:
    run = copy("example")
    path = run.launch("ddp", 0).steps
    steps = pd.read_parquet(path)
    assert summarize_run(run.path).cells[0].rank_doubts == ()
    write_table(path, steps.assign(phase=steps["phase"].replace("WARMUP", "MEASURED")))
    (doubt,) = (one for one in summarize_run(run.path).cells[0].rank_doubts if "planned" in one)
    assert doubt.endswith("were planned: was the table of steps edited?")
    write_table(path, steps.assign(cpu_ns=100 * steps["cpu_ns"]))
    doubts = summarize_run(run.path).cells[0].rank_doubts
    assert len(doubts) == 2
    assert all("on 2 cores, which cannot be" in one for one in doubts)


@pytest.mark.parametrize("name", ["lanes", "gaps"])
def test_lost_rows_of_a_rank_leave_checks_unjudged_as_those_of_groups_do(
    copy: Callable[[str], RunFolder], name: str
) -> None:
    run = copy("example")
    path = run.launch("ddp", 0).derived_table(name)
    table = pd.read_parquet(path)
    attrs = dict(table.attrs)
    table = table[table["rank"] != 1]
    table.attrs = attrs
    write_table(path, table)
    (doubt,) = summarize_run(run.path).cells[0].rank_doubts
    assert doubt.startswith(f"launch0: tables of rank 1 do not belong together: {name} has nothing of step ")


def test_a_launch_that_is_running_by_its_record_though_its_run_ended_does_not_count(
    copy: Callable[[str], RunFolder],
) -> None:
    run = copy("example")
    edit(run.launch("ddp", 0).launch, lambda launch: launch.update(status="running"))
    summary = summarize_run(run.path)
    cell = summary.cells[0]
    told = "launch0 is running by its record, though its run ended: was the record edited?"
    assert (cell.status, cell.reason) == (RunStatus.FAILED, told)
    assert check_word(cell) == "run failed"
