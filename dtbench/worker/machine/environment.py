"""The machine and the software of a run, with secrets left out; and what keeps a rank from outliving its launcher."""

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from dtbench.base.redaction import redact_value, redact_variables
from dtbench.base.torch_versions import is_tested_torch, spell_tested_torch
from dtbench.machine.processes import count_cores, die_with_parent, name_processor
from dtbench.scenario.schema.scenario import VARIABLE_PREFIXES, Scenario
from dtbench.store.layout import LAUNCHER_VARIABLE, RUNNER_CLASS_VARIABLE
from dtbench.store.records.rank import Receipt
from dtbench.store.records.run import Environment
from dtbench.worker.machine.accelerator import describe_devices
from dtbench.worker.machine.commit import read_commit
from dtbench.worker.receipts import compare

_PACKAGES = ("dtbench", "torch", "numpy", "triton", "transformers")
_SET_BY_TORCH = ("TORCHINDUCTOR_CACHE_DIR",)
"""torch writes it when its compiler is imported, with the user's name in it."""


def read_environment(code_folder: str | None) -> Environment:
    """Describe where this process runs.

    Args:
        code_folder: in which the user's code lies; None: where this process was started.
    """
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()  # NCCL is CUDA's, RCCL ROCm's
    return Environment(
        host=platform.node(),
        system=platform.platform(),
        processor=name_processor(),
        cores=count_cores(),
        memory_bytes=psutil.virtual_memory().total,
        python=sys.version.split()[0],
        torch=torch.__version__,
        torch_git=getattr(torch.version, "git_version", None),
        commit=read_commit(Path(code_folder or os.curdir)),
        runner_class=os.environ.get(RUNNER_CLASS_VARIABLE, "").strip() or None,
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
        packages=_packages(),
        devices=describe_devices(),
        variables=find_variables(os.environ),
        notes=tuple(_notes()),
    )


def read_environment_receipts(scenario: Scenario) -> tuple[Receipt, ...]:
    """Say whether this process has the variables and the interpreter that the scenario asks for."""
    variables = [_compare_variable(name, value) for name, value in scenario.env.items()]
    if scenario.python is None:
        return tuple(variables)
    asked = Path(shutil.which(scenario.python) or scenario.python).absolute()  # not resolved: a venv's is a link
    return (*variables, compare("python", scenario.python, sys.executable, expected=str(asked)))


def _compare_variable(name: str, value: str) -> Receipt:
    receipt = compare(f"env.{name}", value, os.environ.get(name))
    hidden = {side: redact_value(name, getattr(receipt, side)) for side in ("asked", "got")}
    return receipt.model_copy(update=hidden)


def find_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tune what is measured, secrets hidden; where a cache lies tunes nothing."""
    named = {key: value for key, value in environment.items() if key.startswith(VARIABLE_PREFIXES)}
    return redact_variables({key: value for key, value in named.items() if key not in _SET_BY_TORCH})


def die_with_launcher() -> None:
    """Die when the launcher does, so that a killed launcher leaves no rank behind."""
    die_with_parent()
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    if launcher is not None and sys.platform == "linux" and int(launcher) != os.getppid():
        raise SystemExit("the launcher was gone before this rank had started")


def _notes() -> list[str]:
    if is_tested_torch(torch.__version__):
        return []
    outside = f"torch {torch.__version__} is outside the tested range {spell_tested_torch()}"
    return [f"{outside}: private functions may have moved; `dtbench doctor --torch` names what differs"]


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
