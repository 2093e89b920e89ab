"""Warm-up ends by evidence, on all ranks at once, or says why it gave up."""

import random
import threading
from collections.abc import Callable, Hashable, Sequence

import pytest

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import WarmupEnd
from dtbench.store.records.run import OwnLoop
from dtbench.worker.loop.warmup import WarmupJudge, find_change, find_period
from tests.worker.thread_store import ThreadStore


@pytest.fixture
def plan(scenario: Callable[..., Scenario]) -> Plan:
    measure = {"warmup": {"min_steps": 8, "max_steps": 20}, "measured_steps": 4}
    return make_plan(
        scenario(parallel={"kind": "ddp", "replicas": 1}, measure=measure), Machine(cpu_cores=1, cuda_devices=0)
    )


def end_of(plan: Plan, durations: list[int], signatures: Sequence[Hashable]) -> WarmupEnd:
    judge = WarmupJudge(plan, 0, ThreadStore())
    for duration, signature in zip(durations, signatures, strict=True):
        end = judge.judge(duration, signature)
        if end is not None:
            return end
    raise AssertionError("warm-up never ended")


def test_a_steady_step_ends_warm_up_at_the_least_number_of_steps(plan: Plan) -> None:
    end = end_of(plan, [900, *[100] * 19], ["a"] * 20)
    assert (end.steps, end.settled) == (8, True)


def test_changing_communication_holds_warm_up_open(plan: Plan) -> None:
    end = end_of(plan, [100] * 20, ["a"] * 10 + ["b"] * 10)
    assert (end.steps, end.settled) == (8, True)
    end = end_of(plan, [100] * 20, ["a"] * 7 + ["b"] * 13)
    assert (end.steps, end.settled) == (10, True)


def test_a_step_that_is_still_getting_faster_holds_warm_up_open(plan: Plan) -> None:
    end = end_of(plan, [200] * 6 + [100] * 14, ["a"] * 20)
    assert end.settled
    assert end.steps > 8


def test_warm_up_that_never_settles_ends_with_a_reason(plan: Plan) -> None:
    end = end_of(plan, [100] * 20, list(range(20)))
    assert (end.steps, end.settled) == (20, False)
    assert "communication still changes" in end.reason
    assert "max_steps" in end.reason


def test_noise_is_no_change_point() -> None:
    generator = random.Random(0)
    alarms = sum(
        find_change([round(generator.gauss(100_000, 8_000)) for _ in range(8)]) is not None for _ in range(500)
    )
    assert alarms < 25


def test_a_step_up_is_a_change_point() -> None:
    assert find_change([100, 101, 99, 100, 150, 151, 149, 150]) == pytest.approx(0.4, abs=0.01)


def test_all_ranks_end_at_the_same_step_by_the_slowest(scenario: Callable[..., Scenario]) -> None:
    measure = {"warmup": {"min_steps": 8, "max_steps": 20}, "measured_steps": 4}
    plan = make_plan(scenario(measure=measure), Machine(cpu_cores=2, cuda_devices=0))
    store, ends = ThreadStore(), dict[int, int]()

    def rank(number: int, slow_until: int) -> None:
        judge = WarmupJudge(plan, number, store)
        for step in range(20):
            end = judge.judge(300 if step < slow_until else 100, "same")
            if end is not None:
                ends[number] = end.steps
                return

    threads = [threading.Thread(target=rank, args=arguments) for arguments in ((0, 0), (1, 6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert ends[0] == ends[1] > 8


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_leaves_ends_warm_up_for_all(scenario: Callable[..., Scenario], leaver: int) -> None:
    plan = make_plan(scenario(), Machine(cpu_cores=2, cuda_devices=0))
    store, ends = ThreadStore(), dict[int, WarmupEnd | None]()

    def rank(number: int) -> None:
        judge = WarmupJudge(plan, number, store)
        for _ in range(3):
            assert judge.judge(100, "same") is None
        if number == leaver:
            judge.leave()
        else:
            ends[number] = judge.judge(100, "same")

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    stayed = ends[1 - leaver]
    assert stayed is not None
    assert not stayed.settled
    assert stayed.reason == f"rank {leaver} left the loop after 3 steps, before warm-up had ended"


def test_a_reason_claims_no_communication_that_nobody_saw(plan: Plan) -> None:
    judge = WarmupJudge(plan, 0, ThreadStore(), sees_communication=False)
    ends = [judge.judge(100, ()) for _ in range(8)]
    assert ends[-1] is not None
    assert ends[-1].reason == "step time shows no change point"


def end_of_own_loop(durations: list[int], signatures: Sequence[Hashable]) -> WarmupEnd:
    loop = OwnLoop(
        script="train.py",
        device=DeviceKind.CPU,
        backend=None,
        mesh=(),
        ranks=1,
        min_warmup_steps=8,
        max_warmup_steps=60,
        measured_steps=4,
        profiled_steps=2,
        tokens_per_step=None,
        notes=(),
    )
    judge = WarmupJudge(loop, 0, ThreadStore(), longest_period=30)
    ends = (judge.judge(duration, signature) for duration, signature in zip(durations, signatures, strict=True))
    return next(end for end in ends if end is not None)


@pytest.mark.parametrize("period", [2, 3, 4, 7])
def test_steps_that_take_turns_end_warm_up_with_a_whole_period(period: int) -> None:
    signatures = ["first", *(["local"] * (period - 1) + ["averaged"]) * 30][:60]
    durations = [100 if signature == "local" else 300 for signature in signatures]
    end = end_of_own_loop(durations, signatures)
    assert (end.settled, end.period) == (True, period), end.reason
    assert period == 2 or signatures[end.steps - 1] == "averaged", "with two kinds neither is the rarer one"
    assert end.steps <= 16 + period


def test_a_period_whose_steps_still_get_faster_holds_warm_up_open() -> None:
    signatures = ["local", "averaged"] * 30
    durations = [(400 if i < 6 else 100) * (1 + 2 * (i % 2)) for i in range(60)]
    end = end_of_own_loop(durations, signatures)
    assert end.settled
    assert end.steps > 8, "kinds of steps of unlike lengths hide no change"


def test_steps_that_are_alike_for_longer_than_ever_before_have_no_period() -> None:
    assert find_period("ABBBB", 8) == 1
    assert find_period("AAAAABAAAAA", 8) == 0, "the next one may be a B"
    assert find_period("AAAAABAAAAAA", 8) == 1
    assert find_period("AAAAABAAAAA", 1) == 1, "dtbench's own steps are all meant alike"
    assert find_period("ABCDEFGH", 8) == 0
