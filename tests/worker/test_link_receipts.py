"""What a rank says of its link: nothing went past it, and gloo kept up."""

from pathlib import Path

import pytest

from dtbench.scenario.schema.network import EmulatedNetwork, RealNetwork
from dtbench.store.records.rank import ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

NETWORK = EmulatedNetwork(kind="emulated", bandwidth_gb_per_s=1.0)


def test_a_collective_that_went_past_the_link_is_a_disagreement(tmp_path: Path) -> None:
    from dtbench.worker.network.link import Link, Tally
    from dtbench.worker.network.link_receipts import read_network_receipts

    (receipt,) = read_network_receipts(NETWORK, Link(NETWORK, tmp_path, Tally(count=9)), 10)
    assert receipt.outcome is ReceiptOutcome.DISAGREES
    assert receipt.note == "the link carried 9 of 10 collectives: others went past it, or are not done"
    (receipt,) = read_network_receipts(NETWORK, None, 10)
    assert receipt.outcome is ReceiptOutcome.DISAGREES


def test_a_link_that_is_faster_than_gloo_has_no_effect_and_says_so(tmp_path: Path) -> None:
    from dtbench.worker.network.link import Link, Tally
    from dtbench.worker.network.link_receipts import read_network_receipts

    def read(late: int) -> tuple[ReceiptOutcome, str]:
        link = Link(NETWORK, tmp_path, Tally(count=10, late=late, latest_ns=2_000_000))
        (receipt,) = read_network_receipts(NETWORK, link, 10)
        return receipt.outcome, receipt.note

    assert read(0) == (ReceiptOutcome.AGREES, "every one of 10 collectives went over the link, and gloo moved the data")
    held_up = (
        "every one of 10 collectives went over the link, and gloo moved the data; "
        "{} were held up by gloo, which took longer, by up to 2.00 ms"
    )
    assert read(5) == (ReceiptOutcome.AGREES, held_up.format(5))
    assert read(6) == (ReceiptOutcome.NO_EFFECT, f"gloo is slower than this link: {held_up.format(6)}")


def test_a_real_network_needs_no_receipt() -> None:
    from dtbench.worker.network.link_receipts import read_network_receipts

    assert read_network_receipts(RealNetwork(kind="real"), None, 10) == ()


def test_ranks_of_one_machine_read_each_others_times(tmp_path: Path) -> None:
    from dtbench.worker.network.issue_times import SLOTS, IssueTimes

    first, second = (IssueTimes(tmp_path, "0", (0, 3), own) for own in (0, 1))
    first.put(1, 100)
    assert (first.last(1), second.last(1)) == (100, 100)
    second.put(1, 250)
    assert (first.last(1), second.last(1)) == (250, 250)
    second.put(1 + SLOTS, 900)  # takes the place of its first time
    assert (first.last(1), first.last(1 + SLOTS), first.last(2)) == (100, 900, 0)
    assert IssueTimes(tmp_path, "0", (0, 1), 0).last(1) == 0, "another group has another file"


def test_a_collective_lies_on_its_lane_from_its_own_issue_so_that_waiting_for_a_late_rank_is_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading
    import time
    from contextlib import nullcontext

    from dtbench.base.ranges import CollectiveLabel, LinkLabel, parse_link_range
    from dtbench.base.units import NS_PER_MS
    from dtbench.base.vocabulary import Axis, Operation
    from dtbench.worker.network import link
    from dtbench.worker.network.promise import Promise

    named: list[str] = []

    def record(name: str) -> nullcontext[None]:
        named.append(name)
        return nullcontext()

    monkeypatch.setattr(link, "record_function", record)
    lane = link._Lane("0", link.Tally(), threading.Lock())
    label = CollectiveLabel(
        group="0", seq=1, operation=Operation.ALL_REDUCE, size_bytes=4, axis=Axis.REPLICATE, is_async=True, owner=""
    )
    now_ns = time.monotonic_ns()

    def serve(issued_ns: int) -> LinkLabel:
        job = link._Job(label, issued_ns, 20 * NS_PER_MS, lambda: now_ns, None, [], Promise(), is_named=True)
        lane._serve_one(job)
        parsed = parse_link_range(named[-1])
        assert parsed is not None
        return parsed

    assert serve(now_ns - 50 * NS_PER_MS).begun_ns >= 50 * NS_PER_MS, "the last rank issued it 50 ms later"
    assert time.monotonic_ns() - now_ns >= 20 * NS_PER_MS, "and only then it was served"
    assert serve(now_ns - 40 * NS_PER_MS).begun_ns < 20 * NS_PER_MS, "its lane was not free before the first had ended"


def test_times_have_their_room_on_the_disk_before_anybody_writes_one(tmp_path: Path) -> None:
    """Into a hole of a file that is mapped, a full disk is a SIGBUS, which no rank deserves to be blamed for."""
    from dtbench.worker.network.issue_times import IssueTimes

    times = IssueTimes(tmp_path, "0", (0, 1), 0)
    assert times.path.stat().st_blocks * 512 >= times.path.stat().st_size
