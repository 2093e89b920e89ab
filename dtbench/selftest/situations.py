"""The rows of the selftest: each injects one situation and says what must be found, with numbers from the seed.

Ranges are such that every situation stays what it is whatever is drawn: a link that is to be hidden is faster than a
block, one behind which others queue is slower, and so on. Units of compute are 20 ms or more: below that a CPU's jitter
would be measured.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dtbench.base.errors import ScenarioError
from dtbench.scenario.mistakes import find_nearest, join_words, shorten
from dtbench.selftest.ddp_situations import (
    inject_caps,
    inject_clock,
    inject_compressed,
    inject_hidden,
    inject_late_ready,
    inject_no_sync,
    inject_queued,
    inject_rebuild,
    inject_straggler,
    inject_tail,
)
from dtbench.selftest.draw import Draw
from dtbench.selftest.fsdp_situations import (
    inject_exposed,
    inject_forward,
    inject_forward_prefetch,
    inject_hsdp,
    inject_late_issue,
    inject_prefetch,
)
from dtbench.selftest.row import Row

_ROWS: Final[dict[str, tuple[str, Callable[[Draw], Row]]]] = {
    "hidden": ("hidden", inject_hidden),
    "exposed": ("exposed", inject_exposed),
    "tail": ("tail", inject_tail),
    "queued": ("queued", inject_queued),
    "late_issue": ("prefetch", inject_late_issue),
    "straggler": ("straggler", inject_straggler),
    "compressed": ("compressed", inject_compressed),
    "no_sync": ("no_sync", inject_no_sync),
    "rebuild": ("queued", inject_rebuild),
    "prefetch": ("prefetch", inject_prefetch),
    "hsdp": ("hsdp", inject_hsdp),
    "ddp_tensor": ("ddp_tensor", inject_late_ready),
    "forward_prefetch": ("exposed", inject_forward_prefetch),
    "clock": ("tail", inject_clock),
    "caps": ("caps", inject_caps),
    "forward": ("forward", inject_forward),
}
"""By name: whose draws a row takes, so that rows which look at the same cells share them, and what makes it."""

ROW_NAMES: Final = tuple(_ROWS)


def draw_rows(seed: int, only: Sequence[str] = ()) -> tuple[Row, ...]:
    """Return the rows of a seed.

    Args:
        seed: of the numbers.
        only: names of the rows that are wanted; empty: all.

    Raises:
        ScenarioError: there is no such row.
    """
    for name in only:
        _require_row(name)
    chosen = (name for name in ROW_NAMES if not only or name in only)
    return tuple(_ROWS[name][1](Draw.of(seed, _ROWS[name][0])) for name in chosen)


def _require_row(name: str) -> None:
    if name in _ROWS:
        return
    near = find_nearest(name, ROW_NAMES)
    meant = f"did you mean `{near}`?" if near else f"the rows are {join_words(list(ROW_NAMES), last='and')}"
    raise ScenarioError(f"no row of the selftest is called `{shorten(name)}`; {meant}")
