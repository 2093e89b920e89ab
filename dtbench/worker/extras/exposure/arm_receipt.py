"""Whether arms differ in nothing but communication, so that the difference of their times is what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtbench.base.units import count_things
from dtbench.base.vocabulary import Arm
from dtbench.store.records.arms import ArmCount
from dtbench.store.records.rank import Receipt, ReceiptOutcome

KNOB = "measure.exposure"


@dataclass(frozen=True)
class Evidence:
    """What the steps of all arms showed.

    Attributes:
        exposure: as the scenario asks for it.
        counts: one for each arm.
        nan_arms: arms with a loss that is NaN.
        held_weights: no weight changed.
        objects: calls that exchanged Python objects in arm ``removed``.
        seen, unseen: collectives of arm ``full`` whose wait was seen, and was not.
    """

    exposure: tuple[str, ...]
    counts: tuple[ArmCount, ...]
    nan_arms: frozenset[Arm]
    held_weights: bool
    objects: int
    seen: int
    unseen: int


def make_arm_receipt(evidence: Evidence) -> Receipt:
    """Compare the arms; any difference but in communication makes the receipt disagree."""
    problems = list(_find_problems(evidence))
    asked = "[" + ", ".join(evidence.exposure) + "]"
    return Receipt(
        knob=KNOB,
        asked=asked,
        got="arms that cannot be compared" if problems else asked,
        outcome=ReceiptOutcome.DISAGREES if problems else ReceiptOutcome.AGREES,
        note="; ".join([*problems, *_find_notes(evidence)]),
    )


def _find_problems(evidence: Evidence) -> Iterator[str]:
    if len({count.operators for count in evidence.counts}) > 1:
        yield f"arms differ in what they compute: {_list_counts(evidence.counts, 'operators')}"
    if len({count.traffic for count in evidence.counts}) > 1:
        yield f"arms differ in what they issue: {_list_counts(evidence.counts, 'collectives')}"
    if Arm.FULL in evidence.nan_arms:
        yield "losses are NaN before anything is removed: training has diverged; a smaller optimizer.lr works"
    for arm in sorted(evidence.nan_arms - {Arm.FULL}):
        yield f"a loss of arm {arm} is NaN: its steps compute with numbers that are none"
    if not evidence.held_weights:
        yield "weights have changed with a learning rate of 0"
    if evidence.unseen and "wait" in evidence.exposure:
        total = evidence.seen + evidence.unseen
        yield f"nobody was seen to wait for {evidence.unseen} of {total} collectives: `wait` is too small"


def _list_counts(counts: Sequence[ArmCount], what: str) -> str:
    if what == "operators":
        return ", ".join(f"{count.arm} {count.operators} operators" for count in counts)
    sums = [(count.arm, sum(row.count for row in count.traffic), _sum_bytes(count)) for count in counts]
    return ", ".join(
        f"{arm} {count_things(number, 'collective')} of {size_bytes} bytes" for arm, number, size_bytes in sums
    )


def _sum_bytes(count: ArmCount) -> int:
    return sum(row.size_bytes for row in count.traffic)


def _find_notes(evidence: Evidence) -> Iterator[str]:
    if len(evidence.counts) > 1 and len({(count.operators, count.traffic) for count in evidence.counts}) == 1:
        first = evidence.counts[0]
        arms = ", ".join(count.arm for count in evidence.counts)
        collectives = sum(row.count for row in first.traffic)
        yield f"a step of each arm ({arms}) ran {first.operators} operators and issued {collectives} collectives"
    if evidence.seen and not evidence.unseen:
        yield f"{evidence.seen} of {evidence.seen} waits seen"
    if evidence.objects:
        yield f"{evidence.objects} calls that exchange Python objects were carried in arm removed, too"
