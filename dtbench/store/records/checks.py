"""What became of a scenario's checks: ``checks.json`` of a run, how far a catalogue came, ``outcomes.json``."""

from enum import StrEnum
from typing import Final, Literal

from dtbench.base.record import Record


class CheckOutcome(StrEnum):
    """What became of a check; ``not judged``: a number that it needs is not known, which is no pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


CORES_KIND: Final = "undisturbed"
GPUS_KIND: Final = "undisturbed GPUs"
DISTURBED: Final = {CORES_KIND: "others took the cores", GPUS_KIND: "others had the GPUs"}
"""Kinds of the result that stands before all checks where others had the machine of a cell: nothing is judged by it."""


class CheckResult(Record):
    """One check of a scenario file.

    Attributes:
        kind: as the file has it; ``functions`` for those that it has to call, ``launches`` where some are left out,
            those of ``DISTURBED`` where others left too few steps alone, ``ranks`` where evidence of some is lost or
            not their own, ``results`` where a cell computed what it should not, ``stages`` where one that is known to
            be broken in torch is not, or nobody compared it.
        words: what it asks for.
        outcome: what became of it.
        got: the figure that it was judged by.
        because: why it has to be so; empty where the file does not say.
    """

    kind: str
    words: str
    outcome: CheckOutcome
    got: str
    because: str


class ChecksSummary(Record):
    """What a scenario file claims, held against a run.

    Attributes:
        outcome: failed if one check failed, else not judged if one was not.
        results: each check in the order of the file.
        answer: the file's sentence with this run's numbers; None unless all checks passed, and where there is none.
        launches: of the cell that has fewest: numbers are medians over them.
        doubted: cells whose PROFILED steps do not stand for others.
        changed: the run had ``--set`` for more than ``repeat``, so it is not what the file claims about.
    """

    format_version: Literal[1] = 1
    outcome: CheckOutcome
    results: tuple[CheckResult, ...]
    answer: str | None
    launches: int
    changed: bool
    doubted: tuple[str, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether the file claims what this run of it does not bear out."""
        return self.outcome is not CheckOutcome.PASSED and not self.changed


class FinishedScenario(Record):
    """One scenario of a catalogue that was run to its end; ``run`` is the folder, absolute."""

    scenario: str
    run: str
    duration_ns: int


class CatalogueRecord(Record):
    """How far a catalogue came: what ``dtbench catalogue --resume`` does not run again.

    Attributes:
        started_unix_ns: runs that began before belong to something else.
        finished: in the order in which they ran.
    """

    format_version: Literal[1] = 1
    started_unix_ns: int
    finished: tuple[FinishedScenario, ...]


class ScenarioOutcome(Record):
    """What a scenario came to when it was last recorded.

    Attributes:
        passed: checks that did, of ``checks``.
        figure: the answer with its numbers; where there is none, what did not pass and what was got.
        launches: that numbers are medians over.
        date: in UTC, as ``2026-01-31``.
        machine: in words.
        words: digest of the scenario file as it was then (``scenario.load.digest_words``); None in older records.
    """

    scenario: str
    outcome: CheckOutcome
    passed: int
    checks: int
    figure: str
    launches: int
    duration_s: int
    date: str
    dtbench: str
    torch: str
    machine: str
    words: str | None = None


class OutcomesRecord(Record):
    """The last outcome of each scenario of a folder, by name."""

    format_version: Literal[1] = 1
    outcomes: tuple[ScenarioOutcome, ...] = ()
