"""Frozen records as Parquet columns and back, as their annotations say: no code from files, no second list of fields.

::

    dataclass, NamedTuple, Record   struct of its fields    tuple[X, ...], frozenset[X]   list
    Mapping[K, V]                   list of key and value   tuple[A, B]                   struct of item_1, item_2
    int | float                     struct of whole and real, one null
    enum, path                      string                  array of numbers              list, of two rows end to end
    X | None                        X or null               a note                        its kind, its fields as JSON
"""

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dtbench.base.record import Record
from dtbench.traces.notes.note import Note

_PLAIN: Final = {int: pa.int64(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}
_TWO_ROWS: Final = frozenset({"compute_launches_ns"})
"""Arrays of shape ``(2, m)``; all others have one dimension."""


@dataclass(frozen=True)
class Codec:
    """How values of one annotation stand in a column.

    Attributes:
        arrow: type of the column.
        pack: from a value to what Arrow takes.
        unpack: from what Arrow returns to the value.
    """

    arrow: pa.DataType
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


_NUMBER: Final = Codec(
    pa.struct({"whole": pa.int64(), "real": pa.float64()}),
    lambda value: {"whole": value, "real": None} if isinstance(value, int) else {"whole": None, "real": value},
    lambda packed: packed["real"] if packed["whole"] is None else packed["whole"],
)
"""A count, or a mean of counts: each is spelled as it was."""


@cache
def codec_of(annotation: Any) -> Codec:
    """Return how values of an annotation stand in a column.

    Raises:
        TypeError: there is no way; a mistake of ours.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _PLAIN:
        return Codec(_PLAIN[annotation], annotation, _same)
    if origin is None:
        return _of_class(annotation)
    if origin in (typing.Union, types.UnionType):
        return _of_union(arguments)
    if origin is np.ndarray:
        return _of_array(typing.get_args(arguments[1])[0])
    if issubclass(origin, Mapping):
        return _of_mapping(*arguments)
    return _of_items(origin, arguments)


def _of_items(kind: Any, arguments: tuple[Any, ...]) -> Codec:
    if kind is tuple and arguments[1:] != (...,):
        return _of_fields({f"item_{at}": one for at, one in enumerate(arguments, 1)}, _item_at, _make_tuple)
    return _of_list(arguments[0], frozenset if kind is frozenset else tuple)


def _same(value: Any) -> Any:
    return value


def _of_class(kind: Any) -> Codec:
    if issubclass(kind, enum.Enum):
        return Codec(pa.string(), lambda one: one.value, kind)
    if kind is range:
        return _of_fields({"start": int, "stop": int}, getattr, lambda ends: range(ends["start"], ends["stop"]))
    if issubclass(kind, Path):
        return Codec(pa.string(), str, kind)
    if issubclass(kind, Note):
        return Codec(pa.struct({"kind": pa.string(), "fields": pa.string()}), _pack_note, _unpack_note)
    if dataclasses.is_dataclass(kind) or issubclass(kind, Record) or hasattr(kind, "_fields"):
        return _of_fields(fields_of(kind), getattr, lambda fields: kind(**fields))
    raise TypeError(f"{kind} has no column")


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the fields of a record with their annotations."""
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    names = kind.model_fields if issubclass(kind, Record) else kind._fields
    return {name: hints[name] for name in names}


def _of_fields(
    fields: Mapping[str, Any], read: Callable[[Any, str], Any], make: Callable[[dict[str, Any]], Any]
) -> Codec:
    codecs = {name: _of_two_rows(hint) if name in _TWO_ROWS else codec_of(hint) for name, hint in fields.items()}
    return Codec(
        pa.struct({name: codec.arrow for name, codec in codecs.items()}),
        lambda value: {name: codec.pack(read(value, name)) for name, codec in codecs.items()},
        lambda packed: make({name: codec.unpack(packed[name]) for name, codec in codecs.items()}),
    )


def _item_at(items: Sequence[Any], name: str) -> Any:
    return items[int(name.removeprefix("item_")) - 1]


def _make_tuple(items: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(items.values())


def _of_union(arguments: tuple[Any, ...]) -> Codec:
    if set(arguments) == {int, float}:
        return _NUMBER
    (told,) = (one for one in arguments if one is not type(None))
    inner = codec_of(told)
    return Codec(
        inner.arrow,
        lambda value: None if value is None else inner.pack(value),
        lambda packed: None if packed is None else inner.unpack(packed),
    )


def _of_list(annotation: Any, kind: Callable[[Iterator[Any]], Any]) -> Codec:
    inner = codec_of(annotation)
    return Codec(
        pa.list_(inner.arrow),
        lambda values: [inner.pack(one) for one in values],
        lambda packed: kind(inner.unpack(one) for one in packed),
    )


def _of_mapping(key: Any, value: Any) -> Codec:
    pairs = _of_fields({"key": key, "value": value}, lambda pair, name: pair[name == "value"], _make_tuple)
    return Codec(
        pa.list_(pairs.arrow),
        lambda mapping: [pairs.pack(item) for item in mapping.items()],
        lambda packed: dict(pairs.unpack(one) for one in packed),
    )


def _of_array(kind: Any) -> Codec:
    return Codec(pa.list_(pa.from_numpy_dtype(kind)), _pack_array, lambda packed: np.array(packed, dtype=kind))


def _pack_array(values: Any) -> Any:
    assert values.ndim == 1
    return values


def _of_two_rows(annotation: Any) -> Codec:
    flat = codec_of(annotation)
    return Codec(flat.arrow, lambda values: values.reshape(-1), lambda packed: flat.unpack(packed).reshape(2, -1))


def _pack_note(note: Note) -> dict[str, str]:
    packed = codec_of_note(type(note)).pack(note)
    return {"kind": type(note).__name__, "fields": json.dumps(packed)}


def _unpack_note(packed: Mapping[str, str]) -> Note:
    note: Note = codec_of_note(_find_kinds()[packed["kind"]]).unpack(json.loads(packed["fields"]))
    return note


@cache
def codec_of_note(kind: type[Note]) -> Codec:
    """Return how the fields of a kind of note stand in its column."""
    return _of_fields(fields_of(kind), getattr, lambda fields: kind(**fields))


def _find_kinds() -> dict[str, type[Note]]:
    """Return all kinds of notes by name; those of traces are loaded with what makes them."""
    kinds = Note.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {kind.__name__: kind for kind in kinds}
