"""Sides that are parts of what ran, or of several jobs: traces of some ranks, collectives not seen to run, no steps.

Means over other ranks are other numbers, an owner of a rank that is not there is not zero, what was launched and not
seen to run did not take no time, whole traces are as long as somebody recorded, and a mean over ranks of two jobs is of
neither. So of what traces tell nothing is
compared then.
"""

from collections.abc import Iterable, Iterator, Sequence

from dtbench.base.units import count_things, is_or_are, name_ranks
from dtbench.comparison.metrics import BY_NAME, EXPOSED, STEP_TIME, spell_metric
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import MeasuredLaunch, MeasuredSide


def name_parts(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> tuple[str, ...]:
    """Say why what the traces of two sides tell cannot be compared, a clause each; none: it can."""
    first, second = sides
    unlike = []
    if are_of_other_ranks(first, second):
        each = (f"{label} has {_spell_ranks(side)}" for side, label in zip(sides, labels, strict=True))
        unlike = [", ".join(each)]
    apart = [label for side, label in zip(sides, labels, strict=True) if _are_steps_apart(side)]
    common = [f"the ranks of {label} have no step in common, so that none counts" for label in apart]
    without = [
        label for side, label in zip(sides, labels, strict=True) if not (side.has_steps or _are_steps_apart(side))
    ]
    tell = "tell no steps, so their" if len(without) > 1 else "tells no steps, so its"
    whole = [f"{join_words(without, last='and')} {tell} numbers are of all that was recorded"] if without else []
    jobs = [
        f"the traces of {label} are not all, or not surely, of one job"
        for side, label in zip(sides, labels, strict=True)
        if not side.is_one_job
    ]
    unseen = (_spell_unseen(side, label) for side, label in zip(sides, labels, strict=True) if side.unseen)
    return (*jobs, *unlike, *common, *whole, *unseen)


def _are_steps_apart(side: MeasuredSide) -> bool:
    """Tell whether nothing is measured of traces, which is so where no step is on all of their ranks."""
    return not side.has_steps and not any(launch.measurements for launch in side.launches)


def are_of_other_ranks(one: MeasuredSide, other: MeasuredSide) -> bool:
    """Tell whether sides have traces of other ranks: the slowest, whose the step time is, may be missing on one."""
    return one.ranks != other.ranks and (_is_part(one) or _is_part(other))


def may_lack_slowest(sides: Iterable[MeasuredSide]) -> bool:
    """Tell whether a side's slowest rank, whose the step time is, may be missing on the other, or be of another job."""
    one, other = sides
    return are_of_other_ranks(one, other) or not (one.is_one_job and other.is_one_job)


def find_unlike_ranks(launches: Iterable[MeasuredLaunch]) -> frozenset[tuple[str, str]]:
    """Return metric and subject of what is of other ranks in one launch than in another, their mean or the slowest."""
    ranks_of: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for launch in launches:
        for one in launch.measurements:
            if BY_NAME[one.metric].is_profiled or one.metric == STEP_TIME:
                ranks_of.setdefault((one.metric, one.subject), set()).add(one.ranks)
    return frozenset(key for key, ranks in ranks_of.items() if len(ranks) > 1)


def say_unlike_ranks(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> Iterator[str]:
    """Say of which ranks numbers are that are not compared for it, where they are not of all."""
    unlike = find_unlike_ranks(launch for side in sides for launch in side.launches)
    if (EXPOSED, "") in unlike:
        unlike &= {(STEP_TIME, ""), (EXPOSED, "")}
    for side, label in zip(sides, labels, strict=True):
        of: dict[tuple[int, ...], dict[str, None]] = {}
        for one in (one for launch in side.launches for one in launch.measurements if one.ranks):
            if (one.metric, one.subject) in unlike:
                of.setdefault(one.ranks, {})[spell_metric(one.metric, one.subject)] = None
        for ranks, what in of.items():
            names = join_words([*what], last="and")
            yield f"{label} knows {names} of {name_ranks(ranks)} alone"


def say_shared_part(sides: Sequence[MeasuredSide]) -> Iterator[str]:
    """Say of which ranks alone all sides know the step time or what was exposed; nothing where some are of all."""
    launches = [launch for side in sides for launch in side.launches]
    what_of: dict[tuple[int, ...], list[str]] = {}
    for metric in (STEP_TIME, EXPOSED):
        told = [[one.ranks for one in launch.measurements if one.metric == metric] for launch in launches]
        ranks = {one for of_launch in told for one in of_launch}
        if all(told) and len(ranks) == 1 and any(ranks):
            what_of.setdefault(ranks.pop(), []).append(spell_metric(metric, ""))
    for of, what in what_of.items():
        yield f"{join_words(what, last='and')} {is_or_are(len(what))} of {name_ranks(of)} alone on both sides"


def say_counted_steps(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> Iterator[str]:
    """Say of how many steps the step times of traces are where one side leaves more out than the other."""
    counts = [side.steps for side in sides]
    if None in counts or len({*counts}) == 1 or not all(side.has_steps for side in sides):
        return
    known = [(label, *of_side) for label, of_side in zip(labels, counts, strict=True) if of_side is not None]
    if any(count < of for _, count, of in known):
        each = (f"{count} of {count_things(of, 'step')} of {label}" for label, count, of in known)
        yield f"step times are of {join_words([*each], last='and')}"


def say_ranks(side: MeasuredSide) -> Iterator[str]:
    """Say of which ranks a side is, where these are not all of its job."""
    if _is_part(side) and side.world_size is not None:
        yield f"there are {_spell_ranks(side)} alone"


def say_part_of_time(side: MeasuredSide) -> Iterator[str]:
    """Say of what part of what ran a side's step time is, a clause each; nothing where it is of all."""
    if not side.is_one_job:
        yield "not surely of one job"
    if _is_part(side):
        yield f"{_spell_ranks(side)}{', of how many is not told' if side.world_size is None else ''}"
    measured = (one for launch in side.launches for one in launch.measurements if one.metric == STEP_TIME and one.ranks)
    yield from dict.fromkeys(f"{name_ranks(one.ranks)} alone" for one in measured)
    if side.steps is not None and side.steps[0] < side.steps[1]:
        yield f"{side.steps[0]} of {count_things(side.steps[1], 'step')}"


def _spell_unseen(side: MeasuredSide, label: str) -> str:
    count = count_things(side.unseen, "collective")
    return f"{count} of {label} {'was' if side.unseen == 1 else 'were'} launched and not seen to run"


def _is_part(side: MeasuredSide) -> bool:
    return side.ranks is not None and (side.world_size is None or len(side.ranks) < side.world_size)


def _spell_ranks(side: MeasuredSide) -> str:
    if side.ranks is None:
        return "all ranks"
    return f"traces of {name_ranks(side.ranks)}{'' if side.world_size is None else f' of {side.world_size}'}"
