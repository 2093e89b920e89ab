"""Estimates of exposed communication from steps and blocks of steps, each with its standard error.

::

    full ████ ████ ████   removed ██ ██ ██   removed ██ ██ ██   full ████ ████ ████    blocks take turns (ABBA)
    position 0            position 1         position 2         position 3
    └──────── pair, lag -1 ───────┘          └──────── pair, lag +1 ──────────────┘

[Note: how sure an estimate is] Steps of one block resemble each other, and so do blocks of one launch: what varies
slowly does not average out within a block. But a standard error of few values is itself a guess, and often far too
small. So it is taken at every level (steps, blocks, launches), and the largest counts: never surer than the coarsest
units, and never sure because a handful of them happened to lie together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import Arm, Estimate, Purpose
from dtbench.machine.disturbance import DISTURBED, add_lost, find_undisturbed
from dtbench.runs.summary import Estimated
from dtbench.store.records.arms import ArmBlock, ArmSteps

Floats = NDArray[np.float64]

LEAST_BLOCKS: Final = 4
"""From so many blocks on they are the independent values; of fewer, their steps are counted."""

_DIFFERENCE_MEDIAN: Final = 0.6744897501960817 * math.sqrt(2)
"""Median of the absolute difference of two normal values, in standard deviations."""

_MEDIAN_ERROR: Final = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for many normal values."""


@dataclass(frozen=True)
class Block:
    """Steps of one arm, one after another, of one rank or of the mean over ranks.

    Attributes:
        position: among all blocks of its launch, in the order in which they ran.
        step_ns: shape ``(steps,)``.
        wait_ns: likewise, over all purposes; empty where nobody timed waits.
        gradient_wait_ns: the part of it that was for gradients.
        stolen_fraction: likewise, of the machine's cores, had by others; empty where nobody looked.
    """

    arm: Arm
    position: int
    step_ns: Floats
    wait_ns: Floats
    gradient_wait_ns: Floats
    stolen_fraction: Floats


def read_blocks(record: ArmSteps) -> tuple[Block, ...]:
    """Return what one rank ran, in order."""
    return tuple(
        Block(
            arm=block.arm,
            position=position,
            step_ns=np.asarray(block.step_ns, dtype=np.float64),
            wait_ns=_sum_waits(list(block.wait_ns.values())),
            gradient_wait_ns=_sum_waits([block.wait_ns[Purpose.GRAD_REDUCE]])
            if Purpose.GRAD_REDUCE in block.wait_ns
            else np.zeros(len(block.step_ns) if block.wait_ns else 0),
            stolen_fraction=_read_lost(block),
        )
        for position, block in enumerate(record.blocks)
    )


def _read_lost(block: ArmBlock) -> Floats:
    """Return what others had in each step, as other virtual machines and as processes of the machine."""
    stolen, taken = block.stolen_fraction, block.taken_fraction
    if stolen and taken:
        return np.asarray(add_lost(stolen, taken), dtype=np.float64)
    return np.asarray(stolen or taken, dtype=np.float64)


def _sum_waits(waits_ns: Sequence[Sequence[int]]) -> Floats:
    return np.asarray(waits_ns, dtype=np.float64).sum(axis=0) if waits_ns else np.empty(0)


def keep_undisturbed(ranks: Mapping[int, Sequence[Block]]) -> dict[int, list[Block]]:
    """Leave out of each block the steps in which others had too much of the machine of any rank.

    Ranks that did not run the same blocks keep all of theirs.

    Args:
        ranks: blocks of each.
    """
    shapes = {tuple(len(block.step_ns) for block in blocks) for blocks in ranks.values()}
    if len(shapes) != 1:
        return {rank: list(blocks) for rank, blocks in ranks.items()}
    kept = [_find_kept(of_ranks) for of_ranks in zip(*ranks.values(), strict=True)]
    return {
        rank: [
            replace(
                block,
                step_ns=block.step_ns[steps],
                wait_ns=block.wait_ns[steps] if len(block.wait_ns) else block.wait_ns,
                gradient_wait_ns=block.gradient_wait_ns[steps] if len(block.wait_ns) else block.gradient_wait_ns,
                stolen_fraction=block.stolen_fraction[steps]
                if len(block.stolen_fraction) == len(steps)
                else block.stolen_fraction[:0],
            )
            for block, steps in zip(blocks, kept, strict=True)
        ]
        for rank, blocks in ranks.items()
    }


def _find_kept(of_ranks: Sequence[Block]) -> NDArray[np.bool_]:
    """Say of each step of a block whether to go by it, from what the ranks tell of it."""
    return np.array(find_undisturbed(_find_worst(of_ranks).tolist()), dtype=np.bool_)


def _find_worst(of_ranks: Sequence[Block]) -> Floats:
    """Return what others had in each step of a block, on the machine where it was most; NaN: not known of any."""
    told = [block.stolen_fraction for block in of_ranks if len(block.stolen_fraction) == len(block.step_ns)]
    return np.fmax.reduce(told) if told else np.full(len(of_ranks[0].step_ns), math.nan)


def count_left_alone(ranks: Mapping[int, Sequence[Block]]) -> tuple[int, int]:
    """Return how many steps of blocks others are not known to have disturbed on any machine, of how many.

    Args:
        ranks: blocks of each; of those that did not run the same blocks nothing is known.
    """
    shapes = {tuple(len(block.step_ns) for block in blocks) for blocks in ranks.values()}
    if len(shapes) != 1:
        return 0, 0
    worst = [_find_worst(of_ranks) for of_ranks in zip(*ranks.values(), strict=True)]
    return sum(int((~(lost >= DISTURBED)).sum()) for lost in worst), sum(len(lost) for lost in worst)


def find_block_disturbance(ranks: Mapping[int, Sequence[Block]]) -> float:
    """Return what others had of the machine's cores in the steps of blocks, median of those that tell; or NaN.

    Args:
        ranks: blocks of each, steps to leave out left out.
    """
    told = [block.stolen_fraction for blocks in ranks.values() for block in blocks]
    known = np.concatenate([np.empty(0), *(shares[~np.isnan(shares)] for shares in told)])
    return float(np.median(known)) if len(known) else math.nan


def average_blocks(ranks: Sequence[Sequence[Block]]) -> tuple[Block, ...] | None:
    """Return the mean over ranks, step by step; None where they did not run the same blocks.

    Args:
        ranks: blocks of each, at least one rank.
    """
    shapes = {tuple((block.arm, len(block.step_ns), len(block.wait_ns)) for block in blocks) for blocks in ranks}
    if len(shapes) > 1:
        return None
    return tuple(
        replace(
            of_ranks[0],
            step_ns=np.mean([block.step_ns for block in of_ranks], axis=0),
            wait_ns=np.mean([block.wait_ns for block in of_ranks], axis=0),
            gradient_wait_ns=np.mean([block.gradient_wait_ns for block in of_ranks], axis=0),
        )
        for of_ranks in zip(*ranks, strict=True)
    )


def unknown(estimate: Estimate) -> Estimated:
    """Return an estimate that nobody knows."""
    return Estimated(estimate=estimate, mean_ns=math.nan, standard_error_ns=math.nan, count=0)


def estimate_steps(estimate: Estimate, values_ns: Floats) -> Estimated:
    """Return the mean over steps; unknown without any."""
    if not len(values_ns):
        return unknown(estimate)
    return Estimated(
        estimate=estimate,
        mean_ns=float(values_ns.mean()),
        standard_error_ns=standard_error(values_ns),
        count=len(values_ns),
    )


def estimate_waits(blocks_ns: Sequence[Floats]) -> Estimated:
    """Return the mean over the steps of all blocks; see [Note: how sure an estimate is]."""
    blocks_ns = [block_ns for block_ns in blocks_ns if len(block_ns)]
    if not blocks_ns:
        return unknown(Estimate.WAIT)
    steps_ns = np.concatenate(blocks_ns)
    means_ns = np.array([block_ns.mean() for block_ns in blocks_ns])
    return Estimated(
        estimate=Estimate.WAIT,
        mean_ns=float(steps_ns.mean()),
        standard_error_ns=_largest_known(standard_error(steps_ns), standard_error(means_ns)),
        count=len(means_ns) if len(means_ns) >= LEAST_BLOCKS else len(steps_ns),
    )


def estimate_ablation(blocks: Sequence[Block]) -> Estimated:
    """Return T(full) - T(removed), as ``estimate_difference`` does."""
    return estimate_difference(blocks, Arm.FULL, Arm.REMOVED)


def estimate_difference(blocks: Sequence[Block], arm: Arm, less: Arm) -> Estimated:
    """Return T(arm) - T(less): the mean difference of neighbouring blocks' medians, without the machine's drift.

    The first block of one arm is held against the first of the other, and so on: in ABBA order these are neighbours,
    and a drift adds to one pair what it takes from the next. It may be negative.
    """
    ones = [block for block in blocks if block.arm is arm and len(block.step_ns)]
    others = [block for block in blocks if block.arm is less and len(block.step_ns)]
    pairs = list(zip(ones, others, strict=False))  # a launch that died has one arm once more
    if not pairs:
        return unknown(Estimate.ABLATION)
    gains_ns = np.array([float(np.median(one.step_ns) - np.median(other.step_ns)) for one, other in pairs])
    lags = np.array([float(one.position - other.position) for one, other in pairs])
    mean_ns, error_ns = _without_drift(gains_ns, lags)
    of_steps_ns = math.hypot(_median_error(ones), _median_error(others))
    return Estimated(
        estimate=Estimate.ABLATION,
        mean_ns=mean_ns,
        standard_error_ns=_largest_known(error_ns, of_steps_ns),
        count=len(pairs),
    )


def _without_drift(gains_ns: Floats, lags: Floats) -> tuple[float, float]:
    """Return the difference at lag 0 and its standard error, by least squares: a drift adds its rate times the lag.

    Where lags are balanced, as in whole turns of ABBA, that is the mean, and the drift does not widen its error. Of two
    pairs, and where one arm always ran first, it is the mean with the error of plain differences.
    """
    count = len(gains_ns)
    if count < 3 or lags.min() > 0 or lags.max() < 0:
        return float(gains_ns.mean()), standard_error(gains_ns)
    design = np.column_stack([np.ones(count), lags])
    coefficients = np.linalg.lstsq(design, gains_ns, rcond=None)[0]
    residuals_ns = gains_ns - design @ coefficients
    variance = float(residuals_ns @ residuals_ns) / (count - 2) * float(np.linalg.inv(design.T @ design)[0, 0])
    return float(coefficients[0]), math.sqrt(variance)


def _median_error(blocks: Sequence[Block]) -> float:
    """Return the standard error of the blocks' medians from how much successive steps differ; NaN without any two.

    Neither an outlier nor a drift within a block widens it (von Neumann's differences, with their median).
    """
    differences_ns = np.concatenate([np.abs(np.diff(block.step_ns)) for block in blocks])
    if not len(differences_ns):
        return math.nan
    deviation_ns = float(np.median(differences_ns)) / _DIFFERENCE_MEDIAN
    return _MEDIAN_ERROR * deviation_ns / math.sqrt(sum(len(block.step_ns) for block in blocks))


def combine_launches(parts: Sequence[Estimated]) -> Estimated:
    """Return one estimate over launches, weighted by what is behind each; see [Note: how sure an estimate is].

    Args:
        parts: of one kind, one for each launch, at least one; those that are not known are left out.
    """
    known = [part for part in parts if not math.isnan(part.mean_ns)]
    if len(known) < 2:
        return known[0] if known else parts[0]
    means_ns = np.array([part.mean_ns for part in known])
    weights = np.array([part.count for part in known]) / sum(part.count for part in known)
    within_ns = float(np.sqrt(sum((weights * [part.standard_error_ns for part in known]) ** 2)))
    return Estimated(
        estimate=known[0].estimate,
        mean_ns=float(weights @ means_ns),
        standard_error_ns=_largest_known(standard_error(means_ns), within_ns),
        count=len(known),
    )


def standard_error(values: Floats) -> float:
    """Return the standard error of a mean of independent values; NaN of fewer than two."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _largest_known(*errors_ns: float) -> float:
    return max((error_ns for error_ns in errors_ns if not math.isnan(error_ns)), default=math.nan)
