"""What others had of the machine of a launch, where it is not told: by a system that cannot tell, or since it is lost.

A step of which it is not known counts as left alone, which has to be said. Where nobody looked at all there is no more
to say of it. Where somebody did, what lacks it lost it: others may have had the cores there, and nothing is judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from dtbench.base.units import count_things, name_ranks
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.reading.undisturbed import JUDGED

_Share = Literal["stolen_fraction", "taken_fraction"]

_WHO: Final[dict[_Share, str]] = {
    "stolen_fraction": "other virtual machines of the host",
    "taken_fraction": "other processes",
}


@dataclass(frozen=True)
class Untold:
    """What one kind of others had, where a launch does not tell it.

    Attributes:
        who: these others, in words.
        where: it is not told, in words, at least one.
        is_lost: of something else of this launch it is told, or its table of steps was to tell it.
    """

    who: str
    where: tuple[str, ...]
    is_lost: bool

    @property
    def words(self) -> str:
        """Say what is not known, or lost, and that nothing is left out for it."""
        *first, last = self.where
        where = f"{', '.join(first)} and {last}" if first else last
        what = f"what {self.who} had of the cores is"
        return f"{what} lost in {where}" if self.is_lost else f"{what} not known of {where}: none is left out for it"


def find_untold(launch: LaunchData) -> Iterator[Untold]:
    """Yield what others had and a launch does not tell, by who they are."""
    for share, who in _WHO.items():
        looks = [
            *_look_at_steps(launch.all_steps, share),
            *_look_at_arms(launch, share),
            *_look_at_state(launch, share),
        ]
        is_column = share == "taken_fraction" and share in launch.all_steps  # written only where somebody looked
        where = tuple(look.words for look in looks if look.untold)
        if where:
            yield Untold(who, where, is_lost=is_column or any(look.untold < look.of for look in looks))


def say_lost_takers(steps: pd.DataFrame) -> list[str]:
    """Say of how many MEASURED and PROFILED steps it is lost what other processes had, by the table of steps alone.

    Args:
        steps: columns as in the table ``steps``, of one launch; without one for other processes nobody looked.
    """
    share: _Share = "taken_fraction"
    looks = _look_at_steps(steps, share) if share in steps else ()
    return [Untold(_WHO[share], (look.words,), is_lost=True).words for look in looks if look.untold]


@dataclass(frozen=True)
class _Look:
    """Of how many steps or ranks it is not told, of how many."""

    untold: int
    of: int
    words: str


def _look_at_steps(every: pd.DataFrame, share: _Share) -> Iterator[_Look]:
    steps = every[every["phase"].isin(JUDGED)]
    lacking = steps[steps[share].isna()] if share in steps else steps
    untold, of = (one["step"].nunique() for one in (lacking, steps))
    yield _Look(untold, of, f"{untold} of {count_things(of, 'step')}")


def _look_at_arms(launch: LaunchData, share: _Share) -> Iterator[_Look]:
    of_ranks = [arms.blocks for record in launch.ranks if (arms := record.extras.exposure) is not None]
    told = [[_are_told(getattr(block, share), len(block.step_ns)) for block in blocks] for blocks in of_ranks if blocks]
    if not told:
        return
    counts = [[int((~steps).sum()) for steps in of_rank] for of_rank in told]
    untold, of = max(map(sum, counts)), max(sum(map(len, of_rank)) for of_rank in told)
    yield _Look(untold, of, f"{untold} of {count_things(of, 'arm step')}")


def _are_told(shares: Sequence[float], steps: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Tell of each step of a block whether its share is there; of one with another number of shares none is."""
    return ~np.isnan(np.asarray(shares)) if len(shares) == steps else np.zeros(steps, dtype=np.bool_)


def _look_at_state(launch: LaunchData, share: _Share) -> Iterator[_Look]:
    states = {record.rank: state for record in launch.ranks if (state := record.extras.state_dict) is not None}
    if share == "stolen_fraction" or not states:
        return
    silent = [rank for rank, state in states.items() if state.taken_fraction is None]
    yield _Look(len(silent), len(states), f"the stages of the training state on {name_ranks(silent)}")
