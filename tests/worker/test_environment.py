"""What a rank says of its own environment."""

import os
import sys
from collections.abc import Callable

import pytest

from dtbench.scenario.schema import Scenario
from dtbench.store.rank_records import Memory, ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")


def test_a_variable_that_did_not_arrive_disagrees(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtbench.worker.environment import read_environment_receipts

    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    variables = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    receipts = read_environment_receipts(scenario(env=variables, python="/no/such/python"))
    assert [receipt.knob for receipt in receipts] == ["env.NCCL_ALGO", "env.NCCL_PROTO", "python"]
    assert {receipt.outcome for receipt in receipts} == {ReceiptOutcome.DISAGREES}
    assert [receipt.got for receipt in receipts] == ["Tree", "unset", sys.executable]


def test_a_scenario_that_asks_for_nothing_gets_no_receipt(scenario: Callable[..., Scenario]) -> None:
    from dtbench.worker.environment import read_environment_receipts

    assert read_environment_receipts(scenario()) == ()


def test_where_torch_keeps_its_cache_is_no_part_of_an_environment() -> None:
    from dtbench.worker.environment import find_variables

    given = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/somebody", "NCCL_ALGO": "Ring", "HOME": "/", "TORCH_TOKEN": "abc"}
    assert find_variables(given) == {"NCCL_ALGO": "Ring", "TORCH_TOKEN": "(redacted)"}


def test_a_rank_on_cpu_sees_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from dtbench.worker.__main__ import hide_devices

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    hide_devices()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ.pop("HIP_VISIBLE_DEVICES")) == ("", "")


def test_the_allocators_peaks_are_those_before_stages_and_the_process_is_that_of_the_end() -> None:
    from dtbench.worker.process_facts import replace_allocated

    before = Memory(rss_peak_bytes=1, allocated_peak_bytes=20, reserved_peak_bytes=30)
    after = Memory(rss_peak_bytes=4, allocated_peak_bytes=5, reserved_peak_bytes=6)
    assert replace_allocated(after, before) == Memory(rss_peak_bytes=4, allocated_peak_bytes=20, reserved_peak_bytes=30)
