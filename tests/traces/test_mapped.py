"""Traces mapped on several nodes and reduced to one answer: the same as of one process, and what is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from dtbench.base.errors import TraceError
from dtbench.cli.analyze import analyze
from dtbench.traces.job.foreign import analyze_traces, map_traces, reduce_traces
from dtbench.traces.job.parquet_values import codec_of_note, fields_of
from dtbench.traces.notes.note import Note, say_notes
from dtbench.traces.rank.file import Unusable

Draw = Callable[..., Path]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def make_rank(draw: Draw, rank: int, ranks: int) -> Path:
    """Draw two steps of a rank: it computes for a while of its own, then meets its host, then all."""
    late = "." * (rank % 5)
    host = list(range(rank // 4 * 4, rank // 4 * 4 + 4))
    groups = {"0": list(range(ranks)), str(1 + rank // 4): host}
    told = {
        name: json.dumps(
            {
                "Collective name": "allreduce",
                "Process Group Name": name,
                "Process Group Ranks": str(members),
                "Group size": len(members),
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "dtype": "Float",
                "Seq": 3,
            }
        )
        for name, members in groups.items()
    }
    return draw(
        f"""
        step ProfilerStep#4     @1   |==============================|
        step ProfilerStep#5     @1   |..............................=====================|
        call cudaLaunchKernel   @1   |.a.bc.........................d|
        kernel gemm             @s7  |..aaaaaa{late}.......................dddd|
        kernel {ALL_REDUCE} @s20 |...{late}{"b" * (9 - len(late))}| {told[str(1 + rank // 4)]}
        kernel {ALL_REDUCE} @s22 |.............{late}{"c" * (12 - len(late))}| {told["0"]}
        """,
        f"rank{rank}.json",
        distributedInfo={"rank": rank, "world_size": ranks, "backend": "nccl"},
    )


def ask(capsys: pytest.CaptureFixture[str], *targets: Path, **options: Any) -> str:
    capsys.readouterr()
    analyze([str(target) for target in targets], as_json=True, **options)
    return capsys.readouterr().out


@pytest.mark.parametrize("ranks", [8, *(pytest.param(ranks, marks=pytest.mark.thorough) for ranks in (64, 256))])
def test_what_two_nodes_mapped_is_answered_as_of_one_process(
    capsys: pytest.CaptureFixture[str], draw: Draw, tmp_path: Path, ranks: int
) -> None:
    paths = [make_rank(draw, rank, ranks) for rank in range(ranks)]
    whole, one_step = ask(capsys, *paths), ask(capsys, *paths, steps="5")
    assert [row["collectives"] for row in json.loads(whole)["waiting"]] == [2] * ranks
    for half in (paths[ranks // 2 :], paths[: ranks // 2]):
        analyze([str(path) for path in half], map_to=tmp_path / "out")
    for path in paths:
        path.unlink()
    assert len(list((tmp_path / "out").iterdir())) == ranks
    assert ask(capsys, reduce_from=tmp_path / "out") == whole
    assert ask(capsys, reduce_from=tmp_path / "out", steps="5") == one_step


@pytest.mark.parametrize(
    "name", ["ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz", "zero", "one_hardware_queue", "pipelines"]
)
def test_recorded_traces_are_answered_as_of_one_process(
    capsys: pytest.CaptureFixture[str], recorded: Path, tmp_path: Path, name: str
) -> None:
    place = recorded / name
    place = place if place.is_file() else sorted(path for path in place.rglob("*.json*"))[0]
    analyze([str(place)], map_to=tmp_path)
    assert ask(capsys, reduce_from=tmp_path) == ask(capsys, place)


def test_a_map_that_is_made_again_takes_the_place_of_the_first(draw: Draw, tmp_path: Path) -> None:
    path = make_rank(draw, 0, 4)
    for _ in range(2):
        map_traces(tmp_path / "out", [path])
    assert len(reduce_traces(tmp_path / "out").analyses) == 1


@pytest.fixture
def mapped(draw: Draw, tmp_path: Path) -> Path:
    """Return a folder that four ranks were mapped to."""
    map_traces(tmp_path / "out", [make_rank(draw, rank, 4) for rank in range(4)])
    return tmp_path / "out"


def test_a_lost_rank_and_one_that_comes_twice_are_said(draw: Draw, mapped: Path) -> None:
    next(mapped.glob("rank00002*")).unlink()
    map_traces(mapped, [make_rank(draw, 1, 4).rename(mapped.parent / "again.json")])
    said = "\n".join(say_notes(reduce_traces(mapped).notes))
    assert "3 of 4 ranks have a trace (not 2)" in said
    assert "rank 1 comes twice" in said


def test_what_cannot_be_read_is_told_by_the_answer(capsys: pytest.CaptureFixture[str], mapped: Path) -> None:
    broken = mapped.parent / "broken.json"
    broken.write_text("{")
    analyze([str(broken)], map_to=mapped)
    told = capsys.readouterr()
    assert "cannot be used: " in told.err
    assert f"1 trace mapped to {mapped}" in told.out
    assert f"dtbench analyze --reduce {mapped}" in told.out
    assert any("broken.json" in note for note in say_notes(reduce_traces(mapped).notes))


def test_where_no_trace_can_be_read_that_is_an_error(mapped: Path) -> None:
    broken = mapped.parent / "broken.json"
    broken.write_text("{")
    assert isinstance(map_traces(mapped.parent / "none", [broken])[0], Unusable)
    with pytest.raises(TraceError, match=r"broken\.json"):
        reduce_traces(mapped.parent / "none")


def test_what_a_map_left_out_is_said(draw: Draw, tmp_path: Path) -> None:
    path = make_rank(draw, 0, 4)
    (tmp_path / "table.json").write_text('{"a": 1}')
    map_traces(tmp_path / "out", [tmp_path])
    assert say_notes(reduce_traces(tmp_path / "out").notes) == say_notes(analyze_traces([tmp_path]).notes)
    assert path.is_file()


def test_files_of_an_unlike_version_are_refused(mapped: Path) -> None:
    path = sorted(mapped.iterdir())[0]
    table = pq.read_table(path)
    other = {b"dtbench_map": b"dtbench 0.0.9, columns 01234567"}
    pq.write_table(table.replace_schema_metadata(other), path)
    told = rf"{path.name} by dtbench 0\.0\.9, columns 01234567; this is dtbench .*with one version of dtbench"
    with pytest.raises(TraceError, match=told):
        reduce_traces(mapped)


def test_files_of_others_are_refused(mapped: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), mapped / "a.parquet")
    with pytest.raises(TraceError, match=r"a\.parquet: was not written by `dtbench analyze --map`"):
        reduce_traces(mapped)


def test_a_damaged_file_is_named(mapped: Path) -> None:
    path = sorted(mapped.iterdir())[1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceError, match=rf"{path.name}: cannot be read .*map its traces again"):
        reduce_traces(mapped)


@pytest.mark.parametrize(("place", "said"), [("none", "no such folder"), ("", "holds no mapped trace")])
def test_nothing_to_reduce_is_said_with_what_makes_it(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(TraceError, match=rf"{said}; `dtbench analyze --map .* TRACES`"):
        reduce_traces(tmp_path / place)


def test_a_folder_that_cannot_be_made_is_said(draw: Draw, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"rank0\.json: cannot be written .*; give a folder"):
        map_traces(tmp_path / "rank0.json", [make_rank(draw, 0, 4)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"map_to": Path("a"), "reduce_from": Path("a")}, "--map cannot be given with --reduce"),
        ({"map_to": Path("a"), "steps": "3"}, "--map cannot be given with --steps"),
        ({"map_to": Path("a"), "as_json": True}, "--map cannot be given with --json"),
        ({"map_to": Path("a"), "full": True}, "--map cannot be given with --full"),
        ({"map_to": Path("a")}, "--map reads traces"),
        ({"reduce_from": Path("a"), "step_range": "x"}, "--reduce cannot be given with --range"),
        ({"reduce_from": Path("a"), "workers": 2}, "--reduce cannot be given with --workers"),
        ({"reduce_from": Path("a"), "targets": ["b"]}, "leave b out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        analyze(**{"targets": None, **options})


def kinds_of(kind: type[Note]) -> Iterator[type[Note]]:
    for one in kind.__subclasses__():
        yield one
        yield from kinds_of(one)


def test_every_note_has_a_column_and_a_name_of_its_own() -> None:
    kinds = {*Note.__subclasses__(), *(kind for one in Note.__subclasses__() for kind in kinds_of(one))}
    assert len({kind.__name__ for kind in kinds}) == len(kinds) > 80
    assert all(list(fields_of(kind)) == [one.name for one in codec_of_note(kind).arrow] for kind in kinds)
