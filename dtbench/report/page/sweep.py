"""The cells of a run against each other: one row each, by their place on the axes that the scenario crosses.

One wording for the terminal, Markdown, the plot and TensorBoard.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import NS_PER_MS, decimals_for, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import Purpose
from dtbench.report.page import estimates
from dtbench.report.page.page import Cell, Column, Line, Part, Prose, Table, Tone, lines, words_of
from dtbench.report.words import sentences
from dtbench.report.words.marks import Marks
from dtbench.report.words.sentences import NAN, WAIT_EXPLAINED
from dtbench.report.words.settings import NOT_ON_AXIS
from dtbench.runs.environments import say_silent_cells, say_unlike_cells
from dtbench.runs.representative import UNSURE
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.runs.told_apart import LEAST_LAUNCHES, tell_apart
from dtbench.scenario.sweeps.axes import cut_common_folders
from dtbench.traces.known_part import KnownPart

MOST_CELLS: Final = 4
"""Cells that are told in full; of more, only those that must not be trusted are."""

ESTIMATES, CHECK = estimates.LABEL, "state"
OF_WORDS = (ESTIMATES, CHECK)
"""Headers of the columns of words; all others are numbers."""

_MOST_VALUE_LENGTH = 18
_DOUBT: Final = "?"
_OF_COMM: Final = "Their communication"
_MOST_LETTERS: Final = 14
"""Of a line of a header."""
_MOST_NOTES = 6
_WITHIN: Final = "within one launch: `--set repeat=4` says whether cells differ from launch to launch"
_SCOPE_WORDS: Final = {
    True: "intervals over launches",
    False: f"intervals {_WITHIN}",
    None: f"intervals over launches, of cells with one launch {_WITHIN}",
}


@dataclass(frozen=True)
class SweepAxis:
    """One axis with the value of every cell as text, in the order of the cells."""

    name: str
    values: tuple[str, ...]

    @property
    def is_constant(self) -> bool:
        """Whether all cells have the same value."""
        return len(set(self.values)) == 1


@dataclass(frozen=True)
class Quantity:
    """One quantity: its header, what is said of every cell, and the unit of the numbers behind that."""

    header: str
    cells: tuple[str | Cell, ...]
    group: str = ""
    unit: Unit | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """What is said, without the numbers behind it."""
        return tuple(map(words_of, self.cells))


_INTERVAL: Final = "95 % interval"


def find_axes(summary: RunSummary) -> tuple[SweepAxis, ...]:
    """Return the axes along which the cells differ; their names where there are no others."""
    names = list(dict.fromkeys(name for cell in summary.cells for name in cell.coordinates))
    axes = [
        SweepAxis(
            _short_name(name, names),
            tuple(cut_common_folders([cell.coordinates.get(name, NOT_ON_AXIS) for cell in summary.cells])),
        )
        for name in names
    ]
    differing = tuple(axis for axis in axes if not axis.is_constant)
    return differing or (SweepAxis("cell", tuple(cell.name for cell in summary.cells)),)


def constant_words(summary: RunSummary) -> str:
    """Name the axes on which all cells are at the same place; empty when there are none."""
    names = list(dict.fromkeys(name for cell in summary.cells for name in cell.coordinates))
    values = {name: {cell.coordinates.get(name, NOT_ON_AXIS) for cell in summary.cells} for name in names}
    return ", ".join(f"{_short_name(name, names)} {only.pop()}" for name, only in values.items() if len(only) == 1)


def sweep_quantities(summary: RunSummary) -> tuple[Quantity, ...]:
    """Return what the table of a sweep says of each cell, the axes left out; times in ms."""
    spell = _Spelling(mark_cells(summary), decimals_for(cell.step_time.median for cell in summary.cells))

    def make(
        header: str, say: Callable[[CellSummary], str | Cell], group: str = "", unit: Unit | None = None
    ) -> Quantity:
        return Quantity(header, tuple(map(say, summary.cells)), group, unit)

    has_ranks = len({cell.plan.ranks for cell in summary.cells}) > 1
    are_estimated = any(cell.exposure is not None for cell in summary.cells)
    return (
        *([make("ranks", lambda cell: Cell(str(cell.plan.ranks), value=cell.plan.ranks))] if has_ranks else []),
        make("step time", spell.step, unit=Unit.NS),
        make(_INTERVAL, lambda cell: _interval_words(cell, spell.decimals)),
        make("tokens per s", spell.tokens, unit=Unit.PER_SECOND),
        make("gradient wait", lambda cell: spell.wait(cell, Purpose.GRAD_REDUCE), _OF_COMM, Unit.NS),
        make("unshard wait", lambda cell: spell.wait(cell, Purpose.UNSHARD), _OF_COMM, Unit.NS),
        make("exposed comm", spell.exposed, _OF_COMM, Unit.NS),
        make("hidden share", spell.hidden, _OF_COMM, Unit.FRACTION),
        *([make(ESTIMATES, estimates.agreement_word, _OF_COMM)] if are_estimated else []),
        make(CHECK, _check_cell),
    )


@dataclass(frozen=True)
class _Spelling:
    """How the numbers of all cells are spelled alike."""

    marks: Marks
    decimals: int

    def _ms(self, time_ns: float, part: KnownPart | None) -> str:
        return self.marks.mark(format_ms(time_ns, self.decimals), part)

    def step(self, cell: CellSummary) -> Cell:
        part = sentences.find_told_part(cell, cell.timed_part)
        return Cell(self._ms(cell.step_time.median, part), value=cell.step_time.median)

    def tokens(self, cell: CellSummary) -> Cell:
        part = sentences.find_told_part(cell, cell.timed_part)
        return Cell(self.marks.mark(sentences.tokens_word(cell), part), value=cell.tokens_per_second)

    def wait(self, cell: CellSummary, purpose: Purpose) -> Cell:
        part = sentences.find_told_part(cell, sentences.wait_part(cell, purpose))
        words = self.marks.mark(_wait_words(cell, purpose, self.decimals), part)
        return Cell(_mark_doubt(cell, words), value=sentences.wait_ns(cell, purpose))

    def exposed(self, cell: CellSummary) -> Cell:
        words = format_ms(exposed_ns(cell), self.decimals)
        return Cell(qualify_exposed(cell, words, self.marks), value=exposed_ns(cell))

    def hidden(self, cell: CellSummary) -> Cell:
        part = sentences.find_told_part(cell, cell.part)
        words = self.marks.mark(format_fraction(cell.hidden_fraction), part)
        return Cell(_mark_doubt(cell, words), value=cell.hidden_fraction)


def qualify_exposed(cell: CellSummary, words: str, marks: Marks) -> str:
    """Return exposed communication in words, as a bound, with a mark or as no finding where it is one."""
    part = sentences.find_told_part(cell, cell.part)
    return _mark_doubt(cell, sentences.bound_below(cell, marks.mark(words, part)))


def _check_cell(cell: CellSummary) -> Cell:
    return Cell(sentences.check_word(cell), Tone.PLAIN if sentences.is_trusted(cell) else Tone.BAD)


def cells_part(summary: RunSummary) -> Part:
    """Return the cells against each other: the table, what it shows, and over what its intervals hold."""
    constant = constant_words(summary)
    told = [Line(finding(summary), Tone.STRONG), *lines([f"in all cells: {constant}"] if constant else [], Tone.QUIET)]
    is_all = len(summary.cells) > MOST_CELLS  # else each cell explains its own waits
    scope = f"{scope_words(summary)}; {WAIT_EXPLAINED}" if is_all else scope_words(summary)
    below = Prose((*told, Line(scope, Tone.QUIET)), key="finding")
    return Part("cells", "", (cells_table(summary), below))


def cells_table(summary: RunSummary) -> Table:
    """Return the cells against each other, one row each; times in ms."""
    axes, quantities = find_axes(summary), sweep_quantities(summary)
    return Table(
        title="All cells, per step; times in ms",
        columns=(
            *(Column(_break(axis.name)) for axis in axes),
            *(
                Column(
                    _break_header(one.header),
                    is_number=one.header not in OF_WORDS,
                    group=one.group,
                    unit=one.unit,
                )
                for one in quantities
            ),
        ),
        rows=[
            (
                *(Cell(shorten_value(axis.values[place]), Tone.STRONG) for axis in axes),
                *(one.cells[place] for one in quantities),
            )
            for place in range(len(summary.cells))
        ],
        notes=lines(mark_lines(summary), Tone.WARNING),
        key="cells",
        row_keys=tuple(cell.name for cell in summary.cells),
    )


def _break_header(header: str) -> str:
    return "95 %\ninterval" if header == _INTERVAL else header.replace(" ", "\n", 1)


def _break(name: str) -> str:
    """Break a long name at its underscores and dots, into lines of about ten letters."""
    broken = [""]
    for part in re.findall(r"[^_.]+[_.]*|[_.]+", name):
        if broken[-1] and len(broken[-1]) + len(part) > _MOST_LETTERS:
            broken.append("")
        broken[-1] += part
    return "\n".join(broken)


def mark_cells(summary: RunSummary) -> Marks:
    """Return the marks of these columns: of what the numbers are that are not known of all of their cell."""
    waits = (Purpose.GRAD_REDUCE, Purpose.UNSHARD)
    parts = ((cell.timed_part, cell.part, *(sentences.wait_part(cell, one) for one in waits)) for cell in summary.cells)
    told = ((cell, part) for cell, of_cell in zip(summary.cells, parts, strict=True) for part in of_cell)
    return Marks.of(sentences.find_told_part(cell, part) for cell, part in told)


def mark_lines(summary: RunSummary) -> tuple[str, ...]:
    """Say what every mark of these columns says, those of cells in doubt among them."""
    return limit_lines(summary, mark_cells(summary))


def limit_lines(summary: RunSummary, marks: Marks) -> tuple[str, ...]:
    """Say what these marks say, and that of cells in doubt where there are any."""
    doubt = f"{_DOUBT} PROFILED steps of this cell may not stand for the run: no finding, see its notes"
    return (*marks.lines, *([doubt] if any(map(is_doubted, summary.cells)) else []))


def is_doubted(cell: CellSummary) -> bool:
    """Tell whether PROFILED steps of a cell do not stand for others, so that no number of them tells cells apart."""
    return any(doubt.kind not in UNSURE for doubt in cell.doubts)


def _mark_doubt(cell: CellSummary, words: str) -> str:
    return f"{words}{_DOUBT}" if is_doubted(cell) and words not in ("n/a", "none") else words


def exposed_ns(cell: CellSummary) -> float:
    """Return the exposed communication of a PROFILED step, mean over ranks; NaN where it is known of none."""
    return fmean(row.exposed_comm_ns for row in cell.ranks) if cell.ranks else NAN


def place_words(summary: RunSummary, cell: CellSummary) -> str:
    """Name a cell by its place on the axes, for example ``strategy ddp, bucket_cap_mb 4``."""
    at = summary.cells.index(cell)
    axes = find_axes(summary)
    if [axis.name for axis in axes] == ["cell"]:
        return cell.name
    placed = [f"{axis.name} {shorten_value(axis.values[at])}" for axis in axes if axis.values[at] != NOT_ON_AXIS]
    return ", ".join(placed) or cell.name


_Medians = Callable[[RunSummary, Sequence[CellSummary]], str]
"""Says between what the medians of cells lie, in order of these, beginning with what joins it to what is said."""


def finding(summary: RunSummary) -> str:
    """Say which cell is fastest and by how much, or that launches do not tell; cells to be trusted only."""
    return _find(summary, _say_medians)


def finding_below_bars(summary: RunSummary) -> str:
    """Say the same where the median of each cell stands above it."""
    return _find(summary, lambda _summary, _ordered: "")


def _find(summary: RunSummary, say_medians: _Medians) -> str:
    known = [cell for cell in summary.cells if sentences.is_trusted(cell) and not math.isnan(cell.step_time.median)]
    if len(known) < 2:
        return "Nothing is compared: fewer than two cells have numbers that can be trusted"
    left_out = len(summary.cells) - len(known)
    aside = f"; {left_out} of {len(summary.cells)} cells left out, without numbers to be trusted" if left_out else ""
    silent = say_silent_cells(known)
    where = "" if silent is None else f"; {silent}, so whether environments are alike is not checked"
    return f"{_compare(summary, known, say_medians)}{aside}{where}"


def _compare(summary: RunSummary, known: Sequence[CellSummary], say_medians: _Medians) -> str:
    """Say which cell is fastest and which slowest, as far as launches tell them apart; see ``told_apart.py``."""
    ordered = sorted(known, key=lambda cell: cell.step_time.median)
    if (unlike := say_unlike_cells(known)) is not None:
        return f"No cell is called fastest, they ran in {unlike}{say_medians(summary, ordered)}"
    counts = [sum(map(math.isfinite, cell.launch_medians_ns)) for cell in ordered]
    if sorted(counts)[-2] < LEAST_LAUNCHES:
        medians = say_medians(summary, ordered)
        ratio = f", {ordered[-1].step_time.median / ordered[0].step_time.median:.2f} x" if medians else ""
        return f"{_say_too_few(counts)}{medians}{ratio}"
    fastest, told = ordered[0], tell_apart([cell.launch_medians_ns for cell in ordered])
    if not told[0]:
        some = "" if any(told) else "; nor can any other cell"
        return f"No cell can be told from the fastest, {place_words(summary, fastest)}{some}"
    place = max(told[0])
    slowest, beside = ordered[place], len(ordered) - 1 - len(told[place])
    alike = len(ordered) - 1 - len(told[0])
    more = f"; {alike} more cannot be told from the fastest" if alike else ""
    is_last = slowest is ordered[-1]
    more += f"; {beside} more cannot be told from {place_words(summary, slowest)}" if is_last and beside else ""
    which = "slowest" if is_last and not beside else "slower"
    places = f"{place_words(summary, fastest)}, {which} {place_words(summary, slowest)}"
    fast_ns, slow_ns = fastest.step_time.median, slowest.step_time.median
    words = f"{format_ns(fast_ns)} against {format_ns(slow_ns)} ({slow_ns / fast_ns:.2f} x)"
    return f"Fastest is {places}: {words}{more}"


def _say_too_few(counts: Sequence[int]) -> str:
    """Say that launches are too few to tell the cells apart."""
    low, high = min(counts), max(counts)
    each = f"{low} each" if low == high else f"{low} to {high} each"
    return f"Too few launches to tell which is fastest ({each}, {LEAST_LAUNCHES} are needed)"


def _say_medians(summary: RunSummary, ordered: Sequence[CellSummary]) -> str:
    (first, fast_ns), (last, slow_ns) = (
        (place_words(summary, cell), cell.step_time.median) for cell in (ordered[0], ordered[-1])
    )
    return f"; medians from {format_ns(fast_ns)} ({first}) to {format_ns(slow_ns)} ({last})"


def scope_words(summary: RunSummary) -> str:
    """Say over what the intervals hold."""
    return _SCOPE_WORDS[_find_scope([cell for cell in summary.cells if cell.launches])]


def note_sentences(summary: RunSummary) -> tuple[str, ...]:
    """Return the first of ``all_notes``, for where there is little room, and how many more there are."""
    found = all_notes(summary)
    rest = len(found) - _MOST_NOTES
    return (*found[:_MOST_NOTES], *([f"and {rest} more notes: see --json"] if rest > 0 else []))


def all_notes(
    summary: RunSummary, tell: Callable[[CellSummary], Iterable[str]] = sentences.cell_notes
) -> tuple[str, ...]:
    """Return what was noted about cells, each once, with the cells that it is about; what is about all first."""
    found: dict[str, list[str]] = {}
    for cell in summary.cells:
        for note in tell(cell):
            found.setdefault(note, []).append(cell.name)
    everywhere = [note for note, names in found.items() if len(names) == len(summary.cells)]
    some = [f"{_name_first(names)}: {note}" for note, names in found.items() if len(names) < len(summary.cells)]
    return (*everywhere, *some)


def _name_first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _find_scope(cells: Sequence[CellSummary]) -> bool | None:
    """Tell whether cells were launched more than once, so that their intervals hold over launches; None: some were."""
    repeated = {len(cell.launches) > 1 for cell in cells}
    return None if len(repeated) > 1 else True in repeated


def shorten_value(text: str) -> str:
    """Cut a long value at its beginning: the end of a path tells paths apart."""
    return text if len(text) <= _MOST_VALUE_LENGTH else f"...{text[3 - _MOST_VALUE_LENGTH :]}"


def _short_name(name: str, names: Iterable[str]) -> str:
    """Return the last part of a dotted name, or the whole where another axis ends alike."""
    last = name.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in names) == 1 else name


def _interval_words(cell: CellSummary, decimals: int) -> str:
    low, high = cell.step_time.low, cell.step_time.high
    if math.isnan(low) or math.isnan(high):
        return "n/a"
    return f"{low / NS_PER_MS:.{decimals}f}-{high / NS_PER_MS:.{decimals}f}"


def _wait_words(cell: CellSummary, purpose: Purpose, decimals: int) -> str:
    words = sentences.wait_word(cell, purpose)
    if words in ("none", "n/a"):
        return words
    return sentences.bound_wait(cell, purpose, format_ms(sentences.wait_ns(cell, purpose), decimals))
