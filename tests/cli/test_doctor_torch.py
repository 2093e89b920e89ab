"""``dtbench doctor --torch`` over made facts: what it says, its exit code, and what it writes down."""

import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli import doctor_torch
from dtbench.cli.main import main
from dtbench.report.render.markdown import escape_markdown
from dtbench.worker.torch_facts import compare, facts
from dtbench.worker.torch_facts.facts import Facts, Kind, read_facts, spell_facts
from dtbench.worker.torch_facts.used import read_uses

NAME = "torch.distributed.fsdp._runtime_utils._unshard"
UNSHARD = "function of torch.distributed.fsdp._runtime_utils"


def make(torch: str, said: str = UNSHARD) -> Facts:
    return Facts(torch, None, {Kind.NAME: {NAME: said, "torch.no_grad": "class of torch"}})


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folder of the facts of tested torches: 2.11 and 2.13."""
    for torch in ("2.11.0", "2.13.0"):
        (tmp_path / f"{torch[:4]}.json").write_text(spell_facts(make(torch)))
    monkeypatch.setattr(facts, "TESTED", tmp_path)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, found: Facts, *arguments: str) -> object:
    monkeypatch.setattr(doctor_torch, "look_at_torch", lambda: found)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return ended.value.code


@pytest.mark.usefixtures("tested")
def test_on_a_tested_torch_the_list_is_empty_and_says_how_much_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not call(monkeypatch, make("2.13.1"), "--torch")
    assert capsys.readouterr().out == (
        "torch 2.13.1 against 2.13.0, which dtbench was tested with: 2 names looked at, 0 differ\n"
    )


@pytest.mark.usefixtures("tested")
def test_what_differs_is_listed_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, make("2.15.0", "absent"), "--torch") == 13
    printed = capsys.readouterr()
    assert "2 names looked at, 1 differ" in printed.out
    told = printed.out.splitlines()[1]
    assert told.startswith(f"name {NAME}: gone — ")
    assert " — dtbench.worker.parallelize.owners:" in told
    assert printed.err == "torch 2.15.0 is not as 2.13.0, which dtbench was tested with\n"


@pytest.mark.usefixtures("tested")
def test_what_differs_is_in_the_page_and_in_markdown_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "torch.html"
    assert call(monkeypatch, make("2.15.0", "absent"), "--torch", "--markdown", "--html", str(page)) == 13
    (difference,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("- "))
    assert difference.startswith(f"- name {escape_markdown(NAME)}: gone — ")
    assert all(words in page.read_text() for words in (f"name {NAME}", "2 names looked at, 1 differ"))


@pytest.mark.usefixtures("tested")
def test_json_holds_every_difference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, make("2.15.0", "absent"), "--torch", "--json") == 13
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document["differences"]] == [NAME]
    assert (document["torch"], document["tested"], document["looked_at"]) == ("2.15.0", "2.13.0", 2)


def test_a_torch_is_written_down_as_tested(monkeypatch: pytest.MonkeyPatch, tested: Path) -> None:
    found = make("2.14.1+cu130")
    assert not call(monkeypatch, found, "--torch", "--record")
    assert read_facts(tested / "2.14.json") == found
    assert call(monkeypatch, found, "--record") == 2, "without --torch"


@pytest.mark.parametrize(
    ("torch", "nearest"), [("2.13.5", "2.13"), ("2.12.0", "2.11"), ("2.16.0.dev2027", "2.13"), ("2.9.0", "2.11")]
)
def test_an_untested_torch_is_held_against_the_newest_before_it(tested: Path, torch: str, nearest: str) -> None:
    path = compare.find_tested(torch, tested)
    assert path is not None
    assert path.stem == nearest


SOURCE = '''"""Wraps what unshards."""
from unittest import mock
import torch.distributed.fsdp._runtime_utils as runtime
from torch.distributed.fsdp import FSDPModule as Module
_HOME = "torch.distributed"
def use(model, state):
    mock.patch.object(runtime, "_unshard", None)
    getattr(state, "_fsdp_param_groups")
    found = [(f"{_HOME}.fsdp.Sharded", "clip", 1), "FSDP::all_gather"]
    return Module.unshard(model), model._comm_hooks, found
'''


def test_what_is_used_is_read_from_the_source(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "owners.py").write_text(SOURCE)
    uses = read_uses(folder)
    assert uses.names["torch.distributed.fsdp._runtime_utils._unshard"] == ("package.owners:7",)
    assert uses.names["torch.distributed.fsdp.FSDPModule.unshard"] == ("package.owners:10",)
    assert uses.names["torch.distributed.fsdp.Sharded.clip"] == ("package.owners:9",)
    assert {"_unshard", "_fsdp_param_groups", "_comm_hooks"} <= set(uses.attributes)
    assert uses.literals["FSDP::all_gather"] == ("package.owners:9",)
    assert uses.docs == {"package.owners": "Wraps what unshards."}
