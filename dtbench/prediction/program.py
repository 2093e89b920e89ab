"""What a rank's host does, as a list of instructions: of one step, or of the steps of a trace.

::

    Enter(forward)  Compute(20 ms)  Enter(backward)  Compute(20 ms)  Issue(bucket 0)  Compute(20 ms)  Issue(bucket 1)
    Wait(0)  Wait(1)  Enter(optimizer)  Host(2 ms)

What runs on a device is launched to one of its lanes::

    Host(9 us)  Launch(kernels)  Host(5 us)  Issue(bucket 0)  Host(7 us)  Launch(kernels, after bucket 0)
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from dtbench.base.vocabulary import Axis, Operation, Purpose, Region


class Meeting(Enum):
    """When a rank is there for a collective."""

    AT_ISSUE = "at issue"
    """As on the emulated link: service begins when all have issued it and the rank's lane is free."""
    AT_START = "at start"
    """As kernels and gloo's threads do: a lane is held from when it begins to wait for the other ranks."""


@dataclass(frozen=True)
class Request:
    """What a strategy asks of the link, as every rank would say it.

    Attributes:
        size_bytes: as nccl-tests counts it.
        owner: ``bucket 0``, or the FQN of an FSDP unit, ``root`` for the root; empty: nobody's.
        apart: names a process group of its own along the axis; empty: the mesh's.
        within: consecutive ranks of the axis that this is among; None: all.
    """

    axis: Axis
    operation: Operation
    purpose: Purpose
    size_bytes: int
    owner: str = ""
    apart: str = ""
    within: int | None = None


@dataclass(frozen=True)
class Collective:
    """One collective of one rank.

    Attributes:
        group: its process group's name; with ``ranks`` and its number on the group it is the same on all of them.
        ranks: global ranks of the group.
        lane: that serves it.
        service_ns: how long, from when the last rank is there.
        meeting: when a rank is there.
        launch_ns: from its issue until its lane, if free, begins with it.
        after: numbers of what must have ended before its lane begins with it.
        held_ns: how much of ``service_ns`` its lane is held; None: all. A link may be free again while the backend that
            it stands before still works.
        waits: for the ranks that come later; False: it is served from when its own rank is there, as a root's.
    """

    request: Request
    group: str
    ranks: tuple[int, ...]
    lane: str
    service_ns: int
    meeting: Meeting = Meeting.AT_ISSUE
    launch_ns: int = 0
    after: tuple[int, ...] = ()
    held_ns: int | None = None
    waits: bool = True


@dataclass(frozen=True)
class Work:
    """What a host gives to a lane of its own: it ends at ``max(launch + reach, max(lane free, ends of after) + busy)``.

    So may a row of kernels be one work, exactly: ``reach_ns`` is the longest way from the launch of any of them to the
    end of the last.

    Attributes:
        busy_ns: for how long the lane is busy with it where nothing keeps it waiting.
        reach_ns: from its launch to its end where the lane stands free; at least ``busy_ns``.
        after: numbers of what must have ended before the lane begins with it.
    """

    lane: str
    busy_ns: int
    reach_ns: int
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Enter:
    """The training loop enters a region."""

    region: Region


@dataclass(frozen=True)
class Compute:
    """The model computes."""

    duration_ns: int


@dataclass(frozen=True)
class Host:
    """The host is busy with what is neither compute nor a wait: Python, copies, the optimizer."""

    duration_ns: int


@dataclass(frozen=True)
class Issue:
    """A collective is given to its lane; the host goes on. A blocking one is followed by its ``Wait``."""

    collective: Collective
    is_blocking: bool


@dataclass(frozen=True)
class Launch:
    """Work is given to its lane; the host goes on."""

    work: Work


@dataclass(frozen=True)
class Wait:
    """The host is blocked until what it issued or launched as its ``number``-th, from 0, has ended.

    Attributes:
        return_ns: from that end until it goes on.
    """

    number: int
    return_ns: int = 0


@dataclass(frozen=True)
class Mark:
    """The host comes to a place of which somebody wants to know when."""

    name: str


Instruction = Enter | Compute | Host | Issue | Launch | Wait | Mark
Program = tuple[Instruction, ...]


@dataclass
class ProgramWriter:
    """Writes one rank's program.

    Attributes:
        resolve: gives what carries a request on this rank; None: nothing crosses, one rank is alone.
        issue_ns: of the host before each issue: copies in, Python.
        finish_ns: of the host after the first wait for each: copies out.
    """

    resolve: Callable[[Request], Collective | None]
    issue_ns: int = 0
    finish_ns: int = 0
    _instructions: list[Instruction] = field(default_factory=list)
    _issued: int = 0
    _waited: set[int] = field(default_factory=set)

    def finish(self) -> Program:
        """Return what was written."""
        return tuple(self._instructions)

    def enter(self, region: Region) -> None:
        """Begin a region."""
        self._instructions.append(Enter(region))

    def compute(self, duration_ns: int) -> None:
        """Let the model compute."""
        if duration_ns > 0:
            self._instructions.append(Compute(duration_ns))

    def host(self, duration_ns: int) -> None:
        """Keep the host busy."""
        if duration_ns > 0:
            self._instructions.append(Host(duration_ns))

    def issue(self, request: Request) -> int | None:
        """Issue and go on; gives the number to wait for, None where nothing crosses."""
        return self._issue(request, is_blocking=False)

    def block(self, request: Request) -> int | None:
        """Issue and block until its end; returns its number, None where nothing crosses."""
        number = self._issue(request, is_blocking=True)
        if number is not None:
            self._instructions.append(Wait(number))
        return number

    def wait(self, number: int | None) -> None:
        """Stand still until the end of a collective, then copy out; None: there was none."""
        if number is None:
            return
        self._instructions.append(Wait(number))
        if number not in self._waited:
            self._waited.add(number)
            self.host(self.finish_ns)

    def _issue(self, request: Request, *, is_blocking: bool) -> int | None:
        collective = self.resolve(request)
        if collective is None:
            return None
        self.host(self.issue_ns)
        self._instructions.append(Issue(collective, is_blocking))
        self._issued += 1
        return self._issued - 1


def make_serial(program: Program) -> Program:
    """Let the host block after every issue, so that nothing overlaps."""
    serial: list[Instruction] = []
    number = 0
    for instruction in program:
        if isinstance(instruction, Issue):
            serial += [replace(instruction, is_blocking=True), Wait(number)]
            number += 1
        else:
            serial.append(instruction)
    return tuple(serial)


def remove_communication(program: Program) -> Program:
    """Leave out all collectives and waits for them."""
    return tuple(one for one in program if not isinstance(one, Issue | Wait))
