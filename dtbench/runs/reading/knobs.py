"""A column for each knob that varies between the runs of a table: what a mean over rows must not mix unseen.

::

    scenario     run   cell   parallel.bucket_cap_mb
    quickstart   a     ddp    4                         the file
    quickstart   b     ddp    25                        --set parallel.bucket_cap_mb=25
    fsdp2        c     base   NA                        another scenario, whose runs do not differ in it

Knobs are the axes of sweeps, and the fields in which runs of one scenario differ in one cell. In what cells of a run
differ otherwise their names say.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from dtbench.base.redaction import redact_field


@dataclass(frozen=True)
class KnobCell:
    """A cell of a run.

    Attributes:
        scenario: its name.
        cell: its name.
        coordinates: its value on each axis of a sweep.
        fields: every field of its scenario by its dotted name, as text; empty: not told.
    """

    scenario: str
    cell: str
    coordinates: Mapping[str, str]
    fields: Mapping[str, str] = field(default_factory=dict)


def find_knobs(cells: Sequence[KnobCell], taken: Container[str]) -> dict[str, list[str | None]]:
    """Return the columns of knobs: of each cell the value as text, None where it is of no run that varies it.

    Args:
        cells: of any runs, in order of the rows.
        taken: names of the table's other columns.
    """
    varied = _find_varied(cells)
    axes = dict.fromkeys(axis for one in cells for axis in one.coordinates)

    def value_of(one: KnobCell, name: str) -> str | None:
        if name in one.coordinates:
            return one.coordinates[name]
        told = one.fields.get(name) if one.scenario in varied.get(name, ()) else None
        return None if told is None else redact_field(name, told)

    names = dict.fromkeys((*axes, *varied))
    return {name_knob(name, taken): [value_of(one, name) for one in cells] for name in names}


def _find_varied(cells: Sequence[KnobCell]) -> dict[str, set[str]]:
    """Return the fields in which runs differ in one cell, as far as they tell them, each with their scenarios."""
    told: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for one in cells:
        told.setdefault((one.scenario, one.cell), []).append(one.fields)
    found: dict[str, set[str]] = {}
    for (scenario, _), of_runs in told.items():
        first: dict[str, str] = {}
        for name, value in (item for fields in of_runs for item in fields.items()):
            if first.setdefault(name, value) != value:
                found.setdefault(name, set()).add(scenario)
    return found


def put_behind(frame: pd.DataFrame, after: str, columns: Mapping[str, Sequence[str | None]]) -> pd.DataFrame:
    """Return a table with columns of words behind one of its own; None is NA."""
    names = [str(name) for name in frame.columns]
    place = names.index(after) + 1
    words = {name: pd.Series([*values], index=frame.index, dtype=object) for name, values in columns.items()}
    placed = frame.assign(**words)[[*names[:place], *words, *names[place:]]]
    return placed.astype(dict.fromkeys(words, "string"))


def name_knob(name: str, taken: Container[str]) -> str:
    """Name the column of a knob: as the scenario does, where no other column is called that.

    >>> name_knob("parallel.bucket_cap_mb", {"rank"}), name_knob("rank", {"rank"})
    ('parallel.bucket_cap_mb', 'axis rank')
    """
    return f"axis {name}" if name in taken else name
