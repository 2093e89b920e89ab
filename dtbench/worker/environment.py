"""The machine and the software of a run, with secrets left out; and what keeps a rank from outliving its launcher."""

import ctypes
import os
import platform
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from dtbench.scenario.schema import VARIABLE_PREFIXES, Scenario
from dtbench.store.layout import LAUNCHER_VARIABLE
from dtbench.store.rank_records import Receipt
from dtbench.store.records import Environment
from dtbench.torch_versions import is_tested_torch, spell_tested_torch
from dtbench.worker.machine.accelerator import describe_devices
from dtbench.worker.receipts import compare

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|AUTH", re.IGNORECASE)
_PACKAGES = ("dtbench", "torch", "numpy", "triton", "transformers")
_SET_BY_TORCH = ("TORCHINDUCTOR_CACHE_DIR",)
"""torch writes it when its compiler is imported, with the user's name in it."""
_PR_SET_PDEATHSIG = 1


def read_environment() -> Environment:
    """Describe where this process runs."""
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()  # NCCL is CUDA's, RCCL ROCm's
    return Environment(
        host=platform.node(),
        system=platform.platform(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=sys.version.split()[0],
        torch=torch.__version__,
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
    variables = [compare(f"env.{name}", value, os.environ.get(name)) for name, value in scenario.env.items()]
    if scenario.python is None:
        return tuple(variables)
    asked = Path(shutil.which(scenario.python) or scenario.python).absolute()  # not resolved: a venv's is a link
    return (*variables, compare("python", scenario.python, sys.executable, expected=str(asked)))


def find_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that tune what is measured, secrets hidden; where a cache lies tunes nothing."""
    named = {key: value for key, value in environment.items() if key.startswith(VARIABLE_PREFIXES)}
    return redact({key: value for key, value in named.items() if key not in _SET_BY_TORCH})


def redact(variables: dict[str, str]) -> dict[str, str]:
    """Hide the values of variables whose name sounds like a secret."""
    return {key: "(redacted)" if _SECRET.search(key) else value for key, value in sorted(variables.items())}


def die_with_parent() -> None:
    """Ask Linux to kill this process when its launcher dies, so that a killed launcher leaves no rank behind."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    if launcher is not None and int(launcher) != os.getppid():
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


def _processor() -> str:
    """Name the processor; ``platform.processor`` is empty on most Linux systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - not a path of ours
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
