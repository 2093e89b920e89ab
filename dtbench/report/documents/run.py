"""What a run found as one JSON document: its summary, with "NaN" for a number that could not be computed."""

from dtbench.base.document import Schema, make_schema
from dtbench.base.record_schema import Typed, to_json
from dtbench.runs.summary import RunSummary


def document(summary: RunSummary) -> dict[str, object]:
    """Return the document."""
    return to_json(summary)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench report --json", Typed(RunSummary))
