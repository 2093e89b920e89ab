"""A busy loop on every core while ranks run: nothing is judged, and the record names who took the cores."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Phase
from dtbench.machine.processes import count_cores
from dtbench.plan.plan import Machine
from dtbench.report.page.checklist import answer_line, remedy_line
from dtbench.report.words.sentences import answer_sentence
from dtbench.runs.run import summarize_run
from dtbench.scenario.load import load_scenario
from dtbench.store.read import read_launch, read_rank_records, read_steps
from dtbench.store.records.checks import CheckOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

TEXT = """\
# Is a gather hidden where others have the cores?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 2, dim: 64, heads: 4, kv_heads: 2, ffn_dim: 96, vocab_size: 250}
data: {global_batch: 4, sequence_length: 32}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 6, profiled_steps: 2}
correctness: {enabled: false}
parallel: {kind: fsdp2, shards: 2}
checks:
  - {kind: bound, value: step_time.median, at_least_ms: 0}
  - {kind: bound, value: purposes.unshard.count, at_least: 1}
answer: "Yes, {purposes.unshard.exposed_ns} stay exposed."
"""


@pytest.fixture
def loops() -> Iterator[frozenset[int]]:
    """Keep every core busy; gives who does."""
    started = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count_cores())]
    try:
        yield frozenset(one.pid for one in started)
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_no_yes_and_no_passed_check_where_others_took_the_cores(
    tmp_path: Path, forked: tuple[str, ...], loops: frozenset[int]
) -> None:
    from dtbench.launch.cells import plan_cells
    from dtbench.launch.local import WORKER
    from dtbench.launch.run import Observer, ThisMachine, run_scenario

    file = load_scenario(TEXT, "taken.yaml")
    cells = plan_cells(file, Machine(cpu_cores=count_cores(), cuda_devices=0))
    folder = run_scenario(file, cells, tmp_path, observer=Observer(), engine=ThisMachine((*forked, *WORKER)))
    launch = folder.launch(cells[0].name, 0)
    steps = read_steps(launch)
    assert steps["taken_fraction"].median() > 0.1
    assert steps["others_cpu_ns"].min() > 0
    named = read_launch(launch).takers
    assert {taker.phase for taker in named} == {Phase.MEASURED, Phase.PROFILED}
    ours = {os.getpid(), *(record.pid for record in read_rank_records(launch))}
    assert not ours & {taker.pid for taker in named}
    if len({taker.pid for taker in named} - loops) < 2:  # else others had more of this machine than the loops
        assert loops & {taker.pid for taker in named}
    summary = summarize_run(folder.path)
    (cell,) = summary.cells
    assert cell.disturbed
    checks = summary.checks
    assert checks is not None
    assert {one.outcome for one in checks.results} == {CheckOutcome.NOT_JUDGED}
    assert checks.is_broken, "exit code 8"
    assert answer_line(checks) == "no answer, nothing is judged: others took the cores"
    who = remedy_line(checks) or ""
    assert any(f"(pid {taker.pid}) took " in who for taker in named), "other tests on this machine take as much"
    assert (answer_sentence(cell) or "").startswith("unreliable, since others took the cores: ")
