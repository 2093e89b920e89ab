"""A selftest as the words of a scenario file, so that its run is one like any other, and can be run by hand."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from dtbench.scenario.load import ScenarioFile, load_scenario

Value: TypeAlias = "str | int | float | bool | Mapping[str, Value] | Sequence[Value] | None"
Words: TypeAlias = Mapping[str, Value]
"""One section of a scenario, or some."""

NAME: Final = "selftest"
"""Of the scenario: the folder of its runs."""


def write_scenario(question: str, shared: Words, cells: Mapping[str, Words]) -> ScenarioFile:
    """Return the scenario of some cells.

    Args:
        question: line 1.
        shared: sections that all cells have.
        cells: what each changes, by name.

    Raises:
        ScenarioError: the words are no scenario: a mistake in a situation.
    """
    lines = [f"# {question}", "schema_version: 1"]
    lines += [f"{name}: {spell(section)}" for name, section in shared.items()]
    lines += ["cells:", *(f"  {name}: {spell(words)}" for name, words in cells.items())]
    return load_scenario("\n".join([*lines, ""]), f"{NAME}.yaml")


def spell(value: Value) -> str:
    """Spell a value as YAML does in one line.

    >>> spell({"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5, "static_graph": True})
    '{kind: ddp, replicas: 2, bucket_cap_mb: 0.5, static_graph: true}'
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.9f}".rstrip("0").rstrip(".") + (".0" if value.is_integer() else "")
        case str() | int():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {spell(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(spell, value)) + "]"
