"""What one node of a cluster has, before any rank is there: as a person says it, as Slurm does, or not known.

Where neither says it, it is decided on the node itself: a rank shares the cores that it finds there.
"""

import re
from collections.abc import Mapping
from typing import Final

from dtbench.base.record import Amount, Positive, Record

_MIB: Final = 2**20
"""Slurm's unit of memory, where it names none."""
_UNITS: Final = {"": _MIB, "K": 2**10, "M": _MIB, "G": 2**30, "T": 2**40}
"""Of ``--mem``, and of ``--memory-per-node``: as Slurm and Kubernetes (``Gi``) count, in powers of 1024."""
_MEMORY: Final = re.compile(r"(\d+)([KMGT]?)(?:i?B?)", re.IGNORECASE)
_GPUS: Final = re.compile(r"(?:^|,)gpu:(?:[^:,()]+:)?(\d+)")
"""One kind of GPU in a list of generic resources: ``gpu:4``, ``gpu:a100:4(S:0-1)``."""


class NodeShape(Record):
    """What each node has; None: not known.

    Attributes:
        cores: that a run may use, as the system counts them.
        gpus: that a run may use.
        memory_bytes: of the host, that a run may use.
    """

    cores: Positive | None = None
    gpus: Amount | None = None
    memory_bytes: Positive | None = None


def first_known(*shapes: NodeShape) -> NodeShape:
    """Return of each fact what the first of several says that knows it."""

    def find(fact: str) -> int | None:
        return next((known for shape in shapes if (known := getattr(shape, fact)) is not None), None)

    return NodeShape(**{fact: find(fact) for fact in NodeShape.model_fields})


def read_allocation(environment: Mapping[str, str]) -> NodeShape:
    """Return what Slurm gives to each node of the allocation that this process is in; nothing outside of one.

    By ``SLURM_CPUS_ON_NODE``, ``SLURM_GPUS_ON_NODE`` and ``SLURM_MEM_PER_NODE`` (MiB; 0: all of it,
    which is not known), "Output environment variables" of sbatch(1).
    """
    if "SLURM_JOB_ID" not in environment:
        return NodeShape()

    def read(name: str) -> int | None:
        word = environment.get(name, "")
        return int(word) if word.isascii() and word.isdecimal() else None

    memory_mib = read("SLURM_MEM_PER_NODE")
    return NodeShape(
        cores=read("SLURM_CPUS_ON_NODE"),
        gpus=read("SLURM_GPUS_ON_NODE"),
        memory_bytes=memory_mib * _MIB if memory_mib else None,
    )


def read_nodes(text: str, partition: str | None) -> NodeShape:
    """Return what all nodes of a partition have alike, from ``scontrol show node --oneliner``; they differ: not known.

    Args:
        text: what scontrol printed: a line for each node, of words ``Name=value``.
        partition: of which nodes are asked; None: all.
    """
    shapes = {_read_node(line) for line in text.splitlines() if "NodeName=" in line and _is_of(line, partition)}
    return NodeShape(**{fact: _find_alike({getattr(one, fact) for one in shapes}) for fact in NodeShape.model_fields})


def _find_alike(values: set[int | None]) -> int | None:
    return next(iter(values)) if len(values) == 1 else None


def _is_of(line: str, partition: str | None) -> bool:
    return partition is None or partition in _read_words(line).get("Partitions", "").split(",")


def _read_node(line: str) -> NodeShape:
    words = _read_words(line)
    cores, memory = words.get("CPUEfctv", words.get("CPUTot", "")), words.get("RealMemory", "")
    return NodeShape(
        cores=int(cores) if cores.isdecimal() else None,
        gpus=count_gpus(words.get("Gres", "")),
        memory_bytes=int(memory) * _MIB if memory.isdecimal() else None,
    )


def _read_words(line: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


def count_gpus(resources: str) -> int:
    """Return how many GPUs a list of generic resources has.

    >>> count_gpus("gpu:a100:4(S:0-1),nic:2"), count_gpus("(null)")
    (4, 0)
    """
    return sum(map(int, _GPUS.findall(resources)))


def read_memory(words: str) -> int | None:
    """Return the bytes of a size as Slurm or Kubernetes spells it; None: it is none, or 0, which means all.

    >>> read_memory("512G") == read_memory("512Gi") == 512 * 2**30, read_memory("many")
    (True, None)
    """
    found = _MEMORY.fullmatch(words)
    return None if found is None else int(found[1]) * _UNITS[found[2].upper()] or None
