"""How many bytes a collective moves, in nccl-tests' convention, from what its event says.

All-gather: the whole output; reduce-scatter: the whole input; else the tensor.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.trace import Details
from dtbench.traces.who.collectives import Collective

# As `record_shapes` writes C++ types and as NCCL's metadata writes torch's scalar types.
_ITEM_BYTES: Final = {
    "double": 8, "long int": 8, "long": 8, "c10::complex<float>": 8,
    "float": 4, "int": 4,
    "c10::bfloat16": 2, "bfloat16": 2, "c10::half": 2, "half": 2, "short": 2, "short int": 2,
    "unsigned char": 1, "signed char": 1, "byte": 1, "char": 1, "bool": 1,
    "c10::float8_e4m3fn": 1, "float8_e4m3fn": 1, "c10::float8_e5m2": 1, "float8_e5m2": 1,
}  # fmt: skip

_INTEGERS: Final = frozenset(
    ("long int", "long", "int", "short", "short int", "unsigned char", "signed char", "byte", "char", "bool")
)

_MAP_DTYPE: Final = "int"
_TENSORS: Final = "TensorList"  # how `record_shapes` writes a list of tensors, with the sizes of all or with none
_LARGEST_BYTES: Final = 1 << 50
"""No device holds more: what is larger was not read rightly, and a sum of sizes would not fit into 64 bits."""

MOST_PER_NS: Final = 50_000
"""Bytes: no collective moves more in a nanosecond (50 TB/s), as each goes through the memory of its rank's device once.

The fastest memory, of 2024, gives 8 TB/s (HBM3E: B200, MI325X 6), what is announced about 20 (HBM4), and links less."""


def item_bytes(dtype: str | None) -> int | None:
    """Return the size of one element; None for a dtype that is not known."""
    return None if dtype is None else _ITEM_BYTES.get(dtype.lower())


def is_integer(dtype: str | None) -> bool:
    """Tell whether elements are whole numbers or truth values: no gradients and no weights."""
    return dtype is not None and dtype.lower() in _INTEGERS


def check_gradients(purpose: Purpose, dtype: str | None) -> Purpose:
    """Return ``other`` for what is called a sum of gradients and is of whole numbers: of tokens, say.

    DDP's map of unused parameters is of int32; what it is for is to know whose gradients to reduce.
    """
    is_count = is_integer(dtype) and str(dtype).lower() != _MAP_DTYPE
    return Purpose.OTHER if purpose is Purpose.GRAD_REDUCE and is_count else purpose


def count_elements(shape: object) -> int:
    """Count the elements of a shape, or of a list of shapes (a list of tensors).

    >>> count_elements([2, 3]), count_elements([[2, 3], [4]]), count_elements([])
    (6, 10, 1)
    """
    if not isinstance(shape, list):
        return 0
    if any(isinstance(size, list) for size in shape):
        return sum(count_elements(part) for part in shape)
    elements = 1
    for size in shape:
        elements *= int(size)
    return elements


def tensor_elements(details: Details) -> tuple[int, ...]:
    """Count the elements of each argument that is a tensor or a list of tensors; ``()`` where one's are not known.

    A tensor without sizes is a scalar; a list of tensors without sizes is one whose sizes were not recorded.
    """
    elements = []
    for shape, dtype in zip(details.shapes, details.dtypes, strict=False):
        if dtype == _TENSORS and not shape:
            return ()
        if dtype == _TENSORS or item_bytes(dtype) is not None:
            elements.append(count_elements(shape))
    return tuple(elements)


def list_elements(details: Details) -> tuple[int, ...]:
    """Count the elements of each tensor of the largest list among the arguments; ``()`` where none's are known."""
    shapes = zip(details.shapes, details.dtypes, strict=False)
    lists = [shape for shape, dtype in shapes if dtype == _TENSORS and isinstance(shape, list)]
    return tuple(count_elements(shape) for shape in max(lists, key=count_elements, default=[]))


def span_bytes(details: Details | None) -> int | None:
    """Sum the bytes of all tensors that a ``gloo:*`` span names; None where one has no known dtype."""
    if details is None or not details.shapes or len(details.shapes) != len(details.dtypes):
        return None
    total = 0
    for shape, dtype in zip(details.shapes, details.dtypes, strict=True):
        size = item_bytes(dtype)
        if size is None:
            return None
        total += size * count_elements(shape)
    return _check(total)


def metadata_bytes(details: Details, operation: Operation | None) -> int | None:
    """Read the payload from NCCL's metadata; None where the event carries none."""
    elements = details.out_elements if operation is Operation.ALL_GATHER else details.in_elements
    size = item_bytes(details.dtype)
    return None if elements is None or size is None else _check(elements * size)


def _check(size_bytes: int) -> int | None:
    """Return a size that can be one; None for any other."""
    return size_bytes if 0 <= size_bytes <= _LARGEST_BYTES else None


def largest_argument_bytes(levels: Sequence[Details]) -> int | None:
    """Take the largest tensor of the operators around a collective, its whole output or input; None: no known dtype."""
    sizes = [
        size * count_elements(shape)
        for details in levels
        for shape, dtype in zip(details.shapes, details.dtypes, strict=False)
        if (size := item_bytes(dtype)) is not None
    ]
    return _check(max(sizes)) if sizes else None


def leave_impossible_sizes(collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return the collectives, without the sizes of those that would have moved more than ``MOST_PER_NS``.

    From first start to last end of the span, so that neither a wait for others nor how far clocks are apart makes one
    seem faster than it was. A span that was cut tells no speed; nor does one of an emulated link, which costs what it
    was told to, or of a group of one rank, which moves nothing.
    """
    return tuple(replace(one, size_bytes=None) if _is_impossible(one) else one for one in collectives)


def _is_impossible(one: Collective) -> bool:
    took_ns = one.end_ns - one.start_ns
    is_too_fast = took_ns > 0 and one.size_bytes is not None and one.size_bytes > MOST_PER_NS * took_ns
    return is_too_fast and one.has_ended and not one.on_link and one.group_size != 1
