"""What a scenario asks of a training state's stages, and no rank, or not every rank, tells: no silence, no zero."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.reading.lost_evidence import find_lost_evidence
from dtbench.runs.reading.run_data import read_run_data
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.state import StageMemory, StageRecord, StateDictRecord, StateStepsRecord

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
MEMORY = StageMemory(
    host_before_bytes=1,
    host_peak_bytes=2,
    device_before_bytes=None,
    device_peak_bytes=None,
    samples=9,
    sampling_cpu_ns=1,
)
STEPS = StateStepsRecord(
    before_ns=(1,),
    load_ns=1,
    first_ns=1,
    after_ns=(1,),
    alone_ns=(1, 1),
    blocked_ns=(1, 1),
    beside_ns=(1, 1),
    in_flight=1,
    saved_ns=(1, 1),
    file_bytes=1,
    mismatched=0,
)
STAGES = (Stage.GATHER, Stage.FLATTEN, Stage.SAVE, Stage.READ, Stage.PRE_LOAD)
ASKED = StateDict(stages=STAGES, rounds=2, steps=1)


def told(stage: Stage, part: StatePart, **changes: Any) -> StageRecord:
    """Return all that a rank tells of a stage."""
    whole = StageRecord(
        stage=stage,
        part=part,
        duration_ns=(3, 4),
        wait_ns=(1, 1),
        state_bytes=8,
        traffic=(),
        traffic_is_stable=True,
        object_collectives=0,
        object_bytes=0,
        file_bytes=5 if stage in (Stage.SAVE, Stage.READ) else None,
        memory=MEMORY,
        mismatched=None if stage in (Stage.SAVE, Stage.FLATTEN) else 0,
    )
    return whole.model_copy(update=changes)


WHOLE = {(part, stage): told(stage, part) for part in StatePart for stage in ASKED.find_stages(part)}
GATHER = (StatePart.MODEL, Stage.GATHER)


@pytest.fixture(scope="module")
def example() -> CellData:
    return read_run_data(EXAMPLE, cell="ddp").cells[0]


Find = Callable[..., list[str]]


@pytest.fixture
def find(example: CellData) -> Find:
    """Say what is lost, given each rank's stages; every rank told all else."""

    def find(*ranks: Sequence[StageRecord], steps: StateStepsRecord | None = STEPS) -> list[str]:
        assert isinstance(example.cell.scenario, Scenario)
        scenario = example.cell.scenario.model_copy(update={"state_dict": ASKED})
        (launch,) = example.launches
        records = tuple(
            record.model_copy(
                update={
                    "extras": record.extras.model_copy(
                        update={"state_dict": StateDictRecord(stages=tuple(stages), steps=steps)}
                    )
                }
            )
            for record, stages in zip(launch.ranks, ranks, strict=True)
        )
        of_launch = replace(launch, ranks=records)
        cell = example.cell.model_copy(update={"scenario": scenario})
        return list(find_lost_evidence(replace(example, cell=cell, launches=(of_launch,)), of_launch))

    return find


def without(*lost: tuple[StatePart, Stage], **changes: Any) -> list[StageRecord]:
    """Return what a rank tells that lost stages, or something of each of these."""
    of_them = {key: [WHOLE[key].model_copy(update=changes)] if changes else [] for key in lost}
    return [one for key, stage in WHOLE.items() for one in of_them.get(key, [stage])]


def test_ranks_that_tell_all_that_is_asked_for_lost_nothing(find: Find) -> None:
    assert find(without(), without()) == []


def test_a_stage_that_no_rank_tells_of_any_more_is_missed(find: Find) -> None:
    part = [key for key in WHOLE if key[0] is StatePart.OPTIMIZER]
    assert find(without(GATHER), without(GATHER)) == ["ranks 0-1 say nothing of the gather of the model"]
    assert find(without(*part), without(*part)) == [
        f"ranks 0-1 say nothing of the {stage} of the optimizer" for stage in ("gather", "flatten", "save", "read")
    ]


def test_steps_that_no_rank_tells_of_are_missed(find: Find) -> None:
    assert find(without(), without(), steps=None) == ["ranks 0-1 say nothing of steps around a load and beside saves"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"before_ns": ()}, "of 0 of 1 steps before a load"),
        ({"alone_ns": (1,)}, "of 1 of 2 steps without a save"),
        ({"beside_ns": (1,)}, "of 1 of 2 steps beside a save"),
        ({"blocked_ns": (1,)}, "of 1 of 2 calls of an asynchronous save"),
        ({"saved_ns": ()}, "of 0 of 2 ends of an asynchronous save"),
    ],
)
def test_steps_and_saves_that_ranks_lost_are_counted(find: Find, changes: dict[str, Any], said: str) -> None:
    assert find(without(), without(), steps=STEPS.model_copy(update=changes)) == [f"ranks 0-1 tell {said}"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mismatched": None}, "whether bits are equal"),
        ({"state_bytes": None}, "its tensors"),
        ({"traffic": None}, "its collectives"),
        ({"object_collectives": None}, "its collectives"),
        ({"file_bytes": None}, "its files"),
    ],
)
def test_what_of_a_stage_is_not_told_is_missed_on_one_rank_and_on_all(
    find: Find, changes: dict[str, Any], said: str
) -> None:
    read = (StatePart.MODEL, Stage.READ)
    lacking = without(read, **changes)
    assert find(lacking, lacking) == [f"ranks 0-1 say nothing of the read of the model: {said}"]
    assert find(without(), lacking) == [f"rank 1 says nothing of the read of the model: {said}"]


def test_rounds_that_ranks_lost_are_counted(find: Find) -> None:
    fewer = without(GATHER, duration_ns=(3,), wait_ns=(1,))
    assert find(fewer, fewer) == ["ranks 0-1 tell of 1 of 2 rounds of the gather of the model"]
    assert find(without(), fewer) == ["rank 1 tells of 1 of 2 rounds of the gather of the model"]


def end_in(part: StatePart, stage: Stage, rounds: int = 2) -> list[StageRecord]:
    """Return what a rank tells where a stage raised, in the pass after so many rounds of those before."""
    keys = list(WHOLE)
    times = {"duration_ns": (3,) * rounds, "wait_ns": (1,) * rounds}
    done = [WHOLE[key].model_copy(update=times) for key in keys[: keys.index((part, stage))]]
    return [*done, StageRecord(stage=stage, part=part, raised="no")]


def test_nothing_is_asked_of_what_comes_after_a_stage_that_raised_and_all_of_what_came_before(find: Find) -> None:
    for rounds in (1, 2):
        ended = end_in(StatePart.OPTIMIZER, Stage.SAVE, rounds)
        elsewhere = [*ended[:-1], ended[-1].model_copy(update={"raised": None})]
        assert find(ended, elsewhere, steps=None) == []
        assert find(ended[1:], elsewhere[1:], steps=None) == ["ranks 0-1 say nothing of the gather of the model"]
        assert find(ended, elsewhere[:-1], steps=None) == ["rank 1 says nothing of the save of the optimizer"]
    later = end_in(StatePart.OPTIMIZER, Stage.SAVE, 1)
    said = find(ended, later, steps=None)
    assert said[0] == "rank 1 tells of 1 of 2 rounds of the gather of the model"
