"""The table of stages fits a terminal, and a wrong key is read with stage, part and rank; markup in it stays text."""

import math
from collections.abc import Callable

import pytest
from rich.console import Console, Group

from dtbench.base.vocabulary import Operation, Stage, StageOutcome, StatePart
from dtbench.plan.traffic.state import StageTraffic
from dtbench.report.page.page import Cell, Table, Tone
from dtbench.report.page.stages import stage_blocks
from dtbench.report.render.terminal import render_block
from dtbench.report.words.sentences import check_word, is_trusted
from dtbench.runs.stage_summary import RaisedOnRank, StageSummary, WrongKey
from dtbench.runs.summary import CellSummary

Make = Callable[..., CellSummary]


def make_row(*wrong: str, outcome: StageOutcome | None = None) -> StageSummary:
    return StageSummary(
        part=StatePart.MODEL,
        stage=Stage.GATHER,
        outcome=outcome or (StageOutcome.WRONG if wrong else StageOutcome.EQUAL),
        duration_ns=58_800_000,
        quartile1_ns=58_000_000,
        quartile3_ns=59_000_000,
        shortest_ns=59_000_000,
        wait_ns=45e6,
        rounds=5,
        state_bytes=1 << 20,
        all_ranks_bytes=2 << 20,
        collectives=8,
        sent_bytes=1 << 20,
        planned=None,
        matches_plan=None,
        link_ns=math.nan,
        object_collectives=0,
        file_bytes=None,
        host_peak_bytes=24 << 10,
        device_peak_bytes=None,
        mismatched=len(wrong) + (1 if wrong else 0),
        mismatches=tuple(WrongKey(rank=1, key=key, words="3 of 9 elements differ") for key in wrong),
    )


@pytest.fixture
def show(make_ddp: Make) -> Callable[[StageSummary], str]:
    def render(row: StageSummary) -> str:
        console = Console(width=80)
        with console.capture() as captured:
            console.print(Group(*map(render_block, stage_blocks(make_ddp(update={"stages": (row,)})))))
        return captured.get()

    return render


def test_a_row_has_time_tensors_collectives_and_memory(show: Callable[[StageSummary], str]) -> None:
    shown = show(make_row())
    assert all(words in shown for words in ("model: gather", "58.8 ms", "1.00 MiB", "8", "+24.0 KiB", "equal"))
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    ("outcome", "tone"),
    [
        (StageOutcome.EQUAL, Tone.GOOD),
        (StageOutcome.NOT_COMPARED, Tone.WARNING),
        (StageOutcome.BROKEN, Tone.WARNING),
        (StageOutcome.WRONG, Tone.BAD),
        (StageOutcome.RAISED, Tone.BAD),
        (StageOutcome.MENDED, Tone.BAD),
    ],
)
def test_only_equal_bits_are_good_and_what_contradicts_the_scenario_is_bad(
    make_ddp: Make, outcome: StageOutcome, tone: Tone
) -> None:
    table, _ = stage_blocks(make_ddp(update={"stages": (make_row(outcome=outcome),)}))
    assert isinstance(table, Table)
    assert [row[-1] for row in table.rows] == [Cell(outcome.value, tone)]


def test_where_no_rank_saw_its_collectives_they_are_not_said_to_be_none(show: Callable[[StageSummary], str]) -> None:
    unseen = {"collectives": None, "sent_bytes": None, "object_collectives": None}
    assert show(make_row().model_copy(update=unseen)).count("n/a") == 2


def test_collectives_of_objects_stand_beside_those_of_tensors(show: Callable[[StageSummary], str]) -> None:
    shown = show(make_row().model_copy(update={"object_collectives": 12}))
    assert " 8+12 " in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_a_wrong_key_is_named_and_the_rest_is_counted(show: Callable[[StageSummary], str]) -> None:
    shown = " ".join(show(make_row("w[bold]")).split())
    assert "gather of the model, rank 1: w[bold]: 3 of 9 elements differ" in shown
    assert "gather of the model: and 1 more" in shown
    assert "WRONG" in shown


def test_a_cell_whose_state_came_out_wrong_is_not_trusted(make_ddp: Make) -> None:
    assert is_trusted(make_ddp(update={"stages": (make_row(),)}))
    wrong = make_ddp(update={"stages": (make_row("w"),)})
    assert (is_trusted(wrong), check_word(wrong)) == (False, "state differs")


def test_a_stage_that_raised_says_where_and_what_with_no_numbers(show: Callable[[StageSummary], str]) -> None:
    words = "ValueError: [red]no[/red] rank (torch 2.13.0)"
    shown = show(make_raised(words, StageOutcome.RAISED))
    assert f"gather of the model, ranks 2, 3: {words}" in " ".join(shown.split())
    assert "n/a" not in shown
    assert "58.8 ms" not in shown


def make_raised(words: str, outcome: StageOutcome) -> StageSummary:
    raised = tuple(RaisedOnRank(rank=rank, words=words) for rank in (2, 3))
    return make_row(outcome=outcome).model_copy(update={"rounds": 0, "duration_ns": math.nan, "raised": raised})


@pytest.mark.parametrize(
    ("outcome", "word"),
    [(StageOutcome.RAISED, "stage raised"), (StageOutcome.BROKEN, "passed"), (StageOutcome.MENDED, "stage works")],
)
def test_a_stage_known_to_be_broken_is_trusted_as_long_as_it_is(
    make_ddp: Make, outcome: StageOutcome, word: str
) -> None:
    cell = make_ddp(update={"stages": (make_raised("ValueError: no rank", outcome),)})
    assert (check_word(cell), is_trusted(cell)) == (word, word == "passed")


def test_a_stage_that_torch_has_mended_is_told_with_what_to_change(show: Callable[[StageSummary], str]) -> None:
    assert "take it out of state_dict.broken" in show(make_row(outcome=StageOutcome.MENDED))


def test_a_stage_that_sends_other_than_its_formula_says_what_was_planned(
    make_ddp: Make, show: Callable[[StageSummary], str]
) -> None:
    planned = (StageTraffic(operation=Operation.ALL_GATHER, count=4, size_bytes=512),)
    row = make_row().model_copy(update={"planned": planned, "matches_plan": False})
    words = "gather of the model: sent other than its formula says: 4 all_gather of 512 bytes"
    assert words in " ".join(show(row).split())
    assert check_word(make_ddp(update={"stages": (row,)})) == "traffic differs"
