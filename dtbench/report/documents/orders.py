"""The orders of a run that was only prepared, as one JSON document."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.document import TEXT, VERSION, Always, Key, Many, Schema, Shape, make_schema

FORMAT_VERSION: Final = 1


@dataclass(frozen=True)
class PreparedRun:
    """A run's folder, and the commands that run its launches one after another."""

    folder: Path
    commands: tuple[str, ...]


_DOCUMENT: Final = Shape[PreparedRun](
    "PreparedRun",
    "A run of which only the orders are written.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _run: FORMAT_VERSION),
        Key("run", TEXT, "its folder", lambda run: str(run.folder)),
        Key("commands", Many(TEXT), "torchrun's, to be run one after another", lambda run: run.commands),
    ),
)


def document(run: PreparedRun) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(run)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench run --prepare --json", _DOCUMENT)
