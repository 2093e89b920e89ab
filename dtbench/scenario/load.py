"""A scenario file to frozen records, or to one error that names every mistake in it at once."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from dtbench.base.errors import ScenarioError
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.checks.read_checklist import find_cell_mistakes, find_unmeasured, read_checklist
from dtbench.scenario.explain import explain_errors
from dtbench.scenario.mistakes import (
    SET,
    FilePlace,
    Mistake,
    OverridePlace,
    Place,
    as_error,
    join_words,
    shorten,
    split_lines,
    to_printable,
)
from dtbench.scenario.schema.scenario import SCHEMA_VERSION, Scenario
from dtbench.scenario.sweeps.sweep import Sweep, add_axes, expand_cells, name_some, point_to
from dtbench.scenario.yaml.document import Entry, Leaf, Section, locate_in, read_document, to_plain
from dtbench.scenario.yaml.override import MATRIX, OverrideReading, find_misplaced, read_overrides
from dtbench.seeds.functions import choose

MAX_FILE_BYTES = 1024 * 1024

_MOST_EXPLAINED = 2_000
"""Mistakes of all cells, each as often as there are cells that have it: with so many, the other cells wait."""
_MOST_FITTING = 4
"""Ways to write an override that a sentence lists."""

_VERSION_LINE = f"schema_version: {SCHEMA_VERSION}"


_NOWHERE: Mapping[str, str] = MappingProxyType({})


class Cell(NamedTuple):
    """One point of a sweep; the name is also its folder's, ``coordinates`` are its value on each axis of a matrix."""

    name: str
    scenario: Scenario
    coordinates: Mapping[str, str] = _NOWHERE


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario as a person wrote it and as dtbench understood it.

    Attributes:
        name: the file's name without its ending; the folder of its runs.
        question: line 1 without ``#``.
        text: the words as written.
        overrides: each ``--set`` as typed.
        cells: in the order of the file, at least one.
        folder: of the file, absolute; None for a text that came from nowhere.
        checklist: what the file claims.
        only: the cells that were chosen, where not all are to run.
        is_swept: overrides gave axes, so that its cells are others than the file claims something of.
    """

    name: str
    question: str
    text: str
    overrides: tuple[str, ...]
    cells: tuple[Cell, ...]
    folder: Path | None = None
    checklist: Checklist = field(default_factory=Checklist)
    only: tuple[str, ...] = ()
    is_swept: bool = False


def choose_cells(file: ScenarioFile, names: Sequence[str]) -> ScenarioFile:
    """Return a scenario with some of its cells, and with what it claims of these alone; all where none is named.

    Raises:
        ScenarioError: it has no such cell.
    """
    if not names:
        return file
    _refuse_other_cells(names, [cell.name for cell in file.cells], file.name)
    cells = tuple(cell for cell in file.cells if cell.name in names)
    only = tuple(cell.name for cell in cells)
    return replace(file, cells=cells, checklist=file.checklist.keep_cells(only), only=only)


def digest_words(text: str) -> str:
    """Return 16 hexadecimal digits that two versions of a scenario file share only if their lines are the same."""
    return hashlib.blake2b("\n".join(split_lines(text)).encode(), digest_size=8).hexdigest()


def load_scenario_file(path: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> ScenarioFile:
    """Read the file at ``path``; like ``load_scenario``.

    Raises:
        ScenarioError: also when the file cannot be opened, is no text, or is larger than ``MAX_FILE_BYTES``.
    """
    return replace(load_scenario(read_text(path), str(path), overrides, only), folder=path.resolve().parent)


def load_scenario(
    text: str, source_name: str, overrides: Sequence[str] = (), only: Sequence[str] = (), *, option: str = SET
) -> ScenarioFile:
    """Read a scenario from its text.

    Args:
        text: of the file.
        source_name: what mistakes call the file.
        overrides: each ``--set``; of ``matrix.<section>.<field>`` an axis.
        only: cells that are to run; with axes those that are crossed with them. Empty: all.
        option: with which overrides were given, as mistakes name it.

    Raises:
        ScenarioError: with every mistake of the text and of the overrides; there is no such cell.
    """
    file = _load_all(text, source_name, read_overrides(overrides, option), overrides, only)
    return replace(file, only=tuple(only)) if file.is_swept else choose_cells(file, only)


def _load_all(
    text: str, source_name: str, typed: OverrideReading, overrides: Sequence[str], only: Sequence[str]
) -> ScenarioFile:
    document = read_document(text, locate_in(text, source_name))
    mistakes = [*_find_question_mistakes(text, source_name), *document.mistakes]
    if document.root is None and not document.mistakes:
        mistakes = [
            Mistake(_line_1(text, source_name), "the file has no content; `dtbench list` shows scenarios to start from")
        ]
    if not isinstance(document.root, Section):
        if document.root is not None:
            mistakes.append(Mistake(document.root.place, "a scenario is a mapping: lines of `name: value`"))
        raise as_error(mistakes)
    mistakes += _find_version_mistakes(document.root, _line_1(text, source_name))
    checklist = read_checklist(document.root, mistakes)
    misplaced = find_misplaced(document.root, typed.overrides, Scenario.model_fields)
    axes = [one for one in typed.overrides if one.path[0] == MATRIX]
    root = document.root
    if axes:  # other cells than the file claims something of
        checklist = Checklist()
        root = add_axes(_keep_cells(root, only, source_name), axes)
    kept = [one for one in typed.overrides if one not in axes and one.place not in misplaced]
    sweep = expand_cells(root, kept)
    mistakes += [*typed.mistakes, *misplaced.values(), *sweep.mistakes]
    cells = _add_probes(_validate(sweep, mistakes), checklist.functions)
    if not sweep.mistakes and not axes:
        mistakes += find_cell_mistakes(checklist, document.root, list(sweep.cells))
    if not mistakes and not overrides:  # an override may well measure less
        mistakes += find_unmeasured(checklist, document.root, {cell.name: cell.scenario for cell in cells})
    if mistakes:
        raise as_error(mistakes)
    name, question = Path(source_name).stem, question_of(text)
    return ScenarioFile(name, question, text, tuple(overrides), cells, checklist=checklist, is_swept=bool(axes))


def _keep_cells(root: Section, only: Sequence[str], source_name: str) -> Section:
    """Leave out all cells under ``cells:`` but some; all stay where none is named.

    Raises:
        ScenarioError: there is no such cell.
    """
    entry = root.entries.get("cells")
    if not only:
        return root
    if entry is None or not isinstance(entry.node, Section):
        raise ScenarioError(f"`{Path(source_name).stem}` has no `cells:` to choose from: leave `--cell` out")
    known = entry.node.entries
    _refuse_other_cells(only, list(known), Path(source_name).stem)
    cells = Section({name: known[name] for name in known if name in only}, entry.node.place)
    return Section({**root.entries, "cells": Entry(entry.key_place, cells)}, root.place)


def _refuse_other_cells(wanted: Sequence[str], known: Sequence[str], where: str) -> None:
    for name in wanted:
        if name not in known:
            raise ScenarioError(f"`{where}` has no cell `{shorten(name)}`; {point_to(name, known)}")


def _add_probes(cells: Iterable[Cell], functions: Sequence[str]) -> tuple[Cell, ...]:
    """Probe the functions that a file is about in every cell; where lines are traced, tracing must see no probes."""
    return tuple(
        cell if cell.scenario.measure.line_coverage else cell._replace(scenario=_probe(cell.scenario, functions))
        for cell in cells
    )


def _probe(scenario: Scenario, functions: Sequence[str]) -> Scenario:
    probed = {one.label for one in choose(scenario.measure.probes)}
    more = tuple(label for label in functions if label not in probed)
    if not more:
        return scenario
    measure = scenario.measure.model_copy(update={"probes": (*scenario.measure.probes, *more)})
    return scenario.model_copy(update={"measure": measure})


def read_text(path: Path) -> str:
    """Return the words of a file without a byte order mark.

    Raises:
        ScenarioError: when it cannot be opened, is not UTF-8, or is larger than ``MAX_FILE_BYTES``.
    """
    shown = to_printable(str(path))
    try:
        if path.is_dir():
            raise ScenarioError(f"{shown}: this is a folder; give the file inside that you mean")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ScenarioError(f"{shown}: cannot be read: {reason}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ScenarioError(f"{shown}: larger than 1 MiB; is this a scenario?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        what = f"byte 0x{content[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        raise ScenarioError(f"{shown}:{line}:{column}: {what}") from error


def question_of(text: str) -> str:
    """Return line 1 without ``#``; empty where it is no comment."""
    first = split_lines(text)[0].strip()
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _line_1(text: str, source_name: str) -> FilePlace:
    first = split_lines(text)[0]
    return FilePlace(source_name, 1, 1, len(first), first)


def _find_question_mistakes(text: str, source_name: str) -> list[Mistake]:
    if question_of(text).endswith("?"):
        return []
    example = "# Does FSDP2 hide its all-gathers behind compute?"
    return [
        Mistake(_line_1(text, source_name), f"line 1 must be the scenario's question as a comment, such as `{example}`")
    ]


def _find_version_mistakes(root: Section, line_1: FilePlace) -> list[Mistake]:
    """Return what is wrong with ``schema_version``.

    Raises:
        ScenarioError: with nothing else when the file is newer than this dtbench: what looks wrong may be right there.
    """
    if "schema_version" not in root.entries:
        return [Mistake(line_1, f"`schema_version` is missing; write `{_VERSION_LINE}` under the question")]
    node = root.entries["schema_version"].node
    version = node.value if isinstance(node, Leaf) else None
    if type(version) is not int:  # True is an int, too
        return [Mistake(node.place, f"`schema_version` must be a whole number; write `{_VERSION_LINE}`")]
    if version > SCHEMA_VERSION:
        reads = f"this dtbench reads {SCHEMA_VERSION}; upgrade dtbench to run it"
        raise as_error([Mistake(node.place, f"this file is written for schema version {version}, {reads}")])
    if version < SCHEMA_VERSION:
        return [Mistake(node.place, f"there is no schema version {version}; write `{_VERSION_LINE}`")]
    return []


def _validate(sweep: Sweep, mistakes: list[Mistake]) -> tuple[Cell, ...]:
    """Return the cells that are right; what is wrong joins ``mistakes``, once however many cells share it."""
    known_places = {mistake.place for mistake in mistakes}
    cells: list[Cell] = []
    found: dict[Mistake, list[str]] = {}
    looked_at: list[str] = []
    num_explained = 0
    for name, section in sweep.cells.items():
        if num_explained > _MOST_EXPLAINED:
            break
        looked_at.append(name)
        # JSON, because there strict pydantic takes lists as tuples and whole numbers as floats.
        # The version has been checked apart, with its own sentences.
        content = json.dumps({**_plain_entries(section), "schema_version": SCHEMA_VERSION})
        try:
            scenario = Scenario.model_validate_json(content)
            cells.append(Cell(name, scenario, sweep.coordinates.get(name, _NOWHERE)))
        except ValidationError as error:
            explained = explain_errors(error, section)
            num_explained += len(explained)
            for mistake in explained:
                if mistake.place not in known_places:
                    found.setdefault(mistake, []).append(name)
    if len(looked_at) < len(sweep.cells):
        sentence = (
            f"of {len(sweep.cells)} cells the first {len(looked_at)} are looked at, as they have so many mistakes"
        )
        mistakes.append(Mistake(sweep.cells[looked_at[0]].place, sentence))
    mistakes += _tell_found(found, looked_at, sweep.axis_places)
    return tuple(cells)


def _tell_found(
    found: Mapping[Mistake, Sequence[str]], cells: Sequence[str], axis_places: Collection[Place]
) -> Iterator[Mistake]:
    """Return each mistake once, with the cells that have it, unless all have."""
    wrong_at: dict[Place, set[str]] = {}
    for mistake, wrong in found.items():
        wrong_at.setdefault(mistake.place, set()).update(wrong)
    for mistake, wrong in found.items():
        right = [name for name in cells if name not in wrong_at[mistake.place]]
        named = _name_cells(mistake, wrong, right)
        is_typed = isinstance(mistake.place, OverridePlace)
        yield _suggest_exclude(named) if right and mistake.place in axis_places and not is_typed else named


def _plain_entries(section: Section) -> Mapping[str, object]:
    return {key: to_plain(entry.node) for key, entry in section.entries.items()}


def _name_cells(mistake: Mistake, wrong: Sequence[str], right: Sequence[str]) -> Mistake:
    """Say which cells have a mistake, unless all have it, and where an override would have fitted."""
    if not right:
        return mistake
    where = f"{mistake.sentence} ({'cell' if len(wrong) == 1 else 'cells'} {name_some(wrong)})"
    match mistake.place:
        case OverridePlace(path=path) if mistake.is_unknown_field and path.startswith(f"{MATRIX}."):
            kept = list(dict.fromkeys(name.partition(".")[0] for name in right))
            return replace(mistake, sentence=f"{where}; `--cell {kept[0]}` sweeps that cell alone", meant=None)
        case OverridePlace(typed=typed, is_for_one_cell=False) if mistake.is_unknown_field:
            fits = [f"`--set cells.{name}.{to_printable(typed)}`" for name in right]
            fitting = join_words(fits, last="and") if len(fits) <= _MOST_FITTING else f"{fits[0]} and so on"
            return replace(mistake, sentence=f"{where}; to set it only where it fits: {fitting}", meant=None)
        case _:
            return replace(mistake, sentence=where)


def _suggest_exclude(mistake: Mistake) -> Mistake:
    """Say how to go on without the points of a matrix at which an axis has no such field."""
    if not mistake.is_unknown_field:
        return mistake
    return replace(mistake, sentence=f"{mistake.sentence}; `exclude:` drops such points", meant=None)
