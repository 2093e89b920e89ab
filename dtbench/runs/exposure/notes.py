"""What a reader of estimates must know: arms that a launch lacks or cannot use, ranks that are left out."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from dtbench.base.units import format_ns, name_ranks
from dtbench.base.vocabulary import ESTIMATE_PHRASES, Arm, Estimate
from dtbench.runs.exposure.agreement import Agreement, compare, known_votes
from dtbench.runs.exposure.counts import find_unlike_arms
from dtbench.runs.summary import ExposureRow
from dtbench.store.records.arms import ArmSteps
from dtbench.store.records.rank import RankRecord

_ARM_WORDS: Final = {
    Arm.REMOVED: ("steps without communication", "ablation is not used"),
    Arm.SERIAL: ("steps that wait for every collective", "what overlapping gained is not told"),
}
"""What an arm is called, and what follows where it cannot be used."""


def note_launch(
    ranks: Sequence[RankRecord], kinds: Sequence[Estimate], world_size: int, *, has_ended: bool
) -> Iterator[str]:
    """Say which arms a launch lacks, and which cannot be used.

    Args:
        ranks: their records.
        kinds: estimates that were asked for.
        world_size: ranks that it has.
        has_ended: the launch will not write more.
    """
    wished = [ESTIMATE_PHRASES[kind] for kind in (Estimate.ABLATION, Estimate.WAIT) if kind in kinds]
    if not wished:
        return
    what = f"the steps for {' and '.join(wished)}"
    steps = {record.rank: arms for record in ranks if (arms := record.extras.exposure) is not None}
    if not steps:
        yield f"{what} are missing: {'the launch ended before them' if has_ended else 'it has not come to them'}"
        return
    lacking = [rank for rank in range(world_size) if rank not in steps]
    if lacking:
        yield f"{what} are missing on {name_ranks(lacking)}"
    yield from _note_unlike(steps)
    blocks = [block for of_rank in steps.values() for block in of_rank.blocks]
    if lacking and any(block.arm is Arm.SERIAL for block in blocks):
        yield f"what overlapping gained is not told: the slowest rank may be {'it' if len(lacking) == 1 else 'of them'}"
    if Estimate.ABLATION in kinds and not any(block.arm is Arm.REMOVED for block in blocks):
        yield "no step ran without communication, so ablation is not known"
    if Estimate.WAIT in kinds and not any(block.wait_ns for block in blocks):
        yield "nobody timed waits, so they are not known"


def _note_unlike(steps: dict[int, ArmSteps]) -> Iterator[str]:
    unlike: dict[tuple[Arm, str], list[int]] = {}
    for rank, of_rank in steps.items():
        for arm, why in find_unlike_arms(of_rank).items():
            unlike.setdefault((arm, why), []).append(rank)
    for (arm, why), ranks in unlike.items():
        what, then = _ARM_WORDS[arm]
        yield f"{what} differ from the others in more than that on {name_ranks(ranks)}, so {then}: {why}"


def note_left_out(ranks: Sequence[int], shared: Sequence[int]) -> Iterator[str]:
    """Say over which ranks a mean is not taken, because some estimate of theirs is missing."""
    others = [rank for rank in ranks if rank not in shared]
    if others and shared:
        yield f"the mean over ranks leaves out {name_ranks(others)}, of which an estimate is missing"


def note_undecided(row: ExposureRow) -> Iterator[str]:
    """Name estimates of a row that are not of the same launches, or differ while nobody knows how sure they are."""
    for one, other in combinations(known_votes(row), 2):
        names = f"{ESTIMATE_PHRASES[one.estimate]} and {ESTIMATE_PHRASES[other.estimate]}"
        if one.part != other.part:
            yield f"{names} are not of the same launches and ranks, so they are not held against each other"
        elif compare(one, other) is Agreement.UNKNOWN:
            apart_ns = abs(one.mean_ns - other.mean_ns)
            yield f"{names} are {format_ns(apart_ns)} apart, which a single value cannot judge: take more steps"
