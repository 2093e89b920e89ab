"""What a catalogue of scenarios answers, or would run, as one JSON document."""

from typing import Final

from dtbench.base.document import (
    COUNT,
    NS,
    TEXT,
    VERSION,
    Always,
    Key,
    Many,
    OneOf,
    OrNull,
    Schema,
    Shape,
    make_schema,
)
from dtbench.report.page.catalogue_page import Catalogue, CatalogueRow
from dtbench.store.records.checks import CheckOutcome

FORMAT_VERSION: Final = 1

_SCENARIO: Final = Shape[CatalogueRow](
    "CatalogueScenario",
    "One scenario.",
    (
        Key("scenario", TEXT, "its name", lambda row: row.scenario),
        Key("question", TEXT, "which it asks: line 1 of its file", lambda row: row.question),
        Key("outcome", OrNull(OneOf(CheckOutcome)), "of its checks; null: it was not run", lambda row: row.outcome),
        Key(
            "answer",
            TEXT,
            "to its question, or why there is none; with --list whether it can run",
            lambda row: row.told,
        ),
        Key("run", OrNull(TEXT), "folder of its run; null: it was not run, or did not end", lambda row: row.run),
        Key("launches", COUNT, "of the cell that has fewest", lambda row: row.launches),
        Key("duration_ns", OrNull(NS), "that it took; null as `run`", lambda row: row.duration_ns),
    ),
)
_DOCUMENT: Final = Shape[Catalogue](
    "Catalogue",
    "A catalogue of scenarios.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _found: FORMAT_VERSION),
        Key("scenarios", Many(_SCENARIO), "in the order in which they ran, or would", lambda found: found.rows),
        Key(
            "coverage",
            OrNull(TEXT),
            "how many functions under study the runs' probes saw, a sentence; null: they had none",
            lambda found: found.coverage,
        ),
        Key(
            "coverage_notes",
            Many(TEXT),
            "what is to be known about that, a sentence each",
            lambda found: found.coverage_notes,
        ),
    ),
)


def document(found: Catalogue) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(found)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench catalogue --json", _DOCUMENT)
