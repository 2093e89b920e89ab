"""Every way dtbench refuses or fails, as a sentence, with the exit code that a script can rely on.

::

    DtbenchError (1)
    ├── ScenarioError (2)   the file is wrong: line, key, what was meant
    ├── PlanError (3)       the file is right, this machine cannot run it
    ├── LaunchError (4)     a rank raised, died or hung; names it, with its last log lines
    │   └── NodesError (4)  several nodes cannot go on together: one is gone, or was started for something else
    ├── TraceError (5)      a trace cannot be read
    ├── StoreError (6)      a run folder is missing, unfinished or of another version
    ├── MissingError (7)    a package or program that the command needs is not installed
    ├── PatternsError (2)   a file of kernel patterns is wrong: line, key, what there is
    ├── CaptureError (1)    a person's own loop cannot be measured as it is written
    ├── PredictionError (1) nobody can say how long this takes, or what it would cost
    ├── CheckError (8)      the run finished, but its numbers must not be trusted: results, receipts or times are wrong
    ├── ComparisonError (9) these cannot be compared: unlike environments, nothing measured, not one thing
    ├── GateError (10)      a bound of --fail-if is exceeded
    ├── UndecidedError (11) a bound of --fail-if is not established, or cannot be judged: too few launches, no number
    ├── SelftestError (12)  a known situation was not told for what it is
    └── TorchError (13)     this torch is not as the one that dtbench was tested with

Exit code 130 means that the user pressed Ctrl-C.
"""

import errno
from pathlib import Path
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk, a quota or a file's limit is full."""


class DtbenchError(Exception):
    """Base of all errors that dtbench raises on purpose; its text is a full sentence for a person."""

    exit_code = 1


class ScenarioError(DtbenchError):
    """A scenario file or an override is wrong."""

    exit_code = 2


class PlanError(DtbenchError):
    """The scenario is well formed but cannot run on this machine or with these sizes."""

    exit_code = 3


class LaunchError(DtbenchError):
    """A rank raised, was killed or hung; everything measured before is kept in the run folder.

    Attributes:
        folder: the run's folder once the whole run has ended; None while one launch of it failed.
    """

    exit_code = 4

    def __init__(self, message: str, *, folder: Path | None = None) -> None:
        super().__init__(message)
        self.folder = folder


class NodesError(LaunchError):
    """Nodes cannot run ranks together any more, or could not begin; nothing of the run can follow."""


class TraceError(DtbenchError):
    """A trace cannot be read."""

    exit_code = 5


class StoreError(DtbenchError):
    """A run folder is missing, incomplete or written by another version."""

    exit_code = 6


class PatternsError(DtbenchError):
    """A file with a user's kernel patterns is wrong or cannot be read."""

    exit_code = 2


class MissingError(DtbenchError):
    """A package or program that this command needs is not installed."""

    exit_code = 7


class CheckError(DtbenchError):
    """The run finished but failed its own checks: results differ from the reference, or a knob was not applied."""

    exit_code = 8


class ComparisonError(DtbenchError):
    """Two sides cannot be compared, or must not be unless somebody insists."""

    exit_code = 9


class GateError(DtbenchError):
    """What ``--fail-if`` names has happened; the comparison was printed."""

    exit_code = 10


class UndecidedError(DtbenchError):
    """Nobody can say whether what ``--fail-if`` names has happened; no bound is known to be exceeded."""

    exit_code = 11


class CaptureError(DtbenchError):
    """``dtbench.capture`` or ``monitor`` was used where it cannot measure; raised in the person's own program."""


class PredictionError(DtbenchError):
    """There is no closed form for what a scenario asks, or it is not known what it costs."""


class SelftestError(DtbenchError):
    """A situation that ``dtbench selftest`` injected was not told for what it is; everything was printed."""

    exit_code = 12


class TorchError(DtbenchError):
    """What dtbench uses of torch is not as it was when dtbench was tested."""

    exit_code = 13
