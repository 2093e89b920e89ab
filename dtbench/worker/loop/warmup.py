"""When warm-up is over: communication repeats itself and the step time shows no change point, on every rank.

With default DDP the first step is unbucketed, with ``static_graph`` the first two, FSDP2 builds its state lazily,
allocators and caches fill: a fixed count is right for none of them.

In a person's own loop steps may take turns: gradients that are accumulated over three steps and applied in the fourth,
parameters that are averaged every eighth. Such steps repeat with a period, and warm-up ends with one::

    A A A B A A A B|     period 4; what is measured from here on are whole periods
"""

import json
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import median
from typing import Any, Protocol

from dtbench.plan.plan import Plan
from dtbench.store.records.rank import WarmupEnd
from dtbench.store.records.run import OwnLoop

STABLE_STEPS = 3
_HALF = 4
_TOLERANCE = 0.10


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is needed."""

    def set(self, key: str, value: str) -> Any:
        """Put a value."""

    def get(self, key: str) -> bytes:
        """Wait for a value."""


def find_change(durations: Sequence[float]) -> float | None:
    """Return by how much the last four steps differ from the four before (medians, relative), or None if by noise only.

    Noise is the larger of 10 % and three standard errors of a difference of two medians of four. The noise of one step
    is estimated from successive differences, which a change point hardly touches: 1.4826 times their median absolute
    value over sqrt(2) is a normal's standard deviation, and a median of n has 1.2533 / sqrt(n) times that.
    """
    window = durations[-2 * _HALF :]
    before, last = window[:_HALF], window[_HALF:]
    middle = median(window)
    change = (median(last) - median(before)) / middle
    one_step = 1.4826 * median(abs(b - a) for a, b in pairwise(window)) / 2**0.5 / middle
    standard_error = one_step * 1.2533 / _HALF**0.5 * 2**0.5
    return change if abs(change) > max(_TOLERANCE, 3 * standard_error) else None


def find_period(signatures: Sequence[Hashable], longest: int) -> int:
    """Return after how many steps all that they showed repeats itself; 0: it does not yet.

    Steps that are all alike have to be more than were ever alike before another kind came, or that may be due next.

    >>> find_period("UAAA", 8), find_period("AAABAAA", 8), find_period("AAABAAAB", 8), find_period("UABAB", 8)
    (1, 0, 4, 2)

    Args:
        signatures: of all steps so far.
        longest: period that is looked for; 1: only steps that are all alike.
    """
    runs = [len(list(run)) for _, run in groupby(signatures)]
    if runs and runs[-1] >= STABLE_STEPS and (longest == 1 or runs[-1] > max(runs[:-1], default=0)):
        return 1
    for period in range(2, longest + 1):
        last = signatures[-period:]
        if len(signatures) >= 2 * period and last == signatures[-2 * period : -period] and len(set(last)) > 1:
            return period
    return 0


@dataclass
class WarmupJudge:
    """Collects what each warm-up step showed and decides with all ranks, through the store, when to stop.

    Attributes:
        sees_communication: the signatures hold it; False: only the step time can speak.
        longest_period: of steps that take turns; 1: they must be all alike.
    """

    plan: Plan | OwnLoop
    rank: int
    store: Store
    sees_communication: bool = True
    longest_period: int = 1
    _signatures: list[Hashable] = field(default_factory=list)
    _slowest_ns: list[int] = field(default_factory=list)

    def judge(self, duration_ns: int, signature: Hashable) -> WarmupEnd | None:
        """Say what this rank saw in the step just ended; gives the common end of warm-up, or None to go on.

        Collective over all ranks. ``signature`` is anything that equals itself when communication repeats.
        """
        step = len(self._signatures)
        self._signatures.append(signature)
        period = find_period(self._signatures, self.longest_period)
        self.store.set(f"warmup/{step}/{self.rank}", json.dumps([duration_ns, period]))
        key = f"warmup/{step}/end"
        if self.rank == 0:
            end = self._decide([json.loads(self.store.get(f"warmup/{step}/{rank}")) for rank in range(self.plan.ranks)])
            self.store.set(key, end.model_dump_json() if end else "")
        text = self.store.get(key)
        return WarmupEnd.model_validate_json(text) if text else None

    @property
    def steps(self) -> int:
        """How many steps it was told of."""
        return len(self._signatures)

    def has_room(self, steps: int) -> bool:
        """Tell whether warm-up may go on for so many steps and one more."""
        return self.longest_period > 1 and self.steps + steps < self.plan.max_warmup_steps

    def agree(self, *, is_steady: bool) -> bool:
        """Tell, once, whether steps after warm-up were all alike on every rank that saw all of them; collective."""
        self.store.set(f"steady/{self.rank}", json.dumps(is_steady))
        return all(json.loads(self.store.get(f"steady/{rank}")) for rank in range(self.plan.ranks))

    def leave(self) -> None:
        """Say that this rank makes no further step, so that no other waits for what it saw there."""
        step = len(self._signatures)
        self.store.set(f"steady/{self.rank}", json.dumps(True))  # noqa: FBT003 - it is no reason to go on
        self.store.set(f"warmup/{step}/{self.rank}", "null")
        if self.rank == 0:
            self.store.set(f"warmup/{step}/end", _left(step, [0]).model_dump_json())

    def _decide(self, seen: Sequence[tuple[int, int] | None]) -> WarmupEnd | None:
        gone = [rank for rank, said in enumerate(seen) if said is None]
        if gone:
            return _left(len(self._slowest_ns), gone)
        stayed = [said for said in seen if said is not None]
        self._slowest_ns.append(max(duration for duration, _ in stayed))
        period = math.lcm(*(period for _, period in stayed))  # 0 where a rank still waits for it to repeat
        return self._find_end(period if period <= self.longest_period else 0)

    def _find_end(self, period: int) -> WarmupEnd | None:
        steps = len(self._slowest_ns)
        if steps < max(self.plan.min_warmup_steps, 2 * _HALF):
            return None
        change = find_change(self._durations())
        if self._is_whole(period) and change is None:
            repeats = f"communication repeated {STABLE_STEPS} times and " if self.sees_communication else ""
            if period > 1:
                repeats = f"steps take turns with a period of {period} and "
            reason = f"{repeats}step time shows no change point"
            return WarmupEnd(steps=steps, settled=True, reason=reason, period=period)
        if steps < self.plan.max_warmup_steps:
            return None
        setting = "max_warmup_steps" if isinstance(self.plan, OwnLoop) else "measure.warmup.max_steps"
        problem = (
            "communication still changes from step to step"
            if not period
            else f"step time still moves by {change or 0:+.0%}"
        )
        return WarmupEnd(
            steps=steps, settled=False, reason=f"{problem} after {steps} steps ({setting})", period=max(1, period)
        )

    def _is_whole(self, period: int) -> bool:
        """Tell whether a period has just ended: with a step of its rarest kind, which is what the others lead to."""
        if not period:
            return False
        kinds = Counter(self._signatures[-period:])
        return kinds[self._signatures[-1]] == min(kinds.values())

    def _durations(self) -> list[float]:
        """Return the durations of all steps; where they may take turns, over the median of those of their own kind."""
        if self.longest_period == 1:
            return [float(duration) for duration in self._slowest_ns]
        of_kind: dict[Hashable, list[int]] = {}
        for duration, kind in zip(self._slowest_ns, self._signatures, strict=True):
            of_kind.setdefault(kind, []).append(duration)
        usual = {kind: median(durations) or 1 for kind, durations in of_kind.items()}
        return [duration / usual[kind] for duration, kind in zip(self._slowest_ns, self._signatures, strict=True)]


def _left(steps: int, ranks: Sequence[int]) -> WarmupEnd:
    names = ", ".join(map(str, ranks))
    return WarmupEnd(
        steps=steps, settled=False, reason=f"rank {names} left the loop after {steps} steps, before warm-up had ended"
    )
