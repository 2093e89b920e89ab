"""Takes a known time on the host without holding a core: what an emulated link and timed blocks do."""

import time

from dtbench.base.units import NS_PER_S


def sleep_until(end_ns: int) -> None:
    """Come back at a moment of ``time.monotonic_ns``, or as soon after it as the system lets a sleeper run."""
    while (left_ns := end_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / NS_PER_S)
