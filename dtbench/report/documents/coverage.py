"""Which functions under study ran, how often and how long, as one JSON document; null where nobody measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dtbench.base.document import (
    COUNT,
    FLAG,
    NS,
    TEXT,
    VERSION,
    Always,
    ByName,
    Key,
    Many,
    OneOf,
    OrNull,
    Schema,
    Shape,
    keys_of_fields,
    make_schema,
)
from dtbench.runs.function_coverage import CoveredFunction, FunctionCoverage, State
from dtbench.seeds.functions import Reach

FORMAT_VERSION: Final = 1
_NO_TRACE: Final = "null: no trace shows it"


_FUNCTION: Final = Shape[CoveredFunction](
    "CoveredFunction",
    "One function of torch under study, or of its files.",
    (
        Key("file", TEXT, "of torch, in which it stands", lambda row: row.file),
        Key("name", TEXT, "its qualified name there", lambda row: row.name),
        Key(
            "class", OrNull(OneOf(Reach)), "null: it is not in the list of functions under study", lambda row: row.reach
        ),
        *keys_of_fields(CoveredFunction, reason=TEXT),
        Key("reached", FLAG, "a launch that finished ran it", lambda row: row.state is State.REACHED),
        Key("state", OneOf(State), "how far it was seen to come", lambda row: row.state),
        Key(
            "scenario",
            OrNull(TEXT),
            "the first of `scenarios`, whose numbers are those below; null: there is none",
            lambda row: row.scenarios[0] if row.scenarios else None,
        ),
        *keys_of_fields(CoveredFunction, scenarios=Many(TEXT)),
        Key("confirmed_by_lines", FLAG, "tracing saw a line of it run, not its probe alone", lambda row: row.confirmed),
        *keys_of_fields(CoveredFunction, driven=FLAG, calls=OrNull(COUNT), total_ns=OrNull(NS)),
        Key(
            "profiled_calls",
            OrNull(COUNT),
            f"in PROFILED steps; {_NO_TRACE}",
            lambda row: None if row.time is None else row.time.calls,
        ),
        Key(
            "profiled_ns",
            OrNull(NS),
            f"inside it in PROFILED steps; {_NO_TRACE}",
            lambda row: None if row.time is None else row.time.total_ns,
        ),
        Key(
            "exposed_ns",
            OrNull(NS),
            f"the part of that in which nothing computed; {_NO_TRACE}",
            lambda row: None if row.time is None else row.time.exposed_ns,
        ),
        *keys_of_fields(CoveredFunction, branches=ByName(COUNT), remarks=Many(TEXT)),
    ),
)
_Covered = tuple[FunctionCoverage, Sequence[Path]]
_DOCUMENT: Final = Shape[_Covered](
    "Coverage",
    "Which functions of torch under study ran.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _pair: FORMAT_VERSION),
        Key("runs", Many(TEXT), "folders of the runs that were read", lambda pair: map(str, pair[1])),
        Key(
            "cost_per_call_ns",
            OrNull(NS),
            "what a probe adds to a call at most; null: there was no probe",
            lambda pair: pair[0].cost_per_call_ns,
        ),
        Key("notes", Many(TEXT), "what a reader of the numbers must know", lambda pair: pair[0].notes),
        Key("functions", Many(_FUNCTION), "by file", lambda pair: pair[0].functions),
    ),
)


def document(found: FunctionCoverage, runs: Sequence[Path]) -> dict[str, object]:
    """Return the document.

    Args:
        found: every function.
        runs: folders that were read.
    """
    return _DOCUMENT.write((found, runs))


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench coverage --json", _DOCUMENT)
