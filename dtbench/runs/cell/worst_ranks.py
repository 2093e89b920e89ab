"""Which rank stands for all ranks of all launches of a cell: the one that did worst."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from dtbench.machine.disturbance import DISTURBED
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.rank import (
    Compilation,
    CorrectnessResult,
    Memory,
    RankRecord,
    Receipt,
    ReceiptOutcome,
    WarmupEnd,
)


def slowest_compilation(ranks: Sequence[RankRecord]) -> Compilation | None:
    """Return the one that took longest; None where nothing was compiled."""
    found = [record.compilation for record in ranks if record.compilation is not None]
    return max(found, key=lambda compilation: compilation.duration_ns, default=None)


def peak_memory(ranks: Sequence[RankRecord]) -> Memory | None:
    """Return the largest peak of any rank, each figure for itself; None: not told of every rank, or on a CPU."""
    if not ranks:
        return None
    memories = [record.memory for record in ranks]
    return Memory(
        rss_peak_bytes=max(memory.rss_peak_bytes for memory in memories),
        allocated_peak_bytes=_max_of_all([memory.allocated_peak_bytes for memory in memories]),
        reserved_peak_bytes=_max_of_all([memory.reserved_peak_bytes for memory in memories]),
    )


def _max_of_all(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def most_state_taken(ranks: Sequence[RankRecord]) -> float | None:
    """Return the most that others had of the cores while a training state went through stages.

    None: nobody looked, or not on every rank, and those that did saw too little of others to tell.
    """
    told = [state.taken_fraction for record in ranks if (state := record.extras.state_dict) is not None]
    most = max((taken for taken in told if taken is not None), default=None)
    return most if most is not None and (most >= DISTURBED or None not in told) else None


def worst_correctness(ranks: Sequence[RankRecord]) -> CorrectnessResult | None:
    """Return a result that failed, if any rank of any launch has one, else the one with the largest gradient error."""
    results = [record.correctness for record in ranks if record.correctness is not None]
    return max(
        results,
        key=lambda result: (not result.passed, np.nan_to_num(result.gradient_error, nan=math.inf)),
        default=None,
    )


def worst_canary(ranks: Sequence[RankRecord]) -> CanaryResult | None:
    """Return a result that failed, naming most, if any rank of any launch has one, else one that nobody can tell."""
    results = [found for record in ranks if (found := record.extras.canary) is not None]
    return max(
        results,
        key=lambda result: (result.passed is False, result.passed is None, len(result.missed), result.gradient_error),
        default=None,
    )


def worst_receipts(ranks: Sequence[RankRecord]) -> tuple[Receipt, ...]:
    """Return each knob's receipt: one that disagrees if any rank of any launch has one, else one without effect."""
    worst: dict[str, Receipt] = {}
    for receipt in (receipt for record in ranks for receipt in record.receipts):
        if receipt.knob not in worst or _BADNESS[receipt.outcome] > _BADNESS[worst[receipt.knob].outcome]:
            worst[receipt.knob] = receipt
    contested = find_contested_knobs(ranks)
    return tuple(_add_others(one, ranks) if one.knob in contested else one for one in worst.values())


def _add_others(receipt: Receipt, ranks: Sequence[RankRecord]) -> Receipt:
    """Note what other ranks say of a contested knob."""
    got = _list_values(ranks).get(receipt.knob, [])
    others = [value for value in got if value != receipt.got]
    said = "say that it agrees" if receipt.outcome is not ReceiptOutcome.AGREES else f"got {join_words(others, 'and')}"
    note = f"{receipt.note}{'; ' if receipt.note else ''}other ranks {said}"
    return receipt.model_copy(update={"note": note})


_BADNESS: Final = {ReceiptOutcome.AGREES: 0, ReceiptOutcome.NO_EFFECT: 1, ReceiptOutcome.DISAGREES: 2}


def find_contested_knobs(ranks: Sequence[RankRecord]) -> tuple[str, ...]:
    """Return the knobs of which ranks contradict each other: one has no effect on some alone, or other values."""
    told: dict[str, set[ReceiptOutcome]] = {}
    for receipt in (receipt for record in ranks for receipt in record.receipts):
        told.setdefault(receipt.knob, set()).add(receipt.outcome)
    both = {ReceiptOutcome.AGREES, ReceiptOutcome.NO_EFFECT}
    values = _list_values(ranks)
    return tuple(
        knob
        for knob, outcomes in told.items()
        if outcomes == both or (outcomes == {ReceiptOutcome.AGREES} and len(values.get(knob, ())) > 1)
    )


_MEASURED: Final = ("model.", "measure.")
"""Sections of a scenario of whose knobs each rank tells what it measured, and that differs."""


def _list_values(ranks: Sequence[RankRecord]) -> dict[str, list[str]]:
    """Return the values that ranks got of each knob that agrees, without those that are measured."""
    found: dict[str, dict[str, None]] = {}
    for receipt in (receipt for record in ranks for receipt in record.receipts):
        if receipt.outcome is ReceiptOutcome.AGREES and not receipt.knob.startswith(_MEASURED):
            found.setdefault(receipt.knob, {})[receipt.got] = None
    return {knob: [*values] for knob, values in found.items()}


def worst_warmup(ranks: Sequence[RankRecord]) -> WarmupEnd | None:
    """Return a warm-up that did not settle, if any launch has one, else the longest."""
    return max((record.warmup for record in ranks), key=lambda end: (not end.settled, end.steps), default=None)
