"""A number of a cell's summary by its name (``dtbench.scenario.checks.values``); NaN where nobody knows it."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from dtbench.base.vocabulary import Cause, Estimate, Purpose
from dtbench.runs.summary import CellSummary
from dtbench.scenario.checks.values import Quantity, ValueName
from dtbench.seeds.functions import list_branches
from dtbench.traces.known_part import KnownPart

_OF_STATE: Final = ("stages", "state_steps")


def find_number(cell: CellSummary, name: ValueName) -> float:
    """Return a number, ns and bytes as they are.

    What a profiled cell did not do is 0 (an all-gather under DDP); what nobody saw is NaN, also an owner who left
    nothing exposed: a name with a slip in it must not read 0. So is a time of a training state's stages, and of steps
    around them, where others had the cores.
    """
    is_timed = name.quantity is Quantity.TIME and name.path[-1] != "link_ns"  # which is what a formula says
    is_of_state = is_timed and name.path[0] in _OF_STATE
    return math.nan if is_of_state and cell.is_state_disturbed else _find(cell, name)


def _find(cell: CellSummary, name: ValueName) -> float:
    group, *path = name.path
    match path:
        case [purpose, "causes", cause, _]:
            return exposed_by_cause(cell, Cause(cause), Purpose(purpose))
        case [cause, _] if group == "causes":
            return exposed_by_cause(cell, Cause(cause), None)
        case [part, stage, field] if group == "stages":
            return _find_of_stage(cell, part, stage, field)
        case [label, branch, field]:
            return _find_of_probe(cell, label, branch, field)
        case [member, field]:
            return _find_of_member(cell, group, member, field)
        case _:
            return _walk(cell, name.path)


def find_part(cell: CellSummary, name: ValueName) -> KnownPart | None:
    """Return over what a number is a mean, where it is not known of all; None: it is, or of nothing."""
    match name.path:
        case ["purposes", purpose, "causes", *_]:
            return find_part_of_causes(cell, Purpose(purpose))
        case ["causes", *_]:
            return find_part_of_causes(cell, None)
        case ["exposure", member, *_]:
            return _find_part_of_exposure(cell, member)
        case ["stages" | "state_steps", *path]:
            return _find_part_of_state(cell, path)
        case ["purposes" | "owners" | "ranks" | "gradient_waits" as group, member, field]:
            return _find_part_of_member(cell, group, member, field)
        case _:
            return _find_part_of_field(cell, name.path[0])


def leaves_out_unseen(cell: CellSummary, name: ValueName) -> bool:
    """Tell whether a number leaves out collectives that were launched and that nobody saw run."""
    if not cell.is_least or name.path[-1] in ("step_ns", "compute_ns"):
        return False
    return name.path[0] in _OF_COLLECTIVES or name.path[:2] == ("exposure", Estimate.TRACE)


def why_least(cell: CellSummary, name: ValueName) -> str | None:
    """Say why a number is a wait that may have been longer; None: it is as long as this, or no wait."""
    match name.path:
        case ["purposes", purpose, "wait_ns"]:
            return next((one.why_wait_least for one in cell.purposes if one.purpose == purpose), None)
        case _:
            return None


_OF_COLLECTIVES: Final = ("hidden_fraction", "exposed_step_fraction", "purposes", "causes", "owners", "ranks")
"""First parts of the names of what is read off the collectives of traces."""


def _find_part_of_field(cell: CellSummary, field: str) -> KnownPart | None:
    match field:
        case "hidden_fraction" | "exposed_step_fraction":
            return cell.part
        case "step_time" | "profiler_cost" | "tokens_per_second" | "model_flops_utilization":
            return cell.timed_part
        case "memory":
            return cell.records_part
        case "time_to_first_step_ns":
            return cell.first_step_part
        case "compilation":
            return cell.compilation_part
        case _:
            return None


def _find_part_of_exposure(cell: CellSummary, member: str) -> KnownPart | None:
    if cell.exposure is None:
        return None
    if member in ("serial_ns", "overlapped_ns"):
        return cell.exposure.gain_part
    return next((one.part for one in cell.exposure.rows[0].estimates if one.estimate == member), None)


def _find_part_of_state(cell: CellSummary, path: Sequence[str]) -> KnownPart | None:
    rows = [row for row in cell.stages if [row.part, row.stage] == path[:2]] if len(path) > 1 else [cell.state_steps]
    return next((row.known_part for row in rows if row is not None), None)


def find_part_of_causes(cell: CellSummary, purpose: Purpose | None) -> KnownPart | None:
    """Return the same of what causes explain of a purpose's (None: of all) exposed communication."""
    of_owners = (row.part for row in cell.owners if row.part and purpose in (None, row.purpose))
    return next(of_owners, cell.part)


def _find_part_of_member(cell: CellSummary, group: str, member: str, field: str) -> KnownPart | None:
    if group == "owners":
        return next((row.part for row in cell.owners if row.owner == member), cell.part)
    if group == "ranks":
        return next((row.part for row in cell.ranks if str(row.rank) == member), cell.part)
    if group == "gradient_waits":
        return next((row.part for row in cell.gradient_waits if row.parameter == member), None)
    is_time = field in ("comm_ns", "hidden_ns", "exposed_ns", "hidden_fraction")
    rows = (row for row in cell.purposes if row.purpose == member)
    return next((row.wait_part if field == "wait_ns" else row.part if is_time else None for row in rows), None)


def _find_of_member(cell: CellSummary, group: str, member: str, field: str) -> float:
    """Return a number of one member of a list, or of all of them together."""
    match group:
        case "purposes":
            return _find_of_purpose(cell, member, field)
        case "owners":
            of_owner = [row for row in cell.owners if row.owner == member]
            rows = [row.exposed_ns for row in of_owner] if len({row.part for row in of_owner}) == 1 else []
            return sum(rows) if rows else math.nan
        case "gradient_waits":
            waits = [getattr(row, field) for row in cell.gradient_waits if row.parameter == member]
            return waits[0] if waits and waits[0] is not None else math.nan
        case "ranks":
            rows = [getattr(row, field) for row in cell.ranks if member in ("mean", str(row.rank))]
            return fmean(rows) if rows and None not in rows else math.nan
        case _:
            return _find_estimate(cell, member)


def exposed_by_cause(cell: CellSummary, cause: Cause, purpose: Purpose | None) -> float:
    """Return what a cause explains of a purpose's (None: of all) exposed communication, ns per step and rank."""
    if not cell.ranks or (not cell.owners and any(row.exposed_comm_ns for row in cell.ranks)):
        return math.nan  # no step was profiled, or nobody could say whose it was
    rows = [row for row in cell.owners if purpose in (None, row.purpose)]
    if cell.unknown_owners or len({row.part for row in rows}) > 1:
        return math.nan  # some of it is known of no step, or of others
    return sum(row.exposed_ns for row in rows if row.cause is cause)


def _find_of_purpose(cell: CellSummary, purpose: str, field: str) -> float:
    if not cell.ranks or (not cell.purposes and any(row.comm_ns for row in cell.ranks)):
        return math.nan  # no step was profiled, or nobody could say what for
    rows = [row for row in cell.purposes if row.purpose == purpose]
    if rows:
        number = getattr(rows[0], field)
        return math.nan if number is None else float(number)
    return math.nan if field == "hidden_fraction" else 0


def _find_estimate(cell: CellSummary, estimate: str) -> float:
    rows = cell.exposure.rows[:1] if cell.exposure is not None else ()
    return next((one.mean_ns for row in rows for one in row.estimates if one.estimate == estimate), math.nan)


def _find_of_stage(cell: CellSummary, part: str, stage: str, field: str) -> float:
    rows = [row for row in cell.stages if (row.part, row.stage) == (part, stage)]
    found = getattr(rows[0], field) if rows else None
    return math.nan if found is None else float(found)


def _find_of_probe(cell: CellSummary, label: str, branch: str, field: str) -> float:
    probe = next((one for one in cell.probes if one.label == label), None)
    if probe is None:
        return math.nan
    if not branch:
        return float(getattr(probe, field))
    taken = next((one for one in probe.branches if one.name == branch), None)
    if taken is None:
        is_told = branch in list_branches(label) and bool(probe.branches or not probe.most_calls)
        return 0 if is_told and field in ("calls", "most_calls") else math.nan
    return float(getattr(taken, field, math.nan))


def _walk(cell: CellSummary, path: tuple[str, ...]) -> float:
    """Follow fields from record to record; None on the way is not known."""
    found: object = cell
    for field in path:
        if found is None:
            break
        found = getattr(found, field)
    return float(found) if isinstance(found, int | float) else math.nan
