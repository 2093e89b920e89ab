"""What a run wrote, as it is read back once: the files of its cells' launches, and the tables made of their traces.

Everything that tells a number of a run gets these values; steps that others disturbed are apart in them already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd

from dtbench.base.errors import StoreError
from dtbench.base.units import count_things
from dtbench.base.vocabulary import DeviceKind
from dtbench.runs.reading.gains import GAINS, LaunchGains
from dtbench.runs.reading.undisturbed import IS_LEFT_OUT, LeftOut
from dtbench.scenario.flat_fields import NOT_MEASURED, flatten_fields
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.place import Place
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import CellRecord, Environment, LaunchRecord, OwnLoopCell, RunRecord
from dtbench.traces.rows.launch_tables import LaunchTables

STEPS_NAME: Final = "steps"
"""What the table of timed steps is called among those of the traces."""


@dataclass(frozen=True)
class LaunchData:
    """Everything that one launch wrote, less the steps that others disturbed, which are apart.

    Attributes:
        record: None for a launch that did not end.
        environment: of rank 0; None where it wrote none.
        steps: columns as in the table ``steps``.
        left_out: numbers of the steps that ``steps`` and ``tables`` lack.
        left_out_rows: their rows by the table's name, ``steps`` among them; none where no step is left out.
        gains: what a replay says that no remedy can gain more than; None: it was not asked.
    """

    place: Place
    folder: LaunchFolder
    record: LaunchRecord | None
    environment: Environment | None
    ranks: tuple[RankRecord, ...]
    steps: pd.DataFrame
    tables: LaunchTables
    left_out: LeftOut = field(default_factory=dict)
    left_out_rows: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    gains: LaunchGains | None = None

    def find_table(self, name: str) -> pd.DataFrame:
        """Return a table by its name, that of the timed steps and that of a replay among them."""
        if name == GAINS.name:
            return GAINS.tabulate(None) if self.gains is None else self.gains.rows
        return self.steps if name == STEPS_NAME else self.tables.tables[name]

    @property
    def first_start_ns(self) -> int | None:
        """When the first step of all ranks started, by the clock of its machine; None: no step was timed."""
        starts_ns = self.all_steps["start_ns"]
        return int(starts_ns.min()) if len(starts_ns) else None

    @property
    def all_steps(self) -> pd.DataFrame:
        """Every timed step in its order; the column ``is_left_out`` tells which ones ``steps`` lacks."""
        return self.find_all_rows(STEPS_NAME)

    def find_all_rows(self, name: str) -> pd.DataFrame:
        """Return every row of a table in its order; the column ``is_left_out`` tells which ones the table lacks."""
        kept, others = self.find_table(name), self.find_left_out_rows(name)
        every = pd.concat([kept, others]).sort_index(kind="stable") if len(others) else kept
        return every.assign(**{IS_LEFT_OUT: every.index.isin(others.index)})

    def find_left_out_rows(self, name: str) -> pd.DataFrame:
        """Return the rows that a table lacks."""
        return self.left_out_rows.get(name, self.find_table(name)[:0])


@dataclass(frozen=True)
class CellData:
    """Everything that one cell wrote, as far as it can be read.

    Attributes:
        cell: its ``launches`` are those that can be read.
        run_is_incomplete: the run never said how it ended.
        launches: in the order of ``cell.launches``.
        unreadable: by index, what is wrong with each further launch, naming its file; a copy of another is none.
    """

    cell: CellRecord | OwnLoopCell
    run_is_incomplete: bool
    launches: tuple[LaunchData, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Fields of its scenario by their dotted names, as text; of a person's own loop, what it says of itself."""
        if isinstance(self.cell, OwnLoopCell):
            return flatten_fields(self.cell.plan.model_dump(mode="json", exclude={"kind", "notes"}))
        return flatten_fields(self.cell.scenario.model_dump(mode="json", exclude=set(NOT_MEASURED)))


@dataclass(frozen=True)
class RunData:
    """Everything that a run wrote, as far as it can be read.

    Attributes:
        environment: None where none can be read.
        unlisted: launches in its folder that it does not list, of its ``cells`` or of no cell that it has.
    """

    path: Path
    record: RunRecord
    environment: Environment | None
    cells: tuple[CellData, ...]
    unlisted: tuple[LaunchFolder, ...] = ()

    @property
    def launches(self) -> tuple[LaunchData, ...]:
        """Those of all cells."""
        return tuple(launch for data in self.cells for launch in data.launches)

    @property
    def device(self) -> str:
        """What the run computed on, for its reports and for the peak of its devices."""
        if self.environment is None:
            return "unknown"
        if self.environment.devices and any(cell.plan.device == DeviceKind.CUDA for cell in self.record.cells):
            return f"{len(self.environment.devices)} x {self.environment.devices[0].name}"
        return f"{self.environment.processor}, {count_things(self.environment.cores, 'core')}"

    def refuse_nothing(self) -> None:
        """Return if a launch of it can be read.

        Raises:
            StoreError: none can; what is wrong with the first.
        """
        if not self.launches:
            raise StoreError(next(sentence for data in self.cells for sentence in data.unreadable.values()))


def stack(launches: Iterable[LaunchData], name: str) -> pd.DataFrame:
    """Put one table of every launch below each other; run, cell and launch are the first columns."""
    return _stack([(launch.place, launch.find_table(name)) for launch in launches])


def stack_left_out(launches: Iterable[LaunchData], name: str) -> pd.DataFrame:
    """Put the rows that ``stack`` leaves out below each other, with its columns."""
    return _stack([(launch.place, launch.find_left_out_rows(name)) for launch in launches])


def stack_all(launches: Iterable[LaunchData], name: str) -> pd.DataFrame:
    """Put every row of a table below each other, those left out too: the column ``is_left_out`` tells them apart."""
    return _stack([(launch.place, launch.find_all_rows(name)) for launch in launches])


def _stack(tables: list[tuple[Place, pd.DataFrame]]) -> pd.DataFrame:
    placed = []
    for place, table in tables:
        copy = table.copy(deep=False)
        copy.insert(0, "run", place.run)
        copy.insert(1, "cell", place.cell)
        copy.insert(2, "launch", place.launch)
        placed.append(copy)
    return pd.concat(placed, ignore_index=True) if placed else pd.DataFrame(columns=["run", "cell", "launch"])
