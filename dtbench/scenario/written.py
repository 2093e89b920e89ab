"""Scenarios that no person wrote, as the words of a file: run like any other, and by hand; and one field changed."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

import yaml

from dtbench.base.errors import ScenarioError
from dtbench.base.redaction import redact_variables
from dtbench.scenario.load import ScenarioFile, load_scenario
from dtbench.scenario.mistakes import SET
from dtbench.scenario.schema.scenario import SCHEMA_VERSION, Scenario

Value: TypeAlias = "str | int | float | bool | Mapping[str, Value] | Sequence[Value] | None"
Words: TypeAlias = Mapping[str, Value]
"""One section of a scenario, or some."""

_NO_CELLS: Mapping[str, Words] = {}


def write_scenario(name: str, question: str, shared: Words, cells: Mapping[str, Words] = _NO_CELLS) -> ScenarioFile:
    """Return the scenario of some cells.

    Args:
        name: of the scenario: the folder of its runs.
        question: line 1.
        shared: sections that all cells have.
        cells: what each changes, by name; empty: there is one cell, of what is shared.

    Raises:
        ScenarioError: the words are no scenario.
    """
    return load_scenario(spell_scenario(question, shared, cells), f"{name}.yaml")


def spell_scenario(
    question: str, shared: Words, cells: Mapping[str, Words] = _NO_CELLS, comments: Sequence[str] = ()
) -> str:
    """Return the text of such a file, with further comments below its question."""
    lines = [f"# {question}", *(f"# {comment}" for comment in comments), f"schema_version: {SCHEMA_VERSION}"]
    lines += [f"{name}: {spell(section)}" for name, section in shared.items()]
    lines += ["cells:"] * bool(cells) + [f"  {spell(name)}: {spell(words)}" for name, words in cells.items()]
    return "\n".join([*lines, ""])


def sections_of(scenario: Scenario) -> dict[str, Value]:
    """Return what a file says of a cell: every field that is not what it would be if it were left out."""
    dumped: dict[str, Value] = scenario.model_dump(mode="json", exclude_defaults=True)
    return {name: section for name, section in dumped.items() if name != "schema_version"}


def leave_out_secrets(scenario: Scenario) -> tuple[Scenario, tuple[str, ...]]:
    """Return a cell that may be given to anybody, and the variables of ``env`` that it lacks for that.

    It still runs: ranks have what is set where it is started, and no value in the place of a secret one.
    """
    shown = redact_variables(scenario.env)
    kept = {name: value for name, value in scenario.env.items() if shown[name] == value}
    return scenario.model_copy(update={"env": kept}), tuple(sorted(scenario.env.keys() - kept.keys()))


def change_field(scenario: Scenario, override: str, option: str = SET) -> Scenario:
    """Return a cell with one field changed, checked as strictly as a file.

    Args:
        scenario: that is changed.
        override: as ``--set`` has it, ``parallel.bucket_cap_mb=1``.
        option: with which a person gave it.

    Raises:
        ScenarioError: there is no such field, or it cannot have that value.
    """
    text = spell_scenario("What if?", sections_of(scenario))
    (cell,) = load_scenario(text, "base.yaml", [override], option=option).cells
    if cell.scenario == scenario:
        raise ScenarioError(f"{option} {override}: it is so already")
    return cell.scenario


def spell(value: Value) -> str:
    """Spell a value as YAML does in one line.

    >>> spell({"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5, "static_graph": True})
    '{kind: ddp, replicas: 2, bucket_cap_mb: 0.5, static_graph: true}'
    """
    spelled = yaml.dump(
        _to_plain(value), Dumper=_Quoting, default_flow_style=True, sort_keys=False, width=inf, allow_unicode=True
    )
    return spelled.removesuffix("\n").removesuffix("\n...")


class _Quoting(yaml.SafeDumper):
    """Quotes every text but a name: the strict reader takes no text for what may have been meant as a number."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if text.isidentifier() else '"')


_Quoting.add_representer(str, _represent_text)


def _to_plain(value: Value) -> Value:
    match value:
        case Mapping():
            return {key: _to_plain(item) for key, item in value.items()}
        case str():
            return str(value)
        case Sequence():
            return [_to_plain(item) for item in value]
        case _:
            return value
