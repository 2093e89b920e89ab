"""Many runs as one table: every step of every rank, with what tells runs, cells and launches apart.

Three small files are read for a launch, several launches at a time; words that repeat are categories.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dtbench.analyze.tables import RUN_STEPS, STEPS
from dtbench.errors import StoreError
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.outline import CellOutline, RunOutline, check_launch, find_runs_below, read_outline
from dtbench.vocabulary import Phase

NOTES: Final = "notes"
"""Key of ``DataFrame.attrs`` under which the table says what it leaves out."""

_READERS = 8
_PHASE: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final = {"int64": pa.int64(), "float64": pa.float64(), "string": _PHASE}
_SCHEMA: Final = pa.schema([(name, _TYPES[dtype]) for name, dtype in STEPS.items()])
_WORDS: Final = ("scenario", "run", "status", "cell")
"""Columns of ``RUN_STEPS`` that are the same for all rows of a launch, and words."""


@dataclass(frozen=True)
class _Launch:
    """One launch's steps, and what they are of."""

    run: RunOutline
    cell: CellOutline
    index: int
    steps: pa.Table

    @property
    def words(self) -> tuple[str, ...]:
        return (self.run.name, self.run.run_id, self.run.status.value, self.cell.name)


def load_run_steps(results: Path) -> pd.DataFrame:
    """Give every step of every complete launch below a folder, columns as in ``tables.RUN_STEPS``.

    What is left out (launches that failed or did not end, files that are broken) is said in ``attrs["notes"]``, a
    sentence each.

    Args:
        results: folder of all runs, of one scenario's runs, or of one run.

    Raises:
        StoreError: there is no run.
    """
    folders = find_runs_below(results)
    if not folders:
        raise StoreError(f"{results}: no runs here; start one with `dtbench run <scenario>`, or name another folder")
    with ThreadPoolExecutor(_READERS) as readers:
        found = list(chain.from_iterable(readers.map(_read_run, folders)))
    launches = [one for one in found if isinstance(one, _Launch)]
    table = _tabulate(launches)
    table.attrs[NOTES] = [one for one in found if isinstance(one, str)]
    return table


def _read_run(path: Path) -> list[_Launch | str]:
    """Give the launches of a run; for one that is left out, a sentence."""
    try:
        run = read_outline(path)
    except StoreError as error:
        return [str(error)]
    found = [
        _read_launch(run, cell, index, RunFolder(path).launch(cell.name, index))
        for cell in run.cells
        for index in cell.launches
    ]
    return found or [f"{path}: no launch was started"]


def _read_launch(run: RunOutline, cell: CellOutline, index: int, folder: LaunchFolder) -> _Launch | str:
    try:
        check_launch(folder)
        return _Launch(run, cell, index, _read_steps(folder.steps))
    except StoreError as error:
        return str(error)


def _read_steps(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path, read_dictionary=["phase"], page_checksum_verification=True) as file:
            steps = file.read(list(STEPS), use_threads=False).replace_schema_metadata(None)
        if "stolen_fraction" not in steps.column_names:  # up to version 0.1.0 nobody looked
            steps = steps.append_column("stolen_fraction", pa.nulls(steps.num_rows, pa.float64()))
        return steps if steps.schema.equals(_SCHEMA) else steps.select(list(STEPS)).cast(_SCHEMA)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise StoreError(f"{path}: not a readable table of steps ({error})") from error


def _tabulate(launches: Sequence[_Launch]) -> pd.DataFrame:
    rows = np.array([one.steps.num_rows for one in launches], dtype=np.int64)
    repeat = partial(_repeat, rows=rows)
    steps = pa.concat_tables([_SCHEMA.empty_table(), *(one.steps for one in launches)]).unify_dictionaries()
    columns: dict[str, object] = {
        name: repeat([one.words[place] for one in launches]) for place, name in enumerate(_WORDS)
    }
    columns["launch"] = np.repeat(np.array([one.index for one in launches], dtype=np.int64), rows)
    for axis in dict.fromkeys(axis for one in launches for axis in one.cell.coordinates):
        columns[name_coordinate(axis)] = repeat([one.cell.coordinates.get(axis) for one in launches])
    timed = {name: steps[name].to_pandas().to_numpy() for name in STEPS if name != "phase"}
    phase = steps["phase"].to_pandas().cat.set_categories([one.value for one in Phase])
    return pd.DataFrame({**columns, **{name: phase if name == "phase" else timed[name] for name in STEPS}})


def name_coordinate(axis: str) -> str:
    """Name the column of a sweep's axis: as the scenario does, where no other column is called that.

    >>> name_coordinate("parallel.bucket_cap_mb"), name_coordinate("rank")
    ('parallel.bucket_cap_mb', 'axis rank')
    """
    return f"axis {axis}" if axis in RUN_STEPS else axis


def _repeat(words: Sequence[str | None], rows: np.ndarray) -> "pd.Categorical[str]":
    """Give each launch's word for all of its rows, as categories in order of appearance; NA where it has none."""
    known = list(_known(words))
    places: Mapping[str | None, int] = {word: place for place, word in enumerate(known)}
    codes = np.array([places.get(word, -1) for word in words], dtype=np.int32)
    return pd.Categorical.from_codes(np.repeat(codes, rows), categories=pd.Index(known, dtype="str"))


def _known(words: Sequence[str | None]) -> Iterator[str]:
    yield from dict.fromkeys(word for word in words if word is not None)
