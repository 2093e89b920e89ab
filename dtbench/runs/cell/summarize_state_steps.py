"""Training steps around a load of the state and beside saves of it: the slowest rank's, over all launches of a cell."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from dtbench.base.units import MIB
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.stage_summary import StateStepsSummary
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import StateStepsRecord

_Times = Callable[[StateStepsRecord], Sequence[int]]


def summarize_state_steps(launches: Sequence[Sequence[RankRecord]]) -> StateStepsSummary | None:
    """Return what steps and saves took; None where no rank tells.

    Args:
        launches: the records of each launch's ranks.
    """
    states = [[state for record in ranks if (state := record.extras.state_dict) is not None] for ranks in launches]
    told = [[state.steps for state in ranks if state.steps is not None] for ranks in states]
    told = [ranks for ranks in told if ranks]
    if not told:
        return None

    def median(times: _Times) -> float:
        return summarize([float(one) for ranks in told for one in _slowest(ranks, times)]).median

    records = [record for ranks in told for record in ranks]
    first = records[0]
    steps = len(first.beside_ns) // len(first.blocked_ns)
    cost = summarize([cost_ns for ranks in told for cost_ns in _cost_rounds(ranks, steps)])
    cost_ns = cost.median if cost.low > 0 or cost.high < 0 else math.nan
    file_bytes = max(record.file_bytes for record in records)
    return StateStepsSummary(
        before_ns=median(lambda one: one.before_ns),
        load_ns=median(lambda one: (one.load_ns,)),
        first_ns=median(lambda one: (one.first_ns,)),
        after_ns=median(lambda one: one.after_ns),
        alone_ns=median(lambda one: one.alone_ns),
        beside_ns=median(lambda one: one.beside_ns),
        blocked_ns=median(lambda one: one.blocked_ns),
        saved_ns=median(lambda one: one.saved_ns),
        steps=steps,
        in_flight=fmean(record.in_flight / len(record.blocked_ns) for record in records),
        cost_ns=cost_ns,
        cost_low_ns=cost.low,
        cost_high_ns=cost.high,
        file_bytes=file_bytes,
        cost_ns_per_mib=cost_ns * MIB / file_bytes,
        mismatched=sum(record.mismatched for record in records),
    )


def _cost_rounds(ranks: Sequence[StateStepsRecord], steps: int) -> Iterator[float]:
    """Yield what each round's save cost: its call, and its steps less as many alone that the same round ran before."""
    alone_ns, beside_ns = (_slowest(ranks, times) for times in (lambda one: one.alone_ns, lambda one: one.beside_ns))
    for place, blocked_ns in enumerate(_slowest(ranks, lambda one: one.blocked_ns)):
        of_round = slice(place * steps, (place + 1) * steps)
        yield float(blocked_ns + sum(beside_ns[of_round]) - sum(alone_ns[of_round]))


def _slowest(ranks: Sequence[StateStepsRecord], times: _Times) -> list[int]:
    """Return each step's time on the rank where it took longest."""
    return [max(one) for one in zip(*(times(record) for record in ranks), strict=True)]
