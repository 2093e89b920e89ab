"""The reference of scenarios, made of the records that read them: each field with what it takes and what it means."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from pydantic.fields import FieldInfo

from dtbench.base.record import Record
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.yaml.expectation import describe_field, is_section, kinds_of

_HEAD: Final = """# Scenario reference

Every field that a scenario file may have; how one is written is told [here](../scenarios.md). A section with a `kind`
has the fields of that kind. What does not go together is in the [rules](rules.md). `dtbench schema` prints the same as
a JSON Schema, for editors.

<!-- Made of dtbench/scenario/schema by `python -m tests.docs`: change it there. -->
"""
_OTHERS: Final = {
    "cells": "named variations: each lays what it changes over everything above",
    "matrix": "axes of a sweep: a cell for each point of their product, `exclude:` and `include:` apart",
}


@dataclass(frozen=True)
class Section:
    """A section of a file, of one kind; ``path`` leads to it, kinds among its parts."""

    path: tuple[str, ...]
    record: type[Record]

    @property
    def title(self) -> str:
        """Its heading, whose anchor is the same on GitHub and on the site."""
        first, *others = self.path
        return first if not others else f"{first}: {', '.join(others)}"

    @property
    def anchor(self) -> str:
        """What a link to its heading says."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def make_scenario_page() -> str:
    """Return the page."""
    sections: dict[type[Record], Section] = {}
    for record in (Scenario, Checklist):
        _add_sections(Section((), record), sections)
    parts = [_HEAD, "## The file\n", *_write_table(Section((), Scenario), sections)]
    parts += [f"| `{name}` | a mapping | left out | {words} |" for name, words in _OTHERS.items()]
    parts += [*_write_rows(Section((), Checklist), sections), ""]
    for section in sections.values():
        parts += [f"{'#' * (len(section.path) + 1)} {section.title}\n", *_write_section(section, sections)]
    return "\n".join(parts).rstrip() + "\n"


def _add_sections(around: Section, sections: dict[type[Record], Section]) -> None:
    """Add every section below one, depth first, in the order of the schema; one that several have stands once."""
    for name, field in around.record.model_fields.items():
        kinds = _kinds_in(field.annotation)
        for kind, record in kinds.items():
            if record not in sections:
                sections[record] = Section((*around.path, name, *([kind] if len(kinds) > 1 else [])), record)
                _add_sections(sections[record], sections)


def _kinds_in(annotation: object) -> dict[str, type[Record]]:
    """Return the records that a field may hold, in a list too, by their kind."""
    kinds = kinds_of(annotation)
    for part in () if kinds else get_args(annotation):
        kinds |= _kinds_in(part)
    return kinds


def _write_section(section: Section, sections: Mapping[type[Record], Section]) -> Iterator[str]:
    yield f"{_inline(section.record.__doc__ or '')}\n"
    if set(section.record.model_fields) - {"kind"}:
        yield from _write_table(section, sections)
        yield ""


def _write_table(section: Section, sections: Mapping[type[Record], Section]) -> Iterator[str]:
    yield "| field | takes | default | meaning |\n|---|---|---|---|"
    yield from _write_rows(section, sections)


def _write_rows(section: Section, sections: Mapping[type[Record], Section]) -> Iterator[str]:
    for name, field in section.record.model_fields.items():
        if name == "kind":
            continue
        words = _inline(field.description or "")
        below = [sections[record] for record in _kinds_in(field.annotation).values()]
        if below:
            links = [f"[{one.path[-1]}](#{one.anchor})" for one in below]
            words = f"{words} See {', '.join(links)}.".strip()
        yield f"| `{name}` | {_cell(describe_field(field))} | {_cell(_spell_default(field))} | {_cell(words)} |"


def _spell_default(field: FieldInfo) -> str:
    if field.is_required():
        return "**must be given**"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Record):
        kind = getattr(value, "kind", None)
        return "its defaults" if kind is None or not is_section(field.annotation) else f"`{{kind: {kind}}}`"
    return "left out" if value is None else f"`{json.dumps(value)}`"


def _inline(docstring: str) -> str:
    """Return a docstring as a line of Markdown."""
    return " ".join(docstring.split()).replace("``", "`")


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
