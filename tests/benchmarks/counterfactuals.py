"""How well forecasts of other settings hold: models that were run with them, beside what was said before.

``python -m tests.benchmarks.counterfactuals RESULTS --seeds 100-111 [--launches 3] [--record FILE]`` draws a cell for
each seed, five changes of it, runs all six in turns, and holds what ``forecast_cell`` says from the unchanged cell
against what the others took. Runs that are there already are not run again. It prints, over all pairs, by which share
of the step forecasts are off, how many intervals hold the measured step, and how wide they are; the same with three
planted lies, which must come out worse: links without queues, a link off by a fifth, nobody waiting for anybody.

Seeds are of timed models below 1000, of real ones (transformer, mlp) from 1000 on. Below 100, and from 1000 to 1099,
they may be looked at while the forecasts are made; from 100 on, and from 1100 on, they are held out. From 108 to 999 a
block's collective takes longer than the block, so that queues decide, and links are of all algorithms.
"""

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
from pydantic import TypeAdapter

from dtbench.base.errors import PredictionError
from dtbench.base.units import MIB, NS_PER_MS
from dtbench.base.vocabulary import Operation
from dtbench.plan.traffic.link import service_ns
from dtbench.plan.traffic.parameters import list_parameters
from dtbench.prediction import predict
from dtbench.prediction.program import Collective, Program, Request, Wait
from dtbench.prediction.step import write_step
from dtbench.prediction.wire import Wire
from dtbench.runs.run import summarize_run
from dtbench.runs.settings.candidates import AND
from dtbench.runs.settings.forecast import apply_change, forecast_cell
from dtbench.scenario.schema.model import Mlp, Transformer
from dtbench.scenario.schema.network import Algorithm, EmulatedNetwork
from dtbench.scenario.written import Words, sections_of, spell_scenario, write_scenario
from dtbench.selftest.sections import SHARED, Blocks, Message, tier
from tests.benchmarks.scoring import find_doubts, find_late, find_mean, find_or_run, read_seeds

BASE: Final = "base"
_STRATEGIES: Final = (
    *("ddp", "fsdp2", "fsdp1", "ddp", "hsdp", "fsdp2"),
    *("ddp_tp", "fsdp2", "ddp", "fsdp1", "hsdp", "fsdp2_tp"),
)
"""By seed, in turns."""
_ALGORITHMS: Final[tuple[Algorithm, ...]] = ("direct", "ring", "tree")
_QUEUES_FROM: Final = 108
"""The first seed whose links are slower than what they could hide behind."""

FIRST_REAL: Final = 1000
"""Seeds from here on are of real models."""

_REAL_STRATEGIES: Final = ("ddp", "fsdp2", "fsdp1")
_FLOPS_PER_NS: Final = 50
"""What one core is taken to do where a link's cost is to be a share of a block's backward: a faster one has a link that
is slower beside it."""
_TOKENS: Final = 256
"""Of a row of a real model's batch."""

_MEASURE: Final[Words] = {
    "warmup": {"min_steps": 8, "max_steps": 8},
    "measured_steps": 8,
    "profiled_steps": 1,
    "exposure": ("trace",),
}


_MEASURE_REAL: Final[Words] = {**_MEASURE, "profiled_steps": 3}
"""What is exposed in these is held against the closed form before it says anything."""


class Pair(msgspec.Struct):
    """One change of one cell.

    Attributes:
        seed: that drew the cell.
        strategy: of it.
        change: as ``whatif --change`` takes it.
        base_ns, measured_ns: steps of both cells, mean of launch medians.
        forecast_ns: of the changed one; None: refused.
        low_ns, high_ns: its interval.
        refused: why there is none.
        doubt: what the harness says against one of both cells.
    """

    seed: int
    strategy: str
    change: str
    base_ns: float
    measured_ns: float
    forecast_ns: float | None
    low_ns: float | None = None
    high_ns: float | None = None
    refused: str = ""
    doubt: str = ""

    @property
    def error(self) -> float:
        """By which share of the measured step the forecast is off."""
        assert self.forecast_ns is not None
        return self.forecast_ns / self.measured_ns - 1


@dataclass(frozen=True)
class Drawn:
    """A cell and its changes."""

    strategy: str
    words: Words
    changes: tuple[str, ...]


def draw(seed: int) -> Drawn:
    """Draw a cell and five changes of it."""
    numbers = random.Random(f"dtbench counterfactuals {seed}")
    return _draw_real(seed, numbers) if seed >= FIRST_REAL else _draw_timed(seed, numbers)


def _draw_timed(seed: int, numbers: random.Random) -> Drawn:
    strategy = _STRATEGIES[seed % len(_STRATEGIES)]
    four = strategy in ("hsdp", "ddp_tp", "fsdp2_tp")
    unit = (40, 50) if four else (20, 30)  # of four ranks on two cores each has half of one
    blocks = Blocks(
        3 if four else numbers.randint(3, 4),
        numbers.choice((0.25, 0.5, 1.0)),
        numbers.randint(*unit),
        round(numbers.randint(*unit) * numbers.choice((1.0, 1.5))),
    )
    operation = Operation.ALL_REDUCE if strategy.startswith("ddp") else Operation.ALL_GATHER
    is_queue = seed >= _QUEUES_FROM
    share = numbers.uniform(*(1.0, 2.0) if is_queue else (0.3, 1.2))  # of a block's backward
    algorithm = numbers.choice(_ALGORITHMS) if is_queue else "ring"
    costs = tier(
        round(share * blocks.backward_ms, 1),
        Message(operation, blocks.block_bytes),
        latency_share=numbers.choice((0.1, 0.3, 0.6)),
        algorithm=algorithm,
    )
    network: dict[str, Any] = {"kind": "emulated", **costs, "algorithm": algorithm}
    parallel, changes = _strategy(strategy, blocks.mib, numbers)
    changes = (
        *changes,
        f"network.bandwidth_gb_per_s={network['bandwidth_gb_per_s'] * numbers.choice((0.5, 2, 4)):.9f}",
    )
    words: dict[str, Any] = {"model": blocks.words(), "parallel": parallel, "network": network}
    if four:
        words["data"] = {"global_batch": 4, "sequence_length": 8}
    return Drawn(strategy, words, changes)


def _draw_real(seed: int, numbers: random.Random) -> Drawn:
    """Draw a model whose blocks compute for 20 ms or more on one core, in forward and in backward; 2 ranks."""
    strategy = _REAL_STRATEGIES[seed % len(_REAL_STRATEGIES)]
    dim, rows = numbers.choice(((256, 4), (384, 2)))
    model: dict[str, Any] = {"layers": numbers.randint(3, 4), "dim": dim}
    if seed // len(_REAL_STRATEGIES) % 2:
        model |= {"kind": "mlp", "hidden_dim": 8 * dim}
    else:
        model |= {"kind": "transformer", "heads": 4, "ffn_dim": 4 * dim, "vocab_size": numbers.choice((256, 1024))}
    sizes: Transformer | Mlp = TypeAdapter(Transformer | Mlp).validate_python(model)
    elements = sum(one.numel for one in list_parameters(sizes) if one.unit == "layers.0")
    block_bytes = 4 * elements
    backward_ms = 4 * elements * rows * _TOKENS / _FLOPS_PER_NS / NS_PER_MS
    operation = Operation.ALL_REDUCE if strategy == "ddp" else Operation.ALL_GATHER
    costs = tier(
        round(numbers.uniform(0.3, 1.2) * backward_ms, 1),
        Message(operation, block_bytes),
        latency_share=numbers.choice((0.1, 0.3, 0.6)),
        algorithm="ring",
    )
    network: dict[str, Any] = {"kind": "emulated", **costs, "algorithm": "ring"}
    parallel, changes = _strategy(strategy, round(block_bytes / MIB, 3), numbers)
    times = numbers.choice((0.5, 2, 4))
    changes = (*changes, f"network.bandwidth_gb_per_s={network['bandwidth_gb_per_s'] * times:.9f}")
    words: Words = {
        "model": model,
        "parallel": parallel,
        "network": network,
        "data": {"global_batch": 2 * rows, "sequence_length": _TOKENS},
        "measure": _MEASURE_REAL,
        "env": {"OMP_NUM_THREADS": "1"},
    }
    return Drawn(f"{strategy} {model['kind']}", words, changes)


def _strategy(strategy: str, mib: float, numbers: random.Random) -> tuple[Words, tuple[str, ...]]:
    tensor: Words = {"tensor": 2} if strategy.endswith("_tp") else {}
    latency = f"network.latency_us={numbers.choice((50, 2000, 8000)):.1f}"
    match strategy.removesuffix("_tp"):
        case "ddp":
            cap, others = numbers.choice(((1, (2, 9, 0.5)), (2, (1, 3, 9)), (9, (1, 2, 3))))
            caps = [f"parallel.bucket_cap_mb={mib * times:g}" for times in others]
            return (
                {"kind": "ddp", "replicas": 2, "bucket_cap_mb": float(mib * cap), **tensor},
                (*caps, latency if tensor else "parallel.comm_hook={kind: fp16_compress}"),
            )
        case "fsdp1":
            return (
                {"kind": "fsdp1", "shards": 2},
                (
                    "parallel.backward_prefetch=BACKWARD_POST",
                    "parallel.sharding_strategy=SHARD_GRAD_OP",
                    "parallel.forward_prefetch=true",
                    latency,
                ),
            )
        case kind:
            more: Words = {"replicas": 2} if kind == "hsdp" else {}
            ahead = numbers.choice((1, 2))
            return (
                {"kind": "fsdp2", "shards": 2, **more, **tensor},
                (
                    "parallel.unshard_async_op=true",
                    AND.join(("parallel.unshard_async_op=true", f"parallel.forward_prefetch={ahead}")),
                    "parallel.reshard_after_forward=false",
                    AND.join(("parallel.unshard_async_op=true", "parallel.separate_reduce_scatter_group=true"))
                    if not tensor
                    else latency,
                ),
            )


def spell(seed: int, launches: int) -> str:
    """Return the scenario of a seed: the cell and its changes."""
    drawn = draw(seed)
    shared = {**SHARED, "measure": _MEASURE, **drawn.words, "repeat": launches}
    base = write_scenario("counterfactuals", "What if?", shared).cells[0].scenario
    cells: dict[str, Words] = {BASE: {}}
    for number, change in enumerate(drawn.changes, 1):
        changed = sections_of(apply_change(base, change))
        cells[f"changed_{number}"] = {section: changed.get(section, {}) for section in ("parallel", "network")}
    sections = {name: words for name, words in sections_of(base).items() if name not in ("parallel", "network")}
    cells[BASE] = {section: sections_of(base)[section] for section in ("parallel", "network")}
    return spell_scenario("What if?", sections, cells)


def make_pairs(run: Path, seed: int) -> Iterator[Pair]:
    """Hold what is said of each change against what it took."""
    drawn = draw(seed)
    cells = {cell.name: cell for cell in summarize_run(run).cells}
    for number, change in enumerate(drawn.changes, 1):
        base, changed = cells[BASE], cells[f"changed_{number}"]
        pair = Pair(seed, drawn.strategy, change, find_mean(base), find_mean(changed), None)
        pair.doubt = "; ".join(find_doubts(base) + find_doubts(changed))
        try:
            (answer,) = forecast_cell(base, [change]).answers
        except PredictionError as error:
            pair.refused = str(error)
        else:
            pair.forecast_ns = answer.step_ns
            if answer.low_ns is not None and answer.high_ns is not None:
                step_ns = answer.step_ns + answer.saving_ns
                pair.low_ns, pair.high_ns = step_ns - answer.high_ns, step_ns - answer.low_ns
        yield pair


def describe(pairs: Sequence[Pair]) -> Iterator[str]:
    """Say how well forecasts hold."""
    doubted = [pair for pair in pairs if pair.doubt]
    kept = [pair for pair in pairs if not pair.doubt and pair.forecast_ns is not None]
    refused = len(pairs) - len(doubted) - len(kept)
    yield f"{len(pairs)} pairs, {len(doubted)} not trusted by the harness, {refused} refused, {len(kept)} kept"
    if not kept:
        return
    errors = sorted(abs(pair.error) for pair in kept)
    late = find_late(errors)
    yield f"off by {statistics.median(errors):.2%} in the middle, {late:.2%} at 95 %, {errors[-1]:.2%} at most"
    told = [pair for pair in kept if pair.low_ns is not None and pair.high_ns is not None]
    if told:
        held = sum(pair.low_ns <= pair.measured_ns <= pair.high_ns for pair in told)  # type: ignore[operator]
        widths = [(pair.high_ns - pair.low_ns) / 2 / pair.measured_ns for pair in told]  # type: ignore[operator]
        yield f"{held} of {len(told)} intervals hold it; half width {statistics.median(widths):.2%} in the middle"
    clear = [pair for pair in kept if abs(pair.measured_ns / pair.base_ns - 1) > 0.05]
    right = sum((pair.forecast_ns - pair.base_ns) * (pair.measured_ns - pair.base_ns) > 0 for pair in clear)  # type: ignore[operator]
    yield f"{len(clear)} changed the step by more than 5 %; the direction of {right} was right"


@contextmanager
def _without_queues() -> Iterator[None]:
    """Let every collective have a lane of its own."""
    resolve, count = Wire.resolve, [0]

    def lie(wire: Wire, request: Request) -> Collective | None:
        found = resolve(wire, request)
        count[0] += 1
        return None if found is None else replace(found, lane=f"{found.lane} {count[0]}")

    with mock.patch.object(Wire, "resolve", lie):
        yield


@contextmanager
def _link_off() -> Iterator[None]:
    """Let the link be a fifth faster than it is."""

    def lie(network: EmulatedNetwork, *asked: Any) -> int:
        return round(service_ns(network, *asked) / 1.2)

    with mock.patch("dtbench.prediction.wire.service_ns", lie):
        yield


@contextmanager
def _without_waits() -> Iterator[None]:
    """Let nobody wait for what was issued, but for what blocks."""
    write = write_step

    def lie(*asked: Any) -> Program:
        return tuple(one for one in write(*asked) if not isinstance(one, Wait))

    with mock.patch.object(predict, "write_step", lie):
        yield


LIES: Final[Mapping[str, Callable[[], Any]]] = {
    "links without queues": _without_queues,
    "a link off by a fifth": _link_off,
    "nobody waits": _without_waits,
}


def _record(pairs: Sequence[Pair], path: Path) -> None:
    """Write pairs beside those of other seeds that are there."""
    there = msgspec.json.decode(path.read_bytes(), type=list[Pair]) if path.exists() else []
    seeds = {pair.seed for pair in pairs}
    kept = sorted([*(pair for pair in there if pair.seed not in seeds), *pairs], key=lambda pair: pair.seed)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
    print("all that are recorded:", *describe(kept), sep="\n  ")


def main() -> None:
    """Run, score, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=read_seeds, required=True)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    runs = {}
    for seed in arguments.seeds:
        spelled = partial(spell, seed, arguments.launches)
        runs[seed] = find_or_run(arguments.results, f"counterfactuals_{seed}", spelled)
        for pair in make_pairs(runs[seed], seed):
            said = pair.doubt or pair.refused or f"{pair.error:+.2%}"
            print(
                f"{seed:4} {pair.strategy:17} {pair.change:75} {pair.base_ns / 1e6:7.1f} "
                f"{pair.measured_ns / 1e6:7.1f} {said}",
                flush=True,
            )
    pairs = [pair for seed, run in runs.items() for pair in make_pairs(run, seed)]
    print(*describe(pairs), sep="\n")
    for name, lie in LIES.items():
        with lie():
            lied = [pair for seed, run in runs.items() for pair in make_pairs(run, seed)]
        print(f"with a lie, {name}:", *describe(lied), sep="\n  ")
    if arguments.record is not None:
        _record(pairs, arguments.record)


if __name__ == "__main__":
    main()
