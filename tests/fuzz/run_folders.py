"""Mutated run folders: ``report``, ``compare`` and ``load_run`` answer of each, or say which file is broken.

They only read: afterwards the folder is as it was, and nothing lies beside it. The words and the JSON of `report` are
made of what ``load_run`` loaded, as the command makes them.
"""

import contextlib
import hashlib
import io
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import typer

import dtbench
from dtbench.base.errors import DtbenchError
from dtbench.cli.compare import _print_document, print_comparisons
from dtbench.cli.console import print_error
from dtbench.cli.report import print_document, print_report
from dtbench.comparison.run import compare_all
from dtbench.store.layout import LaunchFolder
from tests.fuzz.tries import Outcome, find_wrong_words
from tests.made_steps import write_journals

RESULTS: Final = Path(__file__).parent.parent.parent / "results"
RUN_ID: Final = "20260101T000000-aaaa"


@dataclass(frozen=True)
class Base:
    """A shipped run that is mutated, or the part of one that a try can read in a second.

    Attributes:
        shipped: its folder among the shipped results.
        scenario: the folder of its runs.
        cells: two of its cells.
        launches: of each cell, that are left.
    """

    shipped: str
    scenario: str
    cells: tuple[str, str]
    launches: int


BASES: Final = {
    "whole": Base("example", "quickstart", ("ddp", "fsdp2_tp"), 1),
    "one": Base("example_sweep", "example_sweep", ("micro_batches-1", "micro_batches-2"), 1),
    "two": Base("example_sweep", "example_sweep", ("micro_batches-1", "micro_batches-2"), 2),
}
_BASE_WEIGHTS: Final = (5, 60, 35)

_VALUES: Final[tuple[object, ...]] = (
    *(None, True, False, -1, 0, 1, 1e308, -1e308, 1e-300, 2**31, 2**63, 2**64, 10**15, 1.5, -0.0, math.nan, math.inf),
    *(
        "NaN",
        "Infinity",
        "",
        "x",
        "../../x",
        "/etc/passwd",
        "a" * 300,
        "[red]",
        "$x_{",
        "\x1b[31m",
        "\0",
        "\u202e",
        "1e5",
    ),
    *(
        [],
        {},
        [[]],
        {"a": 1},
        [None],
        "ddp",
        "fsdp2",
        "tensor",
        "unshard",
        "complete",
        "running",
        "failed",
        "grad_reduce",
    ),
)
_COUNTS: Final = (1, 1, 1, 2, 3)


def copy_base(base: Base, folder: Path) -> Path:
    """Copy a run without its pictures into results of its own; gives its folder."""
    run = folder / "results" / base.scenario / RUN_ID
    shutil.copytree(RESULTS / base.shipped, run, ignore=shutil.ignore_patterns("*.png"))
    for cell in (run / "cells").iterdir():
        if cell.name not in base.cells:
            shutil.rmtree(cell)
            continue
        for launch in cell.glob("launch*"):
            if int(launch.name.removeprefix("launch")) >= base.launches:
                shutil.rmtree(launch)
    record = json.loads((run / "run.json").read_bytes())
    record["cells"] = [cell for cell in record["cells"] if cell["name"] in base.cells]
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return run


class RunFolders:
    """The fuzzer of run folders."""

    block = 20

    def make(self, number: int, folder: Path) -> Path:
        """Write the run of a number."""
        chance = random.Random(f"run folders {number}")
        (base,) = chance.choices(list(BASES.values()), weights=_BASE_WEIGHTS)
        run = copy_base(base, folder)
        for _ in range(chance.choice(_COUNTS)):
            chance.choices(_MUTATIONS, weights=_WEIGHTS)[0](chance, run)
        return run

    def judge(self, target: Path) -> Outcome:
        """Have every reader of runs read it, and look whether it is as it was."""
        before = _digest(target)
        answer, wrong = _read(lambda: _load(target))
        wrong += _read(lambda: _compare(target))[1]
        changed = {path for path, _ in before ^ _digest(target)}
        if changed:
            wrong.append(f"changed while it was read: {sorted(changed)}")
        return Outcome(answer, tuple(wrong))


def _read(reader: Callable[[], object]) -> tuple[str, list[str]]:
    """Let a reader answer or refuse; gives which, and what was wrong with its words."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            reader()
        except (DtbenchError, typer.BadParameter) as error:
            print_error(str(error))
            return "refused", find_wrong_words(said.getvalue())
    return "answered", find_wrong_words(said.getvalue())


def _load(run: Path) -> None:
    """Load a run, print its report, and write it as JSON."""
    loaded = dtbench.load_run(run)
    for table in (loaded.steps, loaded.overlap, loaded.purposes, loaded.collectives, loaded.owners, loaded.estimates):
        len(table)
    str(loaded)
    print_report(loaded.summary)
    _read_strictly(lambda: print_document(loaded.summary))


def _compare(run: Path) -> None:
    """Compare two cells of a run, in words and as JSON."""
    first, second = next(base.cells for base in BASES.values() if base.scenario == run.parent.name)
    comparisons = compare_all([f"{run}:{first}", f"{run}:{second}"], results=run.parents[1])
    print_comparisons(comparisons)
    _read_strictly(lambda: _print_document(comparisons, None))


def _read_strictly(write: Callable[[], object]) -> None:
    """Read the JSON that a command writes; nothing of it is printed."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        write()
    json.loads(written.getvalue(), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> object:
    raise AssertionError(f"JSON has {name}")


def _digest(run: Path) -> set[tuple[str, str]]:
    """Return every file of a run and of the folder that holds its results, with a digest of its content."""
    top = run.parents[2]
    files = (path for path in top.rglob("*") if path.is_file())
    return {(str(path.relative_to(top)), hashlib.blake2b(path.read_bytes()).hexdigest()) for path in files}


def _iterate_places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every mapping or list with a key or place in it; of long lists the first."""
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(min(len(node), 40)):
            yield node, key
            yield from _iterate_places(node[key])


def _choose(chance: random.Random, run: Path, pattern: str) -> Path | None:
    found = sorted(run.rglob(pattern))
    return chance.choice(found) if found else None


def _mutate_record(chance: random.Random, run: Path) -> None:
    """Change fields of a record."""
    path = _choose(chance, run, "*.json")
    if path is None:
        return
    try:
        record = json.loads(path.read_bytes())
    except ValueError:
        return
    for _ in range(chance.choice(_COUNTS)):
        places = list(_iterate_places(record))
        if places:
            _change(chance, *chance.choice(places))
    path.write_text(json.dumps(record), encoding="utf-8")


def _change(chance: random.Random, node: Any, key: Any) -> None:
    value = node[key]
    match chance.randrange(10):
        case 0:
            del node[key]
        case 1 if isinstance(value, list):
            node[key] = value * 2 if chance.random() < 0.5 else value[:-1]
        case 2 | 3 | 4 if isinstance(value, int | float) and not isinstance(value, bool):
            node[key] = chance.choice([-value, value * 10**9, 0, value + 1, -1, 2**62, value * 1000, 1])
        case 5 if isinstance(value, str):
            node[key] = chance.choice([f"{value}x", value.upper(), "", value * 50, f"{value}\x1b[2J"])
        case 6 if isinstance(node, dict):
            node[chance.choice(["x", "", "\x1b[2J", f"{key} "])] = value
        case _:
            node[key] = chance.choice(_VALUES)


def _mutate_table(chance: random.Random, run: Path) -> None:
    """Change a table: its columns, its rows, its values, its dtypes."""
    path = _choose(chance, run, "*.parquet")
    if path is None:
        return
    try:
        table = pd.read_parquet(path)
    except Exception:  # noqa: BLE001  it is damaged already
        return
    changed = chance.choice(_TABLE_CHANGES)(chance, table, chance.choice(list(table.columns) or ["none"]))
    with contextlib.suppress(Exception):  # of what pyarrow cannot write the old table stays
        path.write_bytes(changed.to_parquet(index=False))


def _set_cells(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    values = [-1, 0, 1, 10**18, -(10**12), None, math.nan, "x", "\x1b[2J", 2**62]
    rows = slice(None) if chance.random() < 0.5 else chance.sample(range(len(table)), min(2, len(table)))
    with contextlib.suppress(Exception):  # not every column takes every value
        table.loc[rows, column] = chance.choice(values)
    return table


def _retype(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    with contextlib.suppress(Exception):
        return table.astype({column: chance.choice(["str", "float64", "int32", "category"])})
    return table


def _rename(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.rename(columns={column: chance.choice(["x", "step", "rank", f"{column} "])})


def _drop_column(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.drop(columns=[column], errors="ignore")


def _cut_rows(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.iloc[: chance.choice([0, 0, 1, len(table) // 2])]


def _repeat_rows(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    return pd.concat([table, table.iloc[: chance.choice([1, len(table)])]])


def _shuffle_rows(chance: random.Random, table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.sample(frac=1.0, random_state=chance.randrange(1000))


_TABLE_CHANGES: Final = (
    *(_set_cells, _set_cells, _set_cells, _retype, _rename, _drop_column, _cut_rows, _repeat_rows, _shuffle_rows),
)


def _mutate_journal(chance: random.Random, run: Path) -> None:
    """Leave a launch as killed ranks do: without its records, with journals, of which bytes are changed or lacking."""
    cells = sorted((run / "cells").glob("*/launch0"))
    if not cells:
        return
    launch = LaunchFolder(chance.choice(cells))
    write_journals(launch, ranks=2, measured=3, profiled=chance.randrange(3))
    if chance.random() < 0.7:
        launch.launch.unlink(missing_ok=True)
    if chance.random() < 0.7:
        launch.steps.unlink(missing_ok=True)
    for rank in range(2):
        content = bytearray(launch.journal(rank).read_bytes())
        for _ in range(chance.randrange(6)):
            content[chance.randrange(len(content))] = chance.choice([0, 1, 127, 128, 255])
        launch.journal(rank).write_bytes(content[: chance.choice([len(content)] * 3 + [0, 8, 72, 130])])


def _mutate_bytes(chance: random.Random, run: Path) -> None:
    """Flip or cut bytes of any file."""
    path = _choose(chance, run, "*.*")
    if path is None or not path.is_file():
        return
    content = bytearray(path.read_bytes())
    if not content:
        return
    if chance.random() < 0.3:
        del content[chance.randrange(len(content)) :]
    for _ in range(chance.randint(1, 4)):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _mutate_scenario(chance: random.Random, run: Path) -> None:
    """Take lines of the scenario out, or have them twice."""
    path = run / "scenario.yaml"
    if path.is_file():
        lines = path.read_bytes().splitlines(keepends=True)
        place = chance.randrange(len(lines) + 1)
        lines[place:place] = lines[: chance.randrange(5)] if chance.random() < 0.5 else []
        del lines[place : place + chance.randrange(4)]
        path.write_bytes(b"".join(lines))


def _mutate_folder(chance: random.Random, run: Path) -> None:
    """Leave out a file or a folder, or put something in its place, or beside it."""
    path = _choose(chance, run, "*")
    if path is None:
        return
    other = _choose(chance, run, "*.*")
    match chance.randrange(5):
        case 0 | 1:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        case 2 if path.is_file():
            path.unlink()
            path.mkdir()
        case 3 if path.is_file() and other is not None and other.is_file():
            path.write_bytes(other.read_bytes())
        case _:
            (path.parent / chance.choice(["launch7", "x\x1b[2J", "rank9.json", "launch00", ".lock"])).mkdir(
                exist_ok=True
            )


_MUTATIONS: Final[tuple[Callable[[random.Random, Path], None], ...]] = (
    *(_mutate_record, _mutate_table, _mutate_journal, _mutate_bytes, _mutate_scenario, _mutate_folder),
)
_WEIGHTS: Final = (50, 25, 6, 7, 5, 7)
