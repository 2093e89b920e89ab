"""What ranks write about the functions under study: probes count and time them, the interpreter's tracing saw lines."""

from typing import Literal

from dtbench.base.record import Amount, Record
from dtbench.seeds.functions import Reach


class ProbedBranch(Record):
    """Calls that took one branch of a function; ``total_ns`` as in ``ProbedFunction``."""

    name: str
    calls: Amount
    total_ns: Amount


class ProbedFunction(Record):
    """What the probe of one function saw in a launch, on one rank.

    Attributes:
        file: path below the folder of packages.
        name: dotted as in the file.
        reach: its class, as the list of functions under study has it.
        calls: that began, recursive ones too; 0: it was wrapped and nobody called it.
        raised: how many of them ended in an exception.
        total_ns: inside it, what it calls included, recursive calls once; of a context manager or a generator the time
            in its own code.
        branches: where branches have names.
        callers: calls by who called, ``<module>.<function>``; an override of dtbench that only passes on is left out.
        first_error: of the first call that raised, as a traceback's last line.
    """

    file: str
    name: str
    reach: Reach
    calls: Amount
    raised: Amount
    total_ns: Amount
    branches: tuple[ProbedBranch, ...] = ()
    callers: dict[str, Amount] = {}
    first_error: str | None = None

    @property
    def tells_branches(self) -> bool:
        """Whether each call is among those of a branch: a call takes one, where branches have names."""
        return sum(branch.calls for branch in self.branches) >= self.calls


class Unprobed(Record):
    """A function that has no probe, and why; absent: the installed torch does not have it."""

    file: str
    name: str
    reason: str
    is_absent: bool = False


class Probes(Record):
    """What the probes of one rank saw.

    Attributes:
        functions: all that were wrapped.
        unprobed: that were asked for and could not be wrapped; that the installed torch does not have among them.
        unlisted: functions of these files that the list of functions under study does not have, as ``<file>.<name>``.
        cost_per_call_ns: what a probe adds to a call outside PROFILED steps, as measured in this process.
    """

    functions: tuple[ProbedFunction, ...]
    unprobed: tuple[Unprobed, ...]
    unlisted: tuple[str, ...]
    cost_per_call_ns: int


class TracedFunction(Record):
    """What the interpreter's own tracing saw of one function.

    Attributes:
        file: path below the folder of packages.
        name: dotted as in the file.
        calls: frames that it began, generators once; may lag behind where the process was killed.
        lines: of its body that ran, nested functions' bodies not included.
        executable_lines: of its body that could have run.
    """

    file: str
    name: str
    calls: Amount
    lines: tuple[int, ...]
    executable_lines: Amount


class LineRecord(Record):
    """Lines of the files under study that one rank ran, import excluded; every function is there, run or not.

    Attributes:
        tracer: how the interpreter was asked: ``sys.settrace`` or ``sys.monitoring``.
        functions: those that ``ast`` finds in the installed files.
    """

    format_version: Literal[1] = 1
    rank: Amount
    python: str
    torch: str
    tracer: str
    functions: tuple[TracedFunction, ...]
