"""The fields of a scenario by their dotted names, as text: what is compared, and what tables have a column of."""

from collections.abc import Iterator, Mapping
from typing import Final

ABSENT: Final = "-"
"""What is said of a field that has no value."""

NOT_MEASURED: Final = frozenset({"schema_version", "repeat"})
"""Fields that change nothing of what one launch does."""


def flatten_fields(fields: Mapping[str, object]) -> dict[str, str]:
    """Return fields, of which some hold others, by their dotted names.

    >>> flatten_fields({"parallel": {"kind": "ddp", "bucket_cap_mb": 4.0}, "seed": None})
    {'parallel.kind': 'ddp', 'parallel.bucket_cap_mb': '4', 'seed': '-'}
    """
    return dict(_flatten(fields, ""))


def _flatten(fields: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
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
