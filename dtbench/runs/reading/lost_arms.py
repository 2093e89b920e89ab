"""Steps of arms that ranks do not tell of: each rank ran as many as ``dtbench.plan.arms`` says."""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.vocabulary import Arm, DeviceKind
from dtbench.plan.arms import BLOCK_STEPS, choose_arms, order_blocks
from dtbench.runs.reading.lost_stages import say_fewer
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import RankRecord

_WORDS: Final = {
    Arm.FULL: "steps with communication",
    Arm.REMOVED: "steps without communication",
    Arm.SERIAL: "steps that wait for every collective",
}


def find_lost_arms(
    asked: Scenario, device: DeviceKind, measured_steps: int, ranks: Sequence[RankRecord]
) -> Iterator[str]:
    """Say which ranks tell of fewer steps of an arm than they ran.

    Of arms that the scenario has all ranks run, and that another rank tells of or counted a step of.

    Args:
        asked: the cell's.
        device: where the ranks computed.
        measured_steps: that the plan has.
        ranks: records of one launch; who tells of no arm at all is missed elsewhere.
    """
    told = {record.rank: arms for record in ranks if (arms := record.extras.exposure) is not None}
    seen = {block.arm for arms in told.values() for block in arms.blocks}
    seen |= {count.arm for arms in told.values() for count in arms.counts}
    planned = choose_arms(asked.measure.exposure, device, waits_in_cpp=False)
    for arm in (one for one in Arm if one in seen or one in planned):
        wanted = BLOCK_STEPS * len(order_blocks((arm,), measured_steps))
        steps = {
            rank: sum(len(block.step_ns) for block in arms.blocks if block.arm is arm) for rank, arms in told.items()
        }
        yield from say_fewer(steps, wanted, _WORDS[arm])
