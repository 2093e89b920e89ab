"""What a collective leaves in its outputs when nobody carries it: as if every rank of the group were this one.

::

    all-gather       own shard repeated          all-reduce, reduce, broadcast    unchanged
    reduce-scatter   own chunk                   all-to-all, gather, scatter      own part, repeated
    receive          zeros                       send, barrier                    nothing

Nothing is added up, so that values stay as large as they are, and finite where the inputs are. Outputs keep their
autograd version, as they do when a backend writes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor


@dataclass(frozen=True)
class Seat:
    """Where this rank sits in a group: its place among ``size`` ranks, from 0."""

    place: int
    size: int


_Fill = Callable[[tuple[Any, ...], Seat], None]


def fill_outputs(method: str, args: tuple[Any, ...], seat: Seat) -> None:
    """Fill what a method of a backend would have filled.

    Args:
        method: its name, in any torch of the tested range.
        args: as torch passed them: outputs first, then inputs.
        seat: of this rank in the group.
    """
    fill = _FILLS.get(method)
    if fill is not None:
        fill(args, seat)


def _repeat(output: Tensor, own: Tensor) -> None:
    """Write ``own`` again and again until ``output`` is full; where it lies there already it stays."""
    part, target = own.data.reshape(-1), output.data.view(-1)  # .data: no new autograd version
    if not part.numel():
        target.zero_()
        return
    for place in target.split(part.numel()):
        if place.data_ptr() != part.data_ptr():
            place.copy_(part[: place.numel()])


def _gather_single(args: tuple[Any, ...], _seat: Seat) -> None:
    _repeat(args[0], args[1])


def _gather_singles(args: tuple[Any, ...], _seat: Seat) -> None:
    _repeat_each(args[0], args[1])


def _repeat_each(outputs: Sequence[Tensor], own: Sequence[Tensor]) -> None:
    for output, part in zip(outputs, own, strict=True):
        _repeat(output, part)


def _gather_lists(args: tuple[Any, ...], _seat: Seat) -> None:
    """Fill for each input a list of outputs, one from each rank; there is none on a rank that does not gather."""
    for outputs, own in zip(args[0], args[1], strict=False):
        _repeat_each(outputs, [own] * len(outputs))


def _gather_coalesced(args: tuple[Any, ...], _seat: Seat) -> None:
    """Fill for each rank a list of outputs, one for each input."""
    for outputs in args[0]:
        _repeat_each(outputs, args[1])


def _scatter_single(args: tuple[Any, ...], seat: Seat) -> None:
    output, whole = args[:2]
    _repeat(output, whole.data.reshape(seat.size, -1)[seat.place])


def _scatter_singles(args: tuple[Any, ...], seat: Seat) -> None:
    for pair in zip(args[0], args[1], strict=True):
        _scatter_single(pair, seat)


def _scatter_lists(args: tuple[Any, ...], seat: Seat) -> None:
    """Fill each output with this rank's part of a list of inputs, or with zeros where another rank has the inputs."""
    outputs, inputs = args[:2]
    for number, output in enumerate(outputs):
        if inputs:
            _repeat(output, inputs[number][seat.place])
        else:
            output.data.zero_()


def _exchange_lists(args: tuple[Any, ...], seat: Seat) -> None:
    outputs, inputs = args[:2]
    _repeat_each(outputs, [inputs[seat.place]] * len(outputs))


def _exchange_single(args: tuple[Any, ...], seat: Seat) -> None:
    """Fill with what this rank sends to itself; the third and fourth argument are rows for each rank, empty: equal."""
    output, whole, _, rows = args[:4]
    own = whole.data.split(list(rows)) if rows else whole.data.chunk(seat.size)
    _repeat(output, own[seat.place])


def _receive(args: tuple[Any, ...], _seat: Seat) -> None:
    for output in args[0]:
        output.data.zero_()


_FILLS: Final[Mapping[str, _Fill]] = {
    "allgather": _gather_lists,
    "allgather_coalesced": _gather_coalesced,
    "_allgather_base": _gather_single,
    "all_gather_single": _gather_single,
    "allgather_into_tensor_coalesced": _gather_singles,
    "all_gather_single_coalesced": _gather_singles,
    "reduce_scatter": _scatter_lists,
    "_reduce_scatter_base": _scatter_single,
    "reduce_scatter_single": _scatter_single,
    "reduce_scatter_tensor_coalesced": _scatter_singles,
    "reduce_scatter_single_coalesced": _scatter_singles,
    "alltoall": _exchange_lists,
    "alltoall_base": _exchange_single,
    "all_to_all_single": _exchange_single,
    "gather": _gather_lists,
    "gather_single": _gather_single,
    "gather_into_tensor": _gather_single,
    "scatter": _scatter_lists,
    "recv": _receive,
    "recv_anysource": _receive,
}
"""Methods that are not here leave their tensors as they are."""
