"""What was written into an archive of traces, as one JSON document."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.document import (
    BYTES,
    NS,
    RATIO,
    TEXT,
    VERSION,
    WHOLE,
    Always,
    Key,
    Many,
    OrNull,
    Schema,
    Shape,
    make_schema,
)
from dtbench.report.export.perfetto import ArchivedTrace, ArchivePlan

FORMAT_VERSION: Final = 1


@dataclass(frozen=True)
class WrittenArchive:
    """An archive on disk."""

    plan: ArchivePlan
    path: Path
    size_bytes: int


_RANK: Final = Shape[ArchivedTrace](
    "ArchivedTrace",
    "One rank's trace in the archive.",
    (
        Key("rank", WHOLE, "global rank", lambda one: one.rank),
        Key("trace", TEXT, "where it was read", lambda one: one.source.label),
        Key("member", TEXT, "its name in the archive", lambda one: one.member),
        Key(
            "offset_ns", NS, "what is added to its times to get those of the common timeline", lambda one: one.offset_ns
        ),
        Key(
            "clock_offset_ns",
            OrNull(NS),
            "how far its clock is ahead of the common one; 0: or no correction is applied; null: not known",
            lambda one: one.clock.offset_ns if one.is_aligned else None,
        ),
        Key(
            "clock_uncertainty_ns",
            OrNull(NS),
            "half width of its 99 % confidence interval; null: nothing to compare it with",
            lambda one: one.clock.uncertainty_ns,
        ),
        Key(
            "clock_drift",
            OrNull(RATIO),
            "how much its clock gains, a fraction: 1e-6 is one microsecond in a second; null: not known",
            lambda one: one.clock.drift if one.is_aligned else None,
        ),
    ),
)
_DOCUMENT: Final = Shape[WrittenArchive](
    "Archive",
    "An archive of all ranks' traces, for Perfetto.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _one: FORMAT_VERSION),
        Key("archive", TEXT, "its file", lambda one: str(one.path)),
        Key("size_bytes", BYTES, "its size", lambda one: one.size_bytes),
        Key("ranks", Many(_RANK), "each trace, in order of rank", lambda one: one.plan.traces),
        Key(
            "notes",
            Many(TEXT),
            "what is left out, and what a reader of the picture must know",
            lambda one: one.plan.notes,
        ),
    ),
)


def document(archive: WrittenArchive) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(archive)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench export --json", _DOCUMENT)
