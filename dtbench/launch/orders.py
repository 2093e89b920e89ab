"""What ranks are told to do: the order of a launch, and of the single process that cells are checked against."""

import hashlib
import time
from pathlib import Path

from dtbench.plan.plan import plan_reference
from dtbench.scenario.catalog import is_shipped
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.model import Custom
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.records.run import CellRecord, RunRecord, WorkerOrder


def make_order(cell: CellRecord, index: int, folder: LaunchFolder, reference: Path | None) -> WorkerOrder:
    """Return the order of a launch that starts now; ``reference``: where the single process's results are."""
    return WorkerOrder(
        cell=cell.name,
        index=index,
        scenario=cell.scenario,
        plan=cell.plan,
        folder=str(folder.path),
        reference=None if reference is None else str(reference),
        is_reference=False,
        launched_unix_ns=time.time_ns(),
    )


def make_reference_order(cell: CellRecord, folder: LaunchFolder) -> WorkerOrder:
    """Return the order of the single process on the whole batch."""
    scenario, plan = plan_reference(cell.scenario, cell.plan)
    order = make_order(cell, 0, folder, None)
    return order.model_copy(update={"scenario": scenario, "plan": plan, "is_reference": True})


def key_of_reference(scenario: Scenario) -> str:
    """Return what two single processes share that train the same: model, data, optimizer, variables, interpreter."""
    return scenario.model_copy(
        update={"measure": None, "correctness": None, "repeat": 1, "network": None}
    ).model_dump_json(warnings=False)


def find_references(folder: RunFolder, cells: tuple[CellRecord, ...]) -> dict[str, Path]:
    """Return the single processes' results that a run has already, by what they are results of."""
    found = {}
    for cell in cells:
        reference = folder.reference(cell.name)
        if reference.reference_data.exists():
            found[key_of_reference(make_reference_order(cell, reference).scenario)] = reference.reference_data
    return found


def digest_run(run: RunRecord) -> str:
    """Return what all orders of a run come to, 16 hexadecimal digits: a copy of a prepared run has the same."""
    nowhere, told = LaunchFolder(Path()), hashlib.sha256()
    for cell in run.cells:
        if isinstance(cell, CellRecord):
            for index in cell.launches:
                told.update(make_order(cell, index, nowhere, None).digest.encode())
    return told.hexdigest()[:16]


def unlaunched(order: WorkerOrder) -> WorkerOrder:
    """Return the order without a moment at which it was started: someone else will."""
    return order.model_copy(update={"launched_unix_ns": None})


def say_code(order: WorkerOrder, file: ScenarioFile) -> WorkerOrder:
    """Say where a person's code lies: beside the scenario, if that is not dtbench's, then where dtbench was started.

    A person's own model is looked for there.
    """
    folders = dict.fromkeys(str(folder) for folder in (file.folder, Path.cwd()) if folder is not None)
    own = [folder for folder in folders if not is_shipped(Path(folder))]
    said = order.model_copy(update={"code_folder": next(iter(own), None)})
    if not isinstance(order.scenario.model, Custom):
        return said
    return said.model_copy(update={"import_folders": tuple(folders)})
