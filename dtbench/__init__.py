"""Benchmark PyTorch's DTensor, FSDP and DDP: which communication is not hidden behind compute, who owns it, and why."""

__version__ = "0.1.0"
