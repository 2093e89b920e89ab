"""Benchmark PyTorch's DTensor, FSDP and DDP: which communication is not hidden behind compute, who owns it, and why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtbench.training_model import TrainingModel

__version__ = "0.1.0"
__all__ = ["TrainingModel"]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: ``import dtbench`` alone costs nothing."""
    if name == "TrainingModel":
        from dtbench.training_model import TrainingModel

        return TrainingModel
    raise AttributeError(f"module `dtbench` has no attribute `{name}`")
