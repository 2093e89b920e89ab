"""A block takes its time at the right place, changes no number, and says afterwards how long it really took."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.units import NS_PER_MS, NS_PER_S
from dtbench.base.vocabulary import Region
from dtbench.scenario.schema.model import Straggler, Timed
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.models.known_cost import KnownCost, Sleep
from dtbench.worker.models.timed import TimedBlock

Make = Callable[..., Scenario]
UNITS = Timed(kind="timed", layers=2, dim=8, hidden_dim=8, forward_ms=20.0, backward_ms=40.0)


class Log:
    """A pause that takes no time and writes down what it was to take."""

    def __init__(self, took_ns: list[int] | None = None) -> None:
        self.lines: list[str] = []
        self.took_ns = took_ns or []
        self.done_ns: list[int] = []

    def take(self, duration_ns: int, done_ns: int = 0) -> None:
        self.lines.append(f"take {duration_ns // NS_PER_MS} ms")
        self.done_ns.append(done_ns)

    def try_out(self, duration_ns: int, times: int) -> Iterator[int]:
        raise AssertionError("nobody asked for a trial")

    def look_back(self, duration_ns: int) -> list[int]:
        return self.took_ns


def make_blocks(asked: Timed, log: Log) -> Any:
    cost = KnownCost(asked, 0, log)
    return torch.nn.Sequential(*(TimedBlock(asked.mlp, cost, f"layers.{index}") for index in range(asked.layers)))


def test_a_block_takes_its_time_after_its_products_and_before_its_gradients() -> None:
    log = Log()
    blocks = make_blocks(UNITS, log)
    for index, block in enumerate(blocks):
        block.down.register_forward_hook(lambda *_, index=index: log.lines.append(f"product {index}"))
        for weight in (block.up.weight, block.down.weight):
            weight.register_hook(lambda _, index=index: log.lines.append(f"gradient {index}"))
    blocks(torch.randn(3, 8)).sum().backward()
    assert log.lines == [
        *("product 0", "take 20 ms", "product 1", "take 20 ms"),
        *("take 40 ms", "gradient 1", "gradient 1", "take 40 ms", "gradient 0", "gradient 0"),
    ]


def test_a_blocks_own_products_are_part_of_its_forward_and_what_it_waits_for_is_not() -> None:
    log = Log()
    (block,) = make_blocks(UNITS.model_copy(update={"layers": 1}), log)
    block.down.register_forward_hook(lambda *_: time.sleep(0.05))
    block.up.register_forward_hook(lambda *_: burn(10 * NS_PER_MS))
    block(torch.randn(3, 8)).sum().backward()
    in_forward, in_backward = log.done_ns
    assert 10 * NS_PER_MS <= in_forward < 40 * NS_PER_MS
    assert in_backward == 0, "its gradients come after its time"


def burn(cpu_ns: int) -> None:
    end_ns = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < end_ns:
        pass


def test_at_its_entry_a_block_takes_its_backward_time_after_its_gradients_also_the_first() -> None:
    log = Log()
    blocks = make_blocks(UNITS.model_copy(update={"backward_at": "entry"}), log)
    for index, block in enumerate(blocks):
        for weight in (block.up.weight, block.down.weight):
            weight.register_hook(lambda _, index=index: log.lines.append(f"gradient {index}"))
    blocks(torch.randn(3, 8)).sum().backward()
    assert log.lines == [
        *("take 20 ms", "take 20 ms"),
        *("gradient 1", "gradient 1", "take 40 ms", "gradient 0", "gradient 0", "take 40 ms"),
    ]


def test_a_timed_model_computes_what_its_mlp_computes(scenario: Make) -> None:
    from dtbench.worker.loop.building import make_model

    def train(model: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        built = make_model(scenario(model=model), torch.device("cpu"))
        built.materialize(built.module)
        batch = built.make_batch(torch.Generator().manual_seed(0), 4)
        output = built.compute_output(built.module, batch)
        built.compute_loss(output, batch).backward()
        return output, {name: parameter.grad for name, parameter in built.module.named_parameters()}

    sizes = {"layers": 2, "dim": 24, "hidden_dim": 40}
    output, gradients = train({"kind": "timed", **sizes, "forward_ms": 0, "backward_ms": 0})
    same, same_gradients = train({"kind": "mlp", **sizes, "bias": False})
    assert torch.equal(output, same)
    assert list(gradients) == list(same_gradients)
    assert all(torch.equal(gradients[name], same_gradients[name]) for name in gradients)


def test_the_time_is_a_named_range_and_no_time_is_none() -> None:
    def profile(asked: Timed) -> list[str]:
        blocks = make_blocks(asked, Log())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            blocks(torch.randn(3, 8)).sum().backward()
        return [event.name for event in profiler.events() if event.name.startswith("dtbench::")]

    assert sorted(profile(UNITS)) == [
        *("dtbench::timed layers.0 backward", "dtbench::timed layers.0 forward"),
        *("dtbench::timed layers.1 backward", "dtbench::timed layers.1 forward"),
    ]
    assert profile(UNITS.model_copy(update={"forward_ms": 0.0, "backward_ms": 0.0})) == []


def test_a_sleep_takes_its_time_frees_the_core_and_remembers() -> None:
    sleep = Sleep()
    before_ns = time.thread_time_ns()
    sleep.take(30 * NS_PER_MS)
    assert time.thread_time_ns() - before_ns < 10 * NS_PER_MS
    (took_ns,) = sleep.look_back(30 * NS_PER_MS)
    assert took_ns >= 30 * NS_PER_MS
    assert sleep.look_back(20 * NS_PER_MS) == []


def test_a_sleep_leaves_out_what_has_been_done_and_remembers_the_whole() -> None:
    sleep = Sleep()
    start_ns = time.monotonic_ns()
    sleep.take(300 * NS_PER_MS, 290 * NS_PER_MS)
    assert time.monotonic_ns() - start_ns < 290 * NS_PER_MS
    sleep.take(NS_PER_MS, 5 * NS_PER_MS)
    (whole_ns,), (over_ns,) = sleep.look_back(300 * NS_PER_MS), sleep.look_back(NS_PER_MS)
    assert whole_ns >= 300 * NS_PER_MS
    assert 5 * NS_PER_MS <= over_ns < 10 * NS_PER_MS


def test_a_long_sleep_is_tried_by_short_ones_that_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    tried_ns: list[int] = []
    monkeypatch.setattr(
        "dtbench.worker.models.known_cost.sleep_until", lambda end_ns: tried_ns.append(end_ns - time.monotonic_ns())
    )
    sleep = Sleep()
    missed_ns = list(sleep.try_out(NS_PER_S, 3))
    assert len(tried_ns) == 3
    assert max(tried_ns) <= 25 * NS_PER_MS
    assert all(missed > 20 * NS_PER_MS for missed in missed_ns), "it came back at once"
    assert sleep.look_back(NS_PER_S) == []


def read(asked: Timed, rank: int, took_ns: list[int]) -> list[Receipt]:
    cost = KnownCost(asked, rank, Log(took_ns), jitter_ns={Region.FORWARD: 80_000, Region.BACKWARD: 90_000})
    return list(cost.read_receipts())


def test_a_receipt_says_what_blocks_took_and_the_jitter_that_was_found() -> None:
    (forward, backward) = read(UNITS, 0, [20_100_000, 20_200_000, 99_000_000])
    assert (forward.knob, forward.asked, forward.got) == ("model.forward_ms", "20", "20.2")
    assert forward.outcome is ReceiptOutcome.AGREES
    assert forward.note == "median of 3; before warm-up it missed by 80.0 us"
    assert (backward.knob, backward.outcome) == ("model.backward_ms", ReceiptOutcome.DISAGREES)


@pytest.mark.parametrize(("took_ms", "agrees"), [(18.9, False), (19.1, True), (20.9, True), (21.1, False)])
def test_a_block_may_miss_its_time_by_a_twentieth(took_ms: float, agrees: bool) -> None:
    receipt = read(UNITS, 0, [round(took_ms * NS_PER_MS)])[0]
    assert (receipt.outcome is ReceiptOutcome.AGREES) == agrees


def test_the_slow_rank_is_held_against_its_own_time() -> None:
    slow = UNITS.model_copy(update={"slow_rank": Straggler(rank=1, factor=2.0)})
    took_ns = [40_000_000]
    assert read(slow, 0, took_ns)[0].outcome is ReceiptOutcome.DISAGREES
    receipt = read(slow, 1, took_ns)[0]
    assert (receipt.outcome, receipt.asked, receipt.got) == (ReceiptOutcome.AGREES, "20", "40.0")
    assert receipt.note.startswith("2 times that on this rank; ")


def test_time_that_no_block_took_is_a_disagreement_and_no_time_is_no_receipt() -> None:
    (forward, _) = read(UNITS, 0, [])
    assert (forward.outcome, forward.note) == (ReceiptOutcome.DISAGREES, "no block has taken its time")
    assert [one.knob for one in read(UNITS.model_copy(update={"forward_ms": 0.0}), 0, [])] == ["model.backward_ms"]
