"""What a person should know before believing a cell's numbers: what is missing, what differs, what others disturbed."""

import math
from collections.abc import Iterator, Sequence

from dtbench.analyze.cell_data import CellData, LaunchData
from dtbench.analyze.summary import Interval
from dtbench.analyze.undisturbed import describe_left_out, find_disturbance
from dtbench.disturbance import DISTURBED
from dtbench.store.records import RunStatus, tell_reason_in_a_line
from dtbench.units import format_fraction

_AGAIN = "run it again before you believe a small difference"


def give_notes(data: CellData, profiler_cost: Interval) -> list[str]:
    """Give the notes of its traces, of its ranks' records, and of the machine.

    Args:
        data: what the cell wrote.
        profiler_cost: PROFILED over MEASURED step times.
    """
    left_out = [f"launch{index} is left out: {sentence}" for index, sentence in data.unreadable.items()]
    return [*left_out, *_launch_notes(data.launches), *_record_notes(data), *_load_notes(profiler_cost)]


def _launch_notes(launches: Sequence[LaunchData]) -> list[str]:
    notes = [
        f"{launch.folder.path.name}: {note}" if len(launches) > 1 else note
        for launch in launches
        for note in launch.tables.notes
    ]
    if not any(len(launch.tables.overlap) for launch in launches):
        notes.append("no PROFILED step was traced: overlap is not known")
    return notes


def _record_notes(data: CellData) -> list[str]:
    """Say what the ranks' records lack or disagree about, and what a launch that completed had to say."""
    notes = []
    for launch in data.launches:
        name = launch.folder.path.name
        if launch.record is not None and launch.record.status is RunStatus.COMPLETE:
            absent = sorted(set(range(data.cell.plan.ranks)) - {record.rank for record in launch.ranks})
            notes += [f"{name}: the record of rank {rank} is missing, its checks are lost" for rank in absent]
            if launch.record.reason is not None:
                notes.append(f"{name}: every result was written, but {tell_reason_in_a_line(launch.record.reason)}")
        unstable = [record.rank for record in launch.ranks if not record.traffic_is_stable]
        notes += [f"{name}: rank {rank} issued different collectives in different MEASURED steps" for rank in unstable]
        lost = [record.rank for record in launch.ranks if any(math.isnan(loss) for loss in record.losses)]
        notes += [f"{name}: the loss of rank {rank} became NaN: the model does not train" for rank in lost]
        notes += [f"{name}: {note}" for note in _disturbance_notes(launch)]
    return notes


def _disturbance_notes(launch: LaunchData) -> Iterator[str]:
    """Say what other guests of the machine had of it, and which steps are left out for it."""
    stolen = max((record.stolen_fraction or 0.0 for record in launch.ranks), default=0.0)
    if stolen >= DISTURBED:
        yield f"other guests of the machine had {format_fraction(stolen)} of its cores; {_AGAIN}"
    if launch.left_out:
        kept = find_disturbance(launch.steps)
        rest = f", and {format_fraction(kept)} in those that are kept" if kept >= DISTURBED else ""
        yield f"{describe_left_out(launch.left_out)}{rest}"


def _load_notes(profiler_cost: Interval) -> list[str]:
    """Say when the machine changed between phases: a profiler never makes steps faster."""
    if not profiler_cost.high < 1:
        return []
    return ["PROFILED steps were faster than MEASURED ones: the machine's load changed between the phases"]
