"""Run a prepared run: its launches in the usual order, whatever starts their ranks; those that are finished stay."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from dtbench import __version__
from dtbench.base.commands import spell_word
from dtbench.base.errors import PlanError, StoreError
from dtbench.base.units import count_things
from dtbench.launch.orders import find_references
from dtbench.launch.prepare import write_left
from dtbench.launch.resume import await_silence, keep_finished
from dtbench.launch.run import Engine, Observer, Run, keep_environment, run_all, write_run
from dtbench.plan.rules.rule import count_nodes
from dtbench.store.layout import RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_order, read_run
from dtbench.store.records.run import CellRecord, RunRecord, RunStatus, WorkerOrder
from dtbench.store.running import announce


def execute_run(path: Path, engine: Engine, *, nodes: int, observer: Observer) -> RunFolder:
    """Run what is left of a prepared run, references where they are needed; gives the finished run folder.

    Args:
        path: of the run.
        engine: starts the ranks.
        nodes: on how many it does.
        observer: told what happens.

    Raises:
        StoreError: the run was not prepared, or by another version; another process writes it, or ranks of it run
            (those that were killed a moment ago are waited for).
        PlanError: it was planned for another number of nodes.
        LaunchError: at least one cell failed; the message names each, and everything measured is kept.
        KeyboardInterrupt: the user stopped it; the run says so and keeps what is there.
    """
    folder = RunFolder(path.resolve())
    with hold_run(folder), announce(folder.path):
        record = read_run(folder.path)
        cells = read_prepared(folder.path, record, nodes)
        await_silence(folder, record, observer.on_neighbours)
        code = _read_code(folder, cells)
        finished = keep_finished(folder, cells)

        def localise(order: WorkerOrder) -> WorkerOrder:
            return order.model_copy(update=code)

        write_left(folder, cells, finished, localise)  # what was left of launches has been removed, orders and all
        run = Run(record, folder, cells, observer, localise, engine, finished=finished)
        run.references = find_references(folder, cells)
        run.resumed_unix_ns, run.goes_on = record.resumed_unix_ns, bool(finished)
        for cell, index in sorted(finished):
            keep_environment(run, folder.launch(cell, index))
        write_run(run, RunStatus.RUNNING, None)
        observer.on_folder(folder.path)
        return run_all(run)


def read_prepared(path: Path, record: RunRecord, nodes: int) -> tuple[CellRecord, ...]:
    """Return the cells of a prepared run, all of which are planned for so many nodes.

    Raises:
        StoreError: it was not prepared, or by another version of dtbench.
        PlanError: it was planned for another number of nodes.
    """
    cells = tuple(cell for cell in record.cells if isinstance(cell, CellRecord))
    if not record.prepared or len(cells) < len(record.cells):
        again = f"dtbench run {spell_word(record.name)} --resume {spell_word(path)}"
        raise StoreError(f"{path}: was not prepared (`dtbench run SCENARIO --prepare`); `{again}` goes on with it")
    if record.dtbench_version != __version__:
        raise StoreError(
            f"{path}: dtbench {record.dtbench_version} prepared it, and this is {__version__}; prepare it again"
        )
    other = next((cell for cell in cells if cell.plan.nodes != count_nodes(cell.plan.ranks, nodes)), None)
    if other is not None:
        there = "1 is" if nodes == 1 else f"{nodes} are"
        raise PlanError(
            f"{path}: cell {other.name} was planned for {count_things(other.plan.nodes, 'node')}, and {there} there; "
            f"`dtbench run SCENARIO --prepare --nodes {spell_word(str(nodes))}` plans for as many"
        )
    return cells


def _read_code(folder: RunFolder, cells: tuple[CellRecord, ...]) -> dict[str, Any]:
    """Return where a person's code lies, as fields of an order: any order says it, and all the same."""
    launches = [folder.launch(cell.name, index) for cell in cells for index in cell.launches]
    for launch in (*launches, *(folder.reference(cell.name) for cell in cells)):
        with suppress(StoreError):
            if launch.order.exists():
                order = read_order(launch)
                return {"import_folders": order.import_folders, "code_folder": order.code_folder}
    return {}
