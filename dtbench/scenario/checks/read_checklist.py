"""From the sections ``functions``, ``checks`` and ``answer`` of a file to a checklist, or to what is wrong there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pydantic import ValidationError

from dtbench.scenario.checks.answer import read_slots
from dtbench.scenario.checks.checklist import (
    MOST_CLAIMS,
    AgreeingEstimates,
    Bound,
    Check,
    Checklist,
    EqualLosses,
    Order,
)
from dtbench.scenario.checks.values import ValueName, read_value
from dtbench.scenario.explain import explain_errors
from dtbench.scenario.mistakes import MOST_MISTAKES, Mistake, Place, find_nearest, shorten
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.scenario.yaml.document import Entry, Items, Leaf, Node, Section, to_plain
from dtbench.seeds.functions import choose, list_branches

_CELL_FIELDS = ("cell", "over", "minus")


def read_checklist(root: Section, mistakes: list[Mistake]) -> Checklist:
    """Return what a file claims; an empty list where something is wrong with it, which joins ``mistakes``."""
    mine = Section({key: entry for key, entry in root.entries.items() if key in Checklist.model_fields}, root.place)
    if not mine.entries:
        return Checklist()
    too_many = list(_find_too_many(mine))
    if too_many:  # none of them is looked at
        mistakes += too_many
        return Checklist()
    try:
        checklist = Checklist.model_validate_json(json.dumps(to_plain(mine)))
    except ValidationError as error:
        mistakes += explain_errors(error, mine, Checklist)
        return Checklist()
    if checklist.answer is None:
        return checklist
    wrong = list(_find_answer_mistakes(checklist.answer, checklist, mine.entries["answer"].node.place))
    mistakes += wrong
    return checklist.model_copy(update={"answer": None}) if wrong else checklist


def _find_too_many(section: Section) -> Iterator[Mistake]:
    for name, most in MOST_CLAIMS.items():
        entry = section.entries.get(name)
        if entry is not None and isinstance(entry.node, Items) and len(entry.node.values) > most:
            yield Mistake(entry.key_place, f"`{name}` is a list of {len(entry.node.values)}, and has at most {most}")


def _find_answer_mistakes(answer: str, checklist: Checklist, place: Place) -> Iterator[Mistake]:
    if not checklist.checks:
        yield Mistake(place, "an answer needs `checks:` that can prove it wrong")
    try:
        read_slots(answer)
    except ValueError as error:
        yield Mistake(place, f"`answer`: {error}")


def find_cell_mistakes(checklist: Checklist, root: Section, cells: Sequence[str]) -> Iterator[Mistake]:
    """Find cells that checks and answer name and the file does not have; only of a checklist that could be read."""
    return islice(_find_cell_mistakes(checklist, root, cells), MOST_MISTAKES)


def _find_cell_mistakes(checklist: Checklist, root: Section, cells: Sequence[str]) -> Iterator[Mistake]:
    for entries in _list_checks(root):
        for node in _list_names(entries):
            if isinstance(node, Leaf) and isinstance(node.value, str) and node.value not in cells:
                yield _refuse_cell(node.value, node.place, cells)
    if checklist.answer is not None:
        yield from _find_slot_mistakes(checklist.answer, root.entries["answer"].node.place, cells)


def _list_names(entries: Mapping[str, Entry]) -> Iterator[Node]:
    """Return what a check names cells by."""
    yield from (entries[field].node for field in _CELL_FIELDS if field in entries)
    several = entries["cells"].node if "cells" in entries else None
    yield from several.values if isinstance(several, Items) else ()


def _find_slot_mistakes(answer: str, place: Place, cells: Sequence[str]) -> Iterator[Mistake]:
    for slot in read_slots(answer):
        yield from (_refuse_cell(name, place, cells) for name in slot.cells if name not in cells)
        if slot.how == "plain" and slot.cell is None and len(cells) > 1:
            sentence = f"`{{{slot.value.text}}}` does not say of which cell; the cells are {name_some(cells)}"
            yield Mistake(place, sentence)


def _refuse_cell(name: str, place: Place, cells: Sequence[str]) -> Mistake:
    near = find_nearest(name, cells)
    hint = "" if near else f"; the cells are {name_some(cells)}"
    return Mistake(place, f"no cell is called `{shorten(name)}`{hint}", near)


def find_unmeasured(checklist: Checklist, root: Section, cells: Mapping[str, Scenario]) -> Iterator[Mistake]:
    """Find checks on numbers that no cell that they are about measures; only where all its cells are there."""
    checked = zip(checklist.checks, _list_check_places(root), strict=True)
    for check, place in checked:
        for cell in _cells_of(check, cells):
            lack = _describe_lack(check, cells[cell])
            if lack is not None:
                yield Mistake(place, f"cell `{shorten(cell)}` does not measure that: {lack}")
                break
    if checklist.answer is not None:
        for slot in read_slots(checklist.answer):
            for cell in slot.cells or cells:
                lack = _describe_value_lack(slot.value, cells[cell])
                if lack is not None:
                    sentence = f"cell `{shorten(cell)}` does not measure `{slot.value.text}`: {lack}"
                    yield Mistake(root.entries["answer"].node.place, sentence)
                    break


def _cells_of(check: Check, cells: Mapping[str, Scenario]) -> Sequence[str]:
    match check:
        case Order(cells=named):
            return named
        case EqualLosses(cells=several):
            return list(cells) if several is None else several
        case Bound(cell=cell, over=over, minus=minus):
            return [*(cells if cell is None else [cell]), *(name for name in (over, minus) if name is not None)]
        case _:
            return list(cells) if check.cell is None else [check.cell]


def _describe_lack(check: Check, scenario: Scenario) -> str | None:
    match check:
        case Bound(value=value, per=str() as per):
            lacks = [_describe_value_lack(read_value(name), scenario) for name in (value, per)]
            return next((lack for lack in lacks if lack is not None), None)
        case Bound(value=value) | Order(value=value):
            return _describe_value_lack(read_value(value), scenario)
        case AgreeingEstimates() if len(scenario.measure.exposure) < 2:
            return "`measure.exposure` must name two estimates or more"
        case _:
            return None


def _describe_value_lack(value: ValueName, scenario: Scenario) -> str | None:
    match value.path:
        case ("probes", label, *_) if label not in [one.label for one in choose(scenario.measure.probes)]:
            return f"name `{label}` under `functions:`, or in `measure.probes`"
        case ("probes", label, str() as branch, _) if branch and branch not in list_branches(label):
            return _refuse_branch(label, branch)
        case ("exposure", "serial_ns" | "overlapped_ns") if "ablation" not in scenario.measure.exposure:
            return "add `ablation` to `measure.exposure`"
        case ("exposure", estimate, "mean_ns") if estimate not in (*scenario.measure.exposure, "logger"):
            return f"add `{estimate}` to `measure.exposure`"
        case _:
            return None


def _refuse_branch(label: str, branch: str) -> str:
    names = list_branches(label)
    near = find_nearest(branch, names)
    hint = f"did you mean `{near}`?" if near else f"they are {name_some(names)}" if names else "they have no names"
    return f"no branch of `{label}` is called `{shorten(branch)}`; {hint}"


def _list_checks(root: Section) -> Iterator[Mapping[str, Entry]]:
    node = root.entries["checks"].node if "checks" in root.entries else None
    for item in node.values if isinstance(node, Items) else ():
        if isinstance(item, Section):
            yield item.entries


def _list_check_places(root: Section) -> list[Place]:
    node = root.entries["checks"].node if "checks" in root.entries else None
    return [item.place for item in node.values] if isinstance(node, Items) else []
