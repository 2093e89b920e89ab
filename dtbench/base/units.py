"""Conversions for people. Inside dtbench all times are int nanoseconds and all sizes int bytes."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
MIB = 1024 * 1024

_MOST_RANGES = 16
"""Ranges that a sentence names; more nobody reads."""


def format_ns(duration_ns: float | None) -> str:
    """Return three significant digits in the largest unit that keeps the value at or above one; ``n/a``: not known.

    >>> format_ns(1_234_567)
    '1.23 ms'
    >>> format_ns(0)
    '0 ns'
    >>> format_ns(float("nan")), format_ns(None)
    ('n/a', 'n/a')
    """
    if duration_ns is None or math.isnan(duration_ns):
        return "n/a"
    for unit_ns, unit in ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us")):
        if abs(duration_ns) >= unit_ns * 0.9995:
            return f"{three_digits(duration_ns / unit_ns)} {unit}"
    return f"{three_digits(duration_ns)} ns"


def format_bytes(size_bytes: float | None) -> str:
    """Return three significant digits in binary units; ``n/a``: not known.

    >>> format_bytes(3 * 1024 * 1024)
    '3.00 MiB'
    >>> format_bytes(17)
    '17 B'
    """
    if size_bytes is None or math.isnan(size_bytes):
        return "n/a"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1023.5:
            return f"{size:.0f} B" if unit == "B" else f"{three_digits(size)} {unit}"
        size /= 1024
    return f"{three_digits(size)} TiB"


def format_fraction(fraction: float) -> str:
    """Return a fraction as a percentage with one decimal; ``0.0 %`` is nothing, and ``100.0 %`` everything.

    >>> format_fraction(0.1234), format_fraction(0.0), format_fraction(0.0001), format_fraction(0.9999)
    ('12.3 %', '0.0 %', '<0.1 %', '>99.9 %')
    """
    if math.isnan(fraction):
        return "n/a"
    words = f"{100 * fraction:.1f} %"
    if words == "0.0 %" and fraction > 0:
        return "<0.1 %"
    return ">99.9 %" if words == "100.0 %" and fraction < 1 else words


def format_count(value: float) -> str:
    """Return a large count with a metric suffix.

    >>> format_count(5_243_136)
    '5.24 M'
    >>> format_count(606.292)
    '606'
    """
    if math.isnan(value):
        return "n/a"
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{three_digits(value / size)} {suffix}"
    return f"{value:g}" if float(value).is_integer() else three_digits(value)


def three_digits(value: float) -> str:
    """Return three significant digits without an exponent; zero stays ``0``.

    >>> three_digits(99.96)
    '100'
    """
    if value == 0:
        return "0"
    digits_before_point = math.floor(math.log10(abs(value))) + 1
    rounded = round(value, 3 - digits_before_point)
    digits_before_point = math.floor(math.log10(abs(rounded))) + 1
    return f"{rounded:.{max(0, min(9, 3 - digits_before_point))}f}"


def count_things(count: int, thing: str) -> str:
    """Say how many of a thing whose plural ends in s there are.

    >>> count_things(1, "step"), count_things(0, "step"), count_things(2, "graph break")
    ('1 step', '0 steps', '2 graph breaks')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def count_launches(count: int) -> str:
    """Say how many launches there are.

    >>> count_launches(1), count_launches(2)
    ('1 launch', '2 launches')
    """
    return f"{count} launch{'' if count == 1 else 'es'}"


def is_or_are(count: int) -> str:
    """Return the verb for so many things.

    >>> is_or_are(1), is_or_are(0)
    ('is', 'are')
    """
    return "is" if count == 1 else "are"


def name_ranges(numbers: Sequence[int]) -> str:
    """Spell rising numbers shortly: of many ranges the first ones, and how many numbers the others hold.

    >>> name_ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    >>> name_ranges(range(0, 100, 2))
    '0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 and 34 more'
    """
    runs: list[range] = []
    for number in numbers:
        if runs and number == runs[-1].stop:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return name_runs(runs)


def name_runs(runs: Sequence[range]) -> str:
    """Spell runs of numbers, as ``name_ranges`` does.

    >>> name_runs([range(3), range(5, 6)])
    '0-2, 5'
    """
    named = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:_MOST_RANGES])
    rest = count_in(runs[_MOST_RANGES:])
    return f"{named} and {rest} more" if rest else named


def count_in(runs: Iterable[range]) -> int:
    """Count the numbers of runs; ``len`` ends at 2^63 - 1."""
    return sum(run.stop - run.start for run in runs)


def find_absent(numbers: Iterable[int], size: int) -> list[range]:
    """Return the runs of 0 ... ``size`` - 1 that are not among some numbers; ``size`` may be whatever a file claims.

    >>> find_absent([1, 4], 8)
    [range(0, 1), range(2, 4), range(5, 8)]
    """
    inside = sorted({number for number in numbers if 0 <= number < size})
    return [range(before + 1, after) for before, after in pairwise([-1, *inside, size]) if after > before + 1]


def list_numbers(numbers: Sequence[int]) -> str:
    """Spell rising numbers: two or fewer one by one, more as ranges.

    >>> list_numbers([1, 2]), list_numbers([1, 2, 3])
    ('1, 2', '1-3')
    """
    return name_ranges(numbers) if len(numbers) > 2 else ", ".join(map(str, numbers))


def list_runs(runs: Sequence[range]) -> str:
    """Spell runs of numbers as ``list_numbers`` does.

    >>> list_runs([range(1, 3)]), list_runs([range(1, 4)])
    ('1, 2', '1-3')
    """
    few = list(islice(chain.from_iterable(runs), 3))
    return list_numbers(few) if len(few) < 3 else name_runs(runs)


def name_ranks(ranks: Iterable[int]) -> str:
    """Spell ranks, in any order.

    >>> name_ranks([3]), name_ranks([2, 0, 1])
    ('rank 3', 'ranks 0-2')
    """
    known = sorted(set(ranks))
    return f"rank{'' if len(known) == 1 else 's'} {name_ranges(known)}"


def name_steps(steps: Sequence[int]) -> str:
    """Spell rising numbers of steps.

    >>> name_steps([3]), name_steps([3, 4, 5])
    ('step 3', 'steps 3-5')
    """
    return f"step{'s' if len(steps) > 1 else ''} {name_ranges(steps)}"


def format_bandwidth(bytes_per_s: float) -> str:
    """Return GB/s (10^9 bytes), as nccl-tests does.

    >>> format_bandwidth(1.234e9)
    '1.23 GB/s'
    """
    return f"{three_digits(bytes_per_s / 1e9)} GB/s"


def decimals_for(times_ns: Iterable[float | None]) -> int:
    """Return the decimals that a column of milliseconds needs: three below 10 ms, two below 100 ms, else one."""
    known = (abs(time_ns) for time_ns in times_ns if time_ns is not None and not math.isnan(time_ns))
    largest_ms = max(known, default=0.0) / NS_PER_MS
    return 3 if largest_ms < 10 else 2 if largest_ms < 100 else 1


def format_ms(time_ns: float | None, decimals: int) -> str:
    """Return milliseconds without their unit, for a column whose header says it."""
    return "n/a" if time_ns is None or math.isnan(time_ns) else f"{time_ns / NS_PER_MS:.{decimals}f}"
