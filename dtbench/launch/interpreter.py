"""Other interpreters that cells ask for: each is asked once, before anything runs, what torch and dtbench it has."""

import json
import subprocess
from collections.abc import Iterable

from dtbench import __version__
from dtbench.base.errors import MissingError
from dtbench.base.record import Record
from dtbench.plan.rules.newer_knobs import NEWER
from dtbench.plan.rules.rule import Case, find_reasons
from dtbench.store.records.run import CellRecord

_TIMEOUT_S = 300.0
"""As long as the launcher waits for ranks that import from a cold disk."""

_QUESTION = """
import json, sys
import dtbench, torch
import dtbench.worker.__main__
print("\\n" + json.dumps({
    "python": sys.version.split()[0], "torch": str(torch.__version__), "dtbench": dtbench.__version__,
    "cuda_devices": torch.cuda.device_count(),
}))
"""


class Interpreter(Record):
    """What an interpreter has."""

    python: str
    torch: str
    dtbench: str
    cuda_devices: int


def probe_interpreters(cells: Iterable[CellRecord]) -> dict[str, Interpreter]:
    """Ask every interpreter that a cell names, by its path as written.

    Raises:
        MissingError: names each that cannot run dtbench's worker or its cells, why, and which cells want it.
    """
    wanted: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.scenario.python is not None:
            wanted.setdefault(cell.scenario.python, []).append(cell)
    found, problems = {}, []
    for path, of_cells in wanted.items():
        try:
            found[path] = probe_interpreter(path)
        except MissingError as error:
            others = f" and {len(of_cells) - 1} more" if len(of_cells) > 1 else ""
            problems.append(f"cell {of_cells[0].name}{others}: {error}")
            continue
        for cell in of_cells:
            lacking = find_reasons(NEWER, Case(cell.scenario, cell.plan.device, torch=found[path].torch))
            problems += [f"cell {cell.name}: python: {path}: {sentence}" for sentence in lacking]
    if problems:
        raise MissingError("\n".join(problems))
    return found


def probe_interpreter(path: str) -> Interpreter:
    """Ask one interpreter, started as a rank will be.

    Raises:
        MissingError: it is not there, or it has no torch, or not this dtbench.
    """
    try:
        answer = subprocess.run(
            [path, "-P", "-c", _QUESTION], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise MissingError(f"python: {path} cannot be started ({error.strerror}); is the path right?") from error
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"python: {path} did not import torch within {_TIMEOUT_S:g} s") from error
    said = [line for line in answer.stdout.splitlines() if line.startswith("{")]
    if answer.returncode or not said:
        words = answer.stderr.strip().splitlines() or [f"it ended with code {answer.returncode}"]
        install = "its environment needs torch and dtbench of this version (`pip install '.[run]'` in dtbench's folder)"
        raise MissingError(f"python: {path} cannot run dtbench's worker: {words[-1]}; {install}")
    interpreter = Interpreter.model_validate(json.loads(said[-1]))
    if interpreter.dtbench != __version__:
        install = f"install {__version__} there, so that only torch differs"
        raise MissingError(f"python: {path} has dtbench {interpreter.dtbench}, and this is {__version__}; {install}")
    return interpreter
