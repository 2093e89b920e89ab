"""Tables of a launch that are of several analyses: what they say twice differs, and nothing is judged by them."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.report.words.sentences import answer_sentence, wait_sentence
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.place import PLACE
from dtbench.store.write import write_table
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rows.launch_tables import read_tables as read_launch
from dtbench.traces.rows.table_sums import find_strangers
from dtbench.traces.rows.tables import TABLES

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
RANKS = 2


def read_tables(cell: str) -> dict[str, pd.DataFrame]:
    """Read what two ranks of a cell of the example wrote."""
    tables = read_launch(RunFolder(EXAMPLE).launch(cell, 0)).tables
    return {name: table[table["rank"] < RANKS] for name, table in tables.items()}


@pytest.mark.parametrize("cell", ["ddp", "fsdp2_tp"])
def test_tables_of_one_launch_say_the_same(cell: str) -> None:
    assert list(find_strangers(read_tables(cell))) == []


@pytest.mark.parametrize("name", ["overlap", "purposes", "groups", "collectives"])
def test_a_table_of_another_cell_is_found_by_its_sums(name: str) -> None:
    mixed = {**read_tables("ddp"), name: read_tables("fsdp2_tp")[name]}
    said = list(find_strangers(mixed))
    assert said
    assert said[0].startswith("tables of ranks 0-1 do not belong together: ")
    assert all(" do not belong together: " in one for one in said)


@pytest.mark.parametrize(
    ("name", "column"), [("overlap", "exposed_comm_ns"), ("purposes", "exposed_ns"), ("groups", "exposed_ns")]
)
def test_one_nanosecond_of_one_rank_is_enough_and_what_is_not_known_is_not(name: str, column: str) -> None:
    tables = read_tables("ddp")
    index = tables[name].index[tables[name]["rank"] == 1][0]
    for value, ranks in ((tables[name].loc[index, column] + 1, {"rank 1"}), (pd.NA, set())):
        changed = tables[name].astype({column: "Int64"})
        changed.loc[index, column] = value
        said = list(find_strangers({**tables, name: changed}))
        assert {one.removeprefix("tables of ").split(" do not")[0] for one in said} == ranks


def test_sizes_of_collectives_add_up_to_those_of_their_purposes_where_all_are_known() -> None:
    tables = read_tables("ddp")
    last = (tables["collectives"]["owner"] == "bucket 3") & (tables["collectives"]["rank"] == 1)
    for size_bytes, said in ((0, ["rank 1"]), (pd.NA, [])):
        changed = tables["collectives"].astype({"size_bytes": "Int64"})
        changed.loc[last, "size_bytes"] = size_bytes
        found = list(find_strangers({**tables, "collectives": changed}))
        assert [one.removeprefix("tables of ").split(" do not")[0] for one in found] == said
        assert all("collectives lists " in one and " MiB" in one for one in found)


def test_waits_add_up_to_the_gaps_of_a_device() -> None:
    traces = analyze_traces([Path(__file__).parent / "cases" / "merged.json"])
    tables = {table.name: table.tabulate(traces.analyses) for table in TABLES}
    assert list(find_strangers(tables)) == []
    assert tables["comm_waits"]["wait_ns"].isna().all()  # no stream's wait is recorded
    for name, column in (("comm_waits", "wait_ns"), ("gaps", "comm_wait_ns")):
        tables[name][column] = 4_000_000
    assert list(find_strangers(tables)) == []
    doubled = tables["comm_waits"].assign(wait_ns=2 * tables["comm_waits"]["wait_ns"])
    (said,) = find_strangers({**tables, "comm_waits": doubled})
    assert said == (
        "tables of ranks 0-1 do not belong together: comm_waits says 8.00 ms of waiting in step 1, and gaps 4.00 ms"
    )


def test_nothing_is_judged_by_a_table_without_a_place_that_is_of_another_cell(tmp_path: Path) -> None:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    launch = RunFolder(run).launch("ddp", 0)
    of_another = pd.read_parquet(RunFolder(run).launch("fsdp2_tp", 0).derived_table("purposes"))
    of_another.attrs.pop(PLACE, None)
    write_table(launch.derived_table("purposes"), of_another[of_another["rank"] < RANKS])
    cell = next(one for one in summarize_run(run).cells if one.name == "ddp")
    assert any("do not belong together" in doubt for doubt in cell.rank_doubts)
    assert any("do not belong together" in note for note in cell.notes)


def test_a_launch_record_of_another_cell_leaves_its_launch_out_and_no_check_is_judged(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    record = run.launch("fsdp2_tp", 0).launch
    shutil.copy(run.launch("ddp", 0).launch, record)
    data = read_run_data(run.path, cell="fsdp2_tp")
    assert data.cells[0].launches == ()
    assert data.cells[0].unreadable[0].startswith(f"{record}: is of cell ddp, launch 0, and lies in cell fsdp2_tp")
    checks = summarize_run(run.path).checks
    assert checks is not None
    assert checks.results[0].outcome is CheckOutcome.NOT_JUDGED


@pytest.mark.parametrize("name", ["purposes", "collectives", "groups"])
def test_a_table_without_rows_is_missed_unless_there_is_none(name: str) -> None:
    tables = read_tables("ddp")
    emptied = {**tables, name: tables[name][:0]}
    (said,) = find_strangers(emptied)
    assert said.startswith(f"tables of ranks 0-1 do not belong together: {name} has nothing of what communicated for ")
    assert list(find_strangers(emptied, [name])) == []


@pytest.mark.parametrize("name", ["purposes", "collectives"])
def test_a_table_that_lacks_a_rank_which_communicated_is_not_believed(name: str) -> None:
    tables = read_tables("ddp")
    lacking = {**tables, name: tables[name][tables[name]["rank"] == 0]}
    (said,) = find_strangers(lacking)
    assert said.startswith(f"tables of rank 1 do not belong together: {name} has nothing of what communicated for ")
    quiet = tables["overlap"].assign(comm_ns=0, hidden_comm_ns=0, exposed_comm_ns=0)
    assert not [one for one in find_strangers({**lacking, "overlap": quiet}) if "has nothing of" in one]


def test_a_rank_that_is_in_no_table_is_missed_and_nothing_is_judged(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    launch = run.launch("ddp", 0)
    for table in TABLES:
        path = launch.derived_table(table.name)
        if path.exists():
            read = pd.read_parquet(path)
            write_table(path, read[read["rank"] != 1])
    summary = summarize_run(run.path)
    (cell,) = [cell for cell in summary.cells if cell.name == "ddp"]
    assert cell.rank_doubts == ("launch0: rank 1 is in no derived table",)
    assert "rank 1 is in no derived table" in cell.notes
    answer = answer_sentence(cell)
    assert answer is not None
    assert answer.startswith("of rank 0 alone, of 2: 96.5 ms of a profiled step (19.8 %)")
    assert wait_sentence(cell, Purpose.GRAD_REDUCE).startswith("of rank 0 alone, of 2: 92.3 ms per step")
    assert summary.checks is None or "passed" not in {str(result.outcome) for result in summary.checks.results[:1]}


@pytest.mark.parametrize("cell", ["ddp", "fsdp2_tp"])
def test_waits_of_purposes_that_their_collectives_exceed_are_not_believed(cell: str, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    path = run.launch(cell, 0).derived_table("purposes")
    rows = pd.read_parquet(path)
    changed = rows.assign(wait_ns=rows["wait_ns"] * 0)
    changed.attrs = dict(rows.attrs)
    write_table(path, changed)
    found = next(one for one in summarize_run(run.path).cells if one.name == cell)
    (doubt,) = found.rank_doubts
    assert "do not belong together: purposes says 0 ns of waiting for " in doubt
    assert doubt.endswith(" or more")


def test_a_wait_of_one_step_that_is_gone_is_missed() -> None:
    tables = read_tables("ddp")
    purposes = tables["purposes"]
    one_step = purposes["wait_ns"].where((purposes["step"] != 17) | (purposes["rank"] != 1), 0)
    (said,) = find_strangers({**tables, "purposes": purposes.assign(wait_ns=one_step)})
    assert said.startswith("tables of rank 1 do not belong together: purposes says ")
    unknown = purposes["wait_ns"].astype("Int64").where(purposes["step"] != 17)
    assert list(find_strangers({**tables, "purposes": purposes.assign(wait_ns=unknown)})) == []


def test_no_purpose_is_waited_for_for_longer_than_the_step() -> None:
    tables = read_tables("ddp")
    (said,) = find_strangers({**tables, "purposes": tables["purposes"].assign(wait_ns=10**12)})
    assert "do not belong together: purposes says 1000 s of waiting for grad_reduce in step 16, which took " in said


def test_of_what_a_collective_was_waited_for_only_what_hid_it_may_be_compute() -> None:
    tables = read_tables("ddp")
    times = {"start_ns": 0, "end_ns": 20, "exposed_ns": 12, "hidden_ns": 8, "first_wait_ns": 5, "wait_ns": 15}
    collectives = tables["collectives"].assign(**times).drop_duplicates(["rank", "step"])
    overlap = tables["overlap"].assign(exposed_comm_ns=0)
    alone = {**tables, "collectives": collectives, "overlap": overlap}
    for wait_ns, is_told in ((6, False), (7, True), (8, True)):
        purposes = tables["purposes"].assign(wait_ns=0)
        first = ~purposes.duplicated(["rank", "purpose"])
        purposes.loc[first, "wait_ns"] = wait_ns
        said = [one for one in find_strangers({**alone, "purposes": purposes}) if "of waiting" in one]
        assert (not said) is is_told
