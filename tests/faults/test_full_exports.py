"""What is made of a run or of traces on a disk without room: a sentence, the old file or the new one, and no litter."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import dtbench
from dtbench.base.errors import StoreError
from dtbench.report.event_files.publish import publish
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.store.layout import RunFolder
from tests.faults.campaign import run_command
from tests.faults.disk_full import FULL, PAGE, ROOMY, can_mount, find_leftovers, make_room, small_disk

pytestmark = pytest.mark.skipif(not can_mount(), reason="small disks are made by Linux's means, as root")

RESULTS = Path(__file__).parents[2] / "results"
TRACE = Path(__file__).parents[1] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """Yield a copy of a run on a disk that has no room for more."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, ROOMY):
        yield RunFolder(shutil.copytree(RESULTS / "example", disk / "results" / "example" / "20260101T000000-aaaa"))


def fill(run: RunFolder, spare_pages: int) -> None:
    used = sum(-(-path.stat().st_size // PAGE) for path in run.path.rglob("*") if path.is_file())
    make_room(run.path.parents[2], f"size={(used + spare_pages) * PAGE}")


def read_files(run: RunFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}


@pytest.mark.quick("publish-24", "export-8", "baseline-0")
@pytest.mark.parametrize("spare_pages", [0, 1, 4, 8, 16, 24, 40, 90])
@pytest.mark.parametrize("verb", ["publish", "export", "baseline"])
def test_what_has_no_room_is_said_and_leaves_nothing(
    run: RunFolder, tmp_path: Path, verb: str, spare_pages: int
) -> None:
    results, archive = run.path.parents[1], run.path.parents[2] / "out.tar"
    for made in (*run.path.glob("*.png"), *results.rglob("summary.parquet")):
        made.unlink()
    before = read_files(run)

    def work() -> tuple[int, str]:
        if verb == "export":
            return run_command("export", str(TRACE), "--perfetto", str(archive))
        if verb == "baseline":
            return run_command("baseline", "save", "before", f"{run.path}:ddp", "--results", str(results))
        try:
            data = read_run_data(run.path)
            publish(data, summarize_data(data))
        except StoreError as error:
            return error.exit_code, str(error)
        return 0, ""

    fill(run, spare_pages)
    code, told = work()
    assert code in (0, 6), told
    assert (code == 0) or (FULL in told and "bug in dtbench" not in told), told
    after = {path: content for path, content in read_files(run).items() if path in before}
    assert {path for path in before if after.get(path) != before[path]} <= {run.checks}
    assert archive.exists() == (verb == "export" and code == 0)
    assert set(find_leftovers(results.parent, tmp_path / "none", results)) <= {"out.tar"}
    assert not list(run.path.glob(".tb*"))
    assert (verb, code, "dtbench analyze" in told) != ("publish", 6, False)
    make_room(results.parent)
    archive.unlink(missing_ok=True)
    (results / ".baselines" / "before.json").unlink(missing_ok=True)
    assert work() == (0, "") if verb == "publish" else work()[0] == 0


def test_a_page_of_a_timeline_is_the_old_one_or_the_new_one(run: RunFolder) -> None:
    page = run.path.parents[2] / "page.html"
    page.write_text("old")
    timeline = dtbench.read_trace(TRACE).timeline()
    fill(run, 3)
    with pytest.raises(StoreError, match=FULL):
        timeline.save(page)
    assert page.read_text() == "old"
    assert sorted(path.name for path in page.parent.iterdir()) == ["page.html", "results"]


def test_a_torch_is_written_down_whole_or_not_at_all(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtbench.cli import doctor_torch
    from dtbench.worker.torch_facts import facts

    folder = run.path.parents[2]
    (folder / "2.13.json").write_text("old")
    monkeypatch.setattr(facts, "TESTED", folder)
    monkeypatch.setattr(facts, "spell_facts", lambda _facts: "x" * 100_000)
    monkeypatch.setattr(doctor_torch, "look_at_torch", lambda: SimpleNamespace(torch="2.13.0"))
    fill(run, 3)
    with pytest.raises(StoreError, match=FULL):
        doctor_torch.record_torch()
    assert (folder / "2.13.json").read_text() == "old"
