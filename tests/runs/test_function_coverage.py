"""Which functions ran, from made-up evidence: lines decide, probes count, and contradictions are said."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.runs.function_coverage import (
    CoveredFunction,
    Evidence,
    State,
    cover,
    read_evidence,
    sum_probe_times,
    tell_lost_rows,
)
from dtbench.runs.reading.copies import mark
from dtbench.runs.reading.run_data import read_launch_data
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import DDP, FUNCTIONS, GRADIENT_HOOKS, Reach
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.place import Place
from dtbench.store.records.probes import LineRecord, ProbedBranch, ProbedFunction, Probes, TracedFunction, Unprobed
from dtbench.store.records.run import CellRecord, LaunchRecord, RunRecord, RunStatus
from dtbench.store.write import write_record
from dtbench.traces.account.probe_times import ProbeTime

HOOK = (GRADIENT_HOOKS, "sync_grad_hook")
FORWARD = (DDP, "DistributedDataParallel.forward")
FLATTEN = (GRADIENT_HOOKS, "_flatten_tensor")


def lines(rank: int = 0, **ran: int) -> LineRecord:
    """Trace every listed function: those named ran one line, so many times."""
    return LineRecord(
        rank=rank,
        python="3",
        torch="2.15.0+cpu",
        tracer="sys.settrace",
        functions=tuple(
            TracedFunction(
                file=one.file,
                name=one.name,
                calls=ran.get(one.name.rpartition(".")[2], 0),
                lines=(5,) if one.name.rpartition(".")[2] in ran else (),
                executable_lines=3,
            )
            for one in FUNCTIONS
        ),
    )


def probed(key: tuple[str, str], calls: int, **fields: object) -> ProbedFunction:
    whole = {"raised": 0, "total_ns": 10 * calls, "reach": Reach.DRIVEN, "callers": {"torch.run": calls}, **fields}
    return ProbedFunction.model_validate({"file": key[0], "name": key[1], "calls": calls, **whole})


def probes(*functions: ProbedFunction) -> Probes:
    return Probes(functions=functions, unprobed=(), unlisted=(), cost_per_call_ns=900)


def row(evidence: list[Evidence], key: tuple[str, str]) -> CoveredFunction:
    (found,) = [one for one in cover(evidence).functions if (one.file, one.name) == key]
    return found


def test_probes_say_what_the_installed_torch_lacks_where_nothing_was_traced() -> None:
    file, name = HOOK
    lacking = Unprobed(file=file, name=name, reason="renamed", is_absent=True)
    nested = Unprobed(file=FORWARD[0], name=FORWARD[1], reason="made anew at every call")
    older = Evidence("ddp", finished=True, probes=(probes().model_copy(update={"unprobed": (lacking, nested)}),))
    newer = Evidence("ddp", finished=True, probes=(probes(probed(HOOK, 0)),))
    assert [row([older], key).state for key in (HOOK, FORWARD)] == [State.ABSENT, State.NOT_WATCHED]
    assert row([older], HOOK).reason == "renamed"
    assert row([older], FORWARD).reason == "made anew at every call"
    assert row([older, newer], HOOK).state is State.NOT_REACHED, "another launch's torch has it"


def test_what_no_launch_that_finished_watched_is_not_said_to_be_not_reached() -> None:
    ended = Evidence("ddp", finished=False, message="killed", lines=(lines(),))
    for evidence in ([], [ended], [ended, Evidence("ddp", finished=True, probes=(probes(probed(FORWARD, 0)),))]):
        assert row(evidence, HOOK).state is State.NOT_WATCHED
        assert row(evidence, HOOK).calls is None
        known = State.NOT_REACHED if len(evidence) == 2 else State.NOT_WATCHED
        assert (row(evidence, FORWARD).state, row(evidence, FORWARD).calls) == (
            known,
            0 if known is State.NOT_REACHED else None,
        )


def test_a_launch_that_is_here_twice_counts_once() -> None:
    folders = [LaunchFolder(Path("runs", name, "cells", "ddp", "launch0")) for name in ("one", "other")]
    one = Evidence("ddp", finished=True, probes=(probes(probed(FORWARD, 7)),), folder=folders[0], marks=mark(5))
    copy, other = replace(one, folder=folders[1]), replace(one, marks=mark(6))
    assert row([one, copy, other, one], FORWARD).calls == 14
    said = f"{folders[1].path}: a copy of {folders[0].path}, no second measurement"
    assert {said, f"{folders[0].path}: is named twice and counted once"} < {*cover([one, copy, other, one]).notes}
    assert not any("copy" in note or "twice" in note for note in cover([one, other]).notes)


def test_every_listed_function_has_one_row_whatever_the_evidence() -> None:
    for evidence in ([], [Evidence("a", finished=True, lines=(lines(forward=1),))]):
        keys = [(one.file, one.name) for one in cover(evidence).functions]
        assert keys == [(one.file, one.name) for one in FUNCTIONS]


def test_a_function_is_reached_when_a_line_of_it_ran_in_a_launch_that_finished() -> None:
    evidence = [
        Evidence("traced", finished=True, lines=(lines(0, sync_grad_hook=2), lines(1, sync_grad_hook=3))),
        Evidence("probed", finished=True, probes=(probes(probed(FORWARD, 7)),)),
    ]
    hook = row(evidence, HOOK)
    assert (hook.state, hook.scenarios, hook.confirmed, hook.calls, hook.total_ns) == (
        State.REACHED,
        ("traced",),
        True,
        5,
        None,
    )
    assert row(evidence, FLATTEN).state is State.NOT_REACHED


def test_numbers_come_from_probes_and_confirmation_from_lines_of_the_same_scenario() -> None:
    branches = (ProbedBranch(name="plain", calls=4, total_ns=40),)
    time = ProbeTime(calls=4, total_ns=40, exposed_ns=30)
    evidence = [
        Evidence("ddp", finished=True, lines=(lines(sync_grad_hook=4),)),
        Evidence(
            "ddp",
            finished=True,
            probes=(probes(probed(HOOK, 4, branches=branches)), probes(probed(HOOK, 4, branches=branches))),
            times={"_data_parallel_utils.sync_grad_hook": time},
        ),
    ]
    hook = row(evidence, HOOK)
    assert (hook.calls, hook.total_ns, hook.confirmed, hook.branches) == (8, 80, True, {"plain": 8})
    assert (hook.time, hook.remarks, hook.disagreements) == (time, (), 0)
    assert cover(evidence).cost_per_call_ns == 900


def test_a_probe_costs_what_it_did_on_the_rank_where_it_cost_most() -> None:
    ranks = tuple(probes(probed(HOOK, 4)).model_copy(update={"cost_per_call_ns": ns}) for ns in (300, 700, 500))
    assert cover([Evidence("ddp", finished=True, probes=ranks)]).cost_per_call_ns == 700


def test_of_several_scenarios_the_one_with_most_calls_comes_first() -> None:
    evidence = [
        Evidence(name, finished=True, probes=(probes(probed(FORWARD, calls)),))
        for name, calls in (("few", 2), ("most", 9), ("none", 0))
    ]
    assert row(evidence, FORWARD).scenarios == ("most", "few")
    assert row(evidence, FORWARD).calls == 9


def test_a_probes_word_alone_is_said_to_be_unconfirmed() -> None:
    evidence = [Evidence("cuda", finished=True, probes=(probes(probed(FORWARD, 2)),))]
    found = row(evidence, FORWARD)
    assert (found.state, found.confirmed) == (State.REACHED, False)
    assert found.remarks == ("not confirmed by lines",)
    assert any("not confirmed" in note for note in cover(evidence).notes)


@pytest.mark.parametrize(
    ("by_lines", "by_probe", "words"),
    [
        ({}, 3, "its probe counted 3 calls, and tracing saw no line run"),
        ({"forward": 3}, 0, "tracing saw lines run, and its probe counted no call"),
    ],
)
def test_where_lines_and_probes_disagree_the_row_says_so(by_lines: dict[str, int], by_probe: int, words: str) -> None:
    evidence = [
        Evidence("ddp", finished=True, lines=(lines(**by_lines),)),
        Evidence("ddp", finished=True, probes=(probes(probed(FORWARD, by_probe)),)),
    ]
    found = row(evidence, FORWARD)
    assert found.disagreements == 1
    assert words in found.remarks[0]
    assert found.state is (State.REACHED if by_lines else State.NOT_REACHED)


def test_in_one_launch_tracing_and_probes_must_count_alike() -> None:
    both = Evidence("ddp", finished=True, lines=(lines(forward=3),), probes=(probes(probed(FORWARD, 2)),))
    assert row([both], FORWARD).remarks == ("in ddp tracing counted 3 calls and its probe 2",)
    alike = Evidence("ddp", finished=True, lines=(lines(forward=2),), probes=(probes(probed(FORWARD, 2)),))
    assert row([alike], FORWARD).disagreements == 0


@pytest.mark.parametrize(("by_lines", "disagreements"), [(1, 1), (2, 0), (3, 0), (4, 1)])
def test_tracing_may_miss_what_dynamo_calls_and_nothing_else(by_lines: int, disagreements: int) -> None:
    callers = {"torch._dynamo.convert_frame.CatchErrorsWrapper.__call__": 1, "torch.run": 2}
    seen = probed(FORWARD, 3, callers=callers)
    evidence = Evidence("compiled", finished=True, lines=(lines(forward=by_lines),), probes=(probes(seen),))
    assert row([evidence], FORWARD).disagreements == disagreements


def test_what_ran_only_in_a_failed_launch_is_shown_apart_with_its_message() -> None:
    evidence = [
        Evidence("broken", finished=False, message="Global rank 0 does not exist", lines=(lines(sync_grad_hook=1),)),
        Evidence("fine", finished=True, lines=(lines(forward=1),)),
    ]
    hook = row(evidence, HOOK)
    assert (hook.state, hook.scenarios, hook.remarks) == (
        State.RAISED,
        ("broken",),
        ("Global rank 0 does not exist",),
    )
    assert "a launch of broken did not finish: Global rank 0 does not exist" in cover(evidence).notes
    reached = [*evidence, Evidence("fine", finished=True, lines=(lines(sync_grad_hook=1),))]
    assert row(reached, HOOK).state is State.REACHED


def test_calls_that_raised_are_told() -> None:
    seen = probed(FORWARD, 3, raised=1, first_error="ValueError: no")
    evidence = [Evidence("ddp", finished=True, lines=(lines(forward=3),), probes=(probes(seen),))]
    assert row(evidence, FORWARD).remarks == ("1 call raised: ValueError: no",)


def test_a_private_function_that_only_dtbench_called_is_not_driven() -> None:
    ours = {"dtbench.worker.parallelize.ddp.wrap_ddp": 2}
    evidence = [
        Evidence(
            "ddp",
            finished=True,
            lines=(lines(_flatten_tensor=2, forward=2),),
            probes=(probes(probed(FLATTEN, 2, callers=ours), probed(FORWARD, 2, callers=ours)),),
        )
    ]
    assert row(evidence, FORWARD).driven, "a public function is dtbench's to call as anybody's"
    flatten = row(evidence, FLATTEN)
    assert not flatten.driven
    assert flatten.remarks == ("only dtbench's own code called it",)


def test_what_the_installed_torch_lacks_or_has_beyond_the_list_is_named() -> None:
    whole = lines()
    kept = tuple(one for one in whole.functions if one.name != "sync_grad_hook")
    new = TracedFunction(file=GRADIENT_HOOKS, name="sync_gradients", calls=1, lines=(4,), executable_lines=1)
    evidence = [Evidence("ddp", finished=True, lines=(whole.model_copy(update={"functions": (*kept, new)}),))]
    assert (row(evidence, HOOK).state, row(evidence, HOOK).remarks) == (State.ABSENT, ())
    assert row(evidence, HOOK).reason == "torch 2.15.0+cpu does not have it: renamed or removed"
    added = row(evidence, (GRADIENT_HOOKS, "sync_gradients"))
    assert (added.reach, added.state) == (None, State.REACHED)
    assert "not listed: _data_parallel_utils.sync_gradients" in cover(evidence).notes[0]


@pytest.fixture
def made(tmp_path: Path, scenario: Callable[..., Scenario]) -> RunFolder:
    """Return a run of three cells: traced, traced and failed, neither."""
    cells = []
    for name, measure in (("fine", {"line_coverage": True}), ("broken", {"line_coverage": True}), ("plain", {})):
        wanted = scenario(measure=measure)
        plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
        cells.append(CellRecord(name=name, scenario=wanted, plan=plan, launches=(0,)))
    run = RunRecord(
        dtbench_version="0",
        name="small",
        run_id="20260101T000000-abcd",
        question="Why?",
        overrides=(),
        status=RunStatus.FAILED,
        reason="a cell failed",
        started_unix_ns=0,
        ended_unix_ns=1,
        cells=tuple(cells),
    )
    folder = RunFolder(tmp_path / "results" / "small" / run.run_id)
    write_record(folder.run, run)
    for name, status, reason in (("fine", RunStatus.COMPLETE, None), ("broken", RunStatus.FAILED, "rank 1 raised\nx")):
        launch = folder.launch(name, 0)
        write_record(launch.lines(0), lines(forward=1) if name == "fine" else lines(forward=1, sync_grad_hook=1))
        write_record(
            launch.launch,
            LaunchRecord(
                cell=name,
                index=0,
                status=status,
                started_unix_ns=0,
                duration_ns=1,
                reason=reason,
                failures=(),
            ),
        )
    return folder


def test_the_evidence_of_a_run_is_that_of_its_launches_that_were_watched(made: RunFolder) -> None:
    found = read_evidence(made.path)
    assert [(one.scenario, one.finished, one.message, len(one.lines)) for one in found] == [
        ("small:fine", True, "", 1),
        ("small:broken", False, "rank 1 raised", 1),
    ]
    assert row(found, FORWARD).scenarios == ("small:fine",)
    assert row(found, HOOK).state is State.RAISED


def test_a_copy_of_a_run_under_another_run_id_is_no_further_evidence(made: RunFolder) -> None:
    copy = Path(shutil.copytree(made.path, made.path.parent / "20260102T000000-dcba"))
    record = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    (copy / "run.json").write_text(json.dumps({**record, "run_id": copy.name}), encoding="utf-8")
    evidence = [*read_evidence(made.path), *read_evidence(copy)]
    assert row(evidence, FORWARD).calls == row(evidence[:2], FORWARD).calls == 1
    assert sum("no second measurement" in note for note in cover(evidence).notes) == 2


def test_a_launch_that_cannot_be_read_is_left_out_and_named(made: RunFolder) -> None:
    made.launch("broken", 0).launch.write_text("{", encoding="utf-8")
    fine, broken = read_evidence(made.path)
    assert (fine.finished, broken.finished) == (True, False)
    assert "launch.json: broken" in broken.message
    assert row([fine, broken], FORWARD).scenarios == ("small:fine",)


def test_a_launch_that_never_ended_has_its_lines_and_no_more(made: RunFolder) -> None:
    made.launch("fine", 0).launch.unlink()
    assert read_evidence(made.path)[0].message == "the launch did not end"
    assert row(read_evidence(made.path), FORWARD).state is State.RAISED


def test_where_the_traces_of_a_rank_tell_no_probe_no_share_is_of_all() -> None:
    rows = pd.DataFrame(
        {"rank": [0, 1], "step": [3, 3], "function": ["ddp.f"] * 2, "calls": [1, 1], "total_ns": [8, 9]}
    ).assign(exposed_ns=[4, 0])
    example = Path(__file__).parents[2] / "results" / "example"
    launch = read_launch_data(Place(read_run(example).run_id, "ddp", 0), RunFolder(example).launch("ddp", 0), 2)
    for kept, told in ((rows, {"ddp.f": ProbeTime(2, 17, 4)}), (rows[:1], {})):
        tables = replace(launch.tables, tables={**launch.tables.tables, "probes": kept})
        times, lost = sum_probe_times(replace(launch, tables=tables), {0, 1})
        assert times == told
        said = "the traces of rank 1 tell no time of a probe: how much was exposed is not known"
        assert lost == (() if told else (said,))


def test_functions_that_one_rank_lost_are_counted_for_the_others_have_all_their_calls() -> None:
    both = {("a.py", "f"), ("a.py", "g")}
    (said,) = tell_lost_rows("probes", {0: both, 1: {("a.py", "f")}, 2: set()})
    assert said == "ranks 1-2 left no probes of 2 functions: calls, and what was not reached, are of the other ranks"
    assert not [*tell_lost_rows("probes", {0: both, 1: both})]
    assert not [*tell_lost_rows("probes", {})]
