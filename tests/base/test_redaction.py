"""What is secret is hidden wherever a machine's state or words are shown; what is not stays as it is."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from dtbench.base.redaction import HIDDEN, redact_text, redact_value, redact_variables
from dtbench.comparison.reading.settings import find_treatment
from dtbench.report.words.settings import find_settings
from dtbench.runs.run import summarize_run


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_TOKEN",
        "torch_api_key",
        "MALLOC_PASSPHRASE",
        "FI_PWD",
        "UCX_CRED_FILE",
        "TP_PRIVATE",
        "MY_SECRET",
        "X_AUTH",
    ],
)
def test_a_value_whose_name_sounds_like_a_secret_is_hidden(name: str) -> None:
    assert redact_value(name, "a") == HIDDEN


def test_other_values_stay_less_who_logs_in() -> None:
    told = {"NCCL_DEBUG": "INFO", "NCCL_NET": "IB", "TORCH_URL": "s3://me:pw@bucket/x", "CUDA_X": "mail a@b"}
    expected = {"NCCL_DEBUG": "INFO", "NCCL_NET": "IB", "TORCH_URL": f"s3://{HIDDEN}@bucket/x", "CUDA_X": "mail a@b"}
    assert redact_variables(told) == expected


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("HF_TOKEN=hf_abc starts", f"HF_TOKEN={HIDDEN} starts"),
        ("env {'WANDB_API_KEY': 'abc def', 'A': 'b'}", f"env {{'WANDB_API_KEY': {HIDDEN}, 'A': 'b'}}"),
        ("pip https://u:p@host/simple?x=1", f"pip https://{HIDDEN}@host/simple?x=1"),
        ("ssh://git@host:22/a", f"ssh://{HIDDEN}@host:22/a"),
        ("KeyError: 'layers.0.weight'", "KeyError: 'layers.0.weight'"),
        ("tokens: 512, key = 3, passed", "tokens: 512, key = 3, passed"),
        ("[transport/tcp/pair.cc:534] peer [127.0.0.1]:41263", "[transport/tcp/pair.cc:534] peer [127.0.0.1]:41263"),
    ],
)
def test_a_line_of_a_log_shows_no_secret_and_all_else(line: str, shown: str) -> None:
    assert redact_text(line) == shown


CANARY = "canary-of-cages"
SECRETS = {"NCCL_MY_KEY": f"{CANARY}1", "TORCH_PROXY": f"http://me:{CANARY}2@host/", "NCCL_DEBUG": "WARN"}


def test_what_is_shown_of_a_run_tells_no_secret_of_its_scenario(tmp_path: Path) -> None:
    """A scenario's own words and its launches' orders hold its variables: ranks need them, so they stay in the run."""
    run = Path(shutil.copytree(Path(__file__).parents[2] / "results" / "example", tmp_path / "run"))
    record = json.loads((run / "run.json").read_text())
    for cell in record["cells"]:
        cell["scenario"]["env"] = SECRETS
    (run / "run.json").write_text(json.dumps(record))
    summary = summarize_run(run)
    shown = {"NCCL_MY_KEY": HIDDEN, "TORCH_PROXY": f"http://{HIDDEN}@host/", "NCCL_DEBUG": "WARN"}
    assert [dict(cell.scenario.env) for cell in summary.cells if cell.scenario is not None] == [shown] * 2
    assert CANARY not in summary.model_dump_json()


def test_settings_that_differ_in_a_secret_are_told_without_it() -> None:
    (change,) = find_treatment({"env.NCCL_MY_KEY": f"{CANARY}1"}, {"env.NCCL_MY_KEY": f"{CANARY}2"})
    assert (change.field, change.baseline, change.candidate) == ("env.NCCL_MY_KEY", HIDDEN, HIDDEN)
    (tokens,) = find_treatment({"data.tokens": "1"}, {"data.tokens": "2"})
    assert (tokens.baseline, tokens.candidate) == ("1", "2")


def test_what_tells_cells_apart_tells_no_secret() -> None:
    cells = [
        SimpleNamespace(name=name, scenario=None, coordinates={"env.UCX_CRED": f"{CANARY}{name}"}) for name in "ab"
    ]
    assert find_settings(cells) == {name: {"env.UCX_CRED": HIDDEN} for name in "ab"}


def test_a_milestone_keeps_no_secret_of_an_error(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the worker is torch's; install the extra `run`")
    from dtbench.worker.recording.events import Events

    Events(tmp_path / "rank0.jsonl", SimpleNamespace(touch=lambda _ns: None)).say(  # type: ignore[arg-type]
        "failed", f"OSError: https://me:{CANARY}@host/x is gone, HF_TOKEN={CANARY}"
    )
    written = (tmp_path / "rank0.jsonl").read_text()
    assert "is gone" in written
    assert CANARY not in written
