"""Runs, newest first, as one JSON document."""

from typing import Final

from dtbench.base.document import (
    COUNT,
    FLAG,
    FLOAT_NS,
    FRACTION,
    NS,
    TEXT,
    VERSION,
    Always,
    Key,
    Many,
    OneOf,
    OrNan,
    OrNull,
    Schema,
    Shape,
    keys_of_fields,
    make_schema,
)
from dtbench.comparison.run_list import ListedCell, ListedStatus, RunList

FORMAT_VERSION: Final = 1

_CELL: Final = Shape[ListedCell](
    "ListedCell",
    "One cell of a run; of a run that cannot be read, or has no cell yet, one without numbers.",
    (
        Key("run", TEXT, "its folder", lambda one: str(one.run)),
        *keys_of_fields(
            ListedCell,
            scenario=TEXT,
            run_id=TEXT,
            cell=TEXT,
            started_unix_ns=NS,
            status=OneOf(ListedStatus),
            launches=COUNT,
            step_ns=OrNan(FLOAT_NS),
            exposed_fraction=OrNan(FRACTION),
            against=Many(TEXT),
        ),
        Key(
            "host",
            OrNull(TEXT),
            "where it ran; null: not told",
            lambda one: None if one.environment is None else one.environment.host,
        ),
        Key(
            "torch",
            OrNull(TEXT),
            "its version; null: not told",
            lambda one: None if one.environment is None else one.environment.torch,
        ),
        Key(
            "commit",
            OrNull(TEXT),
            "of the user's code; null: it is in no git repository, or was not looked for",
            lambda one: (
                None if one.environment is None or one.environment.commit is None else one.environment.commit.revision
            ),
        ),
        Key(
            "is_dirty",
            OrNull(FLAG),
            "whether files of that commit were changed; null: not known",
            lambda one: (
                None if one.environment is None or one.environment.commit is None else one.environment.commit.is_dirty
            ),
        ),
    ),
)
_DOCUMENT: Final = Shape[RunList](
    "RunList",
    "Runs, newest first.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _of: FORMAT_VERSION),
        Key("results", TEXT, "folder of all runs", lambda of: str(of.results)),
        Key("cells", Many(_CELL), "of the runs that are shown", lambda of: of.rows),
        Key(
            "next_run",
            OrNull(TEXT),
            "folder of the newest run that is not shown; null: all are",
            lambda of: None if of.next_run is None else str(of.next_run[0]),
        ),
        Key("unreadable", COUNT, "runs of which it is not known whether they are asked for", lambda of: of.unreadable),
    ),
)


def document(found: RunList) -> object:
    """Return the document."""
    return _DOCUMENT.write(found)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench runs --json", _DOCUMENT)
