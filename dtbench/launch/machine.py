"""What this machine offers to a plan."""

import os

from dtbench.errors import MissingError
from dtbench.plan import Machine


def read_machine() -> Machine:
    """Count usable cores and CUDA devices; asks torch without touching a device.

    Raises:
        MissingError: torch is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingError(
            "running a scenario needs torch: install it as your cluster says, or `pip install 'dtbench[run]'`"
        ) from error
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cpu_cores=cores, cuda_devices=torch.cuda.device_count())
