"""What a scenario's checks came to, in words: one wording for terminal, Markdown and notebook."""

from collections.abc import Callable
from typing import Final

from dtbench.base.units import count_things
from dtbench.report.page.page import Cell, Column, Line, Part, Prose, Table, Tone
from dtbench.store.records.checks import DISTURBED, CheckOutcome, CheckResult, ChecksSummary


def answer_line(checks: ChecksSummary) -> str:
    """Return the answer to the scenario's question, or say why this run gives none."""
    wrong = [result for result in checks.results if result.outcome is not CheckOutcome.PASSED]
    if not wrong:
        answer = f"all checks passed ({len(checks.results)})" if checks.answer is None else checks.answer
        cells = ", ".join(checks.doubted)
        return f"NOT REPRESENTATIVE: PROFILED steps of {cells} do not stand for others. {answer}" if cells else answer
    if (taken := _find_taken(checks)) is not None:
        return f"no answer, nothing is judged: {DISTURBED[taken.kind]}"
    counts = {outcome: sum(result.outcome is outcome for result in wrong) for outcome in CheckOutcome}
    told = [f"{count} {_spell(outcome)}" for outcome, count in counts.items() if count]
    return f"no answer: of {count_things(len(checks.results), 'check')} {' and '.join(told)}"


def remedy_line(checks: ChecksSummary) -> str | None:
    """Return who took the machine and what to do about it; None: nobody did."""
    taken = _find_taken(checks)
    return None if taken is None else f"{taken.got}. {REMEDY}"


def _find_taken(checks: ChecksSummary) -> CheckResult | None:
    """Return what says that others had the machine, which no check is then judged by; None: nobody had."""
    return next((result for result in checks.results if result.kind in DISTURBED), None)


REMEDY: Final = "Stop what can be stopped, or wait until the machine is quiet, and run it again"


def _spell(outcome: CheckOutcome) -> str:
    return "could not be judged" if outcome is CheckOutcome.NOT_JUDGED else outcome.value


def checks_part(checks: ChecksSummary) -> Part:
    """Return the answer, then every check with its outcome and figure."""
    tone = Tone.STRONG if checks.outcome is CheckOutcome.PASSED else Tone.BAD
    remedy = remedy_line(checks)
    told = (Line(answer_line(checks), tone), *([] if remedy is None else [Line(remedy)]))
    return Part("checks", "", (Prose(told), checks_table(checks)))


def checks_table(checks: ChecksSummary) -> Table:
    """Return every check: what became of it, what it asks for, and the figure that it was judged by."""
    return Table(
        title="Checks of the scenario",
        columns=(Column("outcome"), Column("check"), Column("got")),
        rows=[
            (
                Cell(mark_outcome(result.outcome), TONES[result.outcome]),
                _describe(result.words, result.because),
                "see above" if result.kind in DISTURBED else result.got,
            )
            for result in checks.results
        ],
        notes=(scope_words(checks), *([CHANGED] if checks.changed else [])),
        key="checks",
    )


TONES: Final = {CheckOutcome.PASSED: Tone.GOOD, CheckOutcome.FAILED: Tone.BAD, CheckOutcome.NOT_JUDGED: Tone.WARNING}
"""How each outcome is meant."""

CHANGED = "--set made this another experiment than the file claims about: its checks are told and do not count"


def scope_words(checks: ChecksSummary) -> str:
    """Say on how many launches the checks were judged."""
    if checks.launches > 1:
        return f"judged on medians over {checks.launches} launches"
    if not checks.launches:
        return "judged without a cell of which no launch can be read"
    return "judged on one launch; `--set repeat=4` gives statistics"


def failure_words(checks: ChecksSummary, spell: Callable[[CheckOutcome], str] | None = None) -> list[str]:
    """Say of each check that did not pass what it asks for and what was got."""
    return [
        f"{(spell or _spell)(result.outcome)}: {result.words}; got {result.got}"
        for result in checks.results
        if result.outcome is not CheckOutcome.PASSED
    ]


def mark_outcome(outcome: CheckOutcome) -> str:
    """Return an outcome as tables have it: what failed stands out without colour, too."""
    return "FAILED" if outcome is CheckOutcome.FAILED else outcome.value


def _describe(words: str, because: str) -> str:
    return f"{words}\n  because {because}" if because else words
