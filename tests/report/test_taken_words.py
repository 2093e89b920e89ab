"""A run whose cores others took says so wherever its answer would stand, and ends with the error of a failed check."""

from collections.abc import Callable

import pytest
from rich.console import Console

from dtbench.base.errors import CheckError
from dtbench.base.vocabulary import Cause, Operation, Phase, Purpose
from dtbench.cli.run import _check
from dtbench.comparison.reading.measure import _find_doubt
from dtbench.report.page.checklist import answer_line, remedy_line
from dtbench.report.page.page import Chart
from dtbench.report.page.run_page import answer_words, note_words
from dtbench.report.plots.names import plot_step_breakdown
from dtbench.report.words.sentences import (
    advice_sentences,
    answer_sentence,
    check_word,
    doubts_of_cells,
    is_trusted,
    lead_waits,
    wait_word,
)
from dtbench.runs.cell.cell_notes import name_takers
from dtbench.runs.summary import CellSummary, Disturbed, OwnerSummary, RunSummary
from dtbench.store.records.checks import CORES_KIND, CheckOutcome, CheckResult, ChecksSummary
from dtbench.store.records.run import Neighbour, TookCores, UsedGpu
from tests.report.shown import board_cell, markdown_run, terminal_run

WHO = "python busy.py (pid 4711) took 0.98 of 2 cores"
LEFT = "they left 1 of 8 MEASURED steps alone"
TAKEN = Disturbed(
    launch=0,
    phase=Phase.MEASURED,
    steps=8,
    left_alone=1,
    stolen_fraction=0.0,
    takers=(TookCores(phase=Phase.MEASURED, pid=4711, name="python busy.py", cores=0.98, of_cores=2),),
)
OWNER = OwnerSummary(
    owner="bucket 3",
    operation=Operation.ALL_REDUCE,
    purpose=Purpose.GRAD_REDUCE,
    cause=Cause.TAIL,
    exposed_ns=5_000_000,
    owner_exposed_ns=5_000_000,
)
NOT_JUDGED = ChecksSummary(
    outcome=CheckOutcome.NOT_JUDGED,
    results=tuple(
        CheckResult(kind=kind, words="it holds", outcome=CheckOutcome.NOT_JUDGED, got=got, because="")
        for kind, got in ((CORES_KIND, f"ddp: {WHO}; {LEFT}"), ("bound", "3 ms"))
    ),
    answer=None,
    launches=1,
    changed=False,
)

MakeCell = Callable[..., CellSummary]
MakeRun = Callable[..., RunSummary]


def shown(summary: RunSummary) -> str:
    console = Console(width=400, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal_run(summary))
    return capture.get()


def test_whoever_took_the_cores_stands_where_the_answer_would(make_ddp: MakeCell, make_run: MakeRun) -> None:
    run = make_run(make_ddp(update={"disturbed": (TAKEN,)})).model_copy(update={"checks": NOT_JUDGED})
    said = "no answer, nothing is judged: others took the cores"
    what_to_do = f"ddp: {WHO}; {LEFT}. Stop what can be stopped, or wait until the machine is quiet, and run it again"
    assert (answer_line(NOT_JUDGED), remedy_line(NOT_JUDGED)) == (said, what_to_do)
    in_full, in_short, in_words = shown(run), markdown_run(run).replace("\\", ""), "\n".join(answer_words(run))
    for place in (in_full, in_short, in_words):
        assert said in place
        assert (place.count(what_to_do), place.count(WHO)) == (1, 1)
        assert "Yes" not in place
        assert "passed" not in place.replace("passed against a single process", "")
    for place in (in_full, in_words):
        assert "unreliable, since others took the cores: " in place


def test_no_owner_and_no_cause_is_named_of_such_a_cell(make_ddp: MakeCell) -> None:
    quiet = make_ddp(update={"owners": (OWNER,)})
    taken = quiet.model_copy(update={"disturbed": (TAKEN,)})
    assert (check_word(taken), is_trusted(taken)) == ("cores taken", False)
    told = answer_sentence(quiet)
    assert told is not None
    exposed = told.split(";")[0]
    assert answer_sentence(taken) == f"unreliable, since others took the cores: {exposed}"
    assert advice_sentences(quiet)
    assert advice_sentences(taken) == [], "what would change it is not known either"
    assert _find_doubt(quiet) is None
    assert _find_doubt(taken) == f"others took the cores: {WHO}; {LEFT}"


def test_checks_that_are_not_judged_end_a_run_with_the_name_of_who_took_the_cores(
    make_ddp: MakeCell, make_run: MakeRun
) -> None:
    taken = make_run(make_ddp(update={"disturbed": (TAKEN,)}))
    _check(taken)  # its file claims nothing
    with pytest.raises(CheckError) as raised:
        _check(taken.model_copy(update={"checks": NOT_JUDGED}))
    assert raised.value.exit_code == 8
    assert WHO in str(raised.value)
    assert "FAILED" not in str(raised.value)


def test_other_runs_on_the_machine_are_named(make_ddp: MakeCell, make_run: MakeRun) -> None:
    neighbour = Neighbour(pid=12, user="ada", run="/results/a")
    run = make_run(make_ddp()).model_copy(update={"neighbours": (neighbour,)})
    said = "another run of dtbench was on this machine: /results/a of ada (pid 12)"
    for place in (shown(run), markdown_run(run).replace("\\", ""), "\n".join(note_words(run))):
        assert said in place
    assert said not in shown(make_run(make_ddp()))


def test_a_torch_that_nobody_tested_is_named_wherever_the_run_is(make_ddp: MakeCell, make_run: MakeRun) -> None:
    said = "torch 2.99.0 is outside the tested range"
    run = make_run(make_ddp()).model_copy(update={"environment_notes": (said,)})
    for place in (shown(run), markdown_run(run).replace("\\", ""), "\n".join(note_words(run))):
        assert place.count(said) == 1
    assert said not in shown(make_run(make_ddp()))


def test_processes_without_a_name_are_told_by_phase_and_never_added() -> None:
    def took(phase: Phase, pid: int | None, name: str, cores: float) -> TookCores:
        return TookCores(phase=phase, pid=pid, name=name, cores=cores, of_cores=2)

    takers = [
        took(Phase.MEASURED, 1, "cc1", 0.5),
        took(Phase.MEASURED, None, "4 processes with less each", 0.9),
        took(Phase.PROFILED, 1, "cc1", 0.6),
        took(Phase.PROFILED, None, "4 processes with less each", 0.7),
    ]
    assert name_takers([*takers, *takers]) == (
        "cc1 (pid 1) took 0.60 of 2 cores"
        " and 4 processes with less each took 0.90 of 2 cores in MEASURED steps"
        " and 4 processes with less each took 0.70 of 2 cores in PROFILED steps"
    )


def test_one_number_of_a_process_on_two_machines_is_two_processes() -> None:
    cores = [
        TookCores(phase=Phase.MEASURED, pid=7, name="cc1", cores=0.5, of_cores=2, host=host) for host in ("a", "b")
    ]
    gpus = [UsedGpu(phase=Phase.MEASURED, pid=7, name="cc1", gpu=0, share=0.5, host=host) for host in ("a", "b")]
    assert name_takers([*cores, *gpus]) == (
        "cc1 (pid 7) took 0.50 of 2 cores on a and cc1 (pid 7) took 0.50 of 2 cores on b"
        " and cc1 (pid 7) had GPU 0 on a for 50.0 % of the time and cc1 (pid 7) had GPU 0 on b for 50.0 % of the time"
    )


def test_no_picture_says_whose_the_exposed_time_is_where_others_had_the_cores(make_ddp: MakeCell) -> None:
    assert doubts_of_cells([make_ddp()]) == {}
    assert doubts_of_cells([make_ddp(update={"disturbed": (TAKEN,)})]) == {
        "ddp": "unreliable, since others took the cores"
    }


def test_nothing_is_found_out_from_a_cell_whose_results_are_wrong(make_ddp: MakeCell) -> None:
    quiet = make_ddp(update={"owners": (OWNER,)})
    assert quiet.correctness is not None
    wrong = quiet.model_copy(update={"correctness": quiet.correctness.model_copy(update={"passed": False})})
    told = answer_sentence(quiet)
    assert told is not None
    why = "unreliable, since its results differ from those of a single process"
    assert answer_sentence(wrong) == f"{why}: {told.split(';')[0]}"
    assert doubts_of_cells([wrong]) == {"ddp": why}
    assert advice_sentences(wrong) == []


def test_what_is_exposed_is_at_least_so_much_where_collectives_were_launched_and_not_seen(
    make_ddp: MakeCell, make_run: MakeRun
) -> None:
    lost = make_ddp(update={"unseen_collectives": 1})
    assert str(answer_sentence(lost)).startswith("at least ")
    title = plot_step_breakdown(make_run(lost)).axes[0].get_title(loc="left")
    assert title.startswith("Exposed communication takes at least ")
    assert "at least" not in str(answer_sentence(make_ddp()))


def test_every_table_and_wait_of_a_cell_is_a_bound_where_collectives_were_not_seen_to_run(
    make_ddp: MakeCell, make_run: MakeRun
) -> None:
    lost = make_ddp(update={"unseen_collectives": 2, "owners": (OWNER,)})
    assert dict(lead_waits(lost))["gradient wait"].startswith("at least 12.3 ms per step")
    assert wait_word(lost, Purpose.GRAD_REDUCE) == "at least 12.3 ms"
    assert wait_word(lost, Purpose.UNSHARD) == "none"
    text = shown(make_run(lost))
    assert text.count("2 collectives were launched and not seen to run: communication") == 3
    chart = board_cell(make_run(lost)).find("breakdown")
    assert isinstance(chart, Chart)
    assert chart.note.startswith("2 collectives were launched and not seen to run")
    seen = make_ddp(update={"owners": (OWNER,)})
    assert "at least" not in wait_word(seen, Purpose.GRAD_REDUCE)
    assert "not seen to run" not in shown(make_run(seen))
