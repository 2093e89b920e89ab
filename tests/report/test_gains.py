"""What advice says it can gain at most: by a replay where there is one, else by all that collectives took."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.report.page.brief.run import run_brief
from dtbench.report.page.page import Facts
from dtbench.report.words.advice import Advice, Bound, OwnerKey
from dtbench.report.words.gains import bound_by_replay, name_replay, say_refused
from dtbench.report.words.sentences import advice_sentences
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import CellSummary, GainsSummary, OwnerGain, RunSummary

MS = 1_000_000.0
STEP_NS = 90 * MS
TOOK = Bound(40 * MS, 100 * MS, "all the transfer of its collectives, hidden or not")
A: OwnerKey = ("bucket 0", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE)
B: OwnerKey = ("bucket 1", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE)
GATHER: OwnerKey = ("layers.0", Purpose.UNSHARD, Operation.ALL_GATHER)


def gain(saving_ms: float, purpose: Purpose | None = None, owner: OwnerKey | None = None) -> OwnerGain:
    return OwnerGain(
        owner=None if owner is None else owner[0],
        purpose=purpose if owner is None else owner[1],
        operation=None if owner is None else owner[2],
        own_ns=70 * MS,
        saving_ns=saving_ms * MS,
    )


GAINS = GainsSummary(
    step_ns=STEP_NS,
    is_measured=True,
    launches=(0,),
    rows=(gain(33), gain(30, Purpose.GRAD_REDUCE), gain(10, owner=A), gain(0, owner=GATHER)),
)
"""A bucket that delays a tail gains 10 ms of the 40 that it takes; with the one behind it 30."""


def say(owners: Sequence[OwnerKey], gains: GainsSummary | None = GAINS, bound: Bound | None = TOOK) -> Advice:
    (said,) = bound_by_replay([Advice("tail (grad_reduce)", "Send less.", 5, bound=bound, owners=tuple(owners))], gains)
    return said


def test_a_bucket_that_delays_a_tail_is_bounded_by_the_replay_without_it() -> None:
    said = say([A])
    assert said.words == (
        "Send less. At most 10.0 ms of 90.0 ms: what a replay of steps as MEASURED without the transfer of its "
        "collectives (`hidden: bucket 0, grad_reduce`) gains."
    )
    assert said.short == "Send less. At most 10.0 ms."
    assert said.leading == "tail (grad_reduce), at most 10.0 ms to gain: Send less."


@pytest.mark.parametrize(
    ("owners", "most_ms", "without"),
    [
        ([A, B], 30, "any transfer of grad_reduce (`hidden: grad_reduce`)"),
        ([B], 30, "any transfer of grad_reduce (`hidden: grad_reduce`)"),
        ([A, GATHER], 33, "any transfer (`hidden: all`)"),
        ([("layers.1", Purpose.UNSHARD, Operation.ALL_GATHER)], 33, "any transfer (`hidden: all`)"),
    ],
)
def test_what_a_replay_was_not_asked_for_alone_gains_no_more_than_what_holds_all_of_it(
    owners: Sequence[OwnerKey], most_ms: float, without: str
) -> None:
    """Not the sum of what each gains: buckets behind each other gain more together."""
    bound = say(owners).bound
    assert bound == Bound(
        most_ms * MS, STEP_NS, f"what a replay of steps as MEASURED without {without} gains", is_replayed=True
    )


def test_steps_that_are_not_as_measured_are_called_profiled() -> None:
    assert "a replay of PROFILED steps without" in say([A], GAINS.model_copy(update={"is_measured": False})).words


def test_a_replay_that_gains_more_than_all_that_they_took_bounds_nothing() -> None:
    short = replace(TOOK, most_ns=9 * MS)
    assert say([A], bound=short).bound == short
    assert say([A, B], bound=short).bound == short


def test_what_a_replay_without_it_gains_nothing_by_is_called_nothing() -> None:
    said = say([GATHER])
    assert said.words == (
        "Send less. Nothing to gain: a replay of steps as MEASURED without the transfer of its collectives "
        "(`hidden: layers.0, unshard`) takes as long."
    )
    assert said.leading == "tail (grad_reduce), nothing to gain: Send less."
    assert said.short == "Send less. Nothing to gain."


def test_what_transfer_does_not_bound_no_replay_bounds() -> None:
    """Who waits less, or stands in no queue, may gain more than the time that its collectives take."""
    assert say([]).bound == TOOK
    assert say([A], bound=None).bound is None
    assert say([A], None).bound == TOOK


@pytest.fixture(scope="module")
def example() -> RunSummary:
    return summarize_run(Path(__file__).parents[2] / "results" / "example")


def give(cell: CellSummary, gains: GainsSummary) -> CellSummary:
    return cell.model_copy(update={"gains": gains})


TAIL: OwnerKey = ("bucket 3", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE)


def test_a_report_says_what_a_replay_of_its_run_gains(example: RunSummary) -> None:
    ddp = example.cells[0]
    replayed = GainsSummary(step_ns=471 * MS, is_measured=True, launches=(0,), rows=(gain(44, owner=TAIL),))
    before, after = advice_sentences(ddp), advice_sentences(give(ddp, replayed))
    assert "At most 61.5 ms of 488 ms: all the transfer of its collectives" in before[0]
    assert after[0].endswith(
        "At most 44.0 ms of 471 ms: what a replay of steps as MEASURED without the transfer of its collectives "
        "(`hidden: bucket 3, grad_reduce`) gains."
    )
    assert after[1:] == before[1:], "what was waited for is bounded by what was waited"
    alone = example.model_copy(update={"cells": (give(ddp, replayed),), "checks": None})
    page = run_brief(alone)
    assert "at most 44.0 ms to gain" in page.answer[-1].words
    (largest,) = (one for one in page.parts[0].blocks if isinstance(one, Facts) and one.key == "largest")
    assert largest.title.endswith("(at most: all they took or waited)"), "what the answer says is not said again"


def test_a_title_says_what_its_bounds_are(example: RunSummary) -> None:
    ddp = example.cells[0]

    def find_title(gains: GainsSummary) -> str:
        cells = (give(ddp, gains), example.cells[1])  # the answer is about the other
        (largest,) = (
            one
            for one in run_brief(example.model_copy(update={"cells": cells})).parts[0].blocks
            if isinstance(one, Facts) and one.key == "largest"
        )
        return largest.title

    assert find_title(GainsSummary(refused="it does not fit")).endswith("(at most: all they took or waited)")
    replayed = GainsSummary(step_ns=471 * MS, launches=(0,), rows=(gain(44),))
    assert find_title(replayed).endswith("(at most: replay, else all they took)")


def test_a_replay_that_is_refused_leaves_transfer_as_the_bound_and_says_so(example: RunSummary) -> None:
    ddp = example.cells[0]
    why = "the replay of the unchanged steps does not fit"
    before, after = advice_sentences(ddp), advice_sentences(give(ddp, GainsSummary(refused=why)))
    assert after == [
        *before,
        f"transfer is all that bounds these gains, a replay of the steps without it tells nothing: {why}",
    ]
    waits = [Advice("skew", "Find it.", 5, bound=TOOK)]
    assert say_refused(waits, GainsSummary(refused=why)) is None, "no replay was to bound that"


@pytest.mark.parametrize(
    ("owners", "change"),
    [
        ([A], "hidden: bucket 0, grad_reduce"),
        ([("", Purpose.OTHER, None)], "hidden: unattributed, other"),
        ([A, B], "hidden: grad_reduce"),
        ([A, GATHER], "hidden: all"),
    ],
)
def test_traces_name_the_replay_that_bounds_an_advice_closer(owners: Sequence[OwnerKey], change: str) -> None:
    (said,) = name_replay([Advice("tail", "Send less.", 5, bound=TOOK, owners=tuple(owners))])
    assert said.replay == change
    assert said.words == (
        "Send less. At most 40.0 ms of 100 ms: all the transfer of its collectives, hidden or not. A replay tells how "
        f"much of that: `dtbench whatif TRACES --change '{change}'`."
    )
    (waits,) = name_replay([Advice("skew", "Find it.", 5, bound=TOOK)])
    assert "whatif" not in waits.words
