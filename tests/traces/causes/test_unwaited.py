"""Collectives on the host beside which no operator ran, and for which nobody, or hardly anybody, stood still."""

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation
from dtbench.report.words.trace_words import advise_traces
from dtbench.traces.causes.split import CausePart, CauseSplit
from dtbench.traces.causes.unwaited import _Stood, _withhold
from dtbench.traces.job.foreign import analyze_traces

if TYPE_CHECKING:
    from tests.traces.causes.conftest import CpuRank, Maker

US = 1_000
LABEL = {"group": 0, "seq": 2, "op": "all_reduce", "bytes": 4 << 20, "axis": "replicate", "async": 1, "owner": ""}
After = Callable[["CpuRank", int, int], None]
Found = tuple[dict[str, int], tuple[MissingInput, ...], str]


def never(rank: "CpuRank", _start_ns: int, end_ns: int) -> None:
    """The host is busy with what no operator shows until it has ended, and nobody waits for it."""
    rank.host_ns = end_ns


def later(rank: "CpuRank", _start_ns: int, end_ns: int) -> None:
    """The same, and somebody waits for it when it has long ended."""
    rank.host_ns = end_ns + 50 * US
    rank.wait("0", 2, rank.host_ns + 2 * US)


def in_part(rank: "CpuRank", _start_ns: int, end_ns: int) -> None:
    """The same for a while; then the thread stands still."""
    rank.host_ns = end_ns - 100 * US
    rank.wait("0", 2, end_ns)


def twice(rank: "CpuRank", start_ns: int, end_ns: int) -> None:
    """The thread asks whether it has ended, and then stands still."""
    rank.wait("0", 2, start_ns)
    rank.host_ns += 2 * US
    rank.wait("0", 2, end_ns)


def at_once(rank: "CpuRank", _start_ns: int, end_ns: int) -> None:
    """The thread stands still all the time."""
    rank.wait("0", 2, end_ns)


@pytest.fixture
def find(maker: "Maker", tmp_path: Path) -> Callable[..., Found]:
    """Return exposed us by cause of a collective of 400 us in backward, over two ranks, what was missing, and advice.

    It may be late on the second rank, stand for a while behind another one, and be issued blocking.
    """

    def analyse(tell: After, late_us: int = 0, behind_us: int = 0, **said: object) -> Found:
        paths = []
        for number in range(2):
            rank = maker.cpu(2)
            with rank.around("ProfilerStep#7"):
                with rank.region("backward"):
                    rank.operator(60 * US)
                    start_ns = rank.host_ns + (6 + behind_us) * US
                    if behind_us:
                        rank.collective(
                            start_ns - behind_us * US, start_ns, label=LABEL | {"seq": 1, "op": "all_gather"}
                        )
                    end_ns = start_ns + 400 * US
                    rank.collective(start_ns + number * late_us * US, end_ns, label=LABEL | said)
                    tell(rank, start_ns, end_ns)
                with rank.region("optimizer"):
                    rank.operator(60 * US)
            paths.append(tmp_path / f"rank{number}.json")
            told = {"rank": number, "world_size": 2}
            paths[-1].write_text(json.dumps({"distributedInfo": told, "host_name": "one", "traceEvents": rank.events}))
        traces = analyze_traces(paths)
        found: dict[str, int] = {}
        rows = [row for row in traces.owners if row.operation is Operation.ALL_REDUCE]
        for row in rows:
            found[str(row.cause)] = found.get(str(row.cause), 0) + round(row.exposed_ns / US)
        missing = tuple(one for row in rows if row.cause is Cause.UNKNOWN for one in row.missing)
        return found, missing, " ".join(one.words for one in advise_traces(traces))

    return analyse


def test_a_collective_that_nobody_was_seen_to_wait_for_is_exposed_for_no_known_cause(
    find: Callable[..., Found],
) -> None:
    found, missing, advice = find(never)
    assert found == {"unknown": 800}
    assert missing == (MissingInput.CONSUMER,)
    assert "Nothing was seen to wait for it" in advice
    assert "end less" not in advice
    assert "smaller" not in advice


def test_what_had_ended_when_its_consumer_came_was_neither_too_long_nor_last(find: Callable[..., Found]) -> None:
    found, missing, advice = find(later)
    assert (found, missing) == ({"unknown": 800}, (MissingInput.HOST,))
    assert "Find what the host did meanwhile" in advice


def test_a_cause_takes_no_more_than_a_consumer_stood_still_for(find: Callable[..., Found]) -> None:
    found, missing, _ = find(in_part)
    assert (found, missing) == ({"tail": 200, "unknown": 600}, (MissingInput.HOST,))


@pytest.mark.parametrize("wait", [at_once, twice])
def test_what_was_waited_for_from_the_first_has_its_cause_as_a_whole(find: Callable[..., Found], wait: After) -> None:
    assert find(wait)[:2] == ({"tail": 800}, ())


@pytest.mark.parametrize(
    ("late_us", "expected"),
    [
        (240, {"tail": 100 + 100, "unknown": 300 + 60}),  # waits for the last 100 us, after both had begun
        (360, {"skew": 60, "tail": 40 + 40, "unknown": 300}),  # the last began when both stood still already
    ],
)
def test_standing_still_for_another_rank_counts_for_that_alone(
    find: Callable[..., Found], late_us: int, expected: dict[str, int]
) -> None:
    assert find(in_part, late_us)[0] == expected


@pytest.mark.parametrize(("wait", "lacks"), [(never, MissingInput.CONSUMER), (later, MissingInput.HOST)])
def test_nobody_waited_for_another_rank_who_was_busy_until_it_had_ended(
    find: Callable[..., Found], wait: After, lacks: MissingInput
) -> None:
    found, missing, advice = find(wait, 240)
    assert (found, missing) == ({"unknown": 400 + 160}, (lacks,))
    assert "come last" not in advice


def test_a_queue_costs_what_a_consumer_stood_still_for_behind_it(find: Callable[..., Found]) -> None:
    assert find(at_once, behind_us=300)[0] == {"queued": 600, "tail": 200}
    assert find(in_part, behind_us=300)[0] == {"queued": 200, "unknown": 600}


@pytest.mark.parametrize(("wait", "lacks"), [(never, MissingInput.CONSUMER), (later, MissingInput.HOST)])
def test_nothing_was_late_for_standing_in_a_queue_when_nobody_stood_still_for_it(
    find: Callable[..., Found], wait: After, lacks: MissingInput
) -> None:
    found, missing, advice = find(wait, behind_us=300)
    assert (found, missing) == ({"unknown": 800}, (lacks,))
    assert "process group of its own" not in advice


def test_a_call_that_blocks_is_a_consumer_of_its_own(find: Callable[..., Found]) -> None:
    said = {"async": 0}
    assert find(never, **said)[0] == {"sync_op": 800}
    assert find(never, 240, **said)[0] == {"skew": 240, "sync_op": 160 + 160}


def test_causes_take_what_was_waited_for_in_their_order_whatever_that_of_the_parts() -> None:
    parts = (CausePart(Cause.SKEW, 100), CausePart(Cause.QUEUED, 300), CausePart(Cause.TAIL, 200))
    stood = _Stood(for_last_ns=40, for_all_ns=350, alone_ns=0)
    for mixed in permutations(parts):
        found = [(part.cause, part.exposed_ns) for part in _withhold(CauseSplit(mixed), stood, MissingInput.HOST)]
        assert found == [(Cause.SKEW, 40), (Cause.QUEUED, 300), (Cause.TAIL, 50), (Cause.UNKNOWN, 210)]
