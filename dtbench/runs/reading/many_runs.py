"""Many runs as one table: every step of every rank, with what tells runs, cells and launches apart.

Three small files are read for a launch, several launches at a time; words that repeat are categories.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dtbench.base.columns import Column, Table
from dtbench.base.errors import StoreError
from dtbench.base.units import name_ranks
from dtbench.base.vocabulary import Phase
from dtbench.machine.disturbance import DISTURBED, is_enough
from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.summarize_stages import summarize_stages
from dtbench.runs.reading.copies import find_copies, mark, say_copy
from dtbench.runs.reading.knobs import KnobCell, find_knobs
from dtbench.runs.reading.lost_steps import count_planned, say_lost
from dtbench.runs.reading.run_data import refuse_impossible_steps, refuse_lost_steps
from dtbench.runs.reading.undisturbed import (
    IS_LEFT_OUT,
    JUDGED,
    LeftOut,
    count_left_alone,
    describe_left_out,
    find_left_out,
)
from dtbench.runs.reading.untold_others import say_lost_takers
from dtbench.runs.wrong_results import find_wrong_state
from dtbench.store.finish import STEPS
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_launch_environment, read_rank_records, read_run
from dtbench.store.records.outline import (
    CellOutline,
    RunOutline,
    SeenResults,
    find_runs_below,
    find_unlisted,
    read_outline,
    refuse_incomplete,
    refuse_wrong_results,
    say_unlisted,
)
from dtbench.store.records.place import Place, check_place

NOTES: Final = "notes"
"""Key of ``DataFrame.attrs`` under which the table says what it leaves out."""

_READERS = 8
_PHASE: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final = {"int64": pa.int64(), "float64": pa.float64(), "string": _PHASE}
_SCHEMA: Final = pa.schema([(name, _TYPES[dtype]) for name, dtype in STEPS.dtypes.items()])
_TAKEN: Final = "taken_fraction"
"""A further column of steps during which somebody looked at the whole machine, see ``use_file.USES``."""


@dataclass(frozen=True)
class _Launch:
    """One launch's steps, and what they are of.

    Attributes:
        is_left_out: by row, whether others disturbed its step; ``note`` says how many they did.
        lost: which steps no rank has, a sentence each.
    """

    run: RunOutline
    cell: CellOutline
    index: int
    folder: LaunchFolder
    steps: pa.Table
    is_left_out: np.ndarray
    lost: tuple[str, ...]
    note: str | None


def _read_column(steps: pa.Table, name: str) -> object:
    return steps[name].to_pandas().to_numpy()


def _read_phases(steps: pa.Table) -> object:
    return steps["phase"].to_pandas().cat.set_categories([one.value for one in Phase])


RUN_STEPS: Final = Table[Sequence[_Launch], _Launch, pa.Table](
    name="run_steps",
    doc="Every step of every complete launch of many runs: what `dtbench.load_runs` returns. After `launch` comes a "
    "column of categories for each axis of any run's sweep, and for each field in which runs of one scenario differ in "
    "one cell, named as the scenario does; NA: a run is not on that axis, or its scenario's runs do not differ in it.",
    find=lambda launches: ((one, one.steps) for one in launches),
    keys=(
        Column("scenario", "category", None, "its name", lambda of: of.run.name),
        Column("run", "category", None, "its id, as its folder is called", lambda of: of.run.run_id),
        Column("status", "category", None, "of the run: complete, failed, running", lambda of: of.run.status.value),
        Column("cell", "category", None, "its name", lambda of: of.cell.name),
        Column("launch", "int64", None, "which one of the cell", lambda of: of.index, least=0),
    ),
    columns=tuple(
        replace(column, dtype="category", value=_read_phases)
        if column.name == "phase"
        else replace(column, value=partial(_read_column, name=column.name))
        for column in STEPS.columns
    ),
)
"""The value of a key is that of all rows of a launch, the value of another column an array."""


def load_run_steps(results: Path, *, all_steps: bool = False) -> pd.DataFrame:
    """Return every step of every complete launch below a folder, columns as in ``RUN_STEPS``.

    What is left out (launches that failed, did not end or computed something wrong, files that are broken, steps that
    others disturbed), and of which phases they left too few alone for anything to be judged, is said in
    ``attrs["notes"]``, a sentence each.

    Args:
        results: folder of all runs, of one scenario's runs, or of one run.
        all_steps: give disturbed steps, too, and the column ``is_left_out``.

    Raises:
        StoreError: there is no run.
    """
    folders = list_runs(results)
    with ThreadPoolExecutor(_READERS) as readers:
        found = _leave_out_copies(list(chain.from_iterable(readers.map(_read_run, folders))))
    launches = [one for one in found if isinstance(one, _Launch)]
    table = _tabulate([one if all_steps else _leave_out(one) for one in launches])
    if all_steps:
        table[IS_LEFT_OUT] = np.concatenate([np.zeros(0, dtype=bool), *(one.is_left_out for one in launches)])
    table.attrs[NOTES] = [note for one in found for note in _take_notes(one, all_steps=all_steps)]
    return table


def list_runs(results: Path) -> list[Path]:
    """Return the folders of all runs below a folder, at least one.

    Raises:
        StoreError: there is no run.
    """
    folders = find_runs_below(results)
    if not folders:
        raise StoreError(f"{results}: no runs here; start one with `dtbench run <scenario>`, or name another folder")
    return folders


def _take_notes(found: _Launch | str, *, all_steps: bool) -> Iterator[str]:
    if isinstance(found, str):
        yield found
        return
    yield from found.lost
    if found.note is not None and not all_steps:
        yield found.note


def _leave_out_copies(found: Sequence[_Launch | str]) -> list[_Launch | str]:
    """Return each launch once, for each of its copies a sentence."""
    copies = find_copies(
        frozenset() if isinstance(one, str) else mark(pc.min(one.steps["start_ns"]).as_py()) for one in found
    )
    folders = {at: one.folder for at, one in enumerate(found) if isinstance(one, _Launch)}
    return [say_copy(folders[at], folders[copies[at]]) if at in copies else one for at, one in enumerate(found)]


def _leave_out(launch: _Launch) -> _Launch:
    if not launch.is_left_out.any():
        return launch
    return replace(launch, steps=launch.steps.filter(pa.array(~launch.is_left_out)))


def _read_run(path: Path) -> list[_Launch | str]:
    """Return the launches of a run; for one that is left out, a sentence."""
    try:
        run = read_outline(path)
    except StoreError as error:
        return [str(error)]
    found = [_read_launch(path, run, cell, index) for cell in run.cells for index in cell.launches]
    unlisted = find_unlisted(path, {cell.name: cell.launches for cell in run.cells})
    return [*(found or [f"{path}: no launch was started"]), *say_unlisted(path, unlisted)]


def _read_launch(path: Path, run: RunOutline, cell: CellOutline, index: int) -> _Launch | str:
    folder = RunFolder(path).launch(cell.name, index)
    try:
        seen = refuse_untrusted(path, cell.name, folder, cell.plan.ranks)
        judged = _read_steps(folder.steps, Place(run.run_id, cell.name, index))
        steps = judged.select(list(STEPS.dtypes))
        if not _are_possible(judged):
            refuse_impossible_steps(folder, judged.to_pandas())
        if not _are_whole(steps, cell.plan.ranks):
            refuse_lost_steps(folder, steps.to_pandas(), cell.plan.ranks)
    except StoreError as error:
        return str(error)
    may_be = _may_be_disturbed(judged)
    left_out = find_left_out(judged.to_pandas()) if may_be else {}
    numbers = list(frozenset().union(*left_out.values()))
    is_left_out = np.isin(steps["step"].to_numpy(), numbers) if numbers else np.zeros(steps.num_rows, dtype=bool)
    others = "others" if _had_processes(judged) else "other virtual machines"
    told = [*_describe_disturbed(judged.to_pandas(), left_out, others=others)] if may_be else []
    note = f"{folder.path}: {'; '.join(told)}" if told else None
    planned = count_planned(cell.plan)
    lost = [] if _are_all(steps, cell.plan.ranks, planned) else say_lost(steps.to_pandas(), planned)
    if _TAKEN in judged.column_names and np.isnan(judged[_TAKEN].to_numpy()).any():
        lost = [*lost, *say_lost_takers(judged.to_pandas())]
    if seen.silent:
        lost = [*lost, f"{name_ranks(seen.silent)} left no record: whether the results are right is not known"]
    lost = [*lost, *cell.say_unchecked(seen)]
    said = tuple(f"{folder.path}: {sentence}" for sentence in lost)
    return _Launch(run, cell, index, folder, steps, is_left_out, said, note)


def refuse_untrusted(run: Path, cell: str, folder: LaunchFolder, ranks: int) -> SeenResults:
    """Return what the ranks of a launch say of what they computed, where the launch counts.

    Raises:
        StoreError: it did not end well, computed something wrong, or a record is broken.
    """
    refuse_incomplete(folder)
    seen = refuse_wrong_results(folder, ranks)
    if seen.has_odd_stage:
        _refuse_wrong_state(run, cell, folder)
    return seen


def _refuse_wrong_state(path: Path, name: str, folder: LaunchFolder) -> None:
    """Return if what a launch's stages say of a training state is known to be broken in torch.

    Raises:
        StoreError: it is not, or a record is broken.
    """
    cell = next(cell for cell in read_run(path).cells if cell.name == name)
    torch = read_launch_environment(folder.environment).torch if folder.environment.exists() else None
    rows = summarize_stages({0: read_rank_records(folder)}, StagePlan.of(cell, torch))
    if (wrong := find_wrong_state({row.outcome for row in rows})) is not None:
        raise StoreError(f"{folder.path}: {wrong.clause}")


def _describe_disturbed(steps: pd.DataFrame, left_out: LeftOut, *, others: str) -> Iterator[str]:
    """Say which steps are left out as they were disturbed, and of which phases so many were that nothing is judged."""
    if left_out:
        yield describe_left_out(left_out, others=others)
    for phase in JUDGED:
        alone, count = count_left_alone(steps, phase), steps["step"][steps["phase"] == phase].nunique()
        if not is_enough(alone, count):
            yield f"nothing is judged by its {phase} steps: {others} left {alone} of {count} alone"


def _are_whole(steps: pa.Table, ranks: int) -> bool:
    """Tell cheaply whether each rank has the same number of steps, each once; where not, the reason is to be found."""
    found, counts = np.unique(steps["rank"].to_numpy(), return_counts=True)
    each = len(np.unique(steps["step"].to_numpy()))
    return each > 0 and bool((counts == each).all()) and set(range(ranks)) <= set(found.tolist())


def _are_all(steps: pa.Table, ranks: int, planned: Mapping[Phase, int]) -> bool:
    """Tell cheaply whether no number is skipped and each phase has its steps; where not, which is to be found."""
    numbers = np.unique(steps["step"].to_numpy())
    counts = {phase: pc.sum(pc.equal(steps["phase"], phase.value)).as_py() for phase in planned}
    are_planned = all(counts[phase] == ranks * number for phase, number in planned.items())
    return are_planned and bool(numbers[0] == 0) and len(numbers) == int(numbers[-1]) + 1


def _are_possible(steps: pa.Table) -> bool:
    """Tell cheaply whether every step took time and others had a fraction; where not, the row is to be found."""
    least = [np.min(steps[name].to_numpy(), initial=1) for name in ("duration_ns", "cpu_ns")]
    lost = steps["stolen_fraction"].to_numpy()
    return min(least) > 0 and not bool(((lost < 0) | (lost > 1)).any())


def _may_be_disturbed(steps: pa.Table) -> bool:
    """Tell cheaply whether anything was disturbed at all, which takes milliseconds to find out step by step."""
    told = [steps[name].to_numpy() for name in ("stolen_fraction", _TAKEN) if name in steps.column_names]
    return bool((np.nansum(told, axis=0) >= DISTURBED).any())


def _had_processes(steps: pa.Table) -> bool:
    """Tell whether other processes had a part in disturbing a step that counts."""
    return _TAKEN in steps.column_names and bool((np.nan_to_num(steps[_TAKEN].to_numpy()) >= DISTURBED / 2).any())


def _read_steps(path: Path, place: Place) -> pa.Table:
    """Read the columns of the table ``steps`` and, where somebody looked, what other processes took."""
    try:
        with pq.ParquetFile(path, read_dictionary=["phase"], page_checksum_verification=True) as file:
            steps = file.read([*STEPS.dtypes, _TAKEN], use_threads=False)
        check_place(path, _read_attrs(steps), place)
        steps = steps.replace_schema_metadata(None)
        if "stolen_fraction" not in steps.column_names:  # up to version 0.1.0 nobody looked
            steps = steps.append_column("stolen_fraction", pa.nulls(steps.num_rows, pa.float64()))
        known = steps.select(list(STEPS.dtypes)).cast(_SCHEMA)
        return known.append_column(_TAKEN, steps[_TAKEN]) if _TAKEN in steps.column_names else known
    except (OSError, KeyError, pa.ArrowException) as error:
        raise StoreError(f"{path}: not a readable table of steps ({error})") from error


def _read_attrs(steps: pa.Table) -> Mapping[str, object]:
    """Read what pandas would give as ``attrs``; none where the note is not what pandas writes."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode((steps.schema.metadata or {}).get(b"pandas", b"{}"), type=_PandasNote).attributes
    return {}


class _PandasNote(msgspec.Struct, frozen=True):
    """What is read of pandas' note on a table."""

    attributes: dict[str, object] = {}


def _tabulate(launches: Sequence[_Launch]) -> pd.DataFrame:
    rows = np.array([one.steps.num_rows for one in launches], dtype=np.int64)
    repeat = partial(_repeat, rows=rows)
    steps = pa.concat_tables([_SCHEMA.empty_table(), *(one.steps for one in launches)]).unify_dictionaries()
    columns: dict[str, object] = {}
    for column in RUN_STEPS.keys:
        values = [column.value(one) for one in launches]
        is_word = column.dtype == "category"
        columns[column.name] = repeat(values) if is_word else np.repeat(np.array(values, dtype=column.dtype), rows)
    cells = [KnobCell(one.run.name, one.cell.name, one.cell.coordinates, one.cell.fields) for one in launches]
    columns |= {name: repeat(values) for name, values in find_knobs(cells, RUN_STEPS.dtypes).items()}
    return pd.DataFrame({**columns, **RUN_STEPS.describe(steps)})


def _repeat(words: Sequence[object], rows: np.ndarray) -> "pd.Categorical[str]":
    """Return each launch's word for all of its rows, as categories in order of appearance; NA where it has none."""
    known = list(_known(words))
    places: Mapping[object, int] = {word: place for place, word in enumerate(known)}
    codes = np.array([places.get(word, -1) for word in words], dtype=np.int32)
    return pd.Categorical.from_codes(np.repeat(codes, rows), categories=pd.Index(known, dtype="str"))


def _known(words: Sequence[object]) -> Iterator[object]:
    yield from dict.fromkeys(word for word in words if word is not None)
