"""Which functions under study ran, in which scenario, how often and how long: what ``dtbench coverage`` says.

A function is *reached* when a line of its body ran in a launch that finished, as the interpreter's own tracing saw it.
Where no launch of a scenario was traced, its probe counts instead, and the row says so. What was entered only in
launches that failed is shown apart, with their message, and so is what no launch that finished traced or probed: nobody
knows whether that ran. Where lines and probes of one scenario disagree, the row says that, too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from dtbench.base.errors import StoreError
from dtbench.base.units import count_things, name_ranks
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.reading.copies import Marks, find_copies, mark, say_copy
from dtbench.runs.reading.run_data import read_launch_data
from dtbench.seeds.functions import FUNCTIONS, Reach, StudiedFunction, stem_of
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_first_start, read_launch, read_line_records, read_rank_records, read_run
from dtbench.store.records.place import Place
from dtbench.store.records.probes import LineRecord, ProbedFunction, Probes, TracedFunction, Unprobed
from dtbench.store.records.run import CellRecord, RunStatus, tell_reason_in_a_line
from dtbench.traces.account.probe_times import ProbeTime
from dtbench.traces.rows.tables import PROBES

_OURS = "dtbench."
_OF_OTHERS = "calls, and what was not reached, are of the other ranks"


class State(StrEnum):
    """How far a function was seen to come."""

    REACHED = "reached"
    RAISED = "entered, launch did not end well"
    NOT_REACHED = "not reached"
    NOT_WATCHED = "not watched"
    ABSENT = "not in this torch"


@dataclass(frozen=True)
class Evidence:
    """What one launch says.

    Attributes:
        scenario: its name, and the cell where there are several.
        finished: the launch is complete.
        message: why it is not; empty for one that is.
        lines: of every rank that was traced; () where it was not asked for.
        probes: of every rank that had probes.
        times: of probes in its traces, by label.
        folder: of the launch; None: nobody said.
        marks: by which copies of it are found.
        lost: what of it is not there, a clause each.
    """

    scenario: str
    finished: bool
    message: str = ""
    lines: tuple[LineRecord, ...] = ()
    probes: tuple[Probes, ...] = ()
    times: Mapping[str, ProbeTime] = field(default_factory=dict)
    folder: LaunchFolder | None = None
    marks: Marks = frozenset()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class CoveredFunction:
    """One function's row.

    Attributes:
        reach: its class; None: the list of functions under study does not have it, the installed torch does.
        reason: what drives it, or why nothing does; of one that is not in this torch, since when torch has it; of one
            that was not watched, why it has no probe, if a rank said so.
        scenarios: that reached it, the one with most calls first; its numbers are those below. Of a function that was
            only entered, those that entered it.
        confirmed: lines say so, not its probe alone.
        driven: somebody else than dtbench called it, or it is a public function, which dtbench may call as anybody.
        calls: over all ranks and launches of that scenario; from the probe, else from tracing; None: not watched.
        total_ns: None: it had no probe.
        time: in PROFILED steps; None: no trace shows it.
        branches: calls by branch.
        remarks: disagreements first, then other things to know, a clause each.
        disagreements: how many of them there are.
    """

    file: str
    name: str
    reach: Reach | None
    reason: str
    state: State
    scenarios: tuple[str, ...] = ()
    confirmed: bool = False
    driven: bool = False
    calls: int | None = None
    total_ns: int | None = None
    time: ProbeTime | None = None
    branches: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    disagreements: int = 0


@dataclass(frozen=True)
class FunctionCoverage:
    """All rows, and what is to be known about them; the cost of a probe is None where there was none."""

    functions: tuple[CoveredFunction, ...]
    cost_per_call_ns: int | None
    notes: tuple[str, ...]


@dataclass
class _Seen:
    """What one scenario's launches saw of one function."""

    traced: bool = False
    is_watched: bool = False
    lines: int = 0
    traced_calls: int = 0
    probed: list[ProbedFunction] = field(default_factory=list)
    time: ProbeTime | None = None
    miscounts: list[str] = field(default_factory=list)

    @property
    def probed_calls(self) -> int:
        return sum(one.calls for one in self.probed)

    @property
    def is_reached(self) -> bool:
        return self.lines > 0 if self.traced else self.probed_calls > 0

    def disagree(self, scenario: str) -> Iterator[str]:
        """Say where lines and probes contradict each other."""
        if self.traced and self.probed and self.probed_calls and not self.lines:
            calls = count_things(self.probed_calls, "call")
            yield f"in {scenario} its probe counted {calls}, and tracing saw no line run"
        if self.traced and self.probed and self.lines and not self.probed_calls:
            yield f"in {scenario} tracing saw lines run, and its probe counted no call"
        yield from self.miscounts


def read_evidence(path: Path) -> list[Evidence]:
    """Read what every launch of a run says that was asked for probes or lines.

    Raises:
        StoreError: this is no run, or its own record is broken or of another version.
    """
    run = read_run(path)
    return [
        _read_launch(
            Place(run.run_id, cell.name, index),
            RunFolder(path).launch(cell.name, index),
            cell,
            run.name if len(run.cells) == 1 else f"{run.name}:{cell.name}",
        )
        for cell in run.cells
        if isinstance(cell, CellRecord) and (cell.scenario.measure.probes or cell.scenario.measure.line_coverage)
        for index in cell.launches
    ]


def _read_launch(place: Place, folder: LaunchFolder, cell: CellRecord, scenario: str) -> Evidence:
    try:
        found = _read_whole_launch(place, folder, cell, scenario)
    except StoreError as error:
        found = Evidence(scenario, finished=False, message=str(error))
    started_unix_ns = None
    with suppress(StoreError):
        started_unix_ns = read_launch(folder).started_unix_ns
    marks = mark(read_first_start(folder), (place.cell, place.launch), started_unix_ns)
    return replace(found, folder=folder, marks=marks or frozenset([place]))


def _read_whole_launch(place: Place, folder: LaunchFolder, cell: CellRecord, scenario: str) -> Evidence:
    lines = read_line_records(folder)
    if not folder.launch.exists():
        return Evidence(scenario, finished=False, message="the launch did not end", lines=lines)
    launch = read_launch(folder)
    if launch.status is not RunStatus.COMPLETE:
        message = tell_reason_in_a_line(launch.reason or "nobody said why")
        return Evidence(scenario, finished=False, message=message, lines=lines)
    probes = {record.rank: seen for record in read_rank_records(folder) if (seen := record.extras.probes) is not None}
    times, untimed = (
        sum_probe_times(read_launch_data(place, folder, cell.plan.ranks), set(probes)) if probes else ({}, ())
    )
    asked, everyone = cell.scenario.measure, set(range(cell.plan.ranks))
    left = {
        "traced lines": everyone - {one.rank for one in lines} if asked.line_coverage else set(),
        "probes": everyone - set(probes) if asked.probes else set(),
    }
    lost = (
        *(f"{name_ranks(ranks)} left no {what}: {_OF_OTHERS}" for what, ranks in left.items() if ranks),
        *tell_lost_rows("traced lines", {one.rank: _name(one.functions) for one in lines}),
        *tell_lost_rows("probes", {rank: _name((*one.functions, *one.unprobed)) for rank, one in probes.items()}),
        *untimed,
    )
    return Evidence(scenario, finished=True, lines=lines, probes=tuple(probes.values()), times=times, lost=lost)


def _name(functions: Iterable[TracedFunction | ProbedFunction | Unprobed]) -> set[tuple[str, str]]:
    return {(one.file, one.name) for one in functions}


def tell_lost_rows(what: str, told: Mapping[int, AbstractSet[tuple[str, str]]]) -> Iterator[str]:
    """Say which ranks tell nothing of functions that other ranks of their launch tell of.

    Args:
        what: they should tell.
        told: functions of which each rank tells anything.
    """
    every = set().union(*told.values())
    lost = {rank: every - of_rank for rank, of_rank in told.items() if of_rank != every}
    if lost:
        count = count_things(len(set().union(*lost.values())), "function")
        yield f"{name_ranks(sorted(lost))} left no {what} of {count}: {_OF_OTHERS}"


def sum_probe_times(launch: LaunchData, probed: AbstractSet[int]) -> tuple[dict[str, ProbeTime], tuple[str, ...]]:
    """Sum the probes of a launch over ranks and PROFILED steps, by label.

    Of no label where the traces of some ranks tell none: a share of the others is none of all.

    Args:
        launch: whose traces tell them.
        probed: ranks that had probes.

    Returns:
        The sums, and why there are none, a clause.
    """
    rows = launch.find_table(PROBES.name)
    if len(rows) and (silent := set(probed) - set(rows["rank"])):
        return {}, (f"the traces of {name_ranks(silent)} tell no time of a probe: how much was exposed is not known",)
    sums = rows.groupby("function")[["calls", "total_ns", "exposed_ns"]].sum()
    labelled = zip(sums.index, sums.to_numpy(), strict=True)
    return {str(label): ProbeTime(*map(int, times)) for label, times in labelled}, ()


def cover(evidence: Sequence[Evidence]) -> FunctionCoverage:
    """Put the evidence of any launches together: a row for every function of the files under study."""
    evidence, copies = _leave_out_copies(evidence)
    listed = {(one.file, one.name): one for one in FUNCTIONS}
    found = {(one.file, one.name): None for record in _all_lines(evidence) for one in record.functions}
    keys = [*listed, *(key for key in found if key not in listed)]
    absent = _find_absent(evidence, listed)
    rows = tuple(_cover_one(key, listed.get(key), evidence, absent.get(key)) for key in keys)
    costs = [probes.cost_per_call_ns for one in evidence for probes in one.probes]
    return FunctionCoverage(rows, max(costs, default=None), (*_note(evidence, rows), *copies))


def _leave_out_copies(evidence: Sequence[Evidence]) -> tuple[list[Evidence], list[str]]:
    """Return each launch once, and for its copies a sentence."""
    copies = find_copies(one.marks for one in evidence)
    pairs = ((evidence[at].folder, evidence[first].folder) for at, first in copies.items())
    said = [say_copy(copy, original) for copy, original in pairs if copy is not None and original is not None]
    return [one for at, one in enumerate(evidence) if at not in copies], said


def _find_absent(
    evidence: Sequence[Evidence], listed: Mapping[tuple[str, str], StudiedFunction]
) -> dict[tuple[str, str], str]:
    """Find what no launch's torch has, and why not.

    Tracing lists every function of the files, probes say which are not there.
    """
    probes = [record for one in evidence for record in one.probes]
    found = {(one.file, one.name): one.reason for record in probes for one in record.unprobed if one.is_absent}
    there = {(one.file, one.name) for record in probes for one in record.functions}
    for record in _all_lines(evidence):
        there |= {(one.file, one.name) for one in record.functions}
        found |= {key: one.tell_absence(record.torch) for key, one in listed.items()}
    return {key: reason for key, reason in found.items() if key not in there}


def _all_lines(evidence: Iterable[Evidence]) -> Iterator[LineRecord]:
    for one in evidence:
        yield from one.lines


def _note(evidence: Sequence[Evidence], rows: Sequence[CoveredFunction]) -> Iterator[str]:
    unlisted = [f"{stem_of(row.file)}.{row.name}" for row in rows if row.reach is None]
    if unlisted:
        yield f"the installed torch has functions that are not listed: {', '.join(unlisted)}"
    if not any(one.lines for one in evidence):
        yield "no launch was traced (measure.line_coverage): the probes' word is not confirmed"
    for one in evidence:
        if not one.finished:
            yield f"a launch of {one.scenario} did not finish: {one.message}"
        for words in one.lost:
            yield f"in {one.scenario} {words}"


def _cover_one(
    key: tuple[str, str], listed: StudiedFunction | None, evidence: Sequence[Evidence], absence: str | None
) -> CoveredFunction:
    """Put together what launches saw of one function; ``absence``: why no launch's torch has it, None: one has."""
    seen = _gather(key, evidence)
    reached = sorted((name for name, one in seen.items() if one.is_reached), key=lambda name: -_calls(seen[name]))
    entered = {
        one.scenario: one.message
        for one in evidence
        if not one.finished and any(function.lines for function in _traced(key, one))
    }
    is_watched = any(one.is_watched for one in seen.values())
    unprobed = None if is_watched else _find_reason(key, evidence)
    row = CoveredFunction(
        file=key[0],
        name=key[1],
        reach=None if listed is None else listed.reach,
        reason=absence or unprobed or ("" if listed is None else listed.reason),
        state=_find_state(
            is_reached=bool(reached), is_entered=bool(entered), is_absent=absence is not None, is_watched=is_watched
        ),
        scenarios=tuple(reached or entered),
        calls=0 if is_watched else None,
    )
    disagreements = [words for name, one in seen.items() for words in one.disagree(name)]
    remarks = [*disagreements, *([] if reached else dict.fromkeys(entered.values()))]
    filled = _fill(row, seen[reached[0]]) if reached else row
    remarks += _describe(filled, [function for one in seen.values() for function in one.probed])
    return _with_remarks(filled, remarks, len(disagreements))


def _find_reason(key: tuple[str, str], evidence: Sequence[Evidence]) -> str | None:
    """Find why a function has no probe."""
    unprobed = (function for one in evidence for record in one.probes for function in record.unprobed)
    return next((one.reason for one in unprobed if (one.file, one.name) == key), None)


def _find_state(*, is_reached: bool, is_entered: bool, is_absent: bool, is_watched: bool) -> State:
    if is_reached:
        return State.REACHED
    if is_entered:
        return State.RAISED
    if is_absent:
        return State.ABSENT
    return State.NOT_REACHED if is_watched else State.NOT_WATCHED


def _with_remarks(row: CoveredFunction, remarks: Sequence[str], disagreements: int) -> CoveredFunction:
    return replace(row, remarks=tuple(remarks), disagreements=disagreements)


def _fill(row: CoveredFunction, seen: _Seen) -> CoveredFunction:
    branches: dict[str, int] = defaultdict(int)
    for one in seen.probed:
        for branch in one.branches:
            branches[branch.name] += branch.calls
    return replace(
        row,
        confirmed=seen.lines > 0,
        driven=_is_driven(row.name, seen.probed),
        calls=_calls(seen),
        total_ns=sum(one.total_ns for one in seen.probed) if seen.probed else None,
        time=seen.time,
        branches=dict(branches),
    )


def _describe(row: CoveredFunction, probed: Sequence[ProbedFunction]) -> Iterator[str]:
    if row.state is State.REACHED and not row.driven and row.reach is Reach.DRIVEN:
        yield "only dtbench's own code called it"
    raised = sum(one.raised for one in probed)
    if raised:
        first = next(one.first_error for one in probed if one.first_error is not None)
        yield f"{count_things(raised, 'call')} raised: {first}"
    if row.state is State.REACHED and not row.confirmed:
        yield "not confirmed by lines"


def _is_driven(name: str, probed: Sequence[ProbedFunction]) -> bool:
    """Tell whether torch or a person called it; without a probe nobody knows, and torch is taken for the caller."""
    last = name.removesuffix(".setter").rpartition(".")[2]
    if not probed or not last.startswith("_") or (last.startswith("__") and last.endswith("__")):
        return True
    return any(not caller.startswith(_OURS) for one in probed for caller in one.callers)


def _calls(seen: _Seen) -> int:
    return seen.probed_calls if seen.probed else seen.traced_calls


def _traced(key: tuple[str, str], evidence: Evidence) -> Iterator[TracedFunction]:
    for record in evidence.lines:
        yield from (one for one in record.functions if (one.file, one.name) == key)


def _probed(key: tuple[str, str], evidence: Evidence) -> Iterator[ProbedFunction]:
    for record in evidence.probes:
        yield from (one for one in record.functions if (one.file, one.name) == key)


def _gather(key: tuple[str, str], evidence: Sequence[Evidence]) -> dict[str, _Seen]:
    """Return what launches that finished saw of a function, by scenario."""
    found: dict[str, _Seen] = {}
    for one in evidence:
        if not one.finished:
            continue
        seen = found.setdefault(one.scenario, _Seen())
        traced, probed = list(_traced(key, one)), list(_probed(key, one))
        seen.traced = seen.traced or bool(one.lines)
        seen.is_watched = seen.is_watched or bool(traced or probed)
        seen.lines += sum(len(function.lines) for function in traced)
        seen.traced_calls += sum(function.calls for function in traced)
        seen.probed += probed
        if len(traced) == len(probed):
            seen.miscounts += _compare_counts(one.scenario, traced, probed)
        time = one.times.get(f"{stem_of(key[0])}.{key[1]}")
        if time is not None:
            seen.time = time if seen.time is None else seen.time + time
    return found


def _compare_counts(scenario: str, traced: Sequence[TracedFunction], probed: Sequence[ProbedFunction]) -> Iterator[str]:
    """Compare calls of ranks that were traced and probed in one launch."""
    for one, other in zip(traced, probed, strict=True):
        if not other.calls - _count_of_dynamo(other) <= one.calls <= other.calls:
            yield f"in {scenario} tracing counted {count_things(one.calls, 'call')} and its probe {other.calls}"
            return


def _count_of_dynamo(probed: ProbedFunction) -> int:
    """Count calls that tracing may miss: Dynamo looks at frames from inside the interpreter, a tracer's among them.

    Seen with torch 2.13 on Python 3.11: of three calls of ``_get_active_ddp_module``, all by Dynamo, two.
    """
    return sum(calls for caller, calls in probed.callers.items() if caller.startswith("torch._dynamo."))
