"""One rank's trace reduced to what questions over ranks need: small enough to cross from process to process."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dtbench.traces.skeleton import CollectiveColumns, read_columns
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints
from dtbench.traces.who.collectives import Collective, Launch, Regions

SCATTER_NS: Final = 8_000
"""By which ranks that come together may be seen to come apart: 1 to 7 us on eight V100. So short a wait is none."""


@dataclass(frozen=True)
class RankTimeline:
    """What one rank did, without its single operators and kernels.

    Attributes:
        rank: global rank.
        is_device: its communication lies on device streams; False: on threads (gloo).
        collectives: in order of start; those without a span were issued and never seen. What causes need and no event
            says (``ready_ns``, ``computed_ns``, a foreign ``is_async``) is filled in, see ``causes/``.
        step_of: index into ``steps`` of each collective; None: issued outside all.
        exposed_ns: each collective's share of exposed time, over the whole trace; see ``shares.py``.
        stepped_exposed_ns: the part of ``exposed_ns`` inside the windows of steps of which it is known what was hidden.
        hidden_ns: its share of hidden time.
        undecided_ns: each collective's share of time in which what computes was not recorded; empty: none.
        recorded: when what computes was recorded; None: always.
        compute: time in which compute ran, on any lane.
        compute_starts_ns: shape ``(m,)``, rising, start of every compute event (kernel; operator on CPU) that takes
            time.
        compute_launches_ns: shape ``(2, m)``, when the same event was launched, at the earliest and at the latest.
        regions: what the training loop was doing when; for traces without such ranges as autograd's engine shows.
        step_numbers: as in ``ProfilerStep#12``.
        steps: window of each step.
        path: the trace's file, for messages.
        world_size: ranks of the job, as the trace says; None where it does not.
        host: machine, whose ranks share a clock, unless containers on several bear one name; None: not told, or the
            rank's times do not fit it.
        kernel: which start of which machine's kernel, whose ranks surely share a clock; None: not told.
        said_rank: as the trace says; None where it does not.
        base_ns: Unix time of the zero of all these times; None where the trace does not say.
        unseen: collectives that were launched and whose kernels the trace lacks, in order of time.
        known_steps: for each step whether its exposed time is known; empty: of all.
        fits_host: its device's times fit its host's; False: nothing that sets the one against the other is known.
        tells_streams: its streams are told apart; False: nothing that rests on what a stream did next is known.
        ways: the collectives with what causes need, once as if what was launched when it is not told was launched early
            and once as if late; empty: it is told wherever it matters. See ``causes/untold.py``.
        unasked: by index, collectives whose causes rest on who asked for them or for others of their step, which the
            trace does not tell; see ``who/unranged.py``.
    """

    rank: int
    is_device: bool
    collectives: tuple[Collective, ...]
    step_of: tuple[int | None, ...]
    exposed_ns: tuple[int, ...]
    stepped_exposed_ns: tuple[int, ...]
    hidden_ns: tuple[int, ...]
    compute: Intervals
    compute_starts_ns: Ints
    compute_launches_ns: Ints
    regions: Regions
    step_numbers: tuple[int, ...]
    steps: tuple[Window, ...]
    path: str = ""
    world_size: int | None = None
    host: str | None = None
    kernel: str | None = None
    said_rank: int | None = None
    base_ns: int | None = None
    unseen: tuple[Launch, ...] = ()
    undecided_ns: tuple[int, ...] = ()
    recorded: Intervals | None = None
    known_steps: tuple[bool, ...] = ()
    fits_host: bool = True
    tells_streams: bool = True
    ways: tuple[tuple[Collective, ...], ...] = ()
    unasked: frozenset[int] = frozenset()

    @cached_property
    def columns(self) -> CollectiveColumns:
        """The collectives as what is compared over ranks."""
        return read_columns(self.collectives, self.step_of)

    def read(self, index: int) -> Collective:
        """Return one collective."""
        return self.collectives[index]

    @property
    def told_size(self) -> int | None:
        """How many ranks the job has at least, by itself or by its largest group; None: the trace says neither."""
        groups = {max(one.group_size or 0, len(one.group_ranks)) for one in self.collectives}
        return max(self.world_size or 0, *groups) or None if groups else self.world_size

    def count_known_steps(self) -> int:
        """Count steps whose exposed time is known."""
        are_known = self.known_steps or (True,) * len(self.steps)
        return sum(is_known and step.length_ns > 0 for step, is_known in zip(self.steps, are_known, strict=True))

    def is_of_known_step(self, index: int) -> bool:
        """Tell whether a step issued a collective whose exposed time is known."""
        step = self.step_of[index]
        return step is not None and (not self.known_steps or self.known_steps[step])

    def exposed_of(self, index: int) -> int | None:
        """Return a collective's exposed time; None: it was not seen to run, or what computes was not recorded."""
        return self.exposed_ns[index] if self._is_decided(index) else None

    def hidden_of(self, index: int) -> int | None:
        """Return a collective's hidden time; None as for ``exposed_of``."""
        return self.hidden_ns[index] if self._is_decided(index) else None

    def _is_decided(self, index: int) -> bool:
        is_seen = len(self.collectives[index].span.starts_ns) > 0
        return is_seen and not (self.undecided_ns and self.undecided_ns[index])
