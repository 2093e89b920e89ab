"""How much of this machine's cores other guests had meanwhile: on a shared machine the first thing to ask of a time."""

from collections.abc import Sequence
from pathlib import Path

_STEAL = 7
"""Which of the first line's times in ``/proc/stat`` went to other guests; see ``proc_stat(5)``."""
_LOOKED_AT = 8
"""The two after those are part of ``user`` and ``nice`` already."""


class StolenTime:
    """Counts from when it is made."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def read_fraction(self) -> float | None:
        """Give the share of all cores' time that others had; None where the system does not say, or says nothing yet.

        A machine that is nobody's guest gives 0; what a container may use is not looked at.
        """
        spent = [now - before for before, now in zip(self._before, self._read(), strict=False)]
        return spent[_STEAL] / sum(spent) if sum(spent) > 0 else None

    def _read(self) -> Sequence[int]:
        try:
            first, *times = self._stat.read_text().partition("\n")[0].split()[: 1 + _LOOKED_AT]
        except (OSError, ValueError):
            return ()
        return tuple(int(time) for time in times) if first == "cpu" and len(times) == _LOOKED_AT else ()
