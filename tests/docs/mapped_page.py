"""The reference of what `dtbench analyze --map` writes, made of the records that its columns are."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Final

from dtbench.base.docstrings import read_attributes
from dtbench.base.record import Record
from dtbench.traces.job.mapped import MappedTrace
from dtbench.traces.job.parquet_values import codec_of, fields_of

_HEAD: Final = """\
# What a map writes

<!-- Made of the records themselves by `python -m tests.docs`; a test fails where they differ. -->

`dtbench analyze --map FOLDER TRACES` leaves a Parquet file for each rank's trace, with one row; `--reduce FOLDER` makes
the answer of them. Its columns are the fields of `MappedTrace`, nested as the records below are: a record is a struct,
a tuple or set a list, a mapping a list of `key` and `value`, a word of a fixed list its text, what may be null is not
known. A note is its `kind` and its `fields` as JSON. Times are integer nanoseconds on the trace's own clock. The file's
metadata has under `dtbench_map` the version of dtbench and of these columns: files of another are refused.
"""


def make_mapped_page() -> str:
    """Return the page."""
    found: dict[Any, None] = {MappedTrace: None}
    lines = [_HEAD]
    for kind in _walk(MappedTrace, found):
        said = read_attributes(kind)
        lines += [f"## {kind.__name__}\n", "| field | type | what it says |\n|---|---|---|"]
        for name, annotation in fields_of(kind).items():
            told = said.get(name, "").replace("|", "\\|")
            lines.append(f"| `{name}` | {_spell(annotation)} | {told} |")
        lines.append("")
    return "\n".join(lines)


def _walk(kind: Any, found: dict[Any, None]) -> Iterator[Any]:
    yield kind
    for annotation in fields_of(kind).values():
        for inner in _records_in(annotation):
            if inner not in found:
                found[inner] = None
                yield from _walk(inner, found)


def _records_in(annotation: Any) -> Iterator[Any]:
    if _is_record(annotation):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _records_in(inner)


def _is_record(annotation: Any) -> bool:
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return False
    is_record = dataclasses.is_dataclass(annotation) or issubclass(annotation, Record) or hasattr(annotation, "_fields")
    return is_record and [one.name for one in codec_of(annotation).arrow] == list(fields_of(annotation))


def _spell(annotation: Any) -> str:
    """Spell the type of a column, records by name."""
    records = [*_records_in(annotation)]
    arrow = str(codec_of(annotation).arrow)
    for record in records:
        name = f"[{record.__name__}](#{record.__name__.lower()})"
        arrow = arrow.replace(str(codec_of(record).arrow), name)
    return arrow.replace("element: ", "").replace("item: ", "").replace("|", "\\|")
