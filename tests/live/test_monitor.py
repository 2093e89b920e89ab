"""A loop in one process without a process group: both ways to mark a step, what is in no number, what is refused."""

import math
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a loop of torch is watched")

import dtbench
from dtbench.base.errors import CaptureError
from dtbench.base.vocabulary import Region
from dtbench.live.sinks import Report


def train(weight: Any) -> None:
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (weight * weight).sum().backward()
    optimizer.step()


def make_weight() -> Any:
    return torch.ones(64, 64, requires_grad=True)


def test_steps_in_a_with_are_reported_every_so_many_but_for_the_first() -> None:
    reports: list[Report] = []
    weight = make_weight()
    with dtbench.monitor(reports.append, every=4) as monitor:
        for _ in range(9):
            with monitor.step():
                train(weight)
    assert [report.step for report in reports] == [4, 8]
    numbers = reports[-1].numbers
    assert (numbers["steps"], numbers["ranks"], numbers["exposed_ms"], numbers["unseen"]) == (4, 1, 0, 0)
    assert math.isnan(numbers["slowest_rank"])
    assert math.isnan(numbers["hidden_fraction"])
    assert numbers["step_ms"] > 0
    assert reports[-1] is monitor.report
    assert [step.number for step in monitor.steps] == list(range(1, 9))
    last = monitor.steps[-1]
    assert all(last.own_ns(region) > 0 for region in (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER))
    assert sum(last.regions.values()) >= last.step_ns


def test_a_call_after_each_step_ends_it() -> None:
    reports: list[Report] = []
    weight = make_weight()
    with dtbench.monitor(reports.append, every=3) as monitor:
        for _ in range(8):
            train(weight)
            monitor.step()
    assert [report.step for report in reports] == [3, 6]
    assert all(step.between_ns == 0 and step.step_ns > 0 for step in monitor.steps)


def test_a_step_that_raises_is_in_no_number_and_training_goes_on() -> None:
    with dtbench.monitor(lambda _: None, every=2) as monitor:
        for divisor in (1, 1, 0, 1):
            with suppress(ZeroDivisionError), monitor.step():
                1 // divisor
    assert [step.number for step in monitor.steps] == [1, 3]


def test_steps_do_not_nest() -> None:
    with dtbench.monitor(lambda _: None) as monitor, monitor.step():
        with pytest.raises(CaptureError, match="has not ended, and another begins"), monitor.step():
            pass


def test_a_sink_that_fails_is_left_out_and_training_goes_on() -> None:
    reports: list[Report] = []

    def fail(_report: Report) -> None:
        raise OSError("disk full")

    def train_three() -> None:
        with dtbench.monitor(fail, reports.append, every=1) as monitor:
            for _ in range(3):
                with monitor.step():
                    pass

    with pytest.warns(UserWarning, match="a sink failed, and gets no more reports: OSError"):
        train_three()
    assert [report.step for report in reports] == [1, 2]


def test_without_sinks_a_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with dtbench.monitor(every=1) as monitor:
        for _ in range(2):
            with monitor.step():
                pass
    assert capsys.readouterr().out.startswith("dtbench: step 1: ")


def test_where_a_group_does_not_count_nothing_is_said_to_have_been_seen_whole() -> None:
    reports: list[Report] = []
    with dtbench.monitor(reports.append, every=1) as monitor:
        with monitor.step():
            pass
        monitor._watch.groups.uncounted = 1
        with monitor.step():
            pass
    assert math.isnan(reports[-1].numbers["unseen"])
    assert "at least 0 ms exposed" in str(reports[-1])
    assert "1 group without a count of what the backend issues" in str(reports[-1])


def test_only_the_last_steps_are_kept() -> None:
    with dtbench.monitor(lambda _: None) as monitor:
        for _ in range(300):
            with monitor.step():
                pass
    assert (len(monitor.steps), monitor.steps[0].number, monitor.steps[-1].number) == (256, 44, 299)


@pytest.mark.parametrize("every", [0, -1, 2.5, "ten"])
def test_a_wrong_number_of_steps_is_refused(every: Any) -> None:
    with pytest.raises(CaptureError, match=r"every=.* must be a whole number of at least 1"):
        with dtbench.monitor(every=every):
            pass


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with dtbench.monitor(lambda _: None):
        with pytest.raises(CaptureError, match="another monitor is open"), dtbench.monitor():
            pass
        with pytest.raises(CaptureError, match="open already"), dtbench.capture(tmp_path):
            pass


def test_ranks_without_a_process_group_are_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CaptureError, match=r"init_process_group before dtbench\.monitor"), dtbench.monitor():
        pass


def test_a_process_group_of_one_rank_has_nothing_to_wait_for() -> None:
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with dtbench.monitor(lambda _: None, every=1) as monitor:
                for _ in range(2):
                    with monitor.step():
                        dist.all_reduce(torch.ones(2))
    finally:
        dist.destroy_process_group()
    assert monitor.report is not None
    assert (monitor.report.numbers["exposed_ms"], monitor.report.numbers["unseen"]) == (0, 0)
