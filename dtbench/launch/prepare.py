"""Runs whose ranks someone else starts: their orders, all of them or those that are left, and torchrun's commands.

``dtbench execute``, torchrun and Slurm start the worker by such an order on each node.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.errors import StoreError
from dtbench.launch.cells import interleave
from dtbench.launch.orders import (
    find_references,
    key_of_reference,
    make_order,
    make_reference_order,
    say_code,
    unlaunched,
)
from dtbench.launch.repeat import refuse_automatic
from dtbench.launch.resume import keep_finished, refuse_other, refuse_running
from dtbench.launch.run import Observer, prepare_run
from dtbench.scenario.load import ScenarioFile
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, WorkerOrder
from dtbench.store.write import write_record

Launches = tuple[LaunchFolder, ...]


def write_orders(
    file: ScenarioFile, cells: tuple[CellRecord, ...], results: Path, *, observer: Observer
) -> tuple[RunFolder, Launches]:
    """Prepare a run: gives its folder and its launches, references among them, first to run first."""
    refuse_automatic(cells)
    run = prepare_run(file, cells, results, observer=observer, prepared=True)
    return run.folder, write_left(run.folder, cells, frozenset(), run.localise)


def resume_orders(file: ScenarioFile, path: Path) -> tuple[RunFolder, Launches]:
    """Write the orders again that a prepared run still needs, as it was planned; what ended well stays.

    Raises:
        StoreError: it was not prepared, has all launches, is another experiment, ranks of it run, or another process
            writes it; nothing changes.
    """
    folder = RunFolder(path.resolve())
    with hold_run(folder):
        before = read_run(folder.path)
        cells = tuple(cell for cell in before.cells if isinstance(cell, CellRecord))
        if not before.prepared:
            raise StoreError(f"{path}: this run was not prepared; --resume without --prepare goes on with it")
        refuse_other(folder.path, file, cells, {})
        refuse_running(folder, before)
        return folder, write_left(folder, cells, keep_finished(folder, cells), partial(say_code, file=file))


def write_left(
    run: RunFolder,
    cells: tuple[CellRecord, ...],
    finished: frozenset[tuple[str, int]],
    localise: Callable[[WorkerOrder], WorkerOrder],
) -> Launches:
    """Write the orders of all launches but the finished ones, and of the single processes that they need.

    Args:
        run: its folder.
        cells: of it, planned.
        finished: launches by cell and index.
        localise: gives orders what their cells do not say: where a person's code lies.
    """
    folders = []
    references = find_references(run, cells)
    for cell, index in interleave(cells, 0):
        if (cell.name, index) in finished:
            continue
        data = None
        if cell.scenario.correctness.enabled:
            reference = run.reference(cell.name)
            order = make_reference_order(cell, reference)
            key = key_of_reference(order.scenario)
            if key not in references:  # cells that train the same share it
                write_record(reference.order, unlaunched(localise(order)))
                folders.append(reference)
            data = references.setdefault(key, reference.reference_data)
        launch = run.launch(cell.name, index)
        write_record(launch.order, unlaunched(localise(make_order(cell, index, launch, data))))
        folders.append(launch)
    return tuple(folders)


HEAD_NODE: Final = "$HEAD_NODE"
"""Where ranks of several nodes meet, in a command that a person completes."""


def spell_torchrun(order: WorkerOrder, path: Path) -> str:
    """Return the command that starts an order's ranks on a node, with the scenario's variables and interpreter.

    Nodes meet for this launch alone: one that was started for another does not join.
    """
    variables = [f"{name}={spell_word(value)}" for name, value in order.scenario.env.items()]
    python = order.scenario.python
    torchrun = "torchrun" if python is None else f"{spell_word(python)} -m torch.distributed.run"
    plan = order.plan
    where = "--standalone" if plan.nodes == 1 else f"--nnodes {plan.nodes}"
    launch = "-".join((*path.parts[-5:-4], *path.parts[-3:-1]))  # run, cell, launch
    at = f" --rdzv-backend c10d --rdzv-endpoint {HEAD_NODE}:29500 --rdzv-id {spell_word(launch)}"
    meet = "" if plan.nodes == 1 else at
    worker = f"-m dtbench.worker --order {spell_word(path)}"
    ranks = f"{where} --nproc-per-node {plan.ranks_per_node}{meet}"
    return " ".join(["PYTHONSAFEPATH=1", *variables, torchrun, ranks, worker])
