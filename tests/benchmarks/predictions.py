"""How well predictions of other numbers of ranks hold: fitted at 2 and 4, beside what 6 and 8, and other links, took.

``python -m tests.benchmarks.predictions RESULTS --seeds 100-107 [--launches 3] [--record FILE]`` draws a timed cell for
each seed, runs it at 2 and 4 ranks (of a tensor axis and of HSDP at 4), at 6 and 8, and over two other links at 4, all
in turns, and holds what ``predict_point`` says from the first against what the others took. Runs that are there already
are not run again. Blocks sleep for 100 ms and more, so that ranks share cores by their hosts alone. It prints by which
share of the step predictions are off at 6 ranks and over other links (goal: 3 % in the middle, 5 % at 95 %) and at 8
(5 and 8 %), how many intervals hold the measured step, how wide they are, and which cells the harness does not trust;
the same with planted lies, which must come out worse. What is recorded of other seeds stays: seeds may be scored on
several days.

Seeds below 100 are for looking at; from 100 on they are held out.
"""

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Operation
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.runs.scaling import curve
from dtbench.runs.scaling.curve import Subject, predict_point
from dtbench.runs.scaling.host import foresee_host
from dtbench.runs.scaling.links import Cluster, put_on_cluster, read_link
from dtbench.runs.scaling.measured import Measured, measure_host
from dtbench.runs.scaling.subjects import Subjects, join_subjects
from dtbench.runs.scaling.world import find_growth, put_at_world
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import Words, sections_of, spell_scenario, write_scenario
from dtbench.selftest.sections import SHARED, Blocks, Message, tier
from tests.benchmarks.counterfactuals import LIES as LIES_OF_LINKS
from tests.benchmarks.scoring import find_doubts, find_late, find_mean, find_or_run, read_seeds

STRATEGIES: Final = ("ddp", "fsdp2", "fsdp1", "ddp_tp", "fsdp2_async", "hsdp")
"""By seed, in turns."""

FITTED: Final = (2, 4)
SCORED: Final = (6, 8)
_TOGETHER: Final = max(SCORED)
"""Ranks that share the machine."""

_MEASURE: Final[Words] = {
    "warmup": {"min_steps": 8, "max_steps": 8},
    "measured_steps": 8,
    "profiled_steps": 1,
    "exposure": ("trace",),
}


class Pair(msgspec.Struct):
    """One prediction.

    Attributes:
        seed: that drew the cell.
        strategy: of it.
        world: ranks.
        link: as ``--link`` has it; empty: the one that was fitted.
        measured_ns: mean of launch medians.
        predicted_ns: None: refused.
        low_ns, high_ns: its interval.
        refused: why there is none.
        doubt: what the harness says against the cell, or against what was fitted.
    """

    seed: int
    strategy: str
    world: int
    link: str
    measured_ns: float
    predicted_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    refused: str = ""
    doubt: str = ""

    @property
    def error(self) -> float:
        """By which share of the measured step the prediction is off."""
        assert self.predicted_ns is not None
        return self.predicted_ns / self.measured_ns - 1


@dataclass(frozen=True)
class Drawn:
    """A cell, and the links over which it runs, too."""

    strategy: str
    scenario: Scenario
    links: tuple[str, ...]

    @property
    def fitted(self) -> tuple[int, ...]:
        """Numbers of ranks from which predictions are made: those that its mesh has, with something to reduce."""
        growth = find_growth(self.scenario.parallel)
        least = growth.step * max(2, growth.least)
        return tuple(world for world in FITTED if world >= least)

    @property
    def cells(self) -> dict[str, tuple[int, str]]:
        """Number of ranks and link of each cell, by its name."""
        worlds = {f"ranks_{world}": (world, "") for world in (*self.fitted, *SCORED)}
        return {**worlds, **{f"link_{at}": (self.fitted[-1], link) for at, link in enumerate(self.links, 1)}}

    def put(self, world: int, link: str) -> Scenario:
        """Return one cell."""
        network = put_on_cluster(self.scenario.network, Cluster(read_link(link) if link else None))
        return put_at_world(self.scenario, world).model_copy(update={"network": network})


def draw(seed: int) -> Drawn:
    """Draw a cell and two other links."""
    numbers = random.Random(f"dtbench predictions {seed}")
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    blocks = Blocks(
        numbers.randint(2, 3), numbers.choice((0.25, 0.5)), numbers.randint(100, 130), numbers.randint(100, 160)
    )
    operation = Operation.ALL_REDUCE if strategy.startswith("ddp") else Operation.ALL_GATHER
    service_ms = numbers.uniform(0.2, 0.8) * blocks.backward_ms
    share = numbers.choice((0.05, 0.1, 0.2))  # of latency, which grows with every rank
    costs = tier(round(service_ms, 1), Message(operation, blocks.block_bytes), latency_share=share, algorithm="ring")
    algorithm = numbers.choice(("ring", "ring", "tree"))
    words: dict[str, Any] = {
        **SHARED,
        "measure": _MEASURE,
        "model": blocks.words(),
        "parallel": _spell_parallel(strategy, blocks, numbers),
        "network": {"kind": "emulated", **costs, "algorithm": algorithm},
    }
    (cell,) = write_scenario(f"predictions_{seed}", "What if?", words).cells
    network = cell.scenario.network
    assert isinstance(network, EmulatedNetwork)
    times = numbers.choice((0.5, 2, 4))
    other_us = network.latency_us * numbers.choice((0.25, 3))
    links = (f"bandwidth={network.bandwidth_gb_per_s * times:.9f}GB/s", f"latency={other_us:.1f}us")
    return Drawn(strategy, cell.scenario, links)


def _spell_parallel(strategy: str, blocks: Blocks, numbers: random.Random) -> Words:
    match strategy:
        case "ddp" | "ddp_tp":
            tensor: Words = {"tensor": 2} if strategy == "ddp_tp" else {}
            cap_mb = float(blocks.mib * numbers.choice((1, 2, 9)))
            return {"kind": "ddp", "replicas": 2, "bucket_cap_mb": cap_mb, **tensor}
        case "fsdp1":
            return {"kind": "fsdp1", "shards": 2}
        case "hsdp":
            return {"kind": "fsdp2", "shards": 2, "replicas": 2}
        case "fsdp2_async":
            return {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1}
        case _:
            return {"kind": "fsdp2", "shards": 2}


def spell(seed: int, launches: int) -> str:
    """Return the scenario of a seed: the same cell at all its numbers of ranks, and over other links."""
    drawn = draw(seed)
    cells: dict[str, Words] = {
        cell: {**sections_of(drawn.put(*where)), "repeat": launches} for cell, where in drawn.cells.items()
    }
    return spell_scenario("What if?", {}, cells)


def make_pairs(run: Path, seed: int) -> Iterator[Pair]:
    """Hold what is said of each number of ranks and each link against what it took."""
    drawn, data = draw(seed), read_run_data(run)
    cores = None if data.environment is None else data.environment.cores
    cells = {cell.name: cell for cell in summarize_data(data).cells}
    read = {one.cell.name: one for one in data.cells}
    fitted = [f"ranks_{world}" for world in drawn.fitted]
    subject, refused = None, ""
    try:
        found = []
        for name in fitted:
            scenario, plan, measured = measure_host(cells[name], read[name], cores)
            found.append(Subject("cell", scenario, plan.torch, (measured,)))
        (subject,) = join_subjects({str(at): Subjects((one,)) for at, one in enumerate(found)}).found
    except PredictionError as error:
        refused = str(error)
    for name, (world, link) in drawn.cells.items():
        if name not in fitted:
            pair = Pair(seed, drawn.strategy, world, link, find_mean(cells[name]), refused=refused)
            pair.doubt = "; ".join(doubt for one in (*fitted, name) for doubt in find_doubts(cells[one]))
            yield pair if subject is None else fill_in(pair, subject)


def fill_in(pair: Pair, subject: Subject) -> Pair:
    """Return a pair with what is said of it."""
    cluster = Cluster(read_link(pair.link) if pair.link else None, None, _TOGETHER)
    try:
        point = predict_point(subject, pair.world, cluster)
    except PredictionError as error:
        pair.refused = str(error)
    else:
        pair.predicted_ns, pair.low_ns, pair.high_ns = point.step_ns, point.low_ns, point.high_ns
    return pair


def describe(pairs: Sequence[Pair]) -> Iterator[str]:
    """Say how well predictions hold, apart for 8 ranks."""
    doubted = [pair for pair in pairs if pair.doubt]
    kept = [pair for pair in pairs if not pair.doubt and pair.predicted_ns is not None]
    refused = len(pairs) - len(doubted) - len(kept)
    yield f"{len(pairs)} pairs, {len(doubted)} not trusted by the harness, {refused} refused, {len(kept)} kept"
    near = [pair for pair in kept if pair.world < _TOGETHER]
    far = [pair for pair in kept if pair.world == _TOGETHER]
    yield from _describe(near, "6 ranks and other links", (0.03, 0.05))
    yield from _describe(far, "8 ranks", (0.05, 0.08))


def _describe(pairs: Sequence[Pair], what: str, goal: tuple[float, float]) -> Iterator[str]:
    if not pairs:
        return
    errors = sorted(abs(pair.error) for pair in pairs)
    middle, late = statistics.median(errors), find_late(errors)
    met = "met" if middle <= goal[0] and late <= goal[1] else "NOT met"
    yield (
        f"{what}: {len(pairs)} pairs, off by {middle:.2%} in the middle, {late:.2%} at 95 %, {errors[-1]:.2%} at most "
        f"(goal {goal[0]:.0%} and {goal[1]:.0%}: {met})"
    )
    told = [(pair, pair.low_ns, pair.high_ns) for pair in pairs if pair.low_ns is not None and pair.high_ns is not None]
    if told:
        held = sum(low_ns <= pair.measured_ns <= high_ns for pair, low_ns, high_ns in told)
        widths = [(high_ns - low_ns) / 2 / pair.measured_ns for pair, low_ns, high_ns in told]
        width = statistics.median(widths)
        yield f"{what}: {held} of {len(told)} intervals hold it; half width {width:.2%} in the middle"


@contextmanager
def _without_growth() -> Iterator[None]:
    """Let no host grow with the ranks that share a machine."""

    def lie(measured: Sequence[Measured], world: int, _ranks_per_node: int | None) -> Any:
        return foresee_host(measured, world, None)

    with mock.patch.object(curve, "foresee_host", lie):
        yield


LIES: Final[Mapping[str, Callable[[], Any]]] = {**LIES_OF_LINKS, "hosts that do not grow": _without_growth}


def main() -> None:
    """Run, score, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=read_seeds, required=True)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    runs, pairs = {}, list[Pair]()
    for seed in arguments.seeds:
        spelled = partial(spell, seed, arguments.launches)
        runs[seed] = find_or_run(arguments.results, f"predictions_{seed}", spelled)
        for pair in make_pairs(runs[seed], seed):
            pairs.append(pair)
            said = pair.refused if pair.predicted_ns is None else f"{pair.error:+.2%}"
            print(
                f"{seed:4} {pair.strategy:12} {pair.world:2} {pair.link:28} {pair.measured_ns / 1e6:8.1f} "
                f"{pair.doubt or said}",
                flush=True,
            )
    print(*describe(pairs), sep="\n")
    for name, lie in LIES.items():
        with lie():
            lied = [pair for seed, run in runs.items() for pair in make_pairs(run, seed)]
        print(f"with a lie, {name}:", *describe(lied), sep="\n  ")
    if arguments.record is not None:
        recorded = merge_record(arguments.record, pairs)
        print("all that is recorded:", *describe(recorded), sep="\n  ")


def merge_record(path: Path, pairs: Sequence[Pair]) -> list[Pair]:
    """Record pairs beside those of other seeds that are recorded already; gives all."""
    kept = msgspec.json.decode(path.read_bytes(), type=list[Pair]) if path.exists() else []
    scored = {pair.seed for pair in pairs}
    both = sorted([*(pair for pair in kept if pair.seed not in scored), *pairs], key=lambda pair: pair.seed)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(both), indent=1))
    return both


if __name__ == "__main__":
    main()
