"""What a launch must tell and does not: records, steps, accounts and results that are lost; nothing is judged then.

What all ranks lack is missed as what one lacks: the plan and the scenario say what must be there.
"""

from collections.abc import Iterator, Sequence

from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import DeviceKind, Phase
from dtbench.plan.plan import Plan
from dtbench.runs.reading.cell_data import CellData, LaunchData
from dtbench.runs.reading.lost_steps import count_planned, say_lost
from dtbench.scenario.schema.scenario import Scenario
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
    yield from _lost_timings(data, launch)
    yield from _lost_accounts(launch)


def _lost_timings(data: CellData, launch: LaunchData) -> list[str]:
    """Say which steps of a launch that ended no rank has."""
    return say_lost(launch.all_steps, count_planned(data.cell.plan)) if has_ended(launch) else []


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


def _lost_results(data: CellData, launch: LaunchData) -> Iterator[str]:
    """Say which ranks say nothing of what every rank tells: others of the launch do, or its scenario has all tell."""
    plan, ranks, scenario = data.cell.plan, launch.ranks, data.cell.scenario
    is_recorded = scenario is not None and plan.device is DeviceKind.CPU and isinstance(plan, Plan) and plan.traffic
    told = {
        "the knobs": [record.rank for record in ranks if not record.receipts],
        "the collectives issued": [record.rank for record in ranks if not record.traffic],
        "the canary": [record.rank for record in ranks if record.extras.canary is None],
        "steps without communication": [record.rank for record in ranks if record.extras.exposure is None],
        "the functions under study": [record.rank for record in ranks if record.extras.probes is None],
        "stages of the training state": [record.rank for record in ranks if not record.extras.stages],
    }
    must_tell = {"the collectives issued"} if is_recorded else set()
    must_tell |= set() if scenario is None else set(_find_asked(scenario, ranks))
    for what, silent in told.items():
        if silent and (what in must_tell or len(silent) < len(ranks)):
            yield f"{name_ranks(silent)} {'says' if len(silent) == 1 else 'say'} nothing of {what}"


def _find_asked(scenario: Scenario, ranks: Sequence[RankRecord]) -> Iterator[str]:
    """Name what a scenario has every rank tell; nothing is done after a stage of the training state that raised."""
    yield "the knobs"
    if not set(scenario.measure.exposure) <= {"trace"}:
        yield "steps without communication"
    if scenario.measure.probes:
        yield "the functions under study"
    if scenario.state_dict is not None:
        yield "stages of the training state"
    if scenario.wants_canary and all(stage.raised is None for record in ranks for stage in record.extras.stages):
        yield "the canary"


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
