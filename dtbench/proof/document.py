"""Forecasts and what became of them, as one JSON document."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dtbench.base.document import (
    FLAG,
    FLOAT_NS,
    FRACTION,
    TEXT,
    VERSION,
    Always,
    Key,
    Many,
    OrNan,
    OrNull,
    Schema,
    Shape,
    make_schema,
)
from dtbench.proof.proven import Proven

FORMAT_VERSION: Final = 1


class Proof(NamedTuple):
    """A run that was made to hold forecasts against it."""

    run: str
    proven: Sequence[Proven]


_PROVEN: Final = Shape[Proven](
    "ProvenChange",
    "One change that was run.",
    (
        Key("cell", TEXT, "that is changed", lambda one: one.claim.cell),
        Key("changed_cell", TEXT, "the changed one, in the run", lambda one: one.claim.changed),
        Key("change", TEXT, "as `--change` takes it", lambda one: one.claim.change),
        Key(
            "forecast_saving_ns",
            OrNan(FLOAT_NS),
            'what was said to be saved; "NaN": nothing was said',
            lambda one: None if one.claim.forecast is None else one.claim.forecast.saving_ns,
        ),
        Key(
            "forecast_low_ns",
            OrNan(FLOAT_NS),
            "lower end of its 90 % interval",
            lambda one: None if one.claim.forecast is None else one.claim.forecast.low_ns,
        ),
        Key(
            "forecast_high_ns",
            OrNan(FLOAT_NS),
            "its upper end",
            lambda one: None if one.claim.forecast is None else one.claim.forecast.high_ns,
        ),
        Key(
            "base_step_ns", OrNan(FLOAT_NS), "MEASURED step of the unchanged cell in this run", lambda one: one.base_ns
        ),
        Key("changed_step_ns", OrNan(FLOAT_NS), "of the changed one", lambda one: one.changed_ns),
        Key("saving_ns", OrNan(FLOAT_NS), "by how much that is shorter", lambda one: one.saving_ns),
        Key(
            "low_ns",
            OrNan(FLOAT_NS),
            "lower end of its 95 % interval, of all changes together",
            lambda one: one.low_ns,
        ),
        Key("high_ns", OrNan(FLOAT_NS), "its upper end", lambda one: one.high_ns),
        Key("error", OrNan(FRACTION), "by which share the forecast of the changed step is off", lambda one: one.error),
        Key("agrees", OrNull(FLAG), "both intervals have a saving in common; null: not known", lambda one: one.agrees),
        Key("doubt", TEXT, "why nothing follows from it; empty: nothing speaks against it", lambda one: one.doubt),
    ),
)
_DOCUMENT: Final = Shape[Proof](
    "WhatIfProof",
    "What was said of other settings, and what became of it.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _proof: FORMAT_VERSION),
        Key("run", TEXT, "folder of the run", lambda proof: proof.run),
        Key("proven", Many(_PROVEN), "in the order in which they were asked", lambda proof: proof.proven),
    ),
)


def document(proof: Proof) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(proof)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench whatif --prove --json", _DOCUMENT)
