"""Read what a run wrote. Every refusal is a ``StoreError`` that says which file and what to do.

A run that is not finished is still readable: its records say ``running``, its launches may lack ``launch.json`` and
``steps.parquet``, and the steps that its ranks finished are then read from their journals.
"""

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from pydantic import ValidationError

from dtbench.base.errors import StoreError
from dtbench.base.record import Record
from dtbench.store.finish import STEPS, gather_steps
from dtbench.store.journal import read_journal
from dtbench.store.layout import (
    LaunchFolder,
    RunFolder,
    baseline_file,
    baselines_folder,
    catalogue_file,
    outcomes_file,
)
from dtbench.store.links import refuse_links
from dtbench.store.records.baseline import MeasuredCell, MeasuredSide
from dtbench.store.records.checks import CatalogueRecord, OutcomesRecord
from dtbench.store.records.nodes import NodesRecord
from dtbench.store.records.outline import refuse_odd_cells, refuse_strange_launch
from dtbench.store.records.place import check_place, find_place, refuse_strange
from dtbench.store.records.probes import LineRecord
from dtbench.store.records.rank import RankRecord, upgrade_format_1
from dtbench.store.records.run import FORMAT_VERSION, Environment, LaunchRecord, RunRecord, RunStatus, WorkerOrder
from dtbench.store.use_file import USES
from dtbench.store.walk import walk_runs

if TYPE_CHECKING:
    import pandas as pd

_R = TypeVar("_R", bound=Record)


_TOO_LARGE: Final = 1e30
"""Of any number that is measured; many of it still add up to a float."""

_HEAD: Final = 4096
"""Bytes of a file that tell what it is."""

_FIRST_KEY: Final = re.compile(rb'\s*\{\s*"(\w+)"\s*:')

_ODD_NOTES: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What pandas raises where its own notes in a Parquet file are damaged: it reads them as they are."""


class _Versioned(msgspec.Struct):
    format_version: int


def read_run(path: Path) -> RunRecord:
    """Read ``run.json`` of a run folder.

    Raises:
        StoreError: there is none, it is broken, another version wrote it, or there is a link in the folder.
    """
    folder = RunFolder(path)
    refuse_links(path)
    if not folder.run.exists() and folder.scenario.exists():
        raise StoreError(
            f"{path}: the run is incomplete, it ended before it wrote {folder.run.name}; run the scenario again"
        )
    run = _read_record(folder.run, RunRecord)
    launches = {cell.name: cell.launches for cell in run.cells}
    refuse_odd_cells(folder.run, launches, len(run.cells))
    absent = [name for name in run.checklist.named_cells if name not in launches]
    if absent:
        raise StoreError(
            f"{folder.run}: its checks are about a cell `{absent[0]}` that it does not have; was it edited?"
        )
    return run


def is_incomplete(run: RunRecord) -> bool:
    """Tell whether a run never said how it ended: it still runs, or its writer is gone."""
    return run.status is RunStatus.RUNNING


def read_nodes(folder: RunFolder) -> NodesRecord | None:
    """Read where the results of each node of a run lie; None: it ran on one, or was joined.

    Raises:
        StoreError: the file is broken or of another version.
    """
    return _read_record(folder.nodes, NodesRecord) if folder.nodes.exists() else None


def read_environment(path: Path) -> Environment:
    """Read ``env.json`` of a run folder.

    Raises:
        StoreError: there is none, it is broken, or another version wrote it.
    """
    return _read_record(RunFolder(path).environment, Environment)


def read_order(folder: LaunchFolder) -> WorkerOrder:
    """Read what the ranks of a launch were told.

    Raises:
        StoreError: there is none, it is broken, of another launch, or another version wrote it.
    """
    order = _read_record(folder.order, WorkerOrder)
    refuse_strange_launch(folder.order, folder, order.cell, order.index)
    return order


def read_launch_environment(path: Path) -> Environment:
    """Read the environment that one launch's rank 0 has written.

    Raises:
        StoreError: it is broken, or another version wrote it.
    """
    return _read_record(path, Environment)


def read_launch(folder: LaunchFolder) -> LaunchRecord:
    """Read ``launch.json``; its absence means that the launch did not end.

    Raises:
        StoreError: there is none, it is broken, of another launch, or another version wrote it.
    """
    if folder.path.exists() and not folder.launch.exists():
        raise StoreError(
            f"{folder.path}: the launch is incomplete, it wrote no {folder.launch.name}; its logs are in {folder.logs}"
        )
    record = _read_record(folder.launch, LaunchRecord)
    refuse_strange_launch(folder.launch, folder, record.cell, record.index)
    return record


def read_rank_records(folder: LaunchFolder) -> tuple[RankRecord, ...]:
    """Read what the ranks of a launch found out, in order of rank; only those that came so far.

    Raises:
        StoreError: one of them is broken, is another rank's or another launch's, or another version wrote it.
    """
    paths = folder.rank_record(0).parent.glob("rank*.json")
    records = [_read_rank_record(folder, path) for path in paths]
    if any(record.place is not None for record in records):
        here = find_place(folder)
        for record in records:
            refuse_strange(folder.rank_record(record.rank), "a record", record.place, here)
    return tuple(sorted(records, key=lambda record: record.rank))


def _read_rank_record(folder: LaunchFolder, path: Path) -> RankRecord:
    record = _read_record(path, RankRecord)
    if path.name != folder.rank_record(record.rank).name:
        raise StoreError(f"{path}: holds what rank {record.rank} found out; was it copied or renamed?")
    return record


def read_ranks_in_stage(folder: LaunchFolder, *, ranks: int) -> tuple[RankRecord, ...]:
    """Read what ranks left when they went into a stage of their training state; empty unless every rank is in one.

    Raises:
        StoreError: one of them is broken.
    """
    paths = [folder.rank_in_stage(rank) for rank in range(ranks)]
    if not all(path.exists() for path in paths):
        return ()
    return tuple(_read_record(path, RankRecord) for path in paths)


def read_line_records(folder: LaunchFolder) -> tuple[LineRecord, ...]:
    """Read which lines of the files under study the ranks of a launch ran, in order of rank; also of a failed launch.

    Raises:
        StoreError: one of them is broken, or another version wrote it.
    """
    records = [_read_record(path, LineRecord) for path in folder.lines(0).parent.glob("lines*.json")]
    return tuple(sorted(records, key=lambda record: record.rank))


def read_steps(folder: LaunchFolder) -> "pd.DataFrame":
    """Read the timings of every step of every rank.

    From the journals where the launch did not end, or its table broke or lacks a rank: rank 0 writes it, and without a
    file system that all nodes share it has the ranks of its own.

    Raises:
        StoreError: the table is broken or lacks a column, and there is no journal; there is neither; or a journal is
            of another process than its rank's record.
    """
    ranks = folder.find_journals()
    if folder.steps.exists():
        try:
            table = _read_step_table(folder)
        except StoreError:
            if not ranks:
                raise
        else:
            if not _find_lacking(folder, set(ranks) - set(table["rank"].unique())):
                return table
    if not ranks:
        raise StoreError(f"{folder.path}: no rank finished a step, there is neither {folder.steps.name} nor a journal")
    _refuse_strange_journals(folder)
    return gather_steps(folder, ranks=ranks)


def _find_lacking(folder: LaunchFolder, ranks: Iterable[int]) -> list[int]:
    """Return which of these ranks have timed a step, by their journals."""
    views = ((rank, read_journal(folder.journal(rank))) for rank in ranks)
    return [rank for rank, view in views if view is not None and view.timings]


def _refuse_strange_journals(folder: LaunchFolder) -> None:
    """Refuse a journal that another process wrote than the record of its rank."""
    for record in read_rank_records(folder):
        journal = read_journal(folder.journal(record.rank))
        if journal is not None and journal.pid != record.pid:
            told = f"is of process {journal.pid}, and the record of rank {record.rank} is of {record.pid}"
            raise StoreError(f"{folder.journal(record.rank)}: {told}; was it copied here?")


def read_first_start(folder: LaunchFolder) -> int | None:
    """Read when the first step of all ranks started, ns of its machine's clock, from the statistics of its table.

    None: there is no table, or it says nothing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        groups = pq.read_metadata(folder.steps).to_dict()["row_groups"]
    except (OSError, pa.ArrowException):
        return None
    columns = (column for group in groups for column in group["columns"] if column["path_in_schema"] == "start_ns")
    found = [column["statistics"]["min"] for column in columns if column["statistics"] is not None]
    return min((one for one in found if isinstance(one, int)), default=None)


def _read_step_table(folder: LaunchFolder) -> "pd.DataFrame":
    frame = _read_frame(folder.steps, "the journals of its ranks are gone, too")
    check_place(folder.steps, frame.attrs, find_place(folder))
    frame.attrs = {}
    return _fit_steps(frame, folder.steps)


def _fit_steps(frame: "pd.DataFrame", path: Path) -> "pd.DataFrame":
    if "stolen_fraction" not in frame:  # up to version 0.1.0 nobody looked
        frame = frame.assign(stolen_fraction=math.nan)
    lacking = [name for name in STEPS.dtypes if name not in frame]
    if lacking:
        raise StoreError(
            f"{path}: lacks the columns {', '.join(lacking)}; was it edited, or written by another version?"
        )
    try:
        return frame.astype({**STEPS.dtypes, **{one.name: one.dtype for one in USES if one.name in frame}})
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path}: does not hold what it should ({error}); was it edited?") from error


def read_baseline(results: Path, name: str) -> MeasuredSide:
    """Read a saved baseline.

    Raises:
        StoreError: there is none of this name, it is broken, or another version wrote it.
    """
    return read_baseline_file(baseline_file(results, name))


def read_baseline_file(path: Path) -> MeasuredSide:
    """Read a saved baseline from a file, wherever that lies.

    Raises:
        StoreError: it is missing, broken, or another version wrote it.
    """
    saved = _read_record(path, MeasuredSide)
    for one in (one for launch in saved.launches for one in launch.measurements):
        if not (math.isnan(one.value) or 0 <= one.value < _TOO_LARGE):
            raise StoreError(f"{path}: no launch has a {one.metric} of {one.value:g}; was it edited?")
    return saved


def is_baseline_file(path: Path) -> bool:
    """Tell whether a file begins as a saved baseline does, whatever orders its keys; one that was cut does, too."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:  # who reads it says so
        return False
    first = _FIRST_KEY.match(head)
    if first is None or (key := first[1].decode()) not in MeasuredSide.model_fields:
        return False
    return key != "format_version" or b'"labels"' in head  # all records have a version


def read_measurements(path: Path, cell: str) -> MeasuredCell:
    """Read the numbers that were kept of a cell of a run; whether they still hold is for the reader to see.

    Raises:
        StoreError: there are none, they are broken, or another version wrote them.
    """
    return _read_record(RunFolder(path).measurements(cell), MeasuredCell)


def find_baselines(results: Path) -> list[str]:
    """Return the names of all saved baselines, sorted."""
    return sorted(path.stem for path in baselines_folder(results).glob("*.json") if not path.name.startswith("."))


def read_catalogue(results: Path) -> CatalogueRecord | None:
    """Read how far the latest catalogue came; None: there was none.

    Raises:
        StoreError: the file is broken, or another version wrote it.
    """
    path = catalogue_file(results)
    return _read_record(path, CatalogueRecord) if path.exists() else None


def read_outcomes(scenarios: Path) -> OutcomesRecord:
    """Read the last outcomes of a folder of scenarios; none where none was recorded.

    Raises:
        StoreError: the file is broken, or another version wrote it.
    """
    path = outcomes_file(scenarios)
    return _read_record(path, OutcomesRecord) if path.exists() else OutcomesRecord()


def read_table(path: Path) -> "pd.DataFrame":
    """Read a derived table.

    Raises:
        StoreError: it is missing or broken.
    """
    return _read_frame(path, "delete it, `dtbench analyze` makes derived tables again")


def _read_frame(path: Path, advice: str) -> "pd.DataFrame":
    import pandas as pd
    import pyarrow as pa

    if path.is_dir():  # pandas would put together whatever is in it
        raise StoreError(f"{path}: is a folder and no table; {advice}")
    try:
        return pd.read_parquet(path, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: missing; `dtbench analyze` makes derived tables again") from error
    except (OSError, pa.ArrowException, *_ODD_NOTES) as error:
        raise StoreError(f"{path}: not a readable table ({error!r}); {advice}") from error


def read_columns(path: Path) -> tuple[str, ...]:
    """Read which columns a table has, without the table; none where it is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return ()


def latest_run(results: Path, tell: Callable[[str], None] = lambda _sentence: None) -> Path:
    """Return the folder of the latest run that this dtbench can read; of the latest where it can read none.

    Args:
        results: folder of all runs.
        tell: told of one that is later, and that another version wrote.

    Raises:
        StoreError: there is none.
    """
    latest: Path | None = None
    for run in walk_runs(results):
        latest = latest or run
        if not _is_of_another_format(run):
            if run != latest:
                tell(f"{latest} is later, but another version of dtbench wrote it; this is the latest that can be read")
            return run
    if latest is None:
        raise StoreError(
            f"{results}: no runs here; start one with `dtbench run <scenario>`, or name another folder with --results"
        )
    return latest


def _is_of_another_format(run: Path) -> bool:
    """Tell whether another version wrote a run; what is broken is for its reader to say."""
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        content = RunFolder(run).run.read_bytes()
        return msgspec.json.decode(content, type=_Versioned).format_version != FORMAT_VERSION
    return False


def _read_record(path: Path, record: type[_R]) -> _R:
    written = record.model_fields["format_version"].default
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: missing; is this the folder of a run?") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        version = msgspec.json.decode(content, type=_Versioned).format_version
        if record is RankRecord and version == 1:
            content, version = upgrade_format_1(content), written
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: broken ({error}); was it edited or cut short?") from error
    if version != written:
        raise StoreError(
            f"{path}: written in format {version}, this dtbench reads {written}; use the dtbench that wrote it"
        )
    try:
        return record.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path}: does not hold what it should, {where}: {first['msg']}; was it edited?") from error
