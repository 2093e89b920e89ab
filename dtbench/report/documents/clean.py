"""What `dtbench clean` would remove, or removed, as one JSON document."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.document import (
    BYTES,
    COUNT,
    FLAG,
    NS,
    TEXT,
    VERSION,
    Always,
    Key,
    Many,
    OneOf,
    Schema,
    Shape,
    make_schema,
)
from dtbench.runs.cleaning import Cleaning, Removal, Why

FORMAT_VERSION: Final = 1


@dataclass(frozen=True)
class Cleaned:
    """What goes, and whether it is gone."""

    found: Cleaning
    is_done: bool


_REMOVAL: Final = Shape[Removal](
    "Removal",
    "What goes of one run.",
    (
        Key("run", TEXT, "its folder", lambda one: str(one.run)),
        Key("started_unix_ns", NS, "when it began", lambda one: one.started_unix_ns),
        Key(
            "launches",
            Many(TEXT),
            "folders of the launches whose traces go; none: the whole run does",
            lambda one: [str(launch.path) for launch in one.launches],
        ),
        Key("files", COUNT, "how many", lambda one: one.files),
        Key("size_bytes", BYTES, "of all of them", lambda one: one.size_bytes),
    ),
)
_STAYING: Final = Shape[tuple[Path, Why, str]](
    "Staying",
    "A run that stays, or traces of it that do, though they were asked for.",
    (
        Key("run", TEXT, "its folder", lambda one: str(one[0])),
        Key("why", OneOf(Why), "the reason", lambda one: one[1]),
        Key("said", TEXT, "what a file or the file system says to it; may be empty", lambda one: one[2]),
    ),
)
_DOCUMENT: Final = Shape[Cleaned](
    "Cleaning",
    "What goes, or went.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _of: FORMAT_VERSION),
        Key("results", TEXT, "folder of all runs", lambda of: str(of.found.results)),
        Key("is_done", FLAG, "it is gone; else it would go with --yes", lambda of: of.is_done),
        Key("removals", Many(_REMOVAL), "oldest run first", lambda of: of.found.removals),
        Key("staying", Many(_STAYING), "what stays", lambda of: of.found.staying),
        Key("size_bytes", BYTES, "of all that goes", lambda of: of.found.size_bytes),
    ),
)


def document(cleaned: Cleaned) -> object:
    """Return the document."""
    return _DOCUMENT.write(cleaned)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench clean --json", _DOCUMENT)
