"""``dtbench catalogue``: what runs, what became of it, and that a stopped one goes on. No rank starts."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the launcher is torch's; install the extra `run`")

from dtbench.base.errors import LaunchError
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.cli.main import main
from dtbench.launch import run
from dtbench.launch.forked import servers
from dtbench.launch.machine import read_torch_version
from dtbench.plan.plan import Plan
from dtbench.scenario import catalog
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_catalogue, read_outcomes
from dtbench.store.records.checks import CheckOutcome, ChecksSummary
from dtbench.store.records.rank import WARMUP_LOSSES, Memory, RankRecord, WarmupEnd
from dtbench.store.records.run import Environment, LaunchRecord, RunStatus, WorkerOrder
from dtbench.store.records.traffic import Traffic
from dtbench.store.walk import find_runs
from dtbench.store.write import write_record
from tests.made_receipts import EVERY_KNOB
from tests.made_steps import write_journals

TEXT = """\
# Do both train alike?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
correctness: {enabled: false}
parallel: {kind: ddp, replicas: 1}
"""
CLAIMS = """\
cells: {a: {}, b: {seed: SEED}}
checks: [{kind: losses, tolerance: 0.1}]
answer: "Yes, from {memory.rss_peak_bytes of a} on."
"""


@dataclass
class Fake:
    """Stands in for ranks, and notes what would have been started; a seed makes other losses.

    Attributes:
        starts: scenario, cell and launch of each.
        stops_at: the start at which the user presses Ctrl-C, from 1.
        fails: scenarios whose launches fail.
        torch: version that ranks claim to have; empty: this one.
    """

    starts: list[tuple[str, str, int]] = field(default_factory=list)
    stops_at: int = 0
    fails: set[str] = field(default_factory=set)
    torch: str = ""

    def __call__(self, order: WorkerOrder, folder: LaunchFolder, *, on_look: object, worker: Sequence[str]) -> None:
        scenario = folder.path.parents[3].name
        self.starts.append((scenario, order.cell, order.index))
        if len(self.starts) == self.stops_at:
            raise KeyboardInterrupt
        status = RunStatus.FAILED if scenario in self.fails else RunStatus.COMPLETE
        write_record(folder.rank_record(0), describe_rank(1.0 + order.scenario.seed, order.plan))
        launch = LaunchRecord(
            cell=order.cell,
            index=order.index,
            status=status,
            started_unix_ns=1,
            duration_ns=1,
            reason=None if status is RunStatus.COMPLETE else "planted",
            failures=(),
        )
        write_record(folder.environment, ENVIRONMENT.model_copy(update={"torch": self.torch or read_torch_version()}))
        plan = order.plan
        write_journals(folder, ranks=plan.ranks, measured=plan.measured_steps, profiled=plan.profiled_steps)
        finish_launch(folder, launch, ranks=order.plan.ranks)
        if status is RunStatus.FAILED:
            raise LaunchError("planted")

    @property
    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(scenario for scenario, _, _ in self.starts))


ENVIRONMENT = Environment(
    host="here",
    system="test",
    processor="test",
    cores=3,
    memory_bytes=1,
    python="3",
    torch="",
    cuda=None,
    nccl=None,
    packages={},
    devices=(),
    variables={},
    notes=(),
)


def describe_rank(loss: float, plan: Plan) -> RankRecord:
    return RankRecord(
        rank=0,
        host="here",
        pid=1,
        time_to_first_step_ns=1,
        memory=Memory(rss_peak_bytes=2**20, allocated_peak_bytes=None, reserved_peak_bytes=None),
        warmup=WarmupEnd(steps=8, settled=True, reason="it did"),
        correctness=None,
        losses=(loss,) * (WARMUP_LOSSES + plan.measured_steps + plan.profiled_steps),
        receipts=EVERY_KNOB,
        traffic=(
            Traffic(
                purpose=Purpose.GRAD_REDUCE,
                axis=Axis.REPLICATE,
                operation=Operation.ALL_REDUCE,
                count=1,
                size_bytes=4,
                count_async=1,
            ),
        ),
        traffic_is_stable=True,
        overlap_possible=(),
        process_groups=(),
        bucket_bytes_per_step=(),
        fsdp_units=(),
    )


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return the stand-in for ranks, in a folder with two scenarios that pass and one without checks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "_shipped_folder", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")
    ranks = Fake()
    monkeypatch.setattr(run, "launch_ranks", ranks)
    monkeypatch.setattr(servers, "can_fork", lambda: False)  # nothing would be forked from what takes seconds to start
    write("one")
    write("two")
    write("idle", claims="")
    return ranks


def write(name: str, *, seed: int = 0, text: str = TEXT, claims: str = CLAIMS) -> None:
    path = Path("scenarios") / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + claims.replace("SEED", str(seed)), encoding="utf-8")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], fake: Fake) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            main(["catalogue", *arguments])
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return (code if isinstance(code, int) else 0), printed.out, printed.err

    return call


Call = Callable[..., tuple[int, str, str]]


def test_every_scenario_that_has_checks_is_run_and_answered(fake: Fake, call: Call) -> None:
    code, shown, told = call()
    assert code == 0, told
    assert fake.starts == [("one", "a", 0), ("one", "b", 0), ("two", "a", 0), ("two", "b", 0)]
    for words in ("Do both train alike?", "passed (1 launch)", "Yes, from 1.00 MiB on.", "judged on one launch"):
        assert words in shown
    assert "idle" not in shown
    assert "[2 of 2] two: Do both train alike?" in told


def test_what_became_of_the_checks_lies_in_the_run(fake: Fake, call: Call) -> None:
    call("one")
    (path,) = find_runs(Path("results"))
    checks = ChecksSummary.model_validate_json(RunFolder(path).checks.read_bytes())
    assert (checks.outcome, checks.answer) == (CheckOutcome.PASSED, "Yes, from 1.00 MiB on.")


def test_a_check_that_fails_ends_with_exit_code_8_and_stops_nothing(fake: Fake, call: Call) -> None:
    write("one", seed=3)
    code, shown, told = call()
    assert code == 8
    assert fake.scenarios == ["one", "two"]
    assert "no answer: of 1 check 1 failed" in shown
    assert "largest relative difference 7.5e-01" in shown
    assert "checks did not pass: one; `dtbench report <scenario>` says why" in told


def test_a_launch_that_fails_ends_with_exit_code_4_and_stops_nothing(fake: Fake, call: Call) -> None:
    fake.fails = {"one"}
    code, shown, told = call()
    assert code == 4
    assert fake.scenarios == ["one", "two"]
    assert "FAILED: cell a: planted" in shown
    assert "could not be run to their end: one; --resume tries these again" in told


def test_a_check_that_fails_outweighs_a_launch_that_does(fake: Fake, call: Call) -> None:
    fake.fails = {"one"}
    write("two", seed=3)
    code, _, told = call()
    assert code == 8
    assert "checks did not pass: two; could not be run to their end: one" in told


def test_a_stopped_catalogue_goes_on_where_it_was(fake: Fake, call: Call) -> None:
    fake.stops_at = 4
    code, _, told = call()
    assert code == 130
    assert "1 of 2 scenarios are done and stay; `dtbench catalogue --resume` goes on" in told
    fake.stops_at = 0
    fake.starts.clear()
    code, shown, told = call("--resume")
    assert code == 0, told
    assert fake.starts == [("two", "b", 0)], "what was measured before is not measured again"
    assert "[1 of 2] one: finished before" in told
    assert shown.count("passed (1 launch)") == 2
    assert len(find_runs(Path("results"))) == 2


def test_a_stopped_run_that_cannot_go_on_here_starts_anew(fake: Fake, call: Call) -> None:
    fake.stops_at, fake.torch = 2, "2.11.0"
    call("one")
    fake.stops_at, fake.torch = 0, ""
    fake.starts.clear()
    code, _, told = call("one", "--resume")
    assert code == 0, told
    assert fake.starts == [("one", "a", 0), ("one", "b", 0)]
    assert "it ran with torch 2.11.0" in told


def test_a_finished_catalogue_has_nothing_left_to_run(fake: Fake, call: Call) -> None:
    call()
    fake.starts.clear()
    code, shown, _ = call("--resume")
    assert (code, fake.starts) == (0, [])
    assert shown.count("passed (1 launch)") == 2


def test_a_finished_run_that_cannot_be_read_is_a_row_and_stops_nothing(fake: Fake, call: Call) -> None:
    fake.stops_at = 3
    assert call()[0] == 130
    (folder,) = (path for path in find_runs(Path("results")) if path.parent.name == "one")
    for launch in folder.glob("cells/*/launch0/launch.json"):
        launch.write_text("{", encoding="utf-8")
    fake.stops_at = 0
    code, shown, _ = call("--resume")
    assert code != 0
    assert "its run cannot be read" in shown
    assert shown.count("passed (1 launch)") == 1
    shutil.rmtree(folder)
    code, shown, _ = call("--resume")
    assert (code, shown.count("passed (1 launch)")) == (0, 2)


def test_a_new_catalogue_runs_everything_again(fake: Fake, call: Call) -> None:
    call()
    fake.starts.clear()
    call()
    assert fake.scenarios == ["one", "two"]
    state = read_catalogue(Path("results"))
    assert state is not None
    assert [one.scenario for one in state.finished] == ["one", "two"]


def test_a_file_that_changed_is_run_again(fake: Fake, call: Call) -> None:
    call()
    fake.starts.clear()
    write("two", text=TEXT.replace("alike", "the same"))
    code, _, _ = call("--resume")
    assert (code, fake.scenarios) == (0, ["two"])


def test_an_older_run_that_never_ended_is_not_gone_on_with(fake: Fake, call: Call) -> None:
    fake.stops_at = 2
    call("one")
    fake.stops_at = 0
    fake.starts.clear()
    call("one")
    assert fake.starts == [("one", "a", 0), ("one", "b", 0)]


def test_a_failed_launch_is_tried_again(fake: Fake, call: Call) -> None:
    fake.fails = {"two"}
    call()
    fake.fails = set()
    fake.starts.clear()
    code, _, _ = call("--resume")
    assert (code, fake.scenarios) == (0, ["two"])


def test_there_must_be_something_to_go_on_with(fake: Fake, call: Call) -> None:
    code, _, told = call("--resume")
    assert code == 6
    assert "results: no catalogue was begun here; without --resume one starts" in told


def test_a_scenario_without_checks_is_no_part_of_it(fake: Fake, call: Call) -> None:
    code, _, told = call("idle", "one")
    assert (code, fake.starts) == (2, [])
    assert "idle: no `checks:` there, so nothing to judge; `dtbench run` runs it" in told


def test_what_cannot_run_here_is_listed_with_the_reason(fake: Fake, call: Call) -> None:
    write("broken", text="# Is it?\nfoo: 1\n", claims="")
    write("two", text=TEXT.replace("device: cpu", "device: cuda"))
    code, shown, _ = call()
    assert (code, fake.scenarios) == (0, ["one"])
    lines = shown.splitlines()
    assert any("broken" in line and "not run" in line and "the file is wrong" in line for line in lines)
    assert any("two" in line and "not run" in line and "cannot run here" in line for line in lines)


def test_a_list_runs_nothing(fake: Fake, call: Call) -> None:
    code, shown, _ = call("--list")
    assert (code, fake.starts) == (0, [])
    assert shown.startswith("2 of 2 scenarios with checks can run here\n")
    assert [line.endswith("can run here") for line in shown.splitlines() if line.startswith(("one", "two"))] == [
        True
    ] * 2


def test_launches_can_be_repeated_and_the_row_says_so(fake: Fake, call: Call) -> None:
    _, shown, _ = call("one", "--repeat", "2")
    assert fake.starts == [("one", "a", 0), ("one", "b", 0), ("one", "b", 1), ("one", "a", 1)], "ABBA"
    assert "passed (2 launches)" in shown


def test_programs_get_one_document(fake: Fake, call: Call) -> None:
    write("two", seed=3)
    code, printed, _ = call("--json")
    assert code == 8
    document = json.loads(printed)
    one, two = document["scenarios"]
    assert (one["scenario"], one["outcome"], one["answer"]) == ("one", "passed", "Yes, from 1.00 MiB on.")
    assert (two["outcome"], two["launches"]) == ("failed", 1)
    assert two["duration_ns"] > 0
    assert document["coverage"] is None


def test_outcomes_are_recorded_beside_the_scenarios_and_told_on_their_page(fake: Fake, call: Call) -> None:
    call("--write", "scenarios")
    write("two", seed=3)
    call("two", "--write", "scenarios")
    outcomes = {one.scenario: one for one in read_outcomes(Path("scenarios")).outcomes}
    assert {name: one.outcome for name, one in outcomes.items()} == {
        "one": CheckOutcome.PASSED,
        "two": CheckOutcome.FAILED,
    }
    page = Path("scenarios/README.md").read_text(encoding="utf-8")
    assert "* last outcome: passed, 1 of 1 check: Yes, from 1.00 MiB on." in page
    assert "* last outcome: failed, 0 of 1 check: no answer" in page
    assert "3 CPU cores" in page
    assert "* check: losses of all cells equal to 0.1" in page
    assert "* last outcome: it has no checks" in page
    assert "of an earlier version" not in page
    write("two", seed=4)
    call("--list", "--write", "scenarios")
    page = Path("scenarios/README.md").read_text(encoding="utf-8")
    assert "* last outcome: (of an earlier version of this file) failed, 0 of 1 check: no answer" in page
    assert page.count("of an earlier version") == 1
    Path("scenarios/two.yaml").unlink()
    call("one", "--write", "scenarios")
    assert [one.scenario for one in read_outcomes(Path("scenarios")).outcomes] == ["one"]


def run_one(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(["run", *arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_single_run_whose_check_fails_ends_with_exit_code_8_after_its_report(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_one(capsys, "one")[0] == 0
    write("one", seed=3)
    code, shown, told = run_one(capsys, "one")
    assert code == 8
    assert "no answer: of 1 check 1 failed" in shown
    assert "the run finished, but its scenario's checks did not pass:" in told
    assert "failed: losses of all cells equal to 0.1; got largest relative difference 7.5e-01" in told
    assert RunFolder(find_runs(Path("results"))[-1]).checks.exists()


def test_checks_of_a_run_with_overrides_are_told_and_do_not_count(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown, _ = run_one(capsys, "one", "--set", "cells.b.seed=3")
    assert code == 0
    assert "FAILED" in shown
    assert "its checks are told and do not count" in shown


def test_programs_read_the_checks_of_a_run(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, _ = run_one(capsys, "one", "--json")
    checks = json.loads(printed)["checks"]
    assert (checks["outcome"], checks["answer"]) == ("passed", "Yes, from 1.00 MiB on.")
    assert checks["results"][0]["kind"] == "losses"
