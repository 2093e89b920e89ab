"""What would change a job's steps, as one JSON document."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from dtbench.base.document import (
    COUNT,
    FLAG,
    FLOAT_NS,
    FRACTION,
    NS,
    RATIO,
    TEXT,
    VERSION,
    WHOLE,
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
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.replay.changes.change import ChangeKind, Owner
from dtbench.replay.fit import Fit
from dtbench.replay.link_fit import LinkFit, LinkKey
from dtbench.replay.what_if import Answer, WhatIf
from dtbench.runs.settings.base import CostSource
from dtbench.runs.settings.forecast import Forecast, SettingAnswer

FORMAT_VERSION: Final = 1

_STEP: Final = Shape[tuple[int, int, int]](
    "WhatIfStep",
    "One step of the unchanged replay beside what was recorded.",
    (
        Key("step", WHOLE, "its number", lambda step: step[0]),
        Key("recorded_ns", NS, "the slowest rank's, as it was", lambda step: step[1]),
        Key("replayed_ns", NS, "the slowest rank's, as the replay has it", lambda step: step[2]),
    ),
)
_FIT: Final = Shape[Fit](
    "WhatIfFit",
    "The unchanged replay of one launch.",
    (
        Key(
            "steps",
            Many(_STEP),
            "in order",
            lambda fit: zip(fit.numbers, fit.recorded_ns, fit.replayed_ns, strict=True),
        ),
    ),
)
_ANSWER: Final = Shape[Answer](
    "WhatIfAnswer",
    "What one change would save.",
    (
        Key("change", TEXT, "as `--change` takes it", lambda answer: answer.change.name),
        Key("kind", OneOf(ChangeKind), "what kind of change", lambda answer: answer.change.kind),
        Key(
            "saving_ns",
            FLOAT_NS,
            "by how much all steps together would be shorter, divided by their number; below 0: longer",
            lambda answer: answer.saving_ns,
        ),
        Key("lowest_ns", NS, "the least of any step", lambda answer: answer.lowest_ns),
        Key("highest_ns", NS, "the most of any step", lambda answer: answer.highest_ns),
        Key(
            "off_ns",
            FLOAT_NS,
            "by how much the replay of the unchanged steps is off: the saving is known no better, a bound as little",
            lambda answer: answer.off_ns,
        ),
        Key(
            "own_ns",
            OrNan(FLOAT_NS),
            "what is hidden takes so long in a step, without waiting for other ranks: no saving is more; "
            '"NaN" of other changes',
            lambda answer: answer.own_ns,
        ),
    ),
)
_OWNED: Final = Shape[tuple[Owner, int]](
    "WhatIfOwner",
    "How much of the longest way one owner's collectives are.",
    (
        Key("owner", OrNull(TEXT), "whose; null: the trace does not say", lambda pair: pair[0].name),
        Key("purpose", OneOf(Purpose), "what for", lambda pair: pair[0].purpose),
        Key("operation", OrNull(OneOf(Operation)), "null: the trace does not say", lambda pair: pair[0].operation),
        Key("time_ns", NS, "of the longest way", lambda pair: pair[1]),
    ),
)
_ON_RANK: Final = Shape[tuple[int, int]](
    "WhatIfRank",
    "How much of the longest way lies on one rank.",
    (
        Key("rank", WHOLE, "of the job", lambda pair: pair[0]),
        Key("time_ns", NS, "of the longest way", lambda pair: pair[1]),
    ),
)
_LEFT_OUT: Final = Shape[tuple[str, str]](
    "WhatIfNotAsked",
    "Of what nothing is said.",
    (
        Key("name", TEXT, "a change, or a cell", lambda pair: pair[0]),
        Key("reason", TEXT, "a sentence", lambda pair: pair[1]),
    ),
)


_LINK: Final = Shape[tuple[LinkKey, LinkFit]](
    "WhatIfLink",
    "What one kind of collective costs: a latency, and a time for each byte.",
    (
        Key("operation", OrNull(OneOf(Operation)), "of the collectives", lambda pair: pair[0].operation),
        Key("group", TEXT, "of the ranks, as the traces name it", lambda pair: pair[0].group),
        Key("ranks", COUNT, "in it", lambda pair: pair[0].size),
        Key("latency_ns", FLOAT_NS, "whatever their size", lambda pair: pair[1].latency_ns),
        Key("ns_per_byte", RATIO, "for each byte of what was counted as their size", lambda pair: pair[1].ns_per_byte),
        Key("off", FRACTION, "half of the services are off by so much, or more", lambda pair: pair[1].off),
        Key("sizes", COUNT, "how many different there are", lambda pair: pair[1].sizes),
    ),
)


class Asked(NamedTuple):
    """What was asked of a run or of traces.

    Attributes:
        source: the run's folder, or the traces.
        cells: replays of cells, by name.
        refused: by name, why no replay says anything of others.
        doubts: by name of a cell, what speaks against its steps.
        settings: of a run, what other settings would do to cells, by name.
        settings_refused: by name, why nothing is said of the settings of others.
        remarks: by name, what the traces that are replayed leave out, or may count wrongly.
    """

    source: str
    cells: Mapping[str, WhatIf]
    refused: Mapping[str, str]
    doubts: Mapping[str, str]
    settings: Mapping[str, Forecast] = MappingProxyType({})
    settings_refused: Mapping[str, str] = MappingProxyType({})
    remarks: Mapping[str, Sequence[str]] = MappingProxyType({})


class _Cell(NamedTuple):
    """One cell, and what speaks against it."""

    name: str
    one: WhatIf
    doubt: str | None
    remarks: Sequence[str]


_CELL: Final = Shape[_Cell](
    "WhatIfCell",
    "What would change the steps of one cell, or of traces.",
    (
        Key("cell", TEXT, "its name; empty: traces", lambda pair: pair[0]),
        Key("step_ns", FLOAT_NS, "mean of the replayed steps, each the slowest rank's", lambda pair: pair[1].step_ns),
        Key(
            "doubt",
            OrNull(TEXT),
            "what speaks against these steps, so that nothing follows from them; null: nothing does",
            lambda pair: pair[2],
        ),
        Key(
            "remarks",
            Many(TEXT),
            "what its traces leave out, or may count wrongly, each a sentence",
            lambda pair: pair.remarks,
        ),
        Key(
            "is_in_step",
            FLAG,
            "it is known how far the clocks of its ranks are apart; else they are replayed as if they began together",
            lambda pair: pair.one.are_in_step,
        ),
        Key("steps", COUNT, "how many there are, over launches", lambda pair: pair[1].steps),
        Key("ranks", COUNT, "how many are here", lambda pair: pair[1].ranks),
        Key("is_device", FLAG, "it ran on devices", lambda pair: pair[1].is_device),
        Key(
            "missing_ranks",
            OrNull(COUNT),
            "of the job that are not here: what is waited for them is in what collectives take; null: not told",
            lambda pair: pair[1].missing,
        ),
        Key(
            "unmatched",
            COUNT,
            "collectives of several ranks, not known to be one with the others': their waiting is in their time",
            lambda pair: pair[1].unmatched,
        ),
        Key(
            "left_out_steps",
            Many(WHOLE),
            "of the traces, not replayed in some launch: not all of them is known on every rank, others disturbed "
            "them, or they do not follow the rest",
            lambda pair: pair[1].left_out,
        ),
        Key(
            "waited_ns",
            OrNan(FLOAT_NS),
            "how long ranks waited in a step for those that came last, summed over them, of all steps; "
            '"NaN": not known of every rank',
            lambda pair: pair[1].waited_ns,
        ),
        Key(
            "links",
            Many(_LINK),
            "what each kind of collective was found to cost, of the first launch; none where sizes do not tell",
            lambda pair: [(key, fit) for key, fit in pair[1].links.items() if fit is not None and fit.holds],
        ),
        Key(
            "host_times",
            Many(RATIO),
            "by launch, how many times as long hosts take as in PROFILED steps, so that a step is as MEASURED; empty: "
            "steps are PROFILED ones",
            lambda pair: pair[1].host_times,
        ),
        Key("fits", Many(_FIT), "of each launch", lambda pair: pair[1].fits),
        Key("answers", Many(_ANSWER), "largest saving first", lambda pair: pair[1].answers),
        Key("not_asked", Many(_LEFT_OUT), "changes that do not apply", lambda pair: pair[1].not_asked),
        Key("way_host_ns", NS, "hosts on the longest way, over all steps", lambda pair: pair[1].way.host_ns),
        Key("way_work_ns", NS, "kernels and copies on it", lambda pair: pair[1].way.work_ns),
        Key("way_owners", Many(_OWNED), "collectives on it", lambda pair: pair[1].way.owners_ns.items()),
        Key("way_ranks", Many(_ON_RANK), "on which rank it lies", lambda pair: pair[1].way.ranks_ns.items()),
    ),
)


_SETTING: Final = Shape[SettingAnswer](
    "WhatIfSetting",
    "What other settings would do to a cell's MEASURED step.",
    (
        Key("change", TEXT, "as `--change` takes it", lambda answer: answer.change),
        Key("costs", TEXT, "what has to be paid for it; empty: nothing that is known", lambda answer: answer.costs),
        Key("step_ns", FLOAT_NS, "the changed step, mean over launches", lambda answer: answer.step_ns),
        Key("saving_ns", FLOAT_NS, "by how much it is shorter; below 0: longer", lambda answer: answer.saving_ns),
        Key(
            "low_ns",
            OrNan(FLOAT_NS),
            'lower end of the 90 % interval of the saving; "NaN": one launch tells none',
            lambda answer: answer.low_ns,
        ),
        Key("high_ns", OrNan(FLOAT_NS), "its upper end", lambda answer: answer.high_ns),
    ),
)
_SETTINGS: Final = Shape[tuple[str, Forecast]](
    "WhatIfSettings",
    "What other settings would do to one cell, by its closed form; not run.",
    (
        Key("cell", TEXT, "its name", lambda pair: pair[0]),
        Key("step_ns", FLOAT_NS, "MEASURED step, mean over launches", lambda pair: pair[1].step_ns),
        Key("launches", COUNT, "that measured it", lambda pair: pair[1].launches),
        Key("missing_launches", COUNT, "that have no MEASURED step", lambda pair: pair[1].missing),
        Key(
            "costs_from",
            OneOf(CostSource),
            "how it is known what blocks compute: `known`, the scenario says it; `regions`, it was found from how long "
            "forward, backward and optimizer were",
            lambda pair: pair[1].source,
        ),
        Key(
            "exposed_off",
            OrNan(FRACTION),
            "of a step, how far what the closed form leaves exposed is from what PROFILED steps showed, of the purpose "
            'where it is most; "NaN" where costs are known',
            lambda pair: pair[1].off,
        ),
        Key(
            "model_error",
            FRACTION,
            "of a step, by which such closed forms may be off in 9 of 10 cases; intervals hold it",
            lambda pair: pair[1].model_error,
        ),
        Key("answers", Many(_SETTING), "largest saving first", lambda pair: pair[1].answers),
        Key("not_asked", Many(_LEFT_OUT), "changes that do not apply", lambda pair: pair[1].not_asked),
    ),
)


_DOCUMENT: Final = Shape[Asked](
    "WhatIf",
    "What would change the steps of a run, or of traces; not run.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _asked: FORMAT_VERSION),
        Key("source", TEXT, "the run's folder, or the traces", lambda asked: asked.source),
        Key(
            "cells",
            Many(_CELL),
            "each cell; of traces one",
            lambda asked: (
                _Cell(name, one, asked.doubts.get(name), asked.remarks.get(name, ()))
                for name, one in asked.cells.items()
            ),
        ),
        Key(
            "refused",
            Many(_LEFT_OUT),
            "cells, and launches of cells, of which no replay can say anything",
            lambda asked: asked.refused.items(),
        ),
        Key("settings", Many(_SETTINGS), "cells whose settings were asked", lambda asked: asked.settings.items()),
        Key(
            "settings_refused",
            Many(_LEFT_OUT),
            "cells of whose settings nothing can be said",
            lambda asked: asked.settings_refused.items(),
        ),
    ),
)


def document(asked: Asked) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(asked)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench whatif --json", _DOCUMENT)
