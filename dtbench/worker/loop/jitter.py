"""Whether this machine can take the times that a timed model asks for: tried before warm-up, on all ranks at once.

A sleep ends late, by what the timer and the scheduler add: 60 to 100 us on an idle Linux, more where cores are short.
A unit is refused when on average that is more than 5 % of it: a step is many units, and the mean is what each of them
adds. Rare late ones lengthen few steps, and a median over steps does not see them; tries and steps that other guests of
the machine disturbed are left out. Blocks themselves wake up early and
wait for the clock, which hides the timer's part; what else runs in a step disturbs them as much as the trial says.
"""

import json
import time
from collections.abc import Callable, Mapping
from itertools import compress
from math import ceil, floor, log10
from statistics import fmean
from typing import Final

from dtbench.base.errors import PlanError
from dtbench.base.units import NS_PER_MS, NS_PER_S, format_fraction, format_ns
from dtbench.base.vocabulary import Region
from dtbench.machine.disturbance import find_undisturbed
from dtbench.machine.stolen_time import StolenClock
from dtbench.plan.plan import SHORT_UNIT_MS
from dtbench.scenario.schema.model import Timed
from dtbench.worker.loop.store_exchange import StoreExchange
from dtbench.worker.models.known_cost import MOST_JITTER, KnownCost, Pause, field_of

LEAST_MS: Final = SHORT_UNIT_MS
"""The shortest unit that is advised on any machine: steps disturb sleeps more than an idle rank does."""
_TIME_NS: Final = NS_PER_S // 2
_TRIES: Final = (20, 500)  # fewest, most
_ROUNDS_AFTER_S: Final = (0, 2, 8)
"""How long to wait before each round of tries: other guests of a shared machine come in bursts of some seconds."""
_NICE: Final = (1, 2, 3, 5, 10)


def require_exact_units(cost: KnownCost, store: StoreExchange, *, wait_s: Callable[[float], None] = time.sleep) -> str:
    """Try what blocks are to take, keep the jitter with the cost, and say in words what it is; collective.

    A burst of other work is not the machine's jitter: what is too short is tried twice more, and the least counts.
    Between tries all wait a while, but not for a unit that is too short on any machine.

    Raises:
        PlanError: on every rank alike: the jitter is more than 5 % of a unit.
    """
    for number, after_s in enumerate(_ROUNDS_AFTER_S):
        if after_s and not any(_unit_ns(cost.asked, region) < LEAST_MS * NS_PER_MS for region in cost.jitter_ns):
            wait_s(after_s)
        for region, jitter_ns in _try_together(cost, store, f"jitter/{number}").items():
            cost.jitter_ns[region] = min(jitter_ns, cost.jitter_ns.get(region, jitter_ns))
        if not _find_short(cost.asked, cost.jitter_ns):
            return describe_jitter(cost.asked, cost.jitter_ns) or "blocks take no time of their own"
    raise PlanError(_refuse(cost.asked, _find_short(cost.asked, cost.jitter_ns), store.ranks))


def _try_together(cost: KnownCost, store: StoreExchange, topic: str) -> dict[Region, int]:
    """Return the worst rank's jitter of each unit above 0, ns, all ranks trying at once."""
    store.exchange(f"{topic}/begin", "")
    mine = {str(region): find_jitter_ns(cost.pause, cost_ns) for region, cost_ns in cost.cost_ns.items() if cost_ns}
    everyone: list[dict[str, int]] = [json.loads(said) for said in store.exchange(topic, json.dumps(mine))]
    return {Region(name): max(found[name] for found in everyone) for name in mine}


def find_jitter_ns(pause: Pause, duration_ns: int, stolen: StolenClock | None = None) -> int:
    """Return the mean of by how much tries of some length missed it, without those that other guests disturbed.

    Args:
        pause: that is tried.
        duration_ns: of each try.
        stolen: what others have of this machine; None: as the system says.
    """
    fewest, most = _TRIES
    times = min(most, max(fewest, _TIME_NS // duration_ns))
    stolen = StolenClock() if stolen is None else stolen
    missed_ns: list[int] = []
    stolen_fractions: list[float] = []
    start_ns, before_ns = time.perf_counter_ns(), stolen.read_ns()
    for one_ns in pause.try_out(duration_ns, times):
        end_ns, after_ns = time.perf_counter_ns(), stolen.read_ns()
        missed_ns.append(one_ns)
        stolen_fractions.append(stolen.give_fraction(before_ns, after_ns, end_ns - start_ns))
        start_ns, before_ns = end_ns, after_ns
    return round(fmean(compress(missed_ns, find_undisturbed(stolen_fractions))))


def _find_short(asked: Timed, jitter_ns: Mapping[Region, int]) -> dict[Region, int]:
    """Return the units of which the jitter is more than 5 %, with it."""
    return {region: jitter for region, jitter in jitter_ns.items() if jitter > MOST_JITTER * _unit_ns(asked, region)}


def _refuse(asked: Timed, short: Mapping[Region, int], ranks: int) -> str:
    """Name units that are too short, and one that would work."""
    together = f"on the worst of {ranks} ranks at once" if ranks > 1 else "on one rank"
    return (
        f"{describe_jitter(asked, short)} (mean of tries {together}); the limit is "
        f"{100 * MOST_JITTER:.0f} % of a unit, so use {advise_ms(max(short.values()))} or more here"
    )


def describe_jitter(asked: Timed, jitter_ns: Mapping[Region, int]) -> str:
    """Say by how much each unit misses its time."""
    return " and ".join(
        f"model.{field_of(region)}={getattr(asked, field_of(region)):g} misses its time by {format_ns(jitter)}, "
        f"{format_fraction(jitter / _unit_ns(asked, region))} of it"
        for region, jitter in jitter_ns.items()
    )


def advise_ms(jitter_ns: int) -> int:
    """Return a round number of ms of which a jitter is at most 5 %, 20 or more: 1, 2, 3 or 5 and zeros."""
    least_ms = max(LEAST_MS, ceil(jitter_ns / MOST_JITTER / NS_PER_MS))
    zeros = 10 ** floor(log10(least_ms))
    return next(digit * zeros for digit in _NICE if digit * zeros >= least_ms)


def _unit_ns(asked: Timed, region: Region) -> int:
    """Return the unit on a rank that is not slow: the shortest there is."""
    return round(getattr(asked, field_of(region)) * NS_PER_MS)
