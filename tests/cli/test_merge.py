"""``dtbench merge``: what it prints, and what it makes again."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from dtbench.cli.main import main
from dtbench.store.layout import RunFolder
from tests.put_trace import put_trace

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """The cell ``ddp`` of the shipped example as two nodes have it: one rank each, rank 0 with a trace."""
    monkeypatch.chdir(tmp_path)
    folders = [RunFolder(tmp_path / f"node{node}") for node in range(2)]
    for node, folder in enumerate(folders):
        shutil.copytree(EXAMPLE, folder.path)
        shutil.rmtree(folder.path / "cells" / "fsdp2_tp")
        launch = folder.launch("ddp", 0)
        for table in set(launch.path.glob("*.parquet")) - {launch.steps}:
            table.unlink()
        launch.rank_record(1 - node).unlink()
        steps = pd.read_parquet(launch.steps)
        steps[steps["rank"] == node].to_parquet(launch.steps)
        if node:
            launch.launch.unlink()
    put_trace("ddp_2ranks_rank0.json.gz", folders[0].launch("ddp", 0))
    return folders


def merge(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as caught:
        main(["merge", *arguments])
    captured = capsys.readouterr()
    return caught.value.code, captured.out + captured.err


def test_two_nodes_are_joined_and_their_tables_made_again(
    nodes: list[RunFolder], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Path] = []
    monkeypatch.setattr("dtbench.report.event_files.publish.publish", lambda data, _: published.append(data.path))
    code, printed = merge(capsys, *(str(node.path) for node in nodes))
    (joined,) = (path.resolve() for path in Path("results").glob("*/*-merged"))
    assert code == 0
    assert "no folder has anything of launch 0 of cell fsdp2_tp\n" in printed
    assert f"{joined}: 1 launch, 2 records of ranks; " in printed
    assert f"dtbench report {joined}\n" in printed
    launch = RunFolder(joined).launch("ddp", 0)
    assert set(pd.read_parquet(launch.steps)["rank"]) == {0, 1}
    assert set(pd.read_parquet(launch.overlap)["rank"]) == {0}
    code, again = merge(capsys, *(str(node.path) for node in nodes))
    assert (code, "nothing is new" in again) == (0, True)
    assert published == [joined]


def test_one_folder_alone_is_nothing_to_join(nodes: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = merge(capsys, str(nodes[0].path), str(nodes[0].path))
    assert code == 2
    assert "name the folders of at least two nodes" in " ".join(printed.replace("│", " ").split())


def test_folders_that_contradict_each_other_end_with_the_code_of_a_broken_run(
    nodes: list[RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    log = nodes[1].launch("ddp", 0).rank_record(0)
    log.write_text("{}", encoding="utf-8")
    code, printed = merge(capsys, *(str(node.path) for node in nodes))
    assert code == 6
    assert "contradict each other, and nothing was written:\nrank 0 of launch0 of cell ddp is there twice" in printed
    assert not Path("results").exists()
