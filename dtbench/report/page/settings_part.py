"""What other settings would do to a cell, as lines and a table: by its closed form, of its MEASURED steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from dtbench.base.columns import Unit
from dtbench.base.units import format_fraction, format_ns, is_or_are
from dtbench.report.page.page import Cell, Column, Line, Part, Row, Table, Tone, numbers
from dtbench.runs.settings.base import MOST_OFF, CostSource
from dtbench.runs.settings.forecast import LEVEL, Forecast, SettingAnswer, find_model_error
from dtbench.scenario.mistakes import join_words
from dtbench.scenario.sweeps.sweep import name_some

LEAST: Final = 0.01
"""Of a step: what saves less does not help."""


class Settings(NamedTuple):
    """What was asked of the settings of a run's cells.

    Attributes:
        cells: by name.
        refused: by name, why nothing is said of others.
    """

    cells: Mapping[str, Forecast]
    refused: Mapping[str, str]


NO_SETTINGS: Final = Settings({}, {})


def settings_lines(one: Forecast, lead: str) -> Iterator[Line]:
    """Say which setting saves most, where that is more than nothing; that none does, where all intervals say so."""
    if not one.answers:
        return
    step, best = f"a measured step of {format_ns(one.step_ns)}", one.answers[0]
    saves = best.saving_ns >= (LEAST if best.low_ns is not None else one.model_error) * one.step_ns
    if saves and (best.low_ns is None or best.low_ns > 0):
        yield Line(
            f"{lead}of settings `{best.change}` saves most: {format_ns(best.saving_ns)} "
            f"({format_fraction(best.saving_ns / one.step_ns)}) of {step}{_say_interval(best)}.",
            Tone.STRONG,
        )
    elif all(answer.high_ns is not None and answer.high_ns < LEAST * one.step_ns for answer in one.answers):
        yield Line(f"{lead}no other setting that was asked for helps by more than {format_fraction(LEAST)} of {step}.")
    else:
        yield Line(
            f"{lead}no other setting is sure to help: most is said of `{best.change}`, {format_ns(best.saving_ns)} of "
            f"{step}{_say_interval(best)}."
        )


def _say_interval(answer: SettingAnswer) -> str:
    if answer.low_ns is None or answer.high_ns is None:
        return "; one launch tells no interval"
    return f", {format_fraction(LEVEL)} interval {format_ns(answer.low_ns)} to {format_ns(answer.high_ns)}"


def settings_part(name: str, one: Forecast, *, several: bool) -> Part:
    """Return the table of one cell."""
    table = Table(
        f"{name}: what other settings would save" if several else "what other settings would save",
        (
            Column("setting"),
            *numbers(Unit.NS, "step"),
            *numbers(Unit.NS, "saves"),
            *numbers(Unit.FRACTION, "of\nstep"),
            Column(f"{format_fraction(LEVEL)} interval"),
            Column("costs"),
        ),
        [_row(answer, one) for answer in one.answers],
        key="settings",
    )
    return Part(f"settings:{name}", "", (table,))


def _row(answer: SettingAnswer, one: Forecast) -> Row:
    saving_ns, interval = answer.saving_ns, "n/a"
    if answer.low_ns is not None and answer.high_ns is not None:
        interval = f"{format_ns(answer.low_ns)} to {format_ns(answer.high_ns)}"
    return (
        answer.change,
        Cell(format_ns(answer.step_ns), value=answer.step_ns),
        Cell(format_ns(saving_ns), value=saving_ns),
        Cell(format_fraction(saving_ns / one.step_ns), value=saving_ns / one.step_ns),
        interval,
        answer.costs,
    )


def settings_notes(settings: Settings) -> Iterator[str]:
    """Say what savings by settings are, and of which cells none is known."""
    for source in CostSource:
        cells = {name: one for name, one in settings.cells.items() if one.source is source}
        if cells:
            whose = f"of {name_some(list(cells))} " if len(cells) < len(settings.cells) else ""
            yield from _say_source(source, whose, list(cells.values()))
    for name, one in settings.cells.items():
        if one.missing:
            which = f"{one.missing} of {one.missing + one.launches} launches"
            yield f"{name}: {which} without a MEASURED step {is_or_are(one.missing)} left out"
        yield from (f"{name}: {words}" for words in say_not_asked(one.not_asked))
    for why, names in _join_alike(settings.refused.items()).items():
        yield f"settings of {name_some(names)} are not asked: {why}"


def _say_source(source: CostSource, whose: str, cells: Sequence[Forecast]) -> Iterator[str]:
    """Say by what savings of some cells, which it is of, are told, and what their intervals hold."""
    lead = f"settings {whose}are not run either: their savings are of MEASURED steps, by the closed form of"
    error = format_fraction(find_model_error(source))
    match source:
        case CostSource.KNOWN:
            yield f"{lead} blocks and link with the host's time that these steps had"
            off = f"{error} of a step, by which such closed forms were seen to be off"
        case CostSource.REGIONS:
            apart = f"{'at most ' * (len(cells) > 1)}{format_fraction(max(one.off or 0.0 for one in cells))} of a step"
            yield (
                f"{lead} a link of known cost; compute of blocks was found from how long forward, backward and "
                f"optimizer of these steps were, and what that leaves exposed is {apart} from what PROFILED steps "
                f"showed (above {format_fraction(MOST_OFF)} nothing is said)"
            )
            off = f"{error} of a step, by which such closed forms may be off where compute shares cores with copies"
        case _:
            assert_never(source)
    if any(one.launches > 1 for one in cells):
        yield f"intervals {whose}hold the spread of launches and {off}"


def say_not_asked(refused: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Say which changes are not asked and why, each reason once with all to which it applies."""
    for why, names in _join_alike(refused).items():
        yield f"{join_words([f'`{name}`' for name in names], last='and')} {is_or_are(len(names))} not asked: {why}"


def _join_alike(refused: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return by reason what is refused for it."""
    alike: dict[str, list[str]] = {}
    for name, why in refused:
        alike.setdefault(why, []).append(name)
    return alike
