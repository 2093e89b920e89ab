"""Runs a selftest: one run whose cells are those of all rows, judged row by row as soon as their cells have ended."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dtbench.base.errors import LaunchError, StoreError
from dtbench.launch.cells import plan_cells
from dtbench.launch.local import WORKER
from dtbench.launch.machine import read_machine
from dtbench.launch.run import Observer, ThisMachine, run_scenario
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.written import Words
from dtbench.selftest.evidence import Evidence, Found, read_evidence
from dtbench.selftest.expected_bounds import find_expected_bounds
from dtbench.selftest.judge import judge_row
from dtbench.selftest.records import RowOutcome, SelftestRecord
from dtbench.selftest.row import Row
from dtbench.selftest.sections import SHARED
from dtbench.selftest.situations import draw_rows
from dtbench.selftest.words import write_scenario
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import CellRecord
from dtbench.store.write import write_record


@dataclass(frozen=True)
class Selftest:
    """What will run: the rows of a seed, and the scenario of all their cells, planned on this machine."""

    seed: int
    rows: tuple[Row, ...]
    file: ScenarioFile
    cells: tuple[CellRecord, ...]


def plan_selftest(seed: int, only: Sequence[str] = ()) -> Selftest:
    """Draw the rows of a seed and plan their cells; ``only`` names the rows that are wanted, empty: all.

    Raises:
        ScenarioError: there is no such row.
        PlanError: this machine cannot run them.
        MissingError: torch is not installed.
    """
    rows = draw_rows(seed, only)
    cells: dict[str, Words] = {name: words for row in rows for name, words in row.cells.items()}
    file = write_scenario(f"Does dtbench name what was injected, with the numbers of seed {seed}?", SHARED, cells)
    return Selftest(seed, rows, file, plan_cells(file, read_machine()))


def run_selftest(
    selftest: Selftest,
    results: Path,
    *,
    observer: Observer,
    on_row: Callable[[RowOutcome], None],
    worker: tuple[str, ...] = WORKER,
) -> SelftestRecord:
    """Run all cells and judge all rows; a row that was judged is on disk at once.

    A cell that fails fails its rows, never the others.

    Args:
        selftest: what runs.
        results: folder of all runs.
        observer: told what the run does.
        on_row: told each row when it is judged.
        worker: command of a rank.

    Raises:
        KeyboardInterrupt: the user stopped it; rows that were judged before stay.
        LaunchError: no run could be made.
        StoreError: nothing can be written.
    """
    bench = _Bench(selftest, on_row)

    def on_folder(path: Path) -> None:
        bench.path = path
        observer.on_folder(path)

    def on_end(cell: str) -> None:
        observer.on_end(cell)
        bench.end(cell)

    watched = replace(observer, on_folder=on_folder, on_end=on_end)
    try:
        run_scenario(selftest.file, selftest.cells, results, observer=watched, engine=ThisMachine(worker))
    except LaunchError as error:
        if error.folder is None:
            raise
    except KeyboardInterrupt:
        bench.clear_up()
        raise
    return bench.finish()


def try_again(
    record: SelftestRecord,
    results: Path,
    *,
    observer: Observer,
    on_row: Callable[[RowOutcome], None],
    worker: tuple[str, ...] = WORKER,
) -> SelftestRecord:
    """Run the rows that failed once more, in a run of their own; each keeps why it failed before.

    What a busy machine spoils passes then; what is wrong fails again. The record beside the first run holds both.

    Raises:
        KeyboardInterrupt, LaunchError, StoreError: as ``run_selftest``; the record of the first run stays as it was.
    """
    before = {row.row: row for row in record.rows}

    def tell(row: RowOutcome) -> None:
        on_row(_add_try(before[row.row], row, None))

    planned = plan_selftest(record.seed, [row.row for row in record.rows if not row.passed])
    again = run_selftest(planned, results, observer=observer, on_row=tell, worker=worker)
    tried = {row.row: _add_try(before[row.row], row, again.run) for row in again.rows}
    rows = tuple(tried.get(row.row, row) for row in record.rows)
    merged = record.model_copy(update={"rows": rows, "passed": record.is_complete and all(row.passed for row in rows)})
    write_record(RunFolder(Path(record.run)).selftest, merged)
    return merged


def _add_try(before: RowOutcome, row: RowOutcome, run: str | None) -> RowOutcome:
    return row.model_copy(update={"run": run, "earlier": (*before.earlier, *before.reasons)})


def judge_run(selftest: Selftest, path: Path) -> SelftestRecord:
    """Judge a run of a selftest that has ended, from what it has left behind.

    Raises:
        StoreError: nothing can be written.
    """
    return _Bench(selftest, lambda _row: None, path).finish()


@dataclass
class _Bench:
    """Rows that are judged as their cells end.

    Attributes:
        path: folder of the run; None: it has none yet.
    """

    selftest: Selftest
    on_row: Callable[[RowOutcome], None]
    path: Path | None = None
    _ended: set[str] = field(default_factory=set)
    _evidence: dict[str, Evidence] = field(default_factory=dict)
    _judged: dict[str, RowOutcome] = field(default_factory=dict)

    def end(self, cell: str) -> None:
        """A cell has ended, well or not: judge the rows that have only waited for it."""
        self._ended.add(cell)
        for row in self.selftest.rows:
            if row.name not in self._judged and self._ended.issuperset(row.cells):
                self._judge(row)

    def finish(self) -> SelftestRecord:
        """Judge the rows that are left, whatever their cells have left behind."""
        for row in self.selftest.rows:
            if row.name not in self._judged:
                self._judge(row)
        return self._write()

    def clear_up(self) -> None:
        """Remove what ranks that were stopped had in use."""
        if self.path is not None:
            for cell in self.selftest.cells:
                shutil.rmtree(RunFolder(self.path).launch(cell.name, 0).link, ignore_errors=True)

    def _judge(self, row: Row) -> None:
        for cell in row.cells:
            if cell not in self._evidence:
                with suppress(StoreError):  # the row tells that nothing of it can be read
                    self._evidence[cell] = read_evidence(self._folder.path, cell)
        evidence = {cell: self._evidence[cell] for cell in row.cells if cell in self._evidence}
        planned = {cell.name: cell for cell in self.selftest.cells}
        outcome = judge_row(row, Found(evidence, find_expected_bounds(row, planned, evidence)))
        self._judged[row.name] = outcome
        self._write()
        self.on_row(outcome)

    def _write(self) -> SelftestRecord:
        rows = tuple(self._judged[row.name] for row in self.selftest.rows if row.name in self._judged)
        is_complete = len(rows) == len(self.selftest.rows)
        record = SelftestRecord(
            seed=self.selftest.seed,
            run=str(self._folder.path),
            is_complete=is_complete,
            passed=is_complete and all(row.passed for row in rows),
            rows=rows,
        )
        write_record(self._folder.selftest, record)
        return record

    @property
    def _folder(self) -> RunFolder:
        assert self.path is not None, "rows are judged when their run has a folder"
        return RunFolder(self.path)
