"""The table of stages fits a terminal, and a wrong key is read with stage, part and rank; markup in it stays text."""

from collections.abc import Callable

import pytest
from rich.console import Console

from dtbench.analyze.summary import CellSummary, StageSummary, WrongKey
from dtbench.report.sentences import check_word, is_trusted
from dtbench.report.stages_text import render_stages
from dtbench.vocabulary import Stage, StatePart

Make = Callable[..., CellSummary]


def make_row(*wrong: str) -> StageSummary:
    return StageSummary(
        part=StatePart.MODEL,
        stage=Stage.GATHER,
        duration_ns=58_800_000,
        quartile1_ns=58_000_000,
        quartile3_ns=59_000_000,
        rounds=5,
        state_bytes=1 << 20,
        all_ranks_bytes=2 << 20,
        collectives=8,
        sent_bytes=1 << 20,
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
            console.print(render_stages(make_ddp(update={"stages": (row,)})))
        return captured.get()

    return render


def test_a_row_has_time_tensors_collectives_and_memory(show: Callable[[StageSummary], str]) -> None:
    shown = show(make_row())
    assert all(words in shown for words in ("model: gather", "58.8 ms", "1.00 MiB", "8", "+24.0 KiB", "equal"))
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
