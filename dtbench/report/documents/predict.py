"""A cell's step at other numbers of ranks, as one JSON document."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dtbench.base.document import (
    BYTES,
    COUNT,
    FLOAT_NS,
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
    make_schema,
)
from dtbench.base.vocabulary import Purpose
from dtbench.runs.scaling.curve import Curve, Point
from dtbench.runs.scaling.links import Cluster
from dtbench.runs.scaling.measured import Measured

FORMAT_VERSION: Final = 1


class AskedWorlds(NamedTuple):
    """What was asked of cells at other numbers of ranks.

    Attributes:
        sources: runs and scenarios.
        worlds: numbers of ranks that were asked for, rising.
        cluster: where they are asked to run.
        curves: a cell each.
        refused: by name, why nothing is said of others.
    """

    sources: Sequence[str]
    worlds: Sequence[int]
    cluster: Cluster
    curves: Sequence[Curve]
    refused: Mapping[str, str]


_EXPOSED: Final = Shape[tuple[Purpose, int]](
    "PredictedExposed",
    "Communication of one purpose that no compute overlaps.",
    (
        Key("purpose", OneOf(Purpose), "what it is for", lambda pair: pair[0]),
        Key("time_ns", NS, "on the slowest rank", lambda pair: pair[1]),
    ),
)
_POINT: Final = Shape[Point](
    "PredictedPoint",
    "A cell at one number of ranks; not run.",
    (
        Key("world", COUNT, "ranks", lambda point: point.world),
        Key("step_ns", FLOAT_NS, "MEASURED step of the slowest rank", lambda point: point.step_ns),
        Key(
            "low_ns",
            OrNan(FLOAT_NS),
            'lower end of its 90 % interval; "NaN": nothing tells how much launches differ',
            lambda point: point.low_ns,
        ),
        Key("high_ns", OrNan(FLOAT_NS), "its upper end", lambda point: point.high_ns),
        Key(
            "host_ns",
            OrNan(FLOAT_NS),
            'of it the host\'s, skew left out; "NaN": not known, and taken as none',
            lambda point: None if point.host is None else point.host.time_ns,
        ),
        Key(
            "skew_ns",
            OrNan(FLOAT_NS),
            "of it, by how much the last of all ranks is later than the last of those whose host is known",
            lambda point: None if point.host is None else point.host.skew_ns,
        ),
        Key("exposed_comm_ns", NS, "communication that no compute overlaps", lambda point: point.exposed_comm_ns),
        Key("exposed", Many(_EXPOSED), "the same by purpose, in the order of first issue", lambda one: one.exposed_ns),
        Key("collectives", COUNT, "that a rank issues in a step", lambda point: point.collectives),
        Key("size_bytes", BYTES, "of all of them, as nccl-tests counts it", lambda point: point.size_bytes),
        Key(
            "wire_bytes",
            OrNull(BYTES),
            "what a rank sends in a step; null: a function of yours does that",
            lambda point: point.wire_bytes,
        ),
        Key(
            "state_bytes",
            BYTES,
            "weights, gradients and optimizer state of one rank; activations come on top",
            lambda point: point.state_bytes,
        ),
        Key("tokens", COUNT, "of a step, over all ranks", lambda point: point.tokens),
        Key(
            "extrapolated",
            OrNull(TEXT),
            "in what it lies beyond all that predictions were ever held against; null: in nothing",
            lambda point: "; ".join(point.beyond) or None,
        ),
    ),
)
_LAUNCH: Final = Shape[tuple[float, float]](
    "PredictedFromLaunch",
    "What one launch measured.",
    (
        Key("step_ns", FLOAT_NS, "MEASURED step, median over steps, of the slowest rank", lambda pair: pair[0]),
        Key("host_ns", FLOAT_NS, "of it the host's, by the closed form", lambda pair: pair[1]),
    ),
)
_MEASURED: Final = Shape[Measured](
    "PredictedFrom",
    "What was run.",
    (
        Key("world", COUNT, "ranks", lambda one: one.world),
        Key("launches", Many(_LAUNCH), "each", lambda one: zip(one.steps_ns, one.hosts_ns, strict=True)),
        Key("cpu_ns", OrNan(FLOAT_NS), 'CPU time of a rank in a step; "NaN": not known', lambda one: one.cpu_ns),
        Key(
            "spread_ns",
            OrNan(FLOAT_NS),
            'standard deviation over ranks of a rank\'s CPU time in a step; "NaN": not known',
            lambda one: one.spread_ns,
        ),
        Key("cores", OrNull(COUNT), "of the machine; null: not known", lambda one: one.cores),
    ),
)
_LEFT_OUT: Final = Shape[tuple[str, str]](
    "PredictedNotAsked",
    "Of what nothing is said.",
    (
        Key("name", TEXT, "a cell", lambda pair: pair[0]),
        Key("reason", TEXT, "a sentence", lambda pair: pair[1]),
    ),
)
_NO_WORLD: Final = Shape[tuple[int, str]](
    "PredictedNoWorld",
    "A number of ranks of which nothing can be said.",
    (
        Key("world", COUNT, "ranks", lambda pair: pair[0]),
        Key("reason", TEXT, "a sentence", lambda pair: pair[1]),
    ),
)
_CURVE: Final = Shape[Curve](
    "PredictedCell",
    "A cell at several numbers of ranks.",
    (
        Key("cell", TEXT, "its name", lambda curve: curve.subject.name),
        Key("measured", Many(_MEASURED), "what was run; none: its host is not known", lambda one: one.subject.measured),
        Key("points", Many(_POINT), "by rising number of ranks", lambda curve: curve.points),
        Key("refused", Many(_NO_WORLD), "numbers of ranks that cannot be", lambda curve: curve.refused),
    ),
)
_DOCUMENT: Final = Shape[AskedWorlds](
    "Predicted",
    "Steps at other numbers of ranks; not run.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _asked: FORMAT_VERSION),
        Key("sources", Many(TEXT), "runs and scenarios", lambda asked: asked.sources),
        Key(
            "link",
            OrNull(TEXT),
            "as `--link` has it; null: as it is",
            lambda asked: None if asked.cluster.link is None else asked.cluster.link.text,
        ),
        Key(
            "between",
            OrNull(TEXT),
            "as `--between` has it; null: as it is",
            lambda asked: None if asked.cluster.between is None else asked.cluster.between.text,
        ),
        Key(
            "ranks_per_node",
            OrNull(COUNT),
            "as `--nodes-of` has it; null: not said",
            lambda asked: asked.cluster.ranks_per_node,
        ),
        Key("cells", Many(_CURVE), "each of which something can be said", lambda asked: asked.curves),
        Key("refused", Many(_LEFT_OUT), "cells of which nothing can be said", lambda asked: asked.refused.items()),
    ),
)


def document(asked: AskedWorlds) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(asked)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench predict --json", _DOCUMENT)
