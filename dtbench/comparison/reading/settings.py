"""What was asked for on both sides: fields of the scenario, dotted, as text."""

from collections.abc import Iterator, Mapping
from typing import Final

from dtbench.base.redaction import redact_field
from dtbench.comparison.comparison import SettingChange
from dtbench.store.records.run import CellRecord, OwnLoopCell

ABSENT: Final = "-"
"""What a side says where it has no such field."""

_NOT_MEASURED: Final = {"schema_version", "repeat"}
"""Fields that change nothing of what one launch does."""


def flatten(cell: CellRecord | OwnLoopCell) -> dict[str, str]:
    """Return the fields of a cell's scenario by their dotted names; of a person's own loop, what it says of itself."""
    if isinstance(cell, OwnLoopCell):
        return dict(_flatten(cell.plan.model_dump(mode="json", exclude={"kind", "notes"})))
    return dict(_flatten(cell.scenario.model_dump(mode="json", exclude=_NOT_MEASURED)))


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _spell(value)


def _spell(value: object) -> str:
    """Spell a value as a person would in the scenario."""
    match value:
        case None:
            return ABSENT
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case list():
            return "[" + ", ".join(_spell(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{name}: {_spell(item)}" for name, item in value.items()) + "}"
        case _:
            return str(value)


def find_treatment(
    baseline: Mapping[str, str] | None, candidate: Mapping[str, str] | None
) -> tuple[SettingChange, ...]:
    """Return every field in which two sides differ; none where one of them is traces, which say nothing of it."""
    if baseline is None or candidate is None:
        return ()
    names = dict.fromkeys((*baseline, *candidate))
    pairs = ((name, baseline.get(name, ABSENT), candidate.get(name, ABSENT)) for name in names)
    return tuple(
        SettingChange(field=name, baseline=redact_field(name, before), candidate=redact_field(name, after))
        for name, before, after in pairs
        if before != after
    )
