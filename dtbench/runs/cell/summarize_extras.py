"""What the extras of the worker found out on the ranks of a cell, each put together in its own way."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.summarize_stages import summarize_stages
from dtbench.runs.cell.summarize_state_steps import summarize_state_steps
from dtbench.runs.cell.worst_ranks import most_state_taken, worst_canary
from dtbench.runs.exposure.summarize import LaunchExposure, summarize_exposure
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.stage_summary import StageSummary, StateStepsSummary
from dtbench.runs.summary import BranchSummary, ExposureSummary, ProbeSummary
from dtbench.scenario.schema.ddp import Ddp
from dtbench.seeds.functions import stem_of
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.probes import ProbedBranch, ProbedFunction, Probes, Unprobed


class ExtrasOfCell(TypedDict):
    """The fields of ``CellSummary`` that are of extras."""

    exposure: ExposureSummary | None
    probes: tuple[ProbeSummary, ...]
    absent_functions: tuple[str, ...]
    canary: CanaryResult | None
    stages: tuple[StageSummary, ...]
    state_steps: StateStepsSummary | None
    state_taken_fraction: float | None


def summarize_extras(data: CellData, profiler_low: float) -> ExtrasOfCell:
    """Return what each extra found out, by field of ``CellSummary``.

    Args:
        data: what the cell wrote.
        profiler_low: of what the profiler costs, see ``summarize_exposure``.
    """
    launches = {launch.place.launch: launch.ranks for launch in data.launches}
    ranks = [record for records in launches.values() for record in records]
    probes = [found for record in ranks if (found := record.extras.probes) is not None]
    return ExtrasOfCell(
        exposure=_summarize_exposure(data, profiler_low),
        probes=summarize_probes(probes),
        absent_functions=find_absent_functions(probes),
        canary=worst_canary(ranks),
        stages=summarize_stages(launches, StagePlan.of(data.cell, _find_torch(data))),
        state_steps=summarize_state_steps(
            launches, data.cell.plan.ranks, data.cell.scenario.state_dict if data.cell.scenario else None
        ),
        state_taken_fraction=most_state_taken(ranks),
    )


def _find_torch(data: CellData) -> str | None:
    return next((launch.environment.torch for launch in data.launches if launch.environment is not None), None)


def _summarize_exposure(data: CellData, profiler_low: float) -> ExposureSummary | None:
    asked = data.cell.scenario.measure.exposure if data.cell.scenario else ()
    launches = [
        LaunchExposure(
            name=launch.folder.path.name,
            index=launch.place.launch,
            world_size=data.cell.plan.ranks,
            has_ended=launch.record is not None or not data.run_is_incomplete,
            ranks=launch.ranks,
            overlap=launch.tables.overlap,
            purposes=launch.tables.purposes,
            collectives=launch.tables.collectives,
        )
        for launch in data.launches
    ]
    has_logger = data.cell.scenario is not None and isinstance(data.cell.scenario.parallel, Ddp)
    return summarize_exposure(asked, launches, data.cell.plan.device, profiler_low, has_logger=has_logger)


def summarize_probes(ranks: Sequence[Probes]) -> tuple[ProbeSummary, ...]:
    """Return one row per function that was probed.

    Args:
        ranks: of every rank of every launch that had probes.
    """
    seen: dict[str, list[ProbedFunction]] = defaultdict(list)
    for probes in ranks:
        for function in probes.functions:
            seen[_label(function)].append(function)
    return tuple(_summarize(label, functions) for label, functions in seen.items())


def find_absent_functions(ranks: Sequence[Probes]) -> tuple[str, ...]:
    """Return what the installed torch does not have, by label; arguments as ``summarize_probes``."""
    there = {_label(function) for probes in ranks for function in probes.functions}
    absent = dict.fromkeys(_label(one) for probes in ranks for one in probes.unprobed if one.is_absent)
    return tuple(label for label in absent if label not in there)


def _label(function: ProbedFunction | Unprobed) -> str:
    return f"{stem_of(function.file)}.{function.name}"


def _summarize(label: str, functions: Sequence[ProbedFunction]) -> ProbeSummary:
    is_told = all(function.tells_branches for function in functions)  # a rank that lost its branches took some
    names = dict.fromkeys(branch.name for function in functions for branch in function.branches if is_told)
    return ProbeSummary(
        label=label,
        calls=min(function.calls for function in functions),
        most_calls=max(function.calls for function in functions),
        raised=max(function.raised for function in functions),
        total_ns=sum(function.total_ns for function in functions) // len(functions),
        per_call_ns=_mean_per_call(functions),
        branches=tuple(_summarize_branch(name, functions) for name in names),
    )


def _summarize_branch(name: str, functions: Sequence[ProbedFunction]) -> BranchSummary:
    none = ProbedBranch(name=name, calls=0, total_ns=0)
    found = [next((one for one in function.branches if one.name == name), none) for function in functions]
    return BranchSummary(
        name=name,
        calls=min(one.calls for one in found),
        most_calls=max(one.calls for one in found),
        total_ns=sum(one.total_ns for one in found) // len(found),
        per_call_ns=_mean_per_call(found),
    )


def _mean_per_call(counted: Sequence[ProbedFunction] | Sequence[ProbedBranch]) -> float:
    calls = sum(one.calls for one in counted)
    return sum(one.total_ns for one in counted) / calls if calls else math.nan
