"""Steps of which it is not known where they begin: what may have run in the time before is in none of their zeros.

::

    device      ██ ██ ░░░░ ████████        ░: launched by the step, or by the one before: the launch is lost
    step                   ├──────         its account is of this
    before            ├───┤                and this may be of it

A number above zero stays: so much is of the step. Zero becomes None, unless nothing of the kind ran in that time. Where
that is more than a small part of a step, it has no account at all; see ``job/set_clocks.py``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Kind, Purpose
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.account.untold_times import Open, bound_window
from dtbench.traces.account.waits import Waits, wait_time_ns
from dtbench.traces.host.steps import Step
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals
from dtbench.traces.time.overlap import Overlap, measure_overlaps
from dtbench.traces.time.shares import share_time
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Before:
    """What ran in the time before steps that may be of them; by place of the step, of those that surely begin nothing.

    Attributes:
        windows: when.
        accounts: of these windows.
        compute: time in which compute ran.
        recorded: when what computes was recorded; None: always.
    """

    windows: Mapping[int, Window]
    accounts: Mapping[int, Overlap]
    compute: Intervals
    recorded: Intervals | None

    @classmethod
    def of(cls, steps: Sequence[Step], kinds: Mapping[Kind, Intervals], recorded: Intervals | None) -> "Before":
        """Find it."""
        windows = {
            place: Window(step.window.start_ns - step.unsure_ns, step.window.start_ns)
            for place, step in enumerate(steps)
            if step.unsure_ns and step.window.length_ns
        }
        accounts = measure_overlaps([*windows.values()], kinds, recorded)
        return cls(windows, dict(zip(windows, accounts, strict=True)), kinds[Kind.COMPUTE], recorded)

    def has_comm(self, place: int) -> bool:
        """Tell whether communication ran that may be of a step; ``place``: of the step."""
        return place in self.accounts and self.accounts[place].comm_ns != 0

    def doubt_overlap(self, place: int, one: Overlap) -> Overlap:
        """Return the account of a step without zeros that may be none."""
        if (before := self.accounts.get(place)) is None:
            return one
        return replace(
            one,
            compute_ns=_doubt(one.compute_ns, before.compute_ns),
            comm_ns=_doubt(one.comm_ns, before.comm_ns),
            hidden_comm_ns=_doubt(one.hidden_comm_ns, before.hidden_comm_ns),
            exposed_comm_ns=_doubt(one.exposed_comm_ns, before.exposed_comm_ns),
            exposed_copy_ns=_doubt(one.exposed_copy_ns, before.exposed_copy_ns),
            idle_ns=_doubt(one.idle_ns, before.idle_ns),
        )

    def find_purposes(self, collectives: Sequence[Collective], waits: Waits) -> dict[int, dict[Purpose, Open]]:
        """Find the communication that ran, or was waited for, in that time, by place of the step and purpose."""
        number = {purpose: index for index, purpose in enumerate(Purpose)}
        purpose_of = np.array([number[one.purpose] for one in collectives], dtype=np.int64)
        spans = [one.span for one in collectives]
        found: dict[int, dict[Purpose, Open]] = {}
        for place, window in self.windows.items():
            shares = share_time(spans, self.compute, [window], self.recorded)
            times_ns = np.stack([table[:, :1] for table in shares.sum_by(purpose_of, len(number))])
            found[place] = {}
            for purpose, index in number.items():
                is_awaited = wait_time_ns(waits, purpose, window.start_ns, window.end_ns) > 0
                if is_awaited or times_ns[:, index].any():
                    found[place][purpose] = Open(np.array([True]), np.array([is_awaited]), *times_ns[:, index])
        return found


def _doubt(time_ns: int | None, before_ns: int | None) -> int | None:
    return time_ns if time_ns or before_ns == 0 else None


def doubt_purposes_before(
    windows: Sequence[tuple[PurposeTime, ...]], found: Mapping[int, Mapping[Purpose, Open]]
) -> list[tuple[PurposeTime, ...]]:
    """Return the purposes of the steps and, last, of the whole trace without zeros that may be none."""
    return [bound_window(rows, found[place], 0) if place in found else rows for place, rows in enumerate(windows)]
