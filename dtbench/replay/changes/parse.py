"""What a person writes of a change, as one: ``hidden: bucket 3``, ``link: x2``, ``no straggler``, ``host: x0``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.apart import Apart
from dtbench.replay.changes.change import Change, ChangeKind, Owner, list_collectives
from dtbench.replay.changes.hidden import ALL, Hidden
from dtbench.replay.changes.host import HostTime
from dtbench.replay.changes.kernel import Kernel
from dtbench.replay.changes.link import Link
from dtbench.replay.changes.link_parts import Bandwidth, Latency
from dtbench.replay.changes.overlap_tax import NoOverlapTax
from dtbench.replay.changes.straggler import NoStraggler
from dtbench.replay.graph import JobGraph

FORMS: Final = (
    *("hidden: all", "hidden: OWNER", "apart: OWNER", "link: x2", "latency: x0.5", "bandwidth: x2"),
    *("no straggler", "no overlap tax", "host: x0", "kernel: NAME x2"),
)
"""What may be written."""
LEAST_TIMES: Final = 0.001
MOST_TIMES: Final = 1_000.0
"""Between these anything may be so many times as long, as fast or as wide: beyond lie slips, not machines."""
_TIMES: Final = r"x(?P<times>\d+(?:\.\d+)?)"
_LINK: Final = re.compile(_TIMES)
_OPERATION: Final = re.compile(r"'s [a-z-]+$")
_KERNEL: Final = re.compile(rf"(?P<name>.+\S) {_TIMES}")


def parse_change(text: str, graph: JobGraph) -> Change:
    """Read one change.

    Args:
        text: as a person writes it.
        graph: of the job, which says what owners there are.

    Raises:
        PredictionError: it is none of ``FORMS``, its factor is out of all bounds, or nobody there is so called.
    """
    kind, _, what = (part.strip() for part in text.partition(":"))
    change = _scale(kind, what)
    match kind:
        case ChangeKind.STRAGGLER if not what:
            change = NoStraggler()
        case ChangeKind.OVERLAP_TAX if not what:
            change = NoOverlapTax()
        case ChangeKind.HIDDEN if what:
            change = Hidden() if what == ALL else Hidden(_find_owners(what, graph), what)
        case ChangeKind.APART if what:
            change = Apart(_find_owners(what, graph), what)
        case ChangeKind.KERNEL if times := _read_times(_KERNEL, what):
            change = Kernel(what.rpartition(" ")[0].strip(), times)
    if change is None:
        raise PredictionError(f"`{text}` is no change; there are {', '.join(f'`{form}`' for form in FORMS)}")
    return change


def _scale(kind: str, what: str) -> Change | None:
    """Return a change that is some times as much of something; None: it is none.

    Raises:
        PredictionError: the factor is out of all bounds.
    """
    times = _read_times(_LINK, what)
    if times is None or (not times and kind not in _MAY_BE_NOTHING):
        return None
    made: dict[ChangeKind, Callable[[float], Change]] = {
        ChangeKind.LINK: Link,
        ChangeKind.LATENCY: Latency,
        ChangeKind.BANDWIDTH: Bandwidth,
        ChangeKind.HOST: HostTime,
    }
    return next((make(times) for name, make in made.items() if name == kind), None)


_MAY_BE_NOTHING: Final = (ChangeKind.LATENCY, ChangeKind.HOST)


def _read_times(form: re.Pattern[str], text: str) -> float | None:
    """Return the factor of a change; None: it is not written so.

    Raises:
        PredictionError: it is out of all bounds.
    """
    match = form.fullmatch(text)
    times = None if match is None else float(match["times"])
    if times and not LEAST_TIMES <= times <= MOST_TIMES:
        raise PredictionError(f"`{text}`: a change is of x{LEAST_TIMES:g} to x{MOST_TIMES:g}")
    return times


@dataclass(frozen=True)
class _Named:
    """An owner as reports name it: ``layers.{0-3}``, ``bucket 2's all-reduce``, an annotation unframed.

    Attributes:
        pattern: with a group for each pair of braces.
        numbers: by group, the numbers that may stand there.
    """

    pattern: re.Pattern[str]
    numbers: tuple[tuple[range, ...], ...]

    @classmethod
    def of(cls, text: str) -> "_Named":
        """Read what a person writes."""
        bare = _OPERATION.sub("", text).strip("# ")
        parts = re.split(r"\{([\d, -]+)\}", bare)
        spelled = [re.escape(part) for part in parts]
        spelled[1::2] = [r"(\d{1,9})"] * len(parts[1::2])
        return cls(re.compile("".join(spelled)), tuple(map(_read_ranges, parts[1::2])))

    def fits(self, name: str) -> bool:
        """Tell whether an owner is so called."""
        match = self.pattern.fullmatch(name.strip("# "))
        return match is not None and all(
            any(int(number) in run for run in runs) for number, runs in zip(match.groups(), self.numbers, strict=True)
        )


def _read_ranges(text: str) -> tuple[range, ...]:
    runs = (re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", run.strip()) for run in text.split(","))
    return tuple(range(int(run[1]), int(run[2] or run[1]) + 1) for run in runs if run)


def _find_owners(text: str, graph: JobGraph) -> tuple[Owner, ...]:
    """Find whose collectives are meant: an owner's by name, or those of a purpose.

    Raises:
        PredictionError: nobody is so called.
    """
    owners = {Owner.of(one): None for rank in graph.values() for _, one in list_collectives(rank)}
    wanted = _Named.of(text)
    named = tuple(
        owner
        for owner in owners
        if text in (owner.label, str(owner.purpose)) or wanted.fits(owner.name or "unattributed")
    )
    if not named:
        there = ", ".join(f"`{label}`" for label in dict.fromkeys(owner.label for owner in owners)) or "none"
        raise PredictionError(f"no collective of these steps is of `{text}`; there are {there}")
    return named
