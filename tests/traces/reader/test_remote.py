"""Traces whose names are URLs: copied and read, and what is said where that cannot be."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dtbench.base.errors import MissingError, TraceError
from dtbench.cli.analyze import analyze
from dtbench.traces.reader.find import find_traces
from dtbench.traces.reader.remote import copy_remote

RECORDED = Path(__file__).parents[1] / "recorded" / "ddp_2ranks_rank0.json.gz"


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return a store in memory with one trace, alone and in a folder of its job."""
    store = fsspec.filesystem("memory")
    for place in ("/bucket/rank0.json.gz", "/bucket/job/rank0.json.gz"):
        store.pipe(place, RECORDED.read_bytes())
    store.pipe("/bucket/job/readme.txt", b"none")
    yield store
    store.rm("/bucket", recursive=True)


def without_path(document: Any) -> Any:
    return {**document, "ranks": [{**rank, "path": ""} for rank in document["ranks"]]}


def ask(capsys: pytest.CaptureFixture[str], target: str) -> Any:
    analyze([target], as_json=True)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("url", ["memory://bucket/rank0.json.gz", "memory://bucket/job", "memory://bucket/job/"])
def test_a_url_is_answered_as_the_file(capsys: pytest.CaptureFixture[str], memory: Any, url: str) -> None:
    assert memory.exists("/bucket/job")
    found = ask(capsys, url)
    assert without_path(found) == without_path(ask(capsys, str(RECORDED)))
    assert [rank["path"] for rank in found["ranks"]] == [
        url.removesuffix("/").removesuffix("/rank0.json.gz") + "/rank0.json.gz"
    ]


def test_traces_of_a_url_can_be_mapped(capsys: pytest.CaptureFixture[str], memory: Any, tmp_path: Path) -> None:
    assert memory.exists("/bucket/job")
    for _ in range(2):  # again in the same place: a URL is the same wherever its copy lay
        analyze(["memory://bucket/job"], map_to=tmp_path)
    capsys.readouterr()
    analyze(None, reduce_from=tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out) == ask(capsys, "memory://bucket/job")


def test_copies_go_when_they_are_read(memory: Any) -> None:
    assert memory.exists("/bucket/job")
    with copy_remote(["memory://bucket/job", "here.json"]) as found:
        copied, here = found.paths
        assert sorted(path.name for path in copied.iterdir()) == ["rank0.json.gz", "readme.txt"]
        assert here == Path("here.json")
    assert not copied.exists()


def test_paths_alone_are_left_as_they_are() -> None:
    with copy_remote(["a.json", "b"]) as found:
        assert found.paths == (Path("a.json"), Path("b"))


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("memory://bucket/none", TraceError, "memory://bucket/none: there is no such file"),
        ("nowhere://bucket/a", TraceError, r"nothing opens `nowhere://` .*; copy the traces here"),
    ],
)
def test_a_url_that_cannot_be_opened_says_so(url: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        analyze([url])


@pytest.mark.parametrize(
    ("url", "lacking", "said"),
    [
        (
            "s3://bucket/a",
            "fsspec.core",
            "s3://bucket/a: fsspec, which opens such names, is not installed; pip install",
        ),
        ("s3://bucket/a", "s3fs", r"s3fs is not installed; pip install 'dtbench\[remote\]'"),
        ("gs://bucket/a", "gcsfs", "gcsfs is not installed"),
        ("abfs://bucket/a", "adlfs", "a package is missing .*adlfs"),
    ],
)
def test_the_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, lacking: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(MissingError, match=said):
        analyze([url])


def test_what_a_store_refuses_is_said_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError("not you")

    monkeypatch.setattr(MemoryFileSystem, "find", refuse)
    with pytest.raises(TraceError, match=r"memory://bucket/job: cannot be read \(PermissionError: not you\); check"):
        analyze(["memory://bucket/job"])


def test_a_name_in_a_store_cannot_lead_outside_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "find", lambda *_args, **_options: ["/bucket/job/../../../../../a"])
    with pytest.raises(TraceError, match=r"memory://bucket/job: names a place above its store"):
        analyze(["memory://bucket/job"])


def test_a_url_where_only_paths_are_read_says_where_it_is() -> None:
    with pytest.raises(TraceError, match=r"s3:/bucket/a\.json: URLs are read by `dtbench analyze` alone"):
        find_traces(Path("s3://bucket/a.json"))
