"""What an advice can gain at most, by a replay of the steps without the time of its collectives; or how to ask for one.

That bounds what sends less or hides more: what waits less, or stands in no queue, may gain more than the time that its
collectives take. Where all that they took is less than what the replay gains, that stays the bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dtbench.report.words.advice import Advice, Bound, OwnerKey

if TYPE_CHECKING:
    from dtbench.runs.summary import GainsSummary, OwnerGain

_ALL: Final = "hidden: all"
_LEAST_NS: Final = 1.0
"""Less than that is nothing: what traces tell ends there."""


def bound_by_replay(advices: Sequence[Advice], gains: "GainsSummary | None") -> list[Advice]:
    """Bound what sends less, or hides more, by a replay where that gains less than all that collectives took.

    Args:
        advices: what would change some losses.
        gains: of the cell; None: no replay was asked.
    """
    if gains is None or gains.refused:
        return list(advices)
    return [replace(one, bound=_tighten(one, gains)) for one in advices]


def say_refused(advices: Sequence[Advice], gains: "GainsSummary | None") -> str | None:
    """Say that all that collectives took stays the bound, and why; None: no advice has such a bound, or a replay spoke.

    Args:
        advices: that are said.
        gains: as above.
    """
    if gains is None or not gains.refused or not any(one.owners and one.bound for one in advices):
        return None
    return f"transfer is all that bounds these gains, a replay of the steps without it tells nothing: {gains.refused}"


def name_replay(advices: Sequence[Advice]) -> list[Advice]:
    """Let what would send less, or hide more, name the change that a replay is asked for: of traces none was made."""
    return [replace(one, replay=_name_hidden(one.owners)) if one.owners and one.bound else one for one in advices]


def _name_hidden(owners: Sequence[OwnerKey]) -> str:
    """Name what holds all of some owners: one of them, their purpose, or all."""
    if len(owners) == 1:
        name, purpose, _ = owners[0]
        return f"hidden: {name or 'unattributed'}, {purpose}"
    purposes = {purpose for _, purpose, _ in owners}
    return f"hidden: {purposes.pop()}" if len(purposes) == 1 else _ALL


def _tighten(one: Advice, gains: "GainsSummary") -> Bound | None:
    if one.bound is None or not one.owners:
        return one.bound
    row = next(_find_rows(one.owners, gains.rows), None)
    if row is None or row.saving_ns > one.bound.most_ns:
        return one.bound
    steps = "steps as MEASURED" if gains.is_measured else "PROFILED steps"
    without = f"a replay of {steps} without {_name_row(row, one.owners)}"
    if row.saving_ns < _LEAST_NS:
        return Bound(0.0, gains.step_ns, f"{without} takes as long", is_replayed=True)
    return Bound(row.saving_ns, gains.step_ns, f"what {without} gains", is_replayed=True)


def _find_rows(owners: Sequence[OwnerKey], rows: "Sequence[OwnerGain]") -> "Iterator[OwnerGain]":
    """Yield rows that hold all of some owners, the fewest collectives first."""
    purposes = {purpose for _, purpose, _ in owners}
    if len(owners) == 1:
        yield from (row for row in rows if (row.owner, row.purpose, row.operation) == owners[0])
    if len(purposes) == 1:
        yield from (row for row in rows if row.owner is None and row.purpose in purposes)
    yield from (row for row in rows if row.owner is None and row.purpose is None)


def _name_row(row: "OwnerGain", owners: Sequence[OwnerKey]) -> str:
    """Say without what: the transfer of its collectives, of a purpose, or any."""
    if row.owner is not None:
        return f"the transfer of its collectives (`{_name_hidden(owners)}`)"
    if row.purpose is not None:
        return f"any transfer of {row.purpose} (`hidden: {row.purpose}`)"
    return f"any transfer (`{_ALL}`)"
