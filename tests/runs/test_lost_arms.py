"""Steps of arms that one rank lost, or all of them: the plan says how many there must be."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Arm, DeviceKind
from dtbench.plan.arms import order_blocks
from dtbench.runs.reading.lost_arms import find_lost_arms
from dtbench.runs.reading.run_data import read_run_data
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.arms import ArmBlock, ArmCount, ArmSteps
from dtbench.store.records.rank import RankRecord

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
MEASURED_STEPS = 12
WHOLE = order_blocks(tuple(Arm), MEASURED_STEPS)


@pytest.fixture(scope="module")
def asked() -> Scenario:
    scenario = read_run_data(EXAMPLE, cell="ddp").cells[0].cell.scenario
    assert isinstance(scenario, Scenario)
    return scenario


@pytest.fixture(scope="module")
def record() -> RankRecord:
    return read_run_data(EXAMPLE, cell="ddp").launches[0].ranks[0]


def tell(record: RankRecord, rank: int, order: tuple[Arm, ...] | None, steps: int = 3) -> RankRecord:
    """Return the record of a rank that tells of these blocks; None: of no arms."""
    found = None
    if order is not None:
        blocks = tuple(ArmBlock(arm=arm, step_ns=(1,) * steps) for arm in order)
        counts = tuple(ArmCount(arm=arm, operators=1, traffic=()) for arm in dict.fromkeys(order))
        found = ArmSteps(blocks=blocks, counts=counts)
    extras = record.extras.model_copy(update={"exposure": found})
    return record.model_copy(update={"rank": rank, "extras": extras})


@pytest.mark.parametrize(
    ("exposure", "told", "said"),
    [
        (("ablation",), {0: WHOLE, 1: WHOLE}, []),
        (("ablation",), {0: WHOLE, 1: WHOLE[:-1]}, ["rank 1 tells of 9 of 12 steps with communication"]),
        (
            ("ablation",),
            {0: WHOLE[:3], 1: WHOLE[:3]},
            [
                "ranks 0-1 tell of 3 of 12 steps with communication",
                "ranks 0-1 tell of 3 of 12 steps without communication",
                "ranks 0-1 tell of 3 of 12 steps that wait for every collective",
            ],
        ),
        (
            ("ablation",),
            dict.fromkeys((0, 1), tuple(arm for arm in WHOLE if arm is not Arm.SERIAL)),
            ["ranks 0-1 tell of 0 of 12 steps that wait for every collective"],
        ),
        (("wait",), {0: (Arm.FULL,) * 4, 1: (Arm.FULL,) * 4}, []),
        (
            ("wait",),
            {0: (Arm.FULL, Arm.REMOVED) * 4, 1: (Arm.FULL,) * 4},
            ["rank 1 tells of 0 of 12 steps without communication"],
        ),
        (("ablation",), {0: None, 1: None}, []),
    ],
    ids=["whole", "a block of a rank", "most of all", "an arm of all", "waits alone", "an arm of a rank", "no arms"],
)
def test_steps_of_arms_that_ranks_lost_are_counted(
    asked: Scenario,
    record: RankRecord,
    exposure: tuple[str, ...],
    told: Mapping[int, tuple[Arm, ...] | None],
    said: list[str],
) -> None:
    scenario = asked.model_copy(update={"measure": asked.measure.model_copy(update={"exposure": exposure})})
    ranks = [tell(record, rank, order) for rank, order in told.items()]
    assert list(find_lost_arms(scenario, DeviceKind.CPU, MEASURED_STEPS, ranks)) == said


def test_where_only_ddps_logger_was_read_no_arm_is_missed(asked: Scenario, record: RankRecord) -> None:
    scenario = asked.model_copy(update={"measure": asked.measure.model_copy(update={"exposure": ("trace", "wait")})})
    assert list(find_lost_arms(scenario, DeviceKind.CUDA, MEASURED_STEPS, [tell(record, 0, ())])) == []


def test_blocks_whose_steps_are_cut_are_missed_too(asked: Scenario, record: RankRecord) -> None:
    scenario = asked.model_copy(update={"measure": asked.measure.model_copy(update={"exposure": ("wait",)})})
    ranks = [tell(record, 0, (Arm.FULL,) * 4, steps=1)]
    (said,) = find_lost_arms(scenario, DeviceKind.CPU, MEASURED_STEPS, ranks)
    assert said == "rank 0 tells of 4 of 12 steps with communication"
