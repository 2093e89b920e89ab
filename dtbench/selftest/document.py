"""A selftest as one JSON document: every check of every row; null where a number is not known."""

from dtbench.base.document import Schema, make_schema
from dtbench.base.record_schema import Typed, to_json
from dtbench.selftest.records import SelftestRecord


def document(record: SelftestRecord) -> dict[str, object]:
    """Return the document."""
    return to_json(record)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench selftest --json", Typed(SelftestRecord))
