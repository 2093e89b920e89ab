"""What ranks leave says of which launch it is: what lies in another launch's folder is refused."""

import json
import shutil
from pathlib import Path

import pytest

from dtbench.base.errors import StoreError
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_rank_records, read_run, read_steps
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.place import Place, find_place
from tests.known import known
from tests.made_steps import write_journals

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """The example, whose rank records say where they belong, as versions up to 0.1.0 did not write them."""
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    for cell in read_run(run.path).cells:
        folder = run.launch(cell.name, 0)
        for rank in range(cell.plan.ranks):
            path = folder.rank_record(rank)
            place = {"run": read_run(run.path).run_id, "cell": cell.name, "launch": 0}
            path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "place": place}))
    return run


def test_records_of_their_own_launch_and_those_that_do_not_say_are_read(run: RunFolder) -> None:
    folder = run.launch("ddp", 0)
    assert {record.place for record in read_rank_records(folder)} == {find_place(folder)}
    old = read_rank_records(RunFolder(EXAMPLE).launch("ddp", 0))
    assert {record.place for record in old} == {None}
    assert [record.model_copy(update={"place": None}) for record in read_rank_records(folder)] == list(old)
    assert [cell.rank_doubts for cell in summarize_run(run.path).cells] == [(), ()]


def test_a_record_of_another_cell_leaves_its_launch_out_and_nothing_is_judged(run: RunFolder) -> None:
    path = run.launch("ddp", 0).rank_record(1)
    shutil.copy(run.launch("fsdp2_tp", 0).rank_record(1), path)
    summary = summarize_run(run.path)
    here, there = (Place(summary.run_id, cell, 0) for cell in ("ddp", "fsdp2_tp"))
    said = f"{path}: is a record of {there}, and lies in {here}; was it copied here?"
    assert summary.cells[0].unreadable == {0: said}
    assert known(summary.checks).outcome is CheckOutcome.NOT_JUDGED


@pytest.mark.parametrize(("field", "value"), [("launch", 3), ("run", "another")])
def test_a_record_of_another_launch_or_run_is_refused(field: str, value: object, run: RunFolder) -> None:
    path = run.launch("ddp", 0).rank_record(0)
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "place": {**record["place"], field: value}}))
    with pytest.raises(StoreError, match="was it copied here"):
        read_rank_records(run.launch("ddp", 0))


def test_a_journal_of_another_process_than_the_ranks_record_is_refused(run: RunFolder) -> None:
    folder = run.launch("ddp", 0)
    folder.steps.unlink()
    write_journals(folder, ranks=2)
    with pytest.raises(StoreError, match=r"rank0.journal: is of process 1, and the record of rank 0 is of \d+"):
        read_steps(folder)
    for rank in range(2):
        path = folder.rank_record(rank)
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "pid": 1}))
    assert set(read_steps(folder)["rank"]) == {0, 1}
