"""A window over the steps of a job: those that a person asked for are in every number of steps, the others are counted.

::

    trace    step 1 |██████|  step 2 |██████|  step 3 |██████|  step 4 |██████|
    2-3                       ──────── in numbers per step ────   steps 1 and 4 are in none of them

Ranks are matched, clocks aligned and causes found over whole traces, so that a window changes no step's own account.
What is said of whole traces is of all that they hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dtbench.base.errors import TraceError
from dtbench.base.units import name_ranges, name_steps
from dtbench.traces.notes.job import StepsChosen
from dtbench.traces.rank.analysis import LeftSteps, TraceAnalysis
from dtbench.traces.time.shares import share_time
from dtbench.traces.timeline import RankTimeline


@dataclass(frozen=True)
class StepRange:
    """Steps by their numbers, both ends included."""

    first: int
    last: int

    def __contains__(self, step: int) -> bool:
        return self.first <= step <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


Steps: TypeAlias = int | tuple[int, int] | None
"""Which steps: one by its number, first and last of several, or None: all, or as many as fit."""


def find_range(steps: Steps) -> StepRange | None:
    """Return a window as the numbers that it holds; None: all."""
    match steps:
        case None:
            return None
        case int():
            return StepRange(steps, steps)
        case first, last:
            return StepRange(first, last)


def refuse_absent(steps: StepRange, every: Sequence[int]) -> None:
    """Refuse a window in which no step is.

    Args:
        steps: the window.
        every: rising, the numbers of all steps.

    Raises:
        TraceError: there is none.
    """
    if not any(number in steps for number in every):
        there = f"they have {name_ranges(every)}" if every else "they have no steps at all"
        raise TraceError(f"the traces have no step {steps}: {there}")


def choose_steps(analyses: Iterable[TraceAnalysis], steps: StepRange) -> list[TraceAnalysis]:
    """Leave the steps outside a window out of the accounts of ranks; each says how many these are.

    Raises:
        TraceError: no rank has a step in it.
    """
    ranks = list(analyses)
    refuse_absent(steps, sorted({step.step for one in ranks for step in one.steps}))
    return [_choose(one, steps) for one in ranks]


def note_chosen(one: TraceAnalysis) -> Iterable[StepsChosen]:
    """Yield how many steps of a rank are counted, of how many; nothing where no window was asked for."""
    if one.left is not None:
        of_steps = len(one.steps) + one.left.steps
        yield StepsChosen((one.rank,), tuple(step.step for step in one.steps), of_steps, one.left.absent)


def _choose(one: TraceAnalysis, steps: StepRange) -> TraceAnalysis:
    kept = [index for index, step in enumerate(one.steps) if step.step in steps]
    left = [step for step in one.steps if step.step not in steps]
    cut = one.truncated_step
    return replace(
        one,
        timeline=_choose_of_timeline(one.timeline, kept),
        steps=tuple(one.steps[index] for index in kept),
        accounts=replace(one.accounts, steps=tuple(one.accounts.steps[index] for index in kept)),
        host_steps=tuple(step for step in one.host_steps if step.number in steps),
        truncated_step=cut if cut is not None and cut.step in steps else None,
        lost=replace(
            one.lost,
            steps=tuple(number for number in one.lost.steps if number in steps),
            copy_steps=tuple(number for number in one.lost.copy_steps if number in steps),
            absent=tuple((number, count) for number, count in one.lost.absent if number in steps),
            skipped=tuple(run for run in one.lost.skipped if run[0] <= steps.last and run[1] >= steps.first),
        ),
        left=LeftSteps(
            steps=len(left),
            lost=sum(step.lost for step in left),
            collectives=frozenset(
                index for index, step in enumerate(one.step_of) if step is not None and step not in kept
            ),
            absent=_find_absent([step.step for step in one.steps], steps),
        ),
    )


def _find_absent(numbers: Sequence[int], steps: StepRange) -> tuple[tuple[int, int], ...]:
    """Return first and last of what a window has before all steps of a rank and beyond them; none: no step is in it."""
    if not any(number in steps for number in numbers):
        return ()
    runs = ((steps.first, min(numbers) - 1), (max(numbers) + 1, steps.last))
    return tuple((first, last) for first, last in runs if first <= last)


def _choose_of_timeline(timeline: RankTimeline, kept: Sequence[int]) -> RankTimeline:
    place = {index: at for at, index in enumerate(kept)}
    windows = tuple(timeline.steps[index] for index in kept)
    known = tuple(timeline.known_steps[index] for index in kept) if timeline.known_steps else ()
    spans = [collective.span for collective in timeline.collectives]
    shares = share_time(spans, timeline.compute, windows, timeline.recorded)
    return replace(
        timeline,
        steps=windows,
        step_numbers=tuple(timeline.step_numbers[index] for index in kept),
        step_of=tuple(None if step is None else place.get(step) for step in timeline.step_of),
        known_steps=known,
        stepped_exposed_ns=tuple(shares.stepped_exposed_ns(known or (True,) * len(windows)).tolist()),
    )


def say_chosen(analyses: Sequence[TraceAnalysis]) -> str:
    """Say how many steps a window leaves out, of how many; empty: there is none, or it leaves none out.

    Of each rank where these are as many on all, else each rank's counted.
    """
    of_ranks = [(0 if one.left is None else one.left.steps, len(one.steps)) for one in analyses]
    left = sum(left for left, _ in of_ranks)
    if not left:
        return ""
    kept = sorted({step.step for one in analyses for step in one.steps})
    if len({*of_ranks}) == 1:
        return f" ({name_steps(kept)}; {of_ranks[0][0]} of {sum(of_ranks[0])} left out)"
    return f" ({name_steps(kept)}; {left} of {left + sum(kept for _, kept in of_ranks)} rank steps left out)"
