"""Run a prepared run: its launches in the usual order, whatever starts their ranks; those that are finished stay."""

from contextlib import suppress
from pathlib import Path

from dtbench import __version__
from dtbench.base.commands import spell_word
from dtbench.base.errors import StoreError
from dtbench.launch.cluster.fit import fit_cells
from dtbench.launch.orders import make_order, unlaunched
from dtbench.launch.resume import keep_finished
from dtbench.launch.run import Engine, Observer, Run, find_references, run_all, write_run
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_order, read_run
from dtbench.store.records.run import CellRecord, RunRecord, RunStatus, WorkerOrder
from dtbench.store.running import announce
from dtbench.store.write import write_record


def execute_run(path: Path, engine: Engine, *, nodes: int, observer: Observer) -> RunFolder:
    """Run what is left of a prepared run, references where they are needed; gives the finished run folder.

    Args:
        path: of the run.
        engine: starts the ranks.
        nodes: on how many it does.
        observer: told what happens.

    Raises:
        StoreError: the run was not prepared, or by another version; another process writes it.
        PlanError: a cell cannot run on so many nodes.
        LaunchError: at least one cell failed; the message names each, and everything measured is kept.
        KeyboardInterrupt: the user stopped it; the run says so and keeps what is there.
    """
    folder = RunFolder(path.resolve())
    with hold_run(folder), announce(folder.path):
        record = read_run(folder.path)
        cells = fit_cells(read_prepared(folder.path, record), nodes)
        imports = _read_imports(folder, cells)
        finished = keep_finished(folder, cells)

        def localise(order: WorkerOrder) -> WorkerOrder:
            return order.model_copy(update={"import_folders": imports})

        _keep_orders(folder, cells, finished, imports)
        run = Run(record, folder, cells, observer, localise, engine, finished=finished)
        run.references = find_references(folder, cells)
        run.resumed_unix_ns, run.goes_on = record.resumed_unix_ns, bool(finished)
        write_run(run, RunStatus.RUNNING, None)
        observer.on_folder(folder.path)
        return run_all(run)


def read_prepared(path: Path, record: RunRecord) -> tuple[CellRecord, ...]:
    """Return the cells of a prepared run.

    Raises:
        StoreError: it was not prepared, or by another version of dtbench.
    """
    cells = tuple(cell for cell in record.cells if isinstance(cell, CellRecord))
    if not record.prepared or len(cells) < len(record.cells):
        again = f"dtbench run {spell_word(record.name)} --resume {spell_word(path)}"
        raise StoreError(f"{path}: was not prepared (`dtbench run SCENARIO --prepare`); `{again}` goes on with it")
    if record.dtbench_version != __version__:
        raise StoreError(
            f"{path}: dtbench {record.dtbench_version} prepared it, and this is {__version__}; prepare it again"
        )
    return cells


def _list_orders(folder: RunFolder, cells: tuple[CellRecord, ...]) -> list[tuple[LaunchFolder, CellRecord, int | None]]:
    """Return every folder that may have an order, with whose launch it is; None: the single process's."""
    launches = [(folder.launch(cell.name, index), cell, index) for cell in cells for index in cell.launches]
    return [*((folder.reference(cell.name), cell, None) for cell in cells), *launches]


def _read_imports(folder: RunFolder, cells: tuple[CellRecord, ...]) -> tuple[str, ...]:
    """Return where a person's own model is looked for, as any order says: it is the same in all."""
    for launch, _, _ in _list_orders(folder, cells):
        with suppress(StoreError):
            if launch.order.exists():
                return read_order(launch).import_folders
    return ()


def _keep_orders(
    folder: RunFolder,
    cells: tuple[CellRecord, ...],
    finished: frozenset[tuple[str, int]],
    imports: tuple[str, ...],
) -> None:
    """Write again the orders of launches that are to run: what was left of them has been removed, orders and all."""
    for launch, cell, index in _list_orders(folder, cells):
        if index is not None and (cell.name, index) not in finished:
            reference = folder.reference(cell.name).reference_data if cell.scenario.correctness.enabled else None
            order = make_order(cell, index, launch, reference)
            write_record(launch.order, unlaunched(order.model_copy(update={"import_folders": imports})))
