"""What only traces tell of a selftest's cell: known of every rank, or not at all."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from dtbench.base.vocabulary import Region
from dtbench.selftest.evidence import find_backward_ns


def make_timeline(*backward_at_ns: int | None) -> Any:
    """Return a rank's timeline of steps of 100 ns, with a backward in each or, where None, without one."""
    began = [(100 * step + at_ns) for step, at_ns in enumerate(backward_at_ns) if at_ns is not None]
    return SimpleNamespace(
        steps=[SimpleNamespace(start_ns=100 * step, end_ns=100 * (step + 1)) for step in range(len(backward_at_ns))],
        regions=SimpleNamespace(
            regions=[Region.BACKWARD] * len(began), starts_ns=np.array(began), ends_ns=np.array(began) + 9
        ),
    )


def test_backward_begins_where_the_last_rank_begins_it_and_is_not_known_where_one_does_not_tell() -> None:
    whole = make_timeline(20, 30)
    assert find_backward_ns([whole, make_timeline(10, 50)], [0, 1]) == 35
    assert find_backward_ns([whole, make_timeline(10, None)], [0, 1]) is None
    assert find_backward_ns([whole, make_timeline(10, None)], [0]) == 20
