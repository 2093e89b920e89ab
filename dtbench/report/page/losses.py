"""What communication costs, for who looks once: by purpose and cause, then the largest owners and what changes them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from dtbench.base.columns import Unit
from dtbench.base.units import decimals_for, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import Cause, Purpose
from dtbench.report.page.page import Block, Cell, Column, Fact, Facts, Line, Row, Table, Tone, numbers
from dtbench.report.words.advice import Advice, Bound, Loss
from dtbench.report.words.alike import find_pattern, name_together
from dtbench.report.words.causes import UNATTRIBUTED, describe_cause, name_operation, spell_owner
from dtbench.traces.known_part import KnownPart
from dtbench.traces.time.overlap import divide

MOST_ROWS: Final = 6
"""Rows of the table by purpose and cause; what is left is one more."""

LEAST_SHARE: Final = 0.01
"""Part of a side's exposed time that a row holds; two or more that hold less in every side are one row."""

LEAST_HELD: Final = 0.75
"""Part of the exposed time that these rows hold; where they would hold less, they are by cause alone."""

MOST_SIDES: Final = 4
"""Cells that the table has beside each other."""

MOST_OWNERS: Final = 3
"""Owners that are named with what would change them."""

LEAST_OF_LARGEST: Final = 0.1
"""Part of the longest from which another owner is named: less is not worth a line, and stands in the whole page."""


class Room(NamedTuple):
    """For how much there is room.

    Attributes:
        rows: of the table by purpose and cause.
        owners: with what would change them.
        says_again: also those that the answer's advice is of.
    """

    rows: int = MOST_ROWS
    owners: int = MOST_OWNERS
    says_again: bool = True


_ANY_PURPOSE: Final = "any"
_UNBOUNDED: Final = "The largest owners, and what would change them"
_BOUNDED: Final = {
    frozenset({False}): "The largest owners, what would change them (at most: all they took or waited)",
    frozenset({True}): "The largest owners, what would change them (at most: by replay)",
    frozenset({False, True}): "The largest owners, what would change them (at most: replay, else all they took)",
}
"""The title by whether bounds are what a replay gains."""


@dataclass(frozen=True)
class Losses:
    """Exposed communication of a cell, or of anyone's traces.

    Attributes:
        name: of the cell; empty: there is only one.
        rows: times are sums over ``windows``.
        windows: steps of ranks that the times are divided by.
        step_ns: of a mean step, of the same steps as the times; NaN: not known.
        advise: says what would change some of the rows.
        limits: of what the times are, where that is not all.
        whole: what ``step_ns`` is of: a step, or a whole trace.
    """

    name: str
    rows: Sequence[Loss]
    windows: float
    step_ns: float
    advise: Callable[[Sequence[Loss]], Sequence[Advice]]
    limits: Sequence[str] = ()
    whole: Literal["step", "trace"] = "step"

    @property
    def total_ns(self) -> float:
        """All of it, of a mean step."""
        return sum(row.exposed_ns for row in self.rows) / self.windows

    @property
    def per(self) -> str:
        """What the times of anyone's traces are of, for a title."""
        return f"ms per {self.whole} and rank"

    def share_of_step(self, rows: Sequence[Loss]) -> float:
        """Return what part of a step some rows come to."""
        return divide(_sum_mean(self, rows), self.step_ns)


def say_limit(part: KnownPart, name: str = "") -> str:
    """Say of what all times of a side are, where it is not known of all."""
    return f"{name or 'all times'}: of {part}; not known of the others"


_Key = tuple[Purpose | None, Cause]


def loss_blocks(
    sides: Sequence[Losses], per: str, answered: Advice | None = None, room: Room | None = None
) -> Iterator[Block]:
    """Yield the table, and the largest owners; nothing where nothing was exposed.

    Args:
        sides: at most ``MOST_SIDES``.
        per: what times are of, for the title: ``ms of a profiled step``.
        answered: what would change the largest loss, as the answer above says it; None: it says nothing.
        room: for how many; None: as usual.
    """
    room = room or Room()
    known = [side for side in sides if side.total_ns]
    if known:
        yield losses_table(known, per, room.rows)
        largest = _largest(known, answered, room)
        yield from (largest,) if largest.facts else ()


def losses_table(sides: Sequence[Losses], per: str, most: int = MOST_ROWS) -> Table:
    """Return where exposed time went, by purpose and cause: so many of the largest, then the rest as one row."""
    sums = _sum_up(sides, most)
    shown = _choose(sums, most)
    rest = [key for key in _order(sums) if key not in shown]
    decimals = decimals_for(one[key] for one in sums for key in shown)

    def figures(keys: Sequence[_Key]) -> Iterator[Cell]:
        for side, one in zip(sides, sums, strict=True):
            time_ns = sum(one[key] for key in keys)
            words = "-" if not time_ns else format_ms(time_ns, decimals)
            share = "" if not time_ns else format_fraction(divide(time_ns, side.total_ns))
            yield Cell(words, value=time_ns)
            yield Cell(share, value=divide(time_ns, side.total_ns))

    rows: list[Row] = [(_name_purpose(key), _name_cause(sides, key), *figures([key])) for key in shown]
    if rest:
        rows.append((f"{len(rest)} more", "", *figures(rest)))
    titles = [side.name or "exposed" for side in sides]
    return Table(
        f"Exposed communication by purpose and cause, {per}",
        (
            Column("purpose"),
            Column("cause"),
            *(one for title in titles for one in (*numbers(Unit.NS, title), *numbers(Unit.FRACTION, "share"))),
        ),
        rows,
        notes=tuple(Line(words, Tone.WARNING) for side in sides for words in side.limits),
        key="losses",
    )


def _sum_up(sides: Sequence[Losses], most: int) -> list[Counter[_Key]]:
    """Return the time of each purpose and cause in a mean step of each side; of each cause, if those are many."""
    sums = [Counter[_Key]() for _ in sides]
    for side, of_side in zip(sides, sums, strict=True):
        for row in side.rows:
            of_side[row.purpose, row.cause] += row.exposed_ns / side.windows  # type: ignore[assignment]
    held_ns = sum(one[key] for one in sums for key in _choose(sums, most))
    if held_ns >= LEAST_HELD * sum(one.total() for one in sums):
        return sums
    by_cause = [Counter[_Key]() for _ in sides]
    for of_side, merged in zip(sums, by_cause, strict=True):
        for (_, cause), time_ns in of_side.items():
            merged[None, cause] += time_ns
    return by_cause


def _order(sums: Sequence[Counter[_Key]]) -> list[_Key]:
    """Return all of them, largest over all sides first."""
    total = Counter[_Key]()
    for one in sums:
        total.update(one)
    return [key for key, time_ns in total.most_common() if time_ns]


def _choose(sums: Sequence[Counter[_Key]], most: int) -> list[_Key]:
    """Return those that are shown: the largest of each side, then the largest of all."""
    ordered = _order(sums)
    leading = {one.most_common(1)[0][0] for one in sums if one}
    large = [key for key in ordered if any(one[key] > LEAST_SHARE * one.total() for one in sums)]
    wanted = large if len(large) < len(ordered) - 1 else ordered
    chosen = {*leading, *[key for key in wanted if key not in leading][: most - len(leading)]}
    return [key for key in ordered if key in chosen]


def _name_purpose(key: _Key) -> str:
    return _ANY_PURPOSE if key[0] is None else key[0].value


def _name_cause(sides: Sequence[Losses], key: _Key) -> str:
    purpose, cause = key
    rows = [row for side in sides for row in side.rows if row.cause is cause and purpose in (None, row.purpose)]
    return _spell_cause(rows)


def _spell_cause(rows: Sequence[Loss]) -> str:
    """Spell the cause that rows share, with the rank that all of them waited for."""
    awaited = {row.waited_for for row in rows}
    return describe_cause(rows[0].cause, waited_for=awaited.pop() if len(awaited) == 1 else None)


def _largest(sides: Sequence[Losses], answered: Advice | None, room: Room) -> Facts:
    """Return the owners that took longest, units that behave alike together, each with what would change it."""
    found, bounds = _choose_owners(sides, room.owners), list[Bound]()
    if answered is not None and not room.says_again:
        found = [
            (side, rows) for side, rows in found if answered.what not in {one.what for one in side.advise(rows)[:1]}
        ]
    said = {} if answered is None else {answered.what: "in the answer"}
    facts, before = list[Fact](), set[tuple[object, ...]]()
    for place, (side, rows) in enumerate(found, 1):
        described, more = _describe(side, rows), list[Fact]()
        mine = {(side.name, row.owner, row.purpose, row.operation) for row in rows}
        for one in side.advise(rows)[:1]:
            shared = " Of collectives above: the gains do not add up." if one.bound and mine & before else ""
            if one.what in said:
                is_same = answered is not None and (one.what, one.bound) == (answered.what, answered.bound)
                as_said = replace(one, what=f"As {said[one.what]}.", bound=None if is_same else one.bound)
                bounds += [] if as_said.bound is None else [as_said.bound]
                described += f". {as_said.short}{shared}"
            else:
                more.append(Fact("", f"{one.short}{shared}"))
                bounds += [] if one.bound is None else [one.bound]
                said[one.what] = str(place)
        facts += [Fact(f"{place}.", described, Tone.STRONG), *more]
        before |= mine
    return Facts(
        tuple(facts),
        key="largest",
        title=_BOUNDED.get(frozenset(one.is_replayed for one in bounds), _UNBOUNDED),
        is_numbered=True,
    )


def _choose_owners(sides: Sequence[Losses], most: int) -> list[tuple[Losses, list[Loss]]]:
    """Return those that are named: the longest of each side, if there is room, then of all; longest first."""
    each = [sorted(((side, rows) for rows in _find_alike(side)), key=lambda one: -_sum_mean(*one)) for side in sides]
    leading = [of_side[0] for of_side in each] if len(sides) <= most else []
    longest_ns = max(_sum_mean(*of_side[0]) for of_side in each)
    others = [one for of_side in each for one in of_side if one not in leading]
    others = [one for one in others if _sum_mean(*one) >= LEAST_OF_LARGEST * longest_ns]
    others.sort(key=lambda one: -_sum_mean(*one))
    return sorted([*leading, *others][:most], key=lambda one: -_sum_mean(*one))


def _sum_mean(side: Losses, rows: Sequence[Loss]) -> float:
    """Return what some rows come to in a mean step, ns."""
    return sum(row.exposed_ns for row in rows) / side.windows


def _find_alike(side: Losses) -> list[list[Loss]]:
    """Return rows of like units together: whatever is said of them, and what would change it, is so of each of them."""
    groups: dict[tuple[object, ...], list[Loss]] = {}
    for row in side.rows:
        said = tuple((one.what, one.bound is None) for one in side.advise([row]))
        why = (row.cause, row.waited_for, row.missing)
        key = (find_pattern(spell_owner(row.owner)), row.purpose, row.operation, *why, said)
        groups.setdefault(key, []).append(row)
    return [*groups.values()]


def _describe(side: Losses, rows: Sequence[Loss]) -> str:
    """Say whose, why and how long: ``bucket 3's all-reduce (grad_reduce), issued late: 56.2 ms (11.5 % of step)``."""
    operation = name_operation(rows[0].operation)
    owners = list(dict.fromkeys(spell_owner(row.owner) for row in rows if row.owner))
    whose = f"{name_together(owners)}'s {operation}" if owners else f"{UNATTRIBUTED} {operation}"
    time_ns, share = _sum_mean(side, rows), side.share_of_step(rows)
    where = f"{side.name}: " if side.name else ""
    return (
        f"{where}{whose} ({rows[0].purpose}), {_spell_cause(rows)}: {format_ns(time_ns)}"
        f" ({format_fraction(share)} of {side.whole})"
    )
