"""What joining the collectives of many ranks costs: CPU time and peak memory, each beside its bound, and how it grows.

``python -m tests.benchmarks.join_ranks`` joins generated ranks (columns, no traces: ``join_one.py``) of 256, 1,024 and
4,096 ranks with 2,000 collectives each, every size in a process of its own (see [Note: peak memory of a child] in
``child_cost.py``), and prints a Markdown table. In *one* a rank comes last to all collectives of all ranks, in *any*
each time another: then there are as many ranks that others wait for as there can be. Making the ranks is in the memory
and not in the time. The exponent is that of CPU time over ranks between the smallest and the largest size. A benchmark,
not a test: it exits with 1 where a bound does not hold or the join is wrong.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.child_cost import ChildError, run_child

MOST_S = 10.0
MOST_BYTES = 2 * 10**9
BOUND_AT = (4096, 2000)
LATE = ("one", "any")
MOST_APART_NS = 10_000
"""By which clocks may be found off: ends are up to 4 us apart, and a clock is a median of few of them in small jobs."""


@dataclass(frozen=True)
class Joined:
    """One join: its cost, and whether it found what was put in."""

    ranks: int
    collectives: int
    late: str
    join_s: float
    peak_bytes: int
    is_right: bool

    @property
    def us_each(self) -> float:
        """CPU time for each collective of each rank, in microseconds."""
        return self.join_s / (self.ranks * self.collectives) * 1e6

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds are of this size."""
        return (self.ranks, self.collectives) == BOUND_AT

    @property
    def holds(self) -> bool:
        """Whether it is right, and within the bounds where these are of its size."""
        is_within = self.join_s <= MOST_S and self.peak_bytes <= MOST_BYTES
        return self.is_right and (is_within or not self.is_bounded)


def join(ranks: int, collectives: int, late: str) -> Joined:
    """Join once, in a process of its own.

    Raises:
        ChildError: it failed.
    """
    command = [sys.executable, "-m", "tests.benchmarks.join_one", str(ranks), str(collectives), late]
    said = json.loads(run_child(command).output)
    hosts = math.ceil(ranks / 8)
    is_right = (
        said["matched"] == collectives // 2 * (1 + hosts)
        and said["clocks_within_ns"] <= MOST_APART_NS
        and said["is_late_rank_found"] is not False
    )
    return Joined(ranks, collectives, late, said["join_s"], said["peak_bytes"], is_right)


def find_exponent(joined: Sequence[Joined]) -> float:
    """Return the exponent of CPU time over ranks, from the smallest to the largest; NaN for one size."""
    small, large = (choose(joined, key=lambda one: one.ranks) for choose in (min, max))
    if small.ranks == large.ranks:
        return math.nan
    return math.log(large.join_s / small.join_s) / math.log(large.ranks / small.ranks)


def make_table(joined: Mapping[str, Sequence[Joined]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| comes last | ranks x collectives | CPU | each | peak memory | right |\n|---|---|---|---|---|---|"
    for late, several in joined.items():
        for one in several:
            bounds = (f" of {MOST_S:.0f} s", f" of {MOST_BYTES / 1e9:.0f} GB") if one.is_bounded else ("", "")
            size, each = f"{one.ranks:,} x {one.collectives:,}", f"{one.join_s:.2f} s{bounds[0]} | {one.us_each:.2f} us"
            peak = f"{one.peak_bytes / 1e9:.2f} GB{bounds[1]}"
            yield f"| {late} | {size} | {each} | {peak} | {'yes' if one.is_right else 'NO'} |"
    yield ""
    for late, several in joined.items():
        yield f"exponent of CPU time over ranks, {late}: {find_exponent(several):.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Join every size, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--collectives", type=int, default=2000)
    options = parser.parse_args(arguments)
    try:
        joined = {late: [join(ranks, options.collectives, late) for ranks in options.ranks] for late in LATE}
    except ChildError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(make_table(joined)))
    return 0 if all(one.holds for several in joined.values() for one in several) else 1


if __name__ == "__main__":
    sys.exit(main())
