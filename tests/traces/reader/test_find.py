"""Finding traces where people have them."""

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.note import say_notes
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.find import find_rank, find_traces

EVENT = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 1}


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}))
    return folder


def places(path: Path) -> list[tuple[str, int | None]]:
    return [(source.label.removeprefix(f"{path}/"), source.rank) for source in find_traces(path).sources]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.1719000000000000000.pt.trace.json.gz", 3),
        ("iteration_10/rank12_trace.json", 12),
        ("rank[3].json", 3),
        ("trace-rank-0.json", 0),
        ("worker0_step_12.1694128201545.pt.trace.json", 0),
        ("rank7/trace.json", 7),
        ("host_4711.1719000000000.pt.trace.json", None),
        ("local_rank3.json", None),
        ("tp_rank1.json", None),
        ("frank3.json", None),
    ],
)
def test_the_rank_is_read_from_the_name_where_it_says_one(name: str, rank: int | None) -> None:
    assert find_rank(PurePosixPath(name)) == rank


def test_a_file_is_itself(tmp_path: Path) -> None:
    make(tmp_path, "anything.txt")
    assert places(tmp_path / "anything.txt") == [(str(tmp_path / "anything.txt"), None)]


def test_traces_of_a_folder_are_in_order_of_rank(tmp_path: Path) -> None:
    make(tmp_path, "rank10_trace.json", "rank9_trace.json")
    assert places(tmp_path) == [("rank9_trace.json", 9), ("rank10_trace.json", 10)]


def test_other_json_is_named_and_left_out_and_hidden_files_are_not_looked_at(tmp_path: Path) -> None:
    make(tmp_path, "rank0.json", ".rank1.json")
    (tmp_path / "config.json").write_text('{"layers": [1, 2]}')
    (tmp_path / "list.json").write_text('["a", "b"]')
    found = find_traces(tmp_path)
    assert [source.path.name for source in found.sources] == ["rank0.json"]
    assert say_notes(found.notes) == (f"{tmp_path}: not traces and left out: config.json, list.json",)


def test_of_torchtitans_iterations_the_latest_is_read_and_said(tmp_path: Path) -> None:
    make(tmp_path, "iteration_9/rank0_trace.json", "iteration_10/rank0_trace.json", "iteration_10/rank1_trace.json")
    assert places(tmp_path) == [("iteration_10/rank0_trace.json", 0), ("iteration_10/rank1_trace.json", 1)]
    assert say_notes(find_traces(tmp_path).notes) == (
        f"{tmp_path}: of 2 folders with traces the latest is read, iteration_10",
    )


def test_tensorboards_log_folder_is_looked_into(tmp_path: Path) -> None:
    make(tmp_path, "plugins/profile/2026_07_01_10_00_00/a.json", "plugins/profile/2026_07_02_10_00_00/b.json")
    assert places(tmp_path) == [("plugins/profile/2026_07_02_10_00_00/b.json", None)]


def test_of_a_workers_traces_the_newest_is_read_and_said(tmp_path: Path) -> None:
    make(
        tmp_path, *(f"host_{worker}.{stamp}.pt.trace.json" for worker in (1, 2) for stamp in (9999999999, 10000000000))
    )
    assert [name for name, _ in places(tmp_path)] == [f"host_{worker}.10000000000.pt.trace.json" for worker in (1, 2)]
    assert say_notes(find_traces(tmp_path).notes) == (
        f"{tmp_path}: 2 older traces or copies of the same rank are left out",
    )
    (tmp_path / "host_1.9999999999.pt.trace.json").unlink()
    assert say_notes(find_traces(tmp_path).notes) == (
        f"{tmp_path}: an older trace or copy of the same rank is left out",
    )


def test_a_folder_for_each_rank_is_one_job(tmp_path: Path) -> None:
    make(tmp_path, "rank1/trace.json", "rank0/trace.json")
    assert places(tmp_path) == [("rank0/trace.json", 0), ("rank1/trace.json", 1)]


def test_folders_of_several_jobs_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "baseline/rank0.json", "tuned/rank0.json")
    with pytest.raises(
        TraceError, match=r"folders, baseline, tuned, perhaps of several jobs; give one of these folders"
    ):
        find_traces(tmp_path)


def test_folders_that_may_be_a_jobs_nodes_are_to_be_given_together(tmp_path: Path) -> None:
    make(tmp_path, *(f"nodes/n{node}x/rank{node}.json" for node in range(9)))
    with pytest.raises(TraceError, match=r" more, perhaps .*or all of them if they hold the ranks of one job"):
        find_traces(tmp_path / "nodes")


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(TraceError, match="holds no trace"):
        find_traces(tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        find_traces(tmp_path / "none")


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_an_archive_is_read_without_unpacking(tmp_path: Path, kind: str) -> None:
    folder = make(tmp_path / "in", "job/rank1.json", "job/rank0.json", "job/.rank2.json")
    (folder / "job/notes.json").write_text("{}")
    path = tmp_path / f"traces.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for file in sorted(folder.rglob("*.json")):
                zipped.write(file, file.relative_to(folder))
    else:
        with tarfile.open(path, "w:gz" if kind.endswith("gz") else "w") as archive:
            archive.add(folder / "job", "job")
    found = find_traces(path)
    assert [(source.label, source.rank) for source in found.sources] == [
        (f"{path}/job/rank{rank}.json", rank) for rank in (0, 1)
    ]
    assert say_notes(found.notes) == (f"{path}: not traces and left out: job/notes.json",)
    assert [len(read_trace(source)) for source in found.sources] == [1, 1]
    assert sorted(tmp_path.iterdir()) == [folder, path]


def test_a_damaged_archive_gives_what_came_before(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    content = json.dumps({"traceEvents": [EVENT] * 2000}).encode()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("rank0.json", "rank1.json", "rank2.json"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path = tmp_path / "traces.tar"
    path.write_bytes(buffer.getvalue()[: int(2.5 * len(content))])
    found = find_traces(path)
    assert [source.member for source in found.sources][:2] == ["rank0.json", "rank1.json"]
    assert len(read_trace(found.sources[0])) == 2000


def test_a_rank_that_cannot_be_read_is_left_out_and_said(tmp_path: Path) -> None:
    make(tmp_path, "rank0.json", "rank1.json", "rank2.json")
    (tmp_path / "rank1.json").write_text("")
    (tmp_path / "rank2.json").write_text(json.dumps({"traceEvents": [EVENT, EVENT]})[:-20])
    traces = analyze_traces([tmp_path])
    assert len(traces.analyses) == 2
    assert any("left out" in note and "rank1.json: empty" in note for note in say_notes(traces.notes))
    assert f"{tmp_path / 'rank2.json'}: cut short; what came before the cut is used" in say_notes(traces.notes)


def test_links_and_pipes_in_an_archive_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path / "job", "rank0.json", "rank2.json")
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.add(tmp_path / "job/rank0.json", "rank0.json")
        for name, kind in (("rank1.json", tarfile.SYMTYPE), ("rank3.json", tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "rank1.json"
            archive.addfile(member)
        archive.add(tmp_path / "job/rank2.json", "rank2.json")
    found = find_traces(tmp_path / "job.tar")
    assert ([source.rank for source in found.sources], say_notes(found.notes)) == ([0, 2], ())


def test_an_archive_with_a_password_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rank0.json", json.dumps({"traceEvents": [EVENT]}))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # general purpose flag, bit 0: encrypted (APPNOTE 4.4.4)
    content[6] |= 1
    path.write_bytes(content)
    with pytest.raises(TraceError, match="password") as caught:
        find_traces(path)
    assert str(path) in str(caught.value)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.json")
    with pytest.raises(TraceError, match="neither a file nor a folder"):
        find_traces(tmp_path / "rank0.json")


def test_a_file_that_cannot_be_opened_costs_a_note_and_not_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "rank0.json", "rank1.json")
    opened = Path.open

    def refuse(path: Path, mode: str) -> object:
        if path.name == "rank1.json":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", refuse)
    traces = analyze_traces([tmp_path])
    assert [one.rank for one in traces.analyses] == [0]
    assert any("rank1.json: cannot be opened (Permission denied)" in note for note in say_notes(traces.notes))


def test_a_folder_inside_that_cannot_be_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "rank0.json", "lost+found/rank1.json")
    listed = Path.iterdir

    def refuse(path: Path) -> object:
        if path.name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert places(tmp_path) == [("rank0.json", 0)]
    with pytest.raises(TraceError, match="cannot be listed"):
        find_traces(tmp_path / "lost+found")
