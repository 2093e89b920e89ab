"""What a launch must tell and does not: records, steps, accounts and results that are lost; nothing is judged then.

What all ranks lack is missed as what one lacks: the plan and the scenario say what must be there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dtbench.base.record import Record
from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import DeviceKind, Phase
from dtbench.plan.plan import Plan
from dtbench.runs.reading.cell_data import CellData, LaunchData
from dtbench.runs.reading.lost_arms import find_lost_arms
from dtbench.runs.reading.lost_stages import (
    Told,
    ask_state,
    comes_after,
    find_ends,
    find_lost_rounds,
    find_lost_steps,
    say_fewer,
    tell_state,
)
from dtbench.runs.reading.lost_steps import count_losses, count_planned, say_lost, say_overused, say_surplus
from dtbench.runs.reading.untold_others import find_untold
from dtbench.scenario.mistakes import join_words
from dtbench.scenario.schema.ddp import OF_PLAIN_MODEL, Ddp
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import list_branches, stem_of
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.probes import ProbedFunction
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import RunStatus


def find_rank_doubts(data: CellData) -> tuple[str, ...]:
    """Say why no check of a cell may be judged: the evidence of ranks is lost, or is not, or not surely, theirs."""
    found = [
        f"{launch.folder.path.name}: {sentence}"
        for launch in data.launches
        for sentence in (*find_lost_evidence(data, launch), *launch.tables.rank_doubts)
    ]
    return (*found, *find_unchecked(data))


def find_lost_evidence(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say what a launch must tell and does not: nothing is judged without it."""
    yield from _lost_records(data, launch)
    yield from _lost_results(data, launch)
    yield from _lost_receipts(data, launch)
    yield from _lost_losses(data, launch)
    yield from _lost_rounds(data, launch)
    yield from _lost_arms(data, launch)
    yield from _lost_timings(data, launch)
    yield from _impossible_timings(data, launch)
    yield from _lost_accounts(launch)
    yield from (one.words for one in find_untold(launch) if one.is_lost and has_ended(launch))


def _lost_receipts(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say of which knobs ranks that tell of others do not: the launch's other ranks do, or its scenario sets them."""
    told = {record.rank: [one.knob for one in record.receipts] for record in launch.ranks if record.receipts}
    known = dict.fromkeys(knob for knobs in told.values() for knob in knobs)
    silent = {knob: tuple(rank for rank, knobs in told.items() if knob not in knobs) for knob in known}
    asked = [] if data.cell.scenario is None or not told else _list_knobs(data.cell.scenario)
    silent |= {field: tuple(told) for field in asked if not any(f"{knob}.".startswith(f"{field}.") for knob in known)}
    lost: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for knob, ranks in silent.items():
        if ranks:
            lost[ranks].append(knob)
    for ranks, knobs in lost.items():
        more = [f"{len(knobs) - _MOST_NAMED} more knobs"] if len(knobs) > _MOST_NAMED + 1 else []
        named = join_words([*(knobs[:_MOST_NAMED] if more else knobs), *more], last="and")
        yield f"{name_ranks(ranks)} {'says' if len(ranks) == 1 else 'say'} nothing of {named}"


_MOST_NAMED: Final = 4
_READ_BACK: Final = ("parallel", "optimizer", "precision", "accumulation")
"""Sections of a scenario each of whose fields has a receipt, or several below it."""


def _list_knobs(scenario: Scenario) -> list[str]:
    """Return what of a scenario every rank reads back, as far as the version knew it that wrote the scenario."""
    sections: dict[str, Record] = {name: getattr(scenario, name) for name in _READ_BACK}
    return [
        f"{name}.{field}"
        for name, section in sections.items()
        for field in _list_fields(section)
        if field in section.model_fields_set and field != "kind" and getattr(section, field) != ()
    ]


def _list_fields(section: Record) -> Iterable[str]:
    is_plain = isinstance(section, Ddp) and not section.wrap
    return OF_PLAIN_MODEL if is_plain else type(section).model_fields


def _lost_rounds(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which ranks of a launch that ended lost rounds of a stage of the training state, or steps beside it."""
    scenario = data.cell.scenario
    if scenario is not None and scenario.state_dict is not None and has_ended(launch):
        yield from find_lost_rounds(scenario.state_dict, launch.ranks)
        yield from find_lost_steps(scenario.state_dict, launch.ranks)


def _lost_arms(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which ranks of a launch that ended lost steps by which exposed communication is estimated."""
    plan = data.cell.plan
    if data.cell.scenario is not None and has_ended(launch):
        yield from find_lost_arms(data.cell.scenario, plan.device, plan.measured_steps, launch.ranks)


def _lost_losses(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which ranks of a launch that ended tell of fewer losses than they had steps."""
    if has_ended(launch):
        wanted = max((count_losses(record, data.cell.plan) for record in launch.ranks), default=0)
        yield from say_fewer({record.rank: len(record.losses) for record in launch.ranks}, wanted, "losses")


def _lost_timings(data: CellData, launch: LaunchData) -> list[str]:
    """Say which steps of a launch that ended no rank has."""
    return say_lost(launch.all_steps, count_planned(data.cell.plan)) if has_ended(launch) else []


def _impossible_timings(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which steps a launch has beyond its plan, and which took more CPU time than there is."""
    yield from say_surplus(launch.all_steps, count_planned(data.cell.plan))
    hosts = {record.host for record in launch.ranks}
    if launch.environment is not None and len(hosts) == 1:
        yield from say_overused(launch.all_steps, launch.environment.cores)


def has_ended(launch: LaunchData) -> bool:
    """Tell whether a launch says that it is complete."""
    return launch.record is not None and launch.record.status is RunStatus.COMPLETE


def _lost_accounts(launch: LaunchData) -> Iterator[str]:
    """Say of how many timed steps no rank tells where the time went."""
    if not has_ended(launch):
        return
    told = launch.tables.overlap["step"].nunique()
    timed = launch.steps["step"][launch.steps["phase"] == Phase.PROFILED].nunique()
    if 0 < told < timed:
        yield f"where the time went is told of {told} of {timed} PROFILED steps: the table of accounts lost the others"


_ISSUES: Final[Told] = ("the collectives issued",)
_CANARY: Final[Told] = ("the canary",)
_KNOBS: Final[Told] = ("the knobs",)
_ARMS: Final[Told] = ("steps without communication",)
_FUNCTIONS: Final[Told] = ("the functions under study",)
_COMPILED: Final[Told] = ("what was compiled",)
_DEVICE: Final[Told] = ("the device's memory",)
_LIFE: Final[Told] = ("the calls in the life of its model",)
_EXTRAS: Final = {"canary": _CANARY, "exposure": _ARMS, "probes": _FUNCTIONS, "lifecycle": _LIFE}
"""What an extra of the worker tells, by its name; one that is not here is called by that."""


def _lost_results(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which ranks say nothing of what every rank tells: others of the cell do, or its scenario has all tell."""
    plan, scenario = data.cell.plan, data.cell.scenario
    is_recorded = scenario is not None and plan.device is DeviceKind.CPU and isinstance(plan, Plan) and plan.traffic
    asked = [*([_ISSUES] if is_recorded else []), *([] if scenario is None else _find_asked(scenario))]
    every = dict.fromkeys([*asked, *(one for other in data.launches for rank in other.ranks for one in _tell(rank))])
    ends, state = find_ends(launch.ranks), None if scenario is None else scenario.state_dict
    told = {record.rank: set(_tell(record)) for record in launch.ranks}
    for what in every:
        if ends and (what == _CANARY or comes_after(what, ends, state)):
            continue  # nothing is done after a stage of the training state that raised
        silent = [
            rank for rank, of_rank in told.items() if what not in of_rank and (not what[:-1] or what[:-1] in of_rank)
        ]
        if silent:
            yield f"{name_ranks(silent)} {'says' if len(silent) == 1 else 'say'} nothing of {what[-1]}"


def _tell(record: RankRecord) -> Iterator[Told]:
    """Yield what a rank tells."""
    extras = record.extras
    parts = {_KNOBS: record.receipts, _ISSUES: record.traffic}
    yield from (what for what, found in parts.items() if found)
    whole: dict[Told, object] = {
        _name_extra(name): getattr(extras, name)
        for name in type(extras).model_fields
        if name != "state_dict"  # of which each part is told
    }
    whole |= {_COMPILED: record.compilation, _DEVICE: record.memory.allocated_peak_bytes}
    yield from (what for what, found in whole.items() if found is not None)
    yield from _tell_functions(extras.probes.functions if extras.probes is not None else ())
    calls = () if extras.lifecycle is None else extras.lifecycle.calls
    yield from ((*_LIFE, _name_call(one.call)) for one in calls)
    yield from tell_state(extras.state_dict)


def _tell_functions(functions: Sequence[ProbedFunction]) -> Iterator[Told]:
    for one in functions:
        yield (*_FUNCTIONS, one.name)
        if one.tells_branches and list_branches(f"{stem_of(one.file)}.{one.name}"):
            yield (*_FUNCTIONS, one.name, f"which branches {one.name} took")


def _name_call(call: str) -> str:
    return f"the call `{call}` in the life of its model"


def _name_extra(name: str) -> Told:
    return _EXTRAS.get(name, (f"`{name}`",))


def _find_asked(scenario: Scenario) -> Iterator[Told]:
    """Yield what a scenario has every rank tell: what an extra finds out where the field of its name asks for it."""
    yield _KNOBS
    asked = scenario.measure.model_copy(update={"exposure": {*scenario.measure.exposure} - {"trace"}})  # no extra's
    yield from (_name_extra(name) for name in RankExtras.model_fields if getattr(asked, name, None))
    if scenario.state_dict is not None:
        yield from ask_state(scenario.state_dict)
    if isinstance(scenario.parallel, Ddp) and scenario.parallel.lifecycle:
        yield _LIFE
        yield from ((*_LIFE, _name_call(call)) for call in scenario.parallel.lifecycle)
    if scenario.wants_canary:
        yield _CANARY


def find_unchecked(data: CellData) -> list[str]:
    """Say which launches were not held against a single process, where others were or all are to be."""
    ended = [launch for launch in data.launches if has_ended(launch)]
    silent = [launch for launch in ended if all(record.correctness is None for record in launch.ranks)]
    is_asked = data.cell.scenario is not None and data.cell.scenario.correctness.enabled
    if not silent or (len(silent) == len(ended) and not is_asked):
        return []
    names = ", ".join(launch.folder.path.name for launch in silent)
    why = "which others have" if len(silent) < len(ended) else "which its scenario asks for"
    return [f"{names}: no result of the check against a single process, {why}"]


def _lost_records(data: CellData, launch: LaunchData) -> list[str]:
    if not has_ended(launch):
        return []
    absent = sorted(set(range(data.cell.plan.ranks)) - {record.rank for record in launch.ranks})
    return [f"the record of {name_ranks(absent)} is missing, its checks are lost"] if absent else []
