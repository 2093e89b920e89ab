"""What a search has come to, as one JSON document."""

from typing import Final

from dtbench.base.document import (
    BYTES,
    COUNT,
    FLAG,
    FLOAT_NS,
    FRACTION,
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
from dtbench.tuning.answer import PointAnswer, Status, Tuned
from dtbench.tuning.search import Stage

FORMAT_VERSION: Final = 1

_POINT: Final = Shape[PointAnswer](
    "TunedPoint",
    "One point of the grid.",
    (
        Key("name", TEXT, "of its cell in the runs", lambda one: one.name),
        Key(
            "change", TEXT, "fields and values that are not the unchanged cell's; may be empty", lambda one: one.change
        ),
        Key("status", OneOf(Status), "what became of it", lambda one: one.status),
        Key("word", TEXT, "the same; of one that is out, why in a word or two", lambda one: one.word),
        Key(
            "why",
            TEXT,
            "a clause; of one that is the same as another, that one's change; empty: there is no more to say",
            lambda one: one.why,
        ),
        Key(
            "forecast_step_ns",
            OrNan(FLOAT_NS),
            'what its step was said to be; "NaN": nothing was said',
            lambda one: None if one.forecast is None else one.forecast.step_ns,
        ),
        Key(
            "forecast_saving_ns",
            OrNan(FLOAT_NS),
            "what it was said to save",
            lambda one: None if one.forecast is None else one.forecast.saving_ns,
        ),
        Key(
            "forecast_low_ns",
            OrNan(FLOAT_NS),
            "lower end of its 90 % interval",
            lambda one: None if one.forecast is None else one.forecast.low_ns,
        ),
        Key(
            "forecast_high_ns",
            OrNan(FLOAT_NS),
            "its upper end",
            lambda one: None if one.forecast is None else one.forecast.high_ns,
        ),
        Key("measured_step_ns", OrNan(FLOAT_NS), "median of its launches that tell one", lambda one: one.measured_ns),
        Key("launches", COUNT, "that ran", lambda one: one.launches),
        Key(
            "saving_ns",
            OrNan(FLOAT_NS),
            'of a finalist, by how much its step is shorter, of launches that did not choose it; "NaN": it is none',
            lambda one: one.saving_ns,
        ),
        Key("low_ns", OrNan(FLOAT_NS), "lower end of the interval, see level", lambda one: one.low_ns),
        Key("high_ns", OrNan(FLOAT_NS), "its upper end", lambda one: one.high_ns),
    ),
)
_ROUND: Final = Shape[tuple[str, Stage]](
    "TuneRound",
    "A run that was made.",
    (
        Key("run", TEXT, "its folder", lambda one: one[0]),
        Key("stage", OneOf(Stage), "what its launches were for", lambda one: one[1]),
    ),
)
_DOUBT: Final = Shape[tuple[str, int]](
    "TuneDoubt",
    "Launches that decided nothing.",
    (
        Key("why", TEXT, "a clause", lambda one: one[0]),
        Key("launches", COUNT, "how many", lambda one: one[1]),
    ),
)
_DOCUMENT: Final = Shape[Tuned](
    "Tuned",
    "Which point of a grid takes the shortest step, and what is known of the others.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _one: FORMAT_VERSION),
        Key("scenario", TEXT, "its name", lambda one: one.scenario),
        Key("cell", TEXT, "that was tuned", lambda one: one.cell),
        Key("best", OrNull(TEXT), "the change that is recommended; null: the cell as it is", lambda one: one.best),
        Key("problem", TEXT, "why nothing can be judged; empty: something is", lambda one: one.problem),
        Key("unchanged_step_ns", OrNan(FLOAT_NS), "MEASURED step as it is", lambda one: one.unchanged_ns),
        Key("level", FRACTION, "intervals hold all but this", lambda one: one.level),
        Key(
            "detectable",
            OrNan(FRACTION),
            "of a step: such a difference the launches of finalists show 8 times of 10",
            lambda one: one.detectable,
        ),
        Key("launches", COUNT, "that ran", lambda one: one.launches),
        Key("budget_launches", COUNT, "that might have", lambda one: one.budget),
        Key(
            "budget_ns",
            OrNull(FLOAT_NS),
            "what they might have taken together; null: however long",
            lambda one: one.budget_ns,
        ),
        Key("sweep_launches", COUNT, "what running every point takes", lambda one: one.sweep),
        Key(
            "forecast_launches",
            COUNT,
            "launches of the unchanged cell by which forecasts were made; 0: none were",
            lambda one: one.forecast_launches,
        ),
        Key("not_forecast", TEXT, "why there are none; empty: nobody asked", lambda one: one.not_told),
        Key(
            "unchanged_peak_bytes",
            OrNull(BYTES),
            "memory at its peak as it is, of the rank that had most; null: not known, or no point is recommended",
            lambda one: None if one.peak_bytes is None else one.peak_bytes[0],
        ),
        Key(
            "best_peak_bytes",
            OrNull(BYTES),
            "the same of the point that is recommended",
            lambda one: None if one.peak_bytes is None else one.peak_bytes[1],
        ),
        Key("is_checked", FLAG, "results are held to a single process's", lambda one: one.is_checked),
        Key("points", Many(_POINT), "the best first", lambda one: one.points),
        Key("rounds", Many(_ROUND), "first to last", lambda one: one.rounds),
        Key("doubts", Many(_DOUBT), "why launches decided nothing", lambda one: one.doubts.items()),
    ),
)


def document(tuned: Tuned) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(tuned)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench tune --json", _DOCUMENT)
