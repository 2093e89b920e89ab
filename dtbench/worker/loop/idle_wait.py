"""Waits for other virtual machines of the host to leave its cores alone, and says what to run again when they did not.

They come in bursts of some seconds to a minute. Single steps that they disturbed are left out afterwards
(``dtbench.machine.disturbance``); a burst over a whole phase, or a whole block of steps, leaves nothing to go by.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dtbench.base.units import NS_PER_S
from dtbench.machine.disturbance import DISTURBED, LEAST_STEPS
from dtbench.machine.stolen_time import Look, look_at_machine
from dtbench.worker.loop.store_exchange import StoreExchange


@dataclass
class IdleWait:
    """One rank's part; every method is collective, and every rank comes to the same answer.

    Attributes:
        timeout_s: for a launch in all; 0: nobody waits or looks.
        say: told of the milestone and its detail.
        touch: a sign of life.
        look: at this rank's machine.
    """

    store: StoreExchange
    timeout_s: float
    say: Callable[[str, str], None]
    touch: Callable[[], None]
    look: Callable[[], Look] = look_at_machine
    _spent_s: float = 0.0
    _asked: int = 0

    def wait(self) -> None:
        """Come back when others leave the machines of all ranks alone, or time is up."""
        if not self.timeout_s:
            return
        before_s, looks = self._spent_s, 0
        is_disturbed = True
        while is_disturbed:
            seen = self.look()
            self.touch()
            self._spent_s += seen.took_s
            looks += 1
            is_disturbed = self._agree(is_disturbed=seen.stolen_fraction >= DISTURBED)
        if looks > 1:
            self.say("waited for other virtual machines of the host", f"{self._spent_s - before_s:.1f} s")

    def wants_again(self, stolen_fractions: Sequence[float], took_ns: int) -> bool:
        """Tell whether to run steps again, and if so wait first: others left fewer than three of them alone.

        Args:
            stolen_fractions: what others had of this rank's machine in each; NaN: not known.
            took_ns: by all of them.
        """
        if not self.timeout_s:
            return False
        disturbed = sum(fraction >= DISTURBED for fraction in stolen_fractions)
        kept = len(stolen_fractions) - disturbed
        if not self._agree(is_disturbed=kept < min(LEAST_STEPS, len(stolen_fractions))):
            return False
        self._spent_s += took_ns / NS_PER_S
        self.wait()
        return True

    def _agree(self, *, is_disturbed: bool) -> bool:
        """Say whether any rank is disturbed and all have time left."""
        self._asked += 1
        mine = json.dumps([is_disturbed, self._spent_s])
        said: list[tuple[bool, float]] = [
            json.loads(text) for text in self.store.exchange(f"quiet/{self._asked}", mine)
        ]
        return any(one for one, _ in said) and all(spent_s < self.timeout_s for _, spent_s in said)
