"""What the extras of the worker found out on the ranks of a cell, each put together in its own way."""

from typing import TypedDict

from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.summarize_probes import summarize_probes
from dtbench.runs.cell.summarize_stages import summarize_stages
from dtbench.runs.cell.summarize_state_steps import summarize_state_steps
from dtbench.runs.cell.worst_ranks import most_state_taken, worst_canary
from dtbench.runs.exposure.summarize import LaunchExposure, summarize_exposure
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.stage_summary import StageSummary, StateStepsSummary
from dtbench.runs.summary import ExposureSummary, ProbeSummary
from dtbench.store.records.canary import CanaryResult


class ExtrasOfCell(TypedDict):
    """The fields of ``CellSummary`` that are of extras."""

    exposure: ExposureSummary | None
    probes: tuple[ProbeSummary, ...]
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
    launches = [launch.ranks for launch in data.launches]
    ranks = [record for records in launches for record in records]
    return ExtrasOfCell(
        exposure=_summarize_exposure(data, profiler_low),
        probes=summarize_probes([probes for record in ranks if (probes := record.extras.probes) is not None]),
        canary=worst_canary(ranks),
        stages=summarize_stages(launches, _plan_stages(data)),
        state_steps=summarize_state_steps(launches),
        state_taken_fraction=most_state_taken(ranks),
    )


def _plan_stages(data: CellData) -> StagePlan:
    cell = data.cell
    environment = next((launch.environment for launch in data.launches if launch.environment is not None), None)
    return StagePlan(
        cell.scenario,
        cell.plan.mesh if cell.scenario else (),
        cell.plan.device,
        None if environment is None else environment.torch,
    )


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
    return summarize_exposure(asked, launches, data.cell.plan.device, profiler_low)
