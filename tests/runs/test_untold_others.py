"""What others had of a machine and a launch does not tell: a note where nobody looked, lost evidence where some did."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import Arm, Phase
from dtbench.report.words.sentences import cell_notes, check_word
from dtbench.runs.reading.untold_others import find_untold
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.store.records.arms import ArmBlock, ArmSteps
from dtbench.store.records.state import StateDictRecord
from dtbench.store.write import write_table

NAN = math.nan
EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def make_steps(*taken: float) -> pd.DataFrame:
    """Return two MEASURED steps of one rank; without arguments their table has no column for other processes."""
    steps = pd.DataFrame({"step": [0, 1], "phase": Phase.MEASURED.value, "stolen_fraction": 0.0})
    return steps.assign(taken_fraction=list(taken)) if taken else steps


def make_launch(
    steps: pd.DataFrame,
    *,
    arms: Sequence[Sequence[float]] | None = None,
    stages: Sequence[float | None] = (),
    stolen: Sequence[float] = (0.0, 0.0),
) -> Any:
    """Return a launch of two ranks.

    Args:
        steps: of its table.
        arms: what processes took in a block of two steps, of each rank; None: there are no arms.
        stages: likewise while the training state went through stages; empty: it did not.
        stolen: what guests had in each step of a block.
    """
    blocks = [
        ArmBlock(arm=Arm.FULL, step_ns=(1, 2), stolen_fraction=tuple(stolen), taken_fraction=tuple(taken))
        for taken in arms or ()
    ]
    ranks = [
        SimpleNamespace(
            rank=rank,
            extras=SimpleNamespace(
                exposure=ArmSteps(blocks=(blocks[rank],), counts=()) if blocks else None,
                state_dict=StateDictRecord(stages=(), taken_fraction=stages[rank]) if stages else None,
            ),
        )
        for rank in (0, 1)
    ]
    return SimpleNamespace(all_steps=steps, ranks=ranks)


PROCESSES = "what other processes had of the cores is"
STAGES = "the stages of the training state on"
KEPT = "none is left out for it"


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (make_launch(make_steps(0.0, 0.1), arms=[(0.0, 0.0), (0.5, 0.0)], stages=(0.0, 0.4)), []),
        (make_launch(make_steps()), [f"{PROCESSES} not known of 2 of 2 steps: {KEPT}"]),
        (make_launch(make_steps(NAN, NAN)), [f"{PROCESSES} lost in 2 of 2 steps"]),
        (make_launch(make_steps(0.0, NAN)), [f"{PROCESSES} lost in 1 of 2 steps"]),
        (make_launch(make_steps(0.0, 0.0), arms=[(), ()]), [f"{PROCESSES} lost in 2 of 2 arm steps"]),
        (make_launch(make_steps(0.0, 0.0), arms=[(0.0, NAN), (0.0, 0.0)]), [f"{PROCESSES} lost in 1 of 2 arm steps"]),
        (
            make_launch(make_steps(0.0, 0.0), arms=[(0.0, 0.0)] * 2, stolen=()),
            ["what other virtual machines of the host had of the cores is lost in 2 of 2 arm steps"],
        ),
        (
            make_launch(make_steps(0.0, 0.0), stages=(0.0, None)),
            [f"{PROCESSES} lost in {STAGES} rank 1"],
        ),
        (
            make_launch(make_steps(), arms=[(), ()], stages=(None, None)),
            [f"{PROCESSES} not known of 2 of 2 steps, 2 of 2 arm steps and {STAGES} ranks 0-1: {KEPT}"],
        ),
    ],
)
def test_it_is_said_where_what_others_had_is_not_told(launch: Any, said: list[str]) -> None:
    assert [one.words for one in find_untold(launch)] == said


def test_nothing_is_judged_where_steps_lost_what_others_had_and_all_of_it_where_nobody_looked(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    launch = run.launch("ddp", 0)
    steps = pd.read_parquet(launch.steps)
    said = "launch0: what other processes had of the cores is"
    (cell,) = (one for one in summarize_run(run.path).cells if one.name == "ddp")
    assert not cell.rank_doubts
    assert check_word(cell) != "not judged"
    assert any(note.startswith(f"{said} not known of ") for note in cell_notes(cell))
    write_table(launch.steps, steps.assign(taken_fraction=NAN))
    (cell,) = (one for one in summarize_run(run.path).cells if one.name == "ddp")
    (doubt,) = cell.rank_doubts
    assert doubt.startswith(f"{said} lost in ")
    assert check_word(cell) == "not judged"
    assert sum(PROCESSES in note for note in cell_notes(cell)) == 1
