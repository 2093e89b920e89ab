"""What is secret is hidden wherever a machine's state or words are shown; what is not stays as it is."""

import pytest

from dtbench.redaction import HIDDEN, redact_text, redact_value, redact_variables


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
