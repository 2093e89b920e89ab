"""What this machine offers to a plan."""

import psutil

from dtbench.base.errors import MissingError
from dtbench.base.signals import hold_signals
from dtbench.base.torch_versions import spell_tested_torch
from dtbench.machine.processes import count_cores
from dtbench.plan.plan import Machine

NO_TORCH = (
    f"running a scenario needs torch: install torch {spell_tested_torch()} as your cluster says, "
    "or `pip install '.[run]'` in dtbench's folder"
)


def read_machine() -> Machine:
    """Count usable cores and CUDA devices; asks torch without touching a device.

    Raises:
        MissingError: torch is not installed.
    """
    version = read_torch_version()
    import torch

    memory_bytes = psutil.virtual_memory().total
    cuda_devices = torch.cuda.device_count()
    return Machine(cpu_cores=count_cores(), cuda_devices=cuda_devices, memory_bytes=memory_bytes, torch=version)


def read_torch_version() -> str:
    """Return the version of this interpreter's torch.

    Raises:
        MissingError: torch is not installed.
    """
    try:
        with hold_signals():
            import torch
    except ModuleNotFoundError as error:
        raise MissingError(NO_TORCH) from error
    return str(torch.__version__)
