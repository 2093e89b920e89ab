"""Environment variables of ranks: which ones a scenario may set, and why not the others."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

VARIABLE_PREFIXES = (
    *("NCCL_", "GLOO_", "UCX_", "FI_"),
    *("TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TRITON_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "KINETO_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "MALLOC_", "TP_"),
)
"""Environment variables that tune what is measured: communication, torch, CUDA, threads and memory."""

_NOT_FOR_SCENARIOS = {
    "CUDA_VISIBLE_DEVICES": "it decides which GPUs there are; set it where you start dtbench",
    "TORCH_ELASTIC_": "it is set by what starts the ranks",
    "TORCHELASTIC_": "it is set by what starts the ranks",
    "MASTER_": "it is set by what starts the ranks, and brings them together",
    "DTBENCH_": "it is set by dtbench itself",
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_"),
        "it is set by what starts the ranks: the sizes come from `parallel`",
    ),
}
"""Why variables that begin like this cannot be set by a scenario."""


_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")


def _check_variable(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError("a variable's name is of capital letters, digits and underscores")
    for beginning, reason in _NOT_FOR_SCENARIOS.items():
        if name.startswith(beginning):
            raise ValueError(reason)
    if not name.startswith(VARIABLE_PREFIXES):
        some = ", ".join(VARIABLE_PREFIXES[::4])
        raise ValueError(f"a scenario sets only variables of torch and what it is built on ({some} and the like)")
    return name


def _check_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("a variable's value cannot have a NUL character")
    return value


Variable = Annotated[str, AfterValidator(_check_variable)]
Value = Annotated[str, AfterValidator(_check_value)]
