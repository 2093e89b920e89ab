"""What a rank says of its own environment, and of the memory that it needed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")


def test_a_variable_that_did_not_arrive_disagrees(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtbench.worker.machine.environment import read_environment_receipts

    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.delenv("NCCL_PROTO", raising=False)
    variables = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    receipts = read_environment_receipts(scenario(env=variables, python="/no/such/python"))
    assert [receipt.knob for receipt in receipts] == ["env.NCCL_ALGO", "env.NCCL_PROTO", "python"]
    assert {receipt.outcome for receipt in receipts} == {ReceiptOutcome.DISAGREES}
    assert [receipt.got for receipt in receipts] == ["Tree", "unset", sys.executable]


def test_a_scenario_that_asks_for_nothing_gets_no_receipt(scenario: Callable[..., Scenario]) -> None:
    from dtbench.worker.machine.environment import read_environment_receipts

    assert read_environment_receipts(scenario()) == ()


def test_where_torch_keeps_its_cache_is_no_part_of_an_environment() -> None:
    from dtbench.worker.machine.environment import find_variables

    given = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/somebody", "NCCL_ALGO": "Ring", "HOME": "/", "TORCH_TOKEN": "abc"}
    assert find_variables(given) == {"NCCL_ALGO": "Ring", "TORCH_TOKEN": "(redacted)"}


def test_a_rank_on_cpu_sees_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from dtbench.worker.__main__ import hide_devices

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    hide_devices()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ.pop("HIP_VISIBLE_DEVICES")) == ("", "")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="elsewhere nobody tells the two apart")
def test_what_started_a_process_is_not_in_its_peak() -> None:
    """The kernel counts a child's peak from what it was forked from (getrusage(2))."""
    own = "from dtbench.worker.machine.process_facts import read_rss_peak; print(read_rss_peak())"
    large = (
        "import subprocess, sys; ones = b'1' * (1 << 30); "
        f"print(subprocess.check_output([sys.executable, '-c', {own!r}]).decode())"
    )
    peak_bytes = int(subprocess.run([sys.executable, "-c", large], capture_output=True, check=True).stdout)
    assert 1 << 20 < peak_bytes < 1 << 30


@pytest.mark.ranks
def test_what_the_profiler_needs_of_memory_is_not_in_the_peaks_of_training(
    launch: Callable[..., Any], scenario: Callable[..., Scenario]
) -> None:
    asked = scenario(parallel={"kind": "ddp", "replicas": 1}, correctness={"enabled": False})
    peak_bytes = launch(asked, fault="the profiler needs memory").rank(0).memory.rss_peak_bytes
    assert 1 << 20 < peak_bytes < 1 << 30


@pytest.mark.parametrize(("given", "told"), [("perf-small ", "perf-small"), (" ", None), (None, None)])
def test_a_rank_tells_the_runner_class_that_a_person_gave(
    monkeypatch: pytest.MonkeyPatch, given: str | None, told: str | None
) -> None:
    from dtbench.worker.machine.environment import read_environment

    monkeypatch.delenv("DTBENCH_RUNNER_CLASS", raising=False)
    if given is not None:
        monkeypatch.setenv("DTBENCH_RUNNER_CLASS", given)
    assert read_environment(None).runner_class == told
