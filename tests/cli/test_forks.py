"""Which scenarios' ranks may be forked: those of which nothing is measured that a fork would change."""

from pathlib import Path

import pytest

from dtbench.base.errors import LaunchError
from dtbench.cli.forks import Forks
from dtbench.launch.forked import servers
from dtbench.scenario.load import load_scenario_file

TEXT = """\
# Do both train alike?
schema_version: 1
device: {device}
model: {{kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}}
data: {{global_batch: 2, sequence_length: 4}}
parallel: {{kind: ddp, replicas: 1}}
cells: {{a: {{}}, b: {{{cell}}}}}
checks: [{{kind: losses, tolerance: 0.1}}{check}]
"""


def find_prefix(folder: Path, device: str = "cpu", cell: str = "seed: 1", check: str = "") -> tuple[str, ...]:
    path = folder / "alike.yaml"
    path.write_text(TEXT.format(device=device, cell=cell, check=check), encoding="utf-8")
    with Forks() as forks:
        forks._prefix = ("fork",)
        return forks.find_prefix(load_scenario_file(path))


@pytest.mark.skipif(not servers.can_fork(), reason="ranks are forked on Linux only")
def test_ranks_of_a_plain_scenario_are_forked(tmp_path: Path) -> None:
    assert find_prefix(tmp_path) == ("fork",)


@pytest.mark.skipif(not servers.can_fork(), reason="ranks are forked on Linux only")
@pytest.mark.parametrize(("threads", "prefix"), [("1", ("fork",)), ("2", ())])
def test_ranks_that_ask_for_the_variables_that_all_forks_have_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str, prefix: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert find_prefix(tmp_path, cell=f'env: {{OMP_NUM_THREADS: "{threads}"}}') == prefix


@pytest.mark.parametrize(
    "words",
    [
        {"device": "cuda"},
        {"cell": "repeat: 2"},
        {"cell": "env: {TORCH_LOGS: recompiles}"},
        {"cell": "python: python3"},
        {"check": ", {kind: bound, value: time_to_first_step_ns, at_most_ms: 60000}"},
    ],
    ids=lambda words: next(iter(words)) + " " + next(iter(words.values()))[:12],
)
def test_ranks_are_not_forked_where_that_would_change_what_is_measured(tmp_path: Path, words: dict[str, str]) -> None:
    assert find_prefix(tmp_path, **words) == ()


def test_servers_that_do_not_start_are_told_of_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise LaunchError("it did not start")

    monkeypatch.setattr(servers, "serve_forks", refuse)
    monkeypatch.setattr(servers, "can_fork", lambda: True)
    path = tmp_path / "alike.yaml"
    path.write_text(TEXT.format(device="cpu", cell="seed: 1", check=""), encoding="utf-8")
    with Forks() as forks:
        assert [forks.find_prefix(load_scenario_file(path)) for _ in range(2)] == [(), ()]
    assert capsys.readouterr().err == "it did not start: each rank imports torch by itself, which takes longer\n"
