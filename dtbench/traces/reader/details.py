"""What few events say about communication, from their arguments."""

import re
from typing import Any, Final

import msgspec

from dtbench.traces.kinds.operators import is_bare_operation
from dtbench.traces.reader.schema import Args
from dtbench.traces.trace import Details

# Operators and ranges that are about communication by their name alone; others are where they carry a group or a
# collective's name, as kernels do and ranges named by ``dist.record_comm`` ("FSDP::all_gather (layers.0)").
_COMMUNICATES: Final = (
    "gloo:", "nccl:", "rccl:", "hccl:", "xccl:", "ucc:", "mpi:", "c10d::", "c10d_functional::", "_c10d_functional::",
    "record_param_comms",
)  # fmt: skip
# c10d::send(tensors, group, destination, tag), c10d::recv_(tensors, group, source, tag): torch's c10d/Ops.cpp
_SENDS: Final = ("c10d::send", "c10d::recv_")
_PLACE_OF_PEER: Final = 2
_PLACES_OF_ROOT: Final = {"c10d::broadcast_": 2, "c10d::reduce_": 3, "c10d::gather_": 3, "c10d::scatter_": 3}
_SHAPES: Final = msgspec.json.Decoder(list[object])
_DTYPES: Final = msgspec.json.Decoder(list[str])
_RANKS: Final = msgspec.json.Decoder(list[int])


def communicates(name: str, category: str) -> bool:
    """Tell whether an event of this name and category speaks of communication, whatever its arguments."""
    return name.startswith(_COMMUNICATES) or (category == "user_annotation" and is_bare_operation(name))


def read_details(args: Args, name: str) -> Details:
    """Read what an event says; what cannot be read is as if it were not there."""
    return Details(
        collective=args.collective,
        group=None if args.group is None else str(args.group),
        group_description=args.group_description,
        group_size=args.group_size,
        dtype=args.dtype,
        in_elements=args.in_elements,
        out_elements=args.out_elements,
        seq=args.seq,
        comms_id=None if args.comms_id is None else str(args.comms_id),
        shapes=_read_shapes(bytes(args.shapes) or bytes(args.old_shapes)),
        dtypes=_decode(bytes(args.dtypes), _DTYPES),
        # "[0, 1, 2]", as text or as a list; shortened, "[0, 1, ..., 7]", it is no list
        ranks=_decode(bytes(args.group_ranks).strip(b'" '), _RANKS),
        source_rank=args.source_rank,
        destination_rank=args.destination_rank,
        is_async=_read_async(args, name),
        is_finished=bytes(args.finished) != b"false",
        peer=_read_peer(args, name),
        root=_read_root(args, name),
    )


def _read_shapes(raw: bytes) -> tuple[Any, ...]:
    """Decode the shapes of all arguments; ``()`` where a size is no number."""
    shapes = _decode(raw, _SHAPES)
    return shapes if all(not isinstance(shape, list) or _has_sizes(shape) for shape in shapes) else ()


def _has_sizes(shape: list[object]) -> bool:
    return all(_has_sizes(size) if isinstance(size, list) else isinstance(size, int) for size in shape)


def _decode(raw: bytes, decoder: Any) -> tuple[Any, ...]:
    """Decode a list; ``()`` where there is none or it cannot be read."""
    if not raw:
        return ()
    try:
        return tuple(decoder.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


def _read_async(args: Args, name: str) -> bool | None:
    """Read NCCL's metadata, or ``asyncOp``, the only truth value among the arguments of c10d's operators."""
    if args.is_async is not None:
        return bool(args.is_async)
    values = _decode(bytes(args.values), _DTYPES) if name.startswith("c10d::") else ()
    said = [value for value in values if value in ("True", "False")]
    return said[-1] == "True" if said else None


def _read_peer(args: Args, name: str) -> int | None:
    return _read_value(args, _PLACE_OF_PEER) if name in _SENDS else None


def _read_root(args: Args, name: str) -> int | None:
    place = _PLACES_OF_ROOT.get(name)
    return None if place is None else _read_value(args, place)


def _read_value(args: Args, place: int) -> int | None:
    values = _decode(bytes(args.values), _DTYPES)
    said = values[place] if len(values) > place else ""
    return int(said) if said.isdecimal() else None


def read_grid(args: Args) -> str:
    """Write a launch shape in one spelling: ``"[64,1,1] [128,1,1]"``."""
    grid, block = (re.sub(r"\s", "", bytes(raw).decode("utf-8", "replace")) for raw in (args.grid, args.block))
    return f"{grid} {block}".strip()
