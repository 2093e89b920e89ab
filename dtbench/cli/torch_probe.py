"""What torch there is, asked of a short process of its own: a broken or slow torch cannot take this one down."""

import json
import subprocess
import sys
from dataclasses import dataclass

TIMEOUT_S = 60.0

_QUESTION = """
import json, torch
import torch.distributed as dist
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
has = dist.is_available()
devices = [torch.cuda.get_device_properties(index) for index in range(count)]
print("\\n" + json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has and dist.is_nccl_available() else None,
    "has_gloo": has and dist.is_gloo_available(),
    "devices": [{"name": device.name, "memory_bytes": device.total_memory} for device in devices],
}))
"""


@dataclass(frozen=True)
class CudaDevice:
    """One GPU."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Torch:
    """An installed torch.

    Attributes:
        cuda: version that it was built for; None for a CPU build.
        nccl: version that it was built with, also where no GPU can be used; None: it has none.
    """

    version: str
    cuda: str | None
    nccl: str | None
    has_gloo: bool
    devices: tuple[CudaDevice, ...]

    @property
    def is_tested(self) -> bool:
        """Tell whether dtbench was tested with this version."""
        from dtbench.base.torch_versions import is_tested_torch

        return is_tested_torch(self.version)


@dataclass(frozen=True)
class NoTorch:
    """Why torch cannot be used, as a sentence's end."""

    reason: str


def probe_torch(question: str = _QUESTION, *, timeout_s: float = TIMEOUT_S) -> Torch | NoTorch:
    """Ask this interpreter's torch what it is; ``question`` is the program that prints the answer as a line of JSON."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", question], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return NoTorch(f"importing it took longer than {timeout_s:g} s")
    if answer.returncode:
        return NoTorch(_explain_failure(answer.stderr, answer.returncode))
    found = json.loads(next(line for line in reversed(answer.stdout.splitlines()) if line.startswith("{")))
    devices = tuple(CudaDevice(**device) for device in found.pop("devices"))
    return Torch(devices=devices, **found)


def _explain_failure(stderr: str, code: int) -> str:
    lines = stderr.strip().splitlines()
    if lines and lines[-1].startswith("ModuleNotFoundError: No module named 'torch'"):
        return "not installed"
    return f"broken: {lines[-1]}" if lines else f"broken: importing it ended with code {code}"
