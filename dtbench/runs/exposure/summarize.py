"""Exposed communication of a cell: every estimate of every rank, whether they agree, and what overlapping gained."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Final

import numpy as np
import pandas as pd

from dtbench.base.vocabulary import Arm, DeviceKind, Estimate, Purpose
from dtbench.runs.cell.summarize_overlap import find_launches_part, find_part_of_records
from dtbench.runs.exposure.counts import find_unlike_arms
from dtbench.runs.exposure.disputes import Surroundings, find_disputes
from dtbench.runs.exposure.estimates import (
    Block,
    Floats,
    average_blocks,
    combine_launches,
    estimate_ablation,
    estimate_difference,
    estimate_steps,
    estimate_waits,
    keep_undisturbed,
    read_blocks,
    unknown,
)
from dtbench.runs.exposure.notes import note_launch, note_left_out, note_undecided
from dtbench.runs.summary import Estimated, ExposureRow, ExposureSummary
from dtbench.store.records.rank import RankRecord
from dtbench.traces.known_part import KnownPart

_STEP: Final = ["step", "rank"]


@dataclass(frozen=True)
class LaunchExposure:
    """What one launch wrote on exposed communication.

    Attributes:
        name: of the launch.
        index: its number among those of the cell.
        world_size: ranks that it has, also those of which nothing is there.
        has_ended: it will not write more.
        ranks: their records.
        overlap: columns as in the table ``overlap``.
        purposes: columns as in the table ``purposes``.
        collectives: columns as in the table ``collectives``.
    """

    name: str
    index: int
    world_size: int
    has_ended: bool
    ranks: Sequence[RankRecord]
    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame


@dataclass(frozen=True)
class _Read:
    """The values of one launch, by rank; arms that must not be used on some rank are left out of ``blocks``.

    Attributes:
        index: of the launch.
        world_size: ranks that it has.
        exposed_ns: of PROFILED steps, one row per step, one column per rank.
        gap_ns: likewise, how long the compute stream waited; NaN where not all of that is known; without columns where
            the ranks have none.
        gradient_gap_ns: the part of it that was for gradients.
    """

    index: int
    world_size: int
    exposed_ns: pd.DataFrame
    gap_ns: pd.DataFrame
    gradient_gap_ns: pd.DataFrame
    blocks: Mapping[int, Sequence[Block]]
    logged_ns: Mapping[int, Floats]


@dataclass(frozen=True)
class _Found:
    """All estimates of a rank, or of the mean over ranks; ``gradient_wait`` is the part that DDP's logger sees.

    Attributes:
        launches: that each estimate is of, by their numbers.
    """

    estimates: Mapping[Estimate, Estimated]
    gradient_wait: Estimated
    launches: Mapping[Estimate, Sequence[int]] = field(default_factory=dict)


def summarize_exposure(
    asked: Sequence[str],
    launches: Sequence[LaunchExposure],
    device: DeviceKind,
    profiler_low: float = math.nan,
    *,
    has_logger: bool = False,
) -> ExposureSummary | None:
    """Return what a cell's launches say about exposed communication; None where only the trace was asked, or none is.

    Args:
        asked: ``measure.exposure`` of the scenario.
        launches: all of the cell; each is a unit where there are several.
        device: where the ranks computed.
        profiler_low: low end of the interval of PROFILED over MEASURED step times; NaN: not known.
        has_logger: DDP, whose own logger is read where waits are asked for.
    """
    kinds = [one for one in Estimate if one in asked]
    if set(kinds) <= {Estimate.TRACE} or not launches:
        return None
    read = [_read_launch(launch, device) for launch in launches]
    is_logged = has_logger or any(len(logged_ns) for one in read for logged_ns in one.logged_ns.values())
    if Estimate.WAIT in kinds and is_logged:
        kinds.append(Estimate.LOGGER)
    every = range(max((launch.world_size for launch in launches), default=0))
    ranks = sorted({int(rank) for one in read for rank in (*one.exposed_ns.columns, *one.blocks)})
    found = {rank: _estimate(kinds, read, [rank], [rank]) for rank in ranks}
    shared = _find_shared(found)
    rows = [
        _make_row(
            None,
            _average(kinds, read, found, (shared, every)),
            _look_around(launches, read, shared, device, profiler_low),
        ),
        *(
            _make_row(rank, one, _look_around(launches, read, [rank], device, profiler_low))
            for rank, one in found.items()
        ),
    ]
    timed = [kind for kind in kinds if kind is not Estimate.WAIT or device is DeviceKind.CPU]
    notes = [
        f"{launch.name}: {note}" if len(launches) > 1 else note
        for launch, of_launch in zip(launches, read, strict=True)
        for note in (
            *note_launch(launch.ranks, timed, launch.world_size, has_ended=launch.has_ended),
            *_note_untold_gaps(of_launch),
        )
    ]
    slowest = _keep_comparable([_find_slowest(one) for one in read])
    gains = [estimate_difference(blocks, Arm.SERIAL, Arm.FULL) for blocks in slowest]
    return ExposureSummary(
        rows=tuple(rows),
        serial_ns=_median_step(slowest, Arm.SERIAL),
        overlapped_ns=_median_step(slowest, Arm.FULL),
        gain_error_ns=combine_launches(gains).standard_error_ns if gains else math.nan,
        gain_part=_find_gain_part(read, slowest),
        notes=(*notes, *note_left_out(every, shared), *note_undecided(rows[0])),
    )


def _read_launch(launch: LaunchExposure, device: DeviceKind) -> _Read:
    steps = {record.rank: arms for record in launch.ranks if (arms := record.extras.exposure) is not None}
    unlike = {arm for of_rank in steps.values() for arm in find_unlike_arms(of_rank)}
    exposed_ns = launch.overlap.pivot_table(index="step", columns="rank", values="exposed_comm_ns")
    waits = launch.purposes if device is DeviceKind.CUDA else launch.purposes[:0]
    is_quiet = launch.overlap["comm_ns"].eq(0).fillna(value=False).astype("bool")
    told = pd.concat([waits[_STEP], launch.overlap.loc[is_quiet, _STEP]]) if len(waits) else waits[_STEP]
    return _Read(
        index=launch.index,
        world_size=launch.world_size,
        exposed_ns=exposed_ns,
        gap_ns=_sum_gaps(waits, told, exposed_ns),
        gradient_gap_ns=_sum_gaps(waits[waits["purpose"] == Purpose.GRAD_REDUCE], told, exposed_ns),
        blocks=keep_undisturbed(
            {
                rank: [block for block in read_blocks(of_rank) if block.arm not in unlike]
                for rank, of_rank in steps.items()
            }
        ),
        logged_ns={rank: np.asarray(of_rank.logged_ns, dtype=np.float64) for rank, of_rank in steps.items()},
    )


def _sum_gaps(waits: pd.DataFrame, told: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Sum waits over purposes, with the steps and ranks of another table.

    NaN where one of a step is not known, or only at least: what is compared must be all of it. A step that waited for
    nothing has zero.

    Args:
        waits: rows of the table ``purposes``.
        told: ``step`` and ``rank`` of those of which it is known for what they communicated; none: of no rank.
        like: one row per step, one column per rank.
    """
    if told.empty:
        return pd.DataFrame(index=like.index)
    is_least = waits["is_wait_least"].eq(other=True).fillna(value=False).astype("bool")
    known = waits[_STEP].assign(wait_ns=waits["wait_ns"].astype("float64").mask(is_least))
    every = pd.concat([told.assign(wait_ns=0.0), known])
    sums = every.groupby(_STEP)["wait_ns"].agg(lambda of_step: of_step.sum(skipna=False)).unstack("rank")
    return sums.reindex_like(like).where(like.notna())


def _note_untold_gaps(read: _Read) -> Iterator[str]:
    """Say of how many steps that have an account it is not known how long their compute stream waited."""
    timed = int(read.exposed_ns.notna().to_numpy().sum())
    untold = timed - int(read.gap_ns.notna().to_numpy().sum())
    if untold and not read.gap_ns.columns.empty:
        yield (
            f"how long the compute stream waited is not known, or only at least, in {untold} of {timed} rank steps: "
            "the estimate by waits is without them"
        )


def _estimate(
    kinds: Sequence[Estimate], launches: Sequence[_Read], ranks: Sequence[int], every: Sequence[int]
) -> _Found:
    """Estimate over launches, in each of the mean over these ranks, of all that it should be of."""
    parts = [_estimate_launch(launch, ranks) for launch in launches]
    of_all = [(launch.index, rank) for launch in launches for rank in every]

    def find_told(of_launches: Sequence[Estimated]) -> list[int]:
        return [launch.index for launch, one in zip(launches, of_launches, strict=True) if not math.isnan(one.mean_ns)]

    def combine(of_launches: Sequence[Estimated]) -> Estimated:
        told = [(index, rank) for index in find_told(of_launches) for rank in ranks]
        return combine_launches(of_launches).model_copy(update={"part": find_part_of_records(told, of_all)})

    by_kind = {kind: [part.estimates[kind] for part in parts] for kind in kinds}
    return _Found(
        {kind: combine(of_launches) for kind, of_launches in by_kind.items()},
        gradient_wait=combine([part.gradient_wait for part in parts]),
        launches={kind: find_told(of_launches) for kind, of_launches in by_kind.items()},
    )


def _find_gain_part(launches: Sequence[_Read], slowest: Sequence[Sequence[Block]]) -> KnownPart | None:
    """Return of which launches it is known what overlapping gained; None where that is all, or none."""
    known = [launch.index for launch, blocks in zip(launches, slowest, strict=True) if blocks]
    return find_launches_part(known, [launch.index for launch in launches])


def _estimate_launch(launch: _Read, ranks: Sequence[int]) -> _Found:
    blocks = average_blocks([launch.blocks.get(rank, ()) for rank in ranks]) or ()
    full = [block for block in blocks if block.arm is Arm.FULL]
    return _Found(
        estimates={
            Estimate.TRACE: estimate_steps(Estimate.TRACE, _average_steps(launch.exposed_ns, ranks)),
            Estimate.ABLATION: estimate_ablation(blocks),
            Estimate.WAIT: _estimate_waits([block.wait_ns for block in full], launch.gap_ns, ranks),
            Estimate.LOGGER: estimate_steps(Estimate.LOGGER, _average_logged(launch, ranks)),
        },
        gradient_wait=_estimate_waits([block.gradient_wait_ns for block in full], launch.gradient_gap_ns, ranks),
    )


def _average_steps(times_ns: pd.DataFrame, ranks: Sequence[int]) -> Floats:
    """Return the mean over ranks of each step that all of them have."""
    return times_ns.reindex(columns=list(ranks)).dropna().mean(axis=1).to_numpy(dtype=np.float64)


def _estimate_waits(blocks_ns: Sequence[Floats], gap_ns: pd.DataFrame, ranks: Sequence[int]) -> Estimated:
    """Estimate by clocks around waits, or by what the compute stream waited in PROFILED steps, which no clock sees."""
    if any(len(block_ns) for block_ns in blocks_ns) or gap_ns.columns.empty:
        return estimate_waits(blocks_ns)
    return estimate_steps(Estimate.WAIT, _average_steps(gap_ns, ranks))


def _average_logged(launch: _Read, ranks: Sequence[int]) -> Floats:
    of_ranks = [launch.logged_ns.get(rank, np.empty(0)) for rank in ranks]
    is_alike = len({len(logged_ns) for logged_ns in of_ranks}) == 1
    return np.asarray(np.mean(of_ranks, axis=0), dtype=np.float64) if is_alike else np.empty(0)


def _find_shared(found: Mapping[int, _Found]) -> list[int]:
    """Return the ranks of which everything is known that is known of any: only means over the same ranks compare."""
    known = [{kind for kind, one in of.estimates.items() if not math.isnan(one.mean_ns)} for of in found.values()]
    somewhere = set().union(*known)
    return [rank for rank, kinds in zip(found, known, strict=True) if kinds == somewhere]


def _average(
    kinds: Sequence[Estimate],
    launches: Sequence[_Read],
    found: Mapping[int, _Found],
    ranks_of: tuple[Sequence[int], Sequence[int]],
) -> _Found:
    """Return the mean over ranks; its error is that of steps and blocks whose mean over ranks was taken first.

    So is the mean itself where some rank has launches that another lacks.

    ``ranks_of``: those that it is a mean over, and all.
    """
    ranks, every = ranks_of
    if not ranks:
        return _Found({kind: unknown(kind) for kind in kinds}, unknown(Estimate.WAIT))
    together = _estimate(kinds, launches, ranks, every)
    estimates = {
        kind: one.model_copy(update={"mean_ns": fmean(found[rank].estimates[kind].mean_ns for rank in ranks)})
        if len({tuple(found[rank].launches[kind]) for rank in ranks}) == 1
        else one
        for kind, one in together.estimates.items()
    }
    return _Found(estimates, together.gradient_wait)


def _make_row(rank: int | None, found: _Found, around: Surroundings) -> ExposureRow:
    return ExposureRow(
        rank=rank,
        estimates=tuple(found.estimates.values()),
        disputes=find_disputes(found.estimates, found.gradient_wait, around),
    )


def _look_around(
    launches: Sequence[LaunchExposure],
    read: Sequence[_Read],
    ranks: Sequence[int],
    device: DeviceKind,
    profiler_low: float,
) -> Surroundings:
    """Return what the profiled and the full steps of these ranks were like."""
    steps = pd.concat([launch.overlap[launch.overlap["rank"].isin(ranks)] for launch in launches])
    collectives = [launch.collectives[launch.collectives["rank"].isin(ranks)] for launch in launches]
    skew_ns = sum(int(table.loc[table["step"].notna(), "exposed_skew_ns"].sum()) for table in collectives)
    full = [
        np.concatenate([np.empty(0), *(block.step_ns for block in one.blocks.get(rank, ()) if block.arm is Arm.FULL)])
        for one in read
        for rank in ranks
    ]
    medians_ns = [float(np.median(step_ns)) for step_ns in full if len(step_ns)]
    return Surroundings(
        idle_ns=float(steps["idle_ns"].astype("float64").mean(skipna=False)) if len(steps) else math.nan,
        profiled_step_ns=float(steps["step_ns"].mean()) if len(steps) else math.nan,
        full_step_ns=fmean(medians_ns) if medians_ns else math.nan,
        skew_ns=skew_ns / len(steps) if len(steps) else math.nan,
        profiler_low=profiler_low,
        idle_word="host time" if device is DeviceKind.CPU else "idle",
    )


def _find_slowest(launch: _Read) -> tuple[Block, ...]:
    """Return the blocks of a launch, each step as long as the slowest rank's.

    None where ranks did not run the same, or those of one are not there, which may be the slowest.
    """
    if len(launch.blocks) < launch.world_size:
        return ()
    shapes = {tuple((block.arm, len(block.step_ns)) for block in blocks) for blocks in launch.blocks.values()}
    if len(shapes) != 1:
        return ()
    return tuple(
        replace(of_ranks[0], step_ns=np.max([block.step_ns for block in of_ranks], axis=0))
        for of_ranks in zip(*launch.blocks.values(), strict=True)
    )


def _keep_comparable(launches: Sequence[tuple[Block, ...]]) -> list[tuple[Block, ...]]:
    """Return the blocks of each launch; none of one that lacks an arm of those which another has to compare."""
    arms = [{block.arm for block in blocks} & {Arm.FULL, Arm.SERIAL} for blocks in launches]
    every = set().union(*arms)
    return [blocks if of_launch == every else () for blocks, of_launch in zip(launches, arms, strict=True)]


def _median_step(launches: Sequence[Sequence[Block]], arm: Arm) -> float:
    """Return the median over launches of the median step of an arm; NaN where no launch knows it."""
    found = [[block.step_ns for block in blocks if block.arm is arm] for blocks in launches]
    medians_ns = [float(np.median(np.concatenate(steps_ns))) for steps_ns in found if steps_ns]
    return median(medians_ns) if medians_ns else math.nan
