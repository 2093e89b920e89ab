"""What training steps take around a load of the state and beside saves of it, and what a save costs training.

::

    alone    step step step step step step
    beside   async_save │ step step │ step step step step      the save is done during the second of six steps:
             └ blocked ┘└ in flight ┘                          it costs what it blocks, and what these two take more
                                                               than the first two alone
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from dtbench.base.units import MIB
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.cell.summarize_overlap import find_launches_part
from dtbench.runs.stage_summary import StateStepsSummary
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import StateStepsRecord


class _Asked(NamedTuple):
    """How often was saved, and the steps alone and beside each save."""

    rounds: int
    steps: int

    @property
    def in_turns(self) -> int:
        """All steps alone; as many are beside saves."""
        return self.rounds * self.steps


class _Round(NamedTuple):
    """What one save took on the slowest rank, with the steps that began while it went on, and as many alone."""

    blocked_ns: int
    beside_ns: list[int]
    alone_ns: list[int]

    @property
    def cost_ns(self) -> float:
        """What training lost."""
        return float(self.blocked_ns + sum(self.beside_ns) - sum(self.alone_ns))


_Times = Callable[[StateStepsRecord], Sequence[int]]


def summarize_state_steps(
    launches: Mapping[int, Sequence[RankRecord]], ranks: int, asked: StateDict | None
) -> StateStepsSummary | None:
    """Return what steps and saves took, over launches of which every rank tells; None where there is none.

    A time of which some rank does not tell as many as were asked for is NaN.

    Args:
        launches: the records of each launch's ranks, by the number of the launch.
        ranks: that each has.
        asked: how many steps and saves; None: not told, and as many as the first rank tells.
    """
    every = {launch: [_steps_of(record) for record in records] for launch, records in launches.items()}
    by_launch = {launch: [steps for steps in found if steps is not None] for launch, found in every.items()}
    by_launch = {launch: found for launch, found in by_launch.items() if len(found) == ranks}
    told = list(by_launch.values())
    if not told:
        return None
    records = [record for ranks in told for record in ranks]
    counts = _count_asked(records[0], asked)

    def median(times: _Times, count: int) -> float:
        of_launches = [_slowest(ranks, times, count) for ranks in told]
        known = [] if None in of_launches else [float(one) for found in of_launches for one in found or ()]
        return summarize(known).median

    of_launches = [_read_rounds(ranks, counts) for ranks in told]
    rounds = [] if None in of_launches else [one for found in of_launches for one in found or ()]
    cost = summarize([one.cost_ns for one in rounds])
    cost_ns = cost.median if cost.low > 0 or cost.high < 0 else math.nan
    file_bytes = max(record.file_bytes for record in records)
    return StateStepsSummary(
        before_ns=median(lambda one: one.before_ns, counts.steps),
        load_ns=median(lambda one: (one.load_ns,), 1),
        first_ns=median(lambda one: (one.first_ns,), 1),
        after_ns=median(lambda one: one.after_ns, counts.steps - 1),
        alone_ns=median(lambda one: one.alone_ns, counts.in_turns),
        beside_ns=summarize([float(time_ns) for one in rounds for time_ns in one.beside_ns]).median,
        blocked_ns=median(lambda one: one.blocked_ns, counts.rounds),
        saved_ns=median(lambda one: one.saved_ns, counts.rounds),
        steps=counts.steps,
        in_flight=fmean(record.in_flight / counts.rounds for record in records),
        cost_ns=cost_ns,
        cost_low_ns=cost.low,
        cost_high_ns=cost.high,
        file_bytes=file_bytes,
        cost_ns_per_mib=cost_ns * MIB / file_bytes if file_bytes else math.nan,
        mismatched=sum(record.mismatched for record in records),
        known_part=find_launches_part(list(by_launch), list(launches)),
    )


def _steps_of(record: RankRecord) -> StateStepsRecord | None:
    return None if record.extras.state_dict is None else record.extras.state_dict.steps


def _count_asked(first: StateStepsRecord, asked: StateDict | None) -> _Asked:
    if asked is not None:
        return _Asked(asked.rounds, asked.steps)
    rounds = max(1, len(first.blocked_ns))
    return _Asked(rounds, len(first.beside_ns) // rounds)


def _read_rounds(ranks: Sequence[StateStepsRecord], counts: _Asked) -> list[_Round] | None:
    """Return every save of a launch; None where some rank tells of fewer, or more, or of other steps."""
    blocked_ns = _slowest(ranks, lambda one: one.blocked_ns, counts.rounds)
    alone_ns = _slowest(ranks, lambda one: one.alone_ns, counts.in_turns)
    beside_ns = _slowest(ranks, lambda one: one.beside_ns, counts.in_turns)
    saved_ns = _slowest(ranks, lambda one: one.saved_ns, counts.rounds)
    if blocked_ns is None or alone_ns is None or beside_ns is None or saved_ns is None:
        return None
    found = []
    for place, time_ns in enumerate(blocked_ns):
        first = place * counts.steps
        last = first + max(_count_in_flight(record, place, counts.steps) for record in ranks)
        found.append(_Round(time_ns, beside_ns[first:last], alone_ns[first:last]))
    return found


def _count_in_flight(record: StateStepsRecord, place: int, steps: int) -> int:
    """Count the steps of a round that began before its save was done, as one rank saw it."""
    first = place * steps
    starts_ns = accumulate(record.beside_ns[first : first + steps - 1], initial=record.blocked_ns[place])
    return sum(start_ns < record.saved_ns[place] for start_ns in starts_ns)


def _slowest(ranks: Sequence[StateStepsRecord], times: _Times, count: int) -> list[int] | None:
    """Return each step's time on the rank where it took longest; None where some rank tells of other than so many."""
    of_ranks = [times(record) for record in ranks]
    if any(len(one) != count for one in of_ranks):
        return None
    return [max(one) for one in zip(*of_ranks, strict=True)]
