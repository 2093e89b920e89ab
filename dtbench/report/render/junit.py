"""What became of a comparison as JUnit XML, which CI systems show beside the tests of a change.

A suite is a comparison, a case one of its bounds; without bounds the comparison itself, which then passes. What is
exceeded failed; what cannot be judged, or is not established and nobody lets pass, was skipped, with its reason. Nobody
has specified the format; these elements are those that GitLab, Jenkins and Azure read:
https://github.com/testmoapp/junitxml.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dtbench.base.errors import ComparisonError, DtbenchError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Gate, Judgement, Kept
from dtbench.report.words.visible import spell_controls

_NAME: Final = "dtbench compare"
_DECLARED: Final = '<?xml version="1.0" encoding="UTF-8"?>'
_NO_CHARACTERS: Final = re.compile("[\ufffe\uffff]")
"""Which XML cannot hold, as it cannot most controls (https://www.w3.org/TR/xml/#charsets)."""


class Ending(StrEnum):
    """How a case ended; each but the first is the name of an element."""

    PASSED = "passed"
    FAILED = "failure"
    SKIPPED = "skipped"
    ERROR = "error"


_TYPES: Final = {Ending.FAILED: "exceeded", Ending.SKIPPED: "not judged", Ending.ERROR: "not compared"}


@dataclass(frozen=True)
class Case:
    """One thing that a CI system lists; ``words`` are a sentence.

    Attributes:
        suite: what it is of.
        name: what was asked of that.
    """

    suite: str
    name: str
    ending: Ending
    words: str


def list_cases(comparisons: Sequence[Comparison], gate: Gate | None) -> list[Case]:
    """List what a command found.

    Args:
        comparisons: at least one, of one command.
        gate: its bounds; None: it has none.
    """
    suites = [f"{one.candidate.label} against {one.baseline.label}" for one in comparisons]
    left_out = [Case("left out", words, Ending.SKIPPED, words) for words in comparisons[0].left_out]
    if gate is None:
        compared = zip(suites, comparisons, strict=True)
        return [*(Case(suite, "compared", Ending.PASSED, one.sentence) for suite, one in compared), *left_out]
    each = len(gate.judgements) // len(suites)
    judged = (
        Case(suites[place // each], one.typed, _end(one, gate), one.words) for place, one in enumerate(gate.judgements)
    )
    return [*judged, *left_out]


def list_refused(named: Sequence[str], error: DtbenchError) -> list[Case]:
    """List the one case of a command that compared nothing: skipped where these cannot be compared, else an error."""
    ending = Ending.SKIPPED if isinstance(error, ComparisonError) else Ending.ERROR
    return [Case(" and ".join(named), "compared", ending, str(error))]


def write_junit(cases: Iterable[Case]) -> str:
    """Return the document, whatever characters labels and owners hold."""
    listed = list(cases)
    suites: dict[str, list[Case]] = {}
    for case in listed:
        suites.setdefault(case.suite, []).append(case)
    root = Element("testsuites", {"name": _NAME, **_count(listed)})
    for name, own in suites.items():
        suite = SubElement(root, "testsuite", {"name": _spell(name), **_count(own)})
        for case in own:
            _add(suite, case)
    indent(root)
    return f"{_DECLARED}\n{tostring(root, encoding='unicode')}\n"


def _end(judgement: Judgement, gate: Gate) -> Ending:
    match judgement.kept:
        case Kept.KEPT:
            return Ending.PASSED
        case Kept.EXCEEDED:
            return Ending.FAILED
        case Kept.NOT_ESTABLISHED if gate.passes_unestablished:
            return Ending.PASSED
        case Kept.NOT_ESTABLISHED | Kept.UNDECIDED:
            return Ending.SKIPPED


def _count(cases: Sequence[Case]) -> dict[str, str]:
    endings = [case.ending for case in cases]
    counted = {"failures": Ending.FAILED, "errors": Ending.ERROR, "skipped": Ending.SKIPPED}
    return {"tests": str(len(cases)), **{name: str(endings.count(ending)) for name, ending in counted.items()}}


def _add(suite: Element, case: Case) -> None:
    element = SubElement(suite, "testcase", classname=_spell(f"{_NAME}: {case.suite}"), name=_spell(case.name))
    if case.ending is Ending.PASSED:
        SubElement(element, "system-out").text = _spell(case.words)
        return
    message, *_ = case.words.splitlines() or [""]
    told = SubElement(element, case.ending.value, message=_spell(message), type=_TYPES[case.ending])
    told.text = _spell(case.words)


def _spell(words: str) -> str:
    return _NO_CHARACTERS.sub("\ufffd", spell_controls(words))
