"""What identifies a run, read a thousand times faster than the whole record: for tables over many runs.

Only what such a table shows is decoded and held against its type; ``read.read_run`` checks every field.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from dtbench.base.errors import StoreError
from dtbench.base.units import name_ranks
from dtbench.plan.rules.machine import MOST_RANKS
from dtbench.scenario.flat_fields import NOT_MEASURED, flatten_fields
from dtbench.scenario.mistakes import join_words
from dtbench.store.layout import LaunchFolder, RunFolder, can_name_cell
from dtbench.store.links import refuse_links
from dtbench.store.records.run import FORMAT_VERSION, RANK_FORMAT_VERSION, RunStatus

_MOST_NAMED = 4

RESULTS_DIFFER: Final = "its results differ from those of a single process"
STATE_DIFFERS: Final = "its training state is not what it should be"
WAIT_MISSING: Final = "it reads a collective's result before it is done"
"""What may be wrong with what a cell computed, as clauses."""


class PlanOutline(msgspec.Struct, frozen=True):
    """What a cell's launches must have; ``kind`` is that of an own loop, empty for a plan."""

    ranks: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    measured_steps: int
    profiled_steps: int
    kind: str = ""


class _CorrectnessOutline(msgspec.Struct, frozen=True):
    enabled: bool = True
    canary: bool | None = None


class _NetworkOutline(msgspec.Struct, frozen=True):
    kind: str = ""


class ScenarioOutline(msgspec.Struct, frozen=True):
    """What a scenario has looked at of what its ranks compute."""

    correctness: _CorrectnessOutline = _CorrectnessOutline()
    network: _NetworkOutline | None = None

    @property
    def wants_canary(self) -> bool:
        """As ``Scenario.wants_canary``."""
        is_emulated = self.network is not None and self.network.kind == "emulated"
        asked = self.correctness.canary
        return self.correctness.enabled and is_emulated if asked is None else asked


class CellOutline(msgspec.Struct, frozen=True):
    """A cell: its name, launches by index, plan, value on each axis of a matrix, scenario (None: of an own loop)."""

    name: str
    launches: tuple[int, ...]
    plan: PlanOutline
    coordinates: dict[str, str] = {}
    scenario: dict[str, object] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """Its scenario's fields by their dotted names, as text, as far as they change what is measured."""
        given = self.scenario or {}
        return flatten_fields({name: value for name, value in given.items() if name not in NOT_MEASURED})

    def say_unchecked(self, seen: "SeenResults") -> Iterator[str]:
        """Say what of the results its scenario has looked at and no rank, or not every rank, tells."""
        if self.scenario is None:
            return
        asked = msgspec.convert(self.scenario, ScenarioOutline)
        if asked.correctness.enabled and not seen.is_compared and len(seen.silent) < self.plan.ranks:
            yield "no result of the check against a single process, which its scenario asks for"
        if asked.wants_canary and seen.without_canary and not seen.has_odd_stage:
            says = "says" if len(seen.without_canary) == 1 else "say"
            yield f"{name_ranks(seen.without_canary)} {says} nothing of the canary"


class RunOutline(msgspec.Struct, frozen=True):
    """A run as its ``run.json`` says it; ``name`` is the scenario's."""

    format_version: int
    name: str
    run_id: str
    status: RunStatus
    cells: tuple[CellOutline, ...]


class _LaunchOutline(msgspec.Struct, frozen=True):
    format_version: int
    cell: str
    index: int
    status: RunStatus
    started_unix_ns: int
    reason: str | None


class _Checked(msgspec.Struct, frozen=True):
    passed: bool | None = None


class _StageOutline(msgspec.Struct, frozen=True):
    mismatched: int | str | None = None
    raised: str | None = None


class _StepsOutline(msgspec.Struct, frozen=True):
    mismatched: int = 0


class _StateOutline(msgspec.Struct, frozen=True):
    stages: tuple[_StageOutline, ...] = ()
    steps: _StepsOutline | None = None


class _ExtrasOutline(msgspec.Struct, frozen=True):
    canary: _Checked | None = None
    state_dict: _StateOutline | None = None


class _RankOutline(msgspec.Struct, frozen=True):
    """``canary``, ``stages``, ``state_steps``: of format 1, which had them among all else; ``extras``: of later."""

    format_version: int = FORMAT_VERSION
    correctness: _Checked | None = None
    canary: _Checked | None = None
    stages: tuple[_StageOutline, ...] = ()
    state_steps: _StepsOutline | None = None
    extras: _ExtrasOutline = _ExtrasOutline()


_O = TypeVar("_O", RunOutline, _LaunchOutline, _RankOutline)


def find_runs_below(folder: Path) -> list[Path]:
    """Return the folders of runs: the folder itself, else those in it and one below, in order of their names.

    What cannot be looked into, as a folder of somebody else, holds none.
    """
    if _is_run(folder):
        return [folder]
    return [run for path in _list(folder) for run in ([path] if _is_run(path) else filter(_is_run, _list(path)))]


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_run(path: Path) -> bool:
    folder = RunFolder(path)
    try:
        return folder.run.is_file() or folder.scenario.is_file()
    except OSError:
        return False


def read_outline(path: Path) -> RunOutline:
    """Read what identifies the run in a folder.

    Raises:
        StoreError: there is no ``run.json``, it is broken, another version wrote it, or there is a link in the folder.
    """
    refuse_links(path)
    file = RunFolder(path).run
    outline = _read(file, RunOutline)
    refuse_odd_cells(file, {cell.name: cell.launches for cell in outline.cells}, len(outline.cells))
    return outline


def refuse_odd_cells(file: Path, launches: Mapping[str, Sequence[int]], cells: int) -> None:
    """Refuse a run whose cells cannot be those that dtbench wrote: they would lead out of its folder, or be one.

    Args:
        file: that lists them.
        launches: indices by the name of the cell.
        cells: how many are listed.

    Raises:
        StoreError: a name is no name of a folder or occurs twice, or a launch does.
    """
    for name, indices in launches.items():
        if not can_name_cell(name):
            raise StoreError(f"{file}: `{name}` is no name of a cell's folder; was it edited?")
        if not indices or len(set(indices)) < len(indices) or min(indices) < 0:
            raise StoreError(f"{file}: the launches of `{name}` are not told apart by numbers from 0; was it edited?")
    if len(launches) < cells:
        raise StoreError(f"{file}: two cells have one name; was it edited?")


def find_unlisted(path: Path, launches: Mapping[str, Sequence[int]]) -> tuple[LaunchFolder, ...]:
    """Return the launches that lie in a run's folder and that it does not list: nothing of them is in any number.

    A copy may be called anything: every folder of a cell is taken for one, but hidden ones and a cell's reference.

    Args:
        path: folder of the run.
        launches: those that it lists, by the name of the cell.
    """
    run = RunFolder(path)
    listed = {run.launch(name, index).path for name, indices in launches.items() for index in indices}
    listed |= {run.reference(name).path for name in launches}
    there = (one for one in sorted(path.glob("cells/*/*")) if one not in listed and not one.name.startswith("."))
    return tuple(LaunchFolder(one) for one in there if one.is_dir())


def say_unlisted(path: Path, unlisted: Sequence[LaunchFolder]) -> tuple[str, ...]:
    """Say which launches are left out as their run does not list them; nothing where it lists all."""
    if not unlisted:
        return ()
    names = [one.path.relative_to(path).as_posix() for one in unlisted]
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    named = join_words([*names[:_MOST_NAMED], *more], last="and")
    where = f"in its folder and not in its {RunFolder(path).run.name}"
    told = f"is {where}; was it copied there?" if len(names) == 1 else f"are {where}; were they copied there?"
    return (f"{path}: nothing is told of {named}: {'it' if len(names) == 1 else 'they'} {told}",)


def refuse_strange_launch(file: Path, folder: LaunchFolder, cell: str, index: int) -> None:
    """Refuse a record that is of another launch than the folder it lies in; a folder in no run tells of none.

    Raises:
        StoreError: says of which launch it is.
    """
    here = folder.cell_and_index
    if here is not None and here != (cell, index):
        told = f"is of cell {cell}, launch {index}, and lies in cell {here[0]}, launch {here[1]}"
        raise StoreError(f"{file}: {told}; was it copied here?")


def refuse_incomplete(folder: LaunchFolder) -> None:
    """Return if a launch is complete, as its record says.

    Raises:
        StoreError: it is not, or its record is broken, of another launch or of another version.
    """
    outline = _read(folder.launch, _LaunchOutline)
    refuse_strange_launch(folder.launch, folder, outline.cell, outline.index)
    if outline.status is not RunStatus.COMPLETE:
        raise StoreError(f"{folder.path}: the launch is {outline.status.value}: {outline.reason or 'nobody said why'}")


@dataclass(frozen=True)
class SeenResults:
    """What ranks say of what they computed, where none says that it is wrong.

    Attributes:
        silent: ranks that left no record.
        without_canary: ranks whose record has no canary.
        is_compared: some record says how results compare to a single process's.
        has_odd_stage: a stage of a training state raised on some rank, or came out other than it went in.
    """

    silent: Sequence[int]
    without_canary: Sequence[int]
    is_compared: bool
    has_odd_stage: bool


def refuse_wrong_results(folder: LaunchFolder, ranks: int) -> SeenResults:
    """Return what the ranks of a launch say of what they computed, if none says that it is other than it should be.

    Raises:
        StoreError: one says so, or is broken.
    """
    silent: list[int] = []
    without_canary: list[int] = []
    is_compared = has_odd_stage = False
    for rank in range(ranks):
        file = folder.rank_record(rank)
        if not file.exists():
            silent.append(rank)
            continue
        found = _read(file, _RankOutline)
        if found.correctness is not None and found.correctness.passed is False:
            raise StoreError(f"{folder.path}: {RESULTS_DIFFER}")
        canary = found.canary or found.extras.canary
        if canary is not None and canary.passed is False:
            raise StoreError(f"{folder.path}: {WAIT_MISSING}")
        is_compared |= found.correctness is not None
        without_canary += [] if canary is not None else [rank]
        state = found.extras.state_dict or _StateOutline(found.stages, found.state_steps)
        if state.steps is not None and state.steps.mismatched:
            raise StoreError(f"{folder.path}: {STATE_DIFFERS}")
        has_odd_stage |= any(one.raised is not None or _is_some(one.mismatched) for one in state.stages)
    return SeenResults(silent, without_canary, is_compared, has_odd_stage)


def _is_some(mismatched: int | str | None) -> bool:
    """Tell whether keys are said to be wrong; the word NaN says that nothing was compared."""
    return isinstance(mismatched, int) and mismatched > 0


def _read(path: Path, outline: type[_O]) -> _O:
    try:
        read = msgspec.json.decode(path.read_bytes(), type=outline)
    except FileNotFoundError as error:
        raise StoreError(f"{path.parent}: not finished, there is no {path.name}") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: broken ({error}); was it edited or cut short?") from error
    newest = RANK_FORMAT_VERSION if outline is _RankOutline else FORMAT_VERSION
    if not FORMAT_VERSION <= read.format_version <= newest:
        raise StoreError(f"{path}: written in format {read.format_version}, this dtbench reads {newest}")
    return read
