"""A dispute names both figures and the assumption that broke, with what the trace shows for it."""

import math

import pytest

from dtbench.base.vocabulary import ASSUMPTION_PHRASES, Assumption, Estimate
from dtbench.runs.exposure.disputes import Surroundings, find_disputes
from dtbench.runs.summary import Estimated

MS = 1_000_000
TRACE, ABLATION, WAIT, LOGGER = Estimate


def estimated(estimate: Estimate, mean_ms: float) -> Estimated:
    return Estimated(estimate=estimate, mean_ns=mean_ms * MS, standard_error_ns=0.1 * MS, count=5)


def around(
    idle_ms: float = 5,
    profiled_ms: float = 101,
    full_ms: float = 100,
    skew_ms: float = 0,
    profiler_low: float = 1.01,
) -> Surroundings:
    return Surroundings(
        idle_ns=idle_ms * MS,
        profiled_step_ns=profiled_ms * MS,
        full_step_ns=full_ms * MS,
        skew_ns=skew_ms * MS,
        idle_word="host time",
        profiler_low=profiler_low,
    )


def disputes(surroundings: Surroundings, gradient_wait_ms: float = math.nan, **means_ms: float) -> tuple[str, ...]:
    estimates = {Estimate(name): estimated(Estimate(name), mean) for name, mean in means_ms.items()}
    return find_disputes(estimates, estimated(WAIT, gradient_wait_ms), surroundings)


def test_estimates_that_agree_are_not_disputed() -> None:
    assert disputes(around(), trace=20, ablation=21.5, wait=19.5) == ()


def test_a_dispute_names_both_figures_how_far_they_are_apart_and_what_would_pass() -> None:
    (said,) = disputes(around(), trace=12, ablation=34.1)
    assert said == (
        "trace 12.0 ms against ablation 34.1 ms, 22.1 ms apart where 3.41 ms would pass: "
        "perhaps contention, communication slows the compute beside it"
    )


@pytest.mark.parametrize(
    ("surroundings", "means_ms", "expected"),
    [
        (around(), {"trace": 12.0, "ablation": 34.0}, [Assumption.CONTENTION]),
        (around(), {"ablation": 34.0, "wait": 12.0}, [Assumption.CONTENTION]),
        (around(idle_ms=30), {"trace": 12.0, "ablation": 34.0}, [Assumption.CONTENTION, Assumption.HOST_BOUND]),
        (around(), {"trace": 34.0, "ablation": 12.0}, [Assumption.SKEW]),
        (around(skew_ms=15), {"trace": 34.0, "ablation": 12.0}, [Assumption.SKEW]),
        (around(idle_ms=30), {"trace": 34.0, "ablation": 12.0}, [Assumption.HOST_BOUND]),
        (around(idle_ms=30, skew_ms=15), {"trace": 34.0, "ablation": 12.0}, [Assumption.SKEW, Assumption.HOST_BOUND]),
        (around(profiled_ms=115), {"trace": 34.0, "ablation": 12.0}, [Assumption.PROFILER]),
        (around(profiled_ms=115), {"ablation": 12.0, "wait": 34.0}, [Assumption.SKEW]),
        (around(profiled_ms=115, profiler_low=0.42), {"trace": 34.0, "ablation": 12.0}, [Assumption.SKEW]),
        (around(profiled_ms=115, profiler_low=math.nan), {"trace": 34.0, "ablation": 12.0}, [Assumption.SKEW]),
        (around(), {"trace": 34.0, "wait": 12.0}, [Assumption.NOT_WAITED_FOR]),
        (around(idle_ms=30), {"trace": 34.0, "wait": 12.0}, [Assumption.HOST_BOUND, Assumption.NOT_WAITED_FOR]),
        (around(idle_ms=30), {"trace": 12.0, "wait": 34.0}, [Assumption.WAIT_ALONE]),
        (around(), {"trace": 12.0, "ablation": -9.0}, [Assumption.SKEW]),
    ],
)
def test_the_direction_of_a_difference_and_what_the_trace_shows_name_the_assumption(
    surroundings: Surroundings, means_ms: dict[str, float], expected: list[Assumption]
) -> None:
    (said,) = disputes(surroundings, **means_ms)
    assert [one for one in Assumption if ASSUMPTION_PHRASES[one] in said] == expected


@pytest.mark.parametrize(
    ("surroundings", "means_ms"),
    [
        (around(), {"trace": 12.0, "ablation": 34.0}),
        (around(), {"trace": 34.0, "ablation": 12.0}),
        (around(), {"ablation": 12.0, "wait": 34.0}),
        (around(), {"trace": 34.0, "wait": 12.0}),
    ],
)
def test_what_nothing_shows_is_said_to_be_a_suspicion(surroundings: Surroundings, means_ms: dict[str, float]) -> None:
    (said,) = disputes(surroundings, **means_ms)
    assert said.partition(" would pass: ")[2].startswith("perhaps ")


def test_evidence_is_said_with_its_figure() -> None:
    (skew,) = disputes(around(skew_ms=15), trace=34, ablation=12)
    assert skew.endswith("(the trace shows 15.0 ms of waiting for a later rank)")
    (host,) = disputes(around(idle_ms=30.3), trace=34, ablation=12)
    assert host.endswith("(host time 30.3 ms, 30.0 % of a profiled step)")
    (profiler,) = disputes(around(profiled_ms=115), trace=34, ablation=12)
    assert profiler.endswith("(115 ms with it, 100 ms without)")


def test_idle_time_that_is_shorter_than_the_difference_does_not_explain_it() -> None:
    (said,) = disputes(around(idle_ms=20), trace=12, ablation=34)
    assert ASSUMPTION_PHRASES[Assumption.HOST_BOUND] not in said


def test_every_pair_that_does_not_agree_is_told() -> None:
    said = disputes(around(), trace=12, ablation=34, wait=33)
    assert [one.partition(",")[0] for one in said] == [
        "trace 12.0 ms against ablation 34.0 ms",
        "trace 12.0 ms against waits 33.0 ms",
    ]


def test_a_negative_ablation_is_disputed_as_it_is() -> None:
    (said,) = disputes(around(), trace=12, ablation=-9)
    assert said.startswith("trace 12.0 ms against ablation -9.00 ms, 21.0 ms apart where 2.00 ms would pass")


def test_ddps_logger_is_held_against_the_waits_for_gradients_and_nothing_else() -> None:
    assert disputes(around(), gradient_wait_ms=20, trace=40, wait=41, logger=20.5) == ()
    (said,) = disputes(around(), gradient_wait_ms=20, trace=40, wait=41, logger=5)
    assert said.startswith("waits 20.0 ms against DDP's logger 5.00 ms, ")
    assert ASSUMPTION_PHRASES[Assumption.CLOCKS] in said


def test_what_is_not_known_is_not_disputed() -> None:
    assert disputes(around(), trace=12, ablation=math.nan, wait=12.5, logger=3) == ()


def test_what_nobody_knows_of_the_steps_is_no_evidence() -> None:
    unknown = Surroundings(math.nan, math.nan, math.nan, math.nan, "idle")
    (said,) = disputes(unknown, trace=34, ablation=12)
    assert said.endswith(ASSUMPTION_PHRASES[Assumption.SKEW])
