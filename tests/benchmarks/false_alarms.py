"""How often ``dtbench compare`` finds a difference where there is none, and how often it finds one that is there.

``python -m tests.benchmarks.false_alarms [--tries 4000] [--json]`` draws launches of two sides from seeded models of a
machine's noise, compares them with the code that ``dtbench compare`` runs, and prints two Markdown tables: false alarms
by noise and launches, and the share of changes by 2 % and 5 % that were found. The noises of a launch's median step
time, all with a standard deviation of about 2 % where it is finite:

* *normal*, *lognormal* (skewed upwards), *heavy tails* (Student's t with 3 degrees of freedom);
* *two modes*: three launches of ten are 6 % slower, as where ranks sometimes share a core;
* *memory* (first-order autoregression, 0.9 from launch to launch), *drift* (10 % from first to last launch) and *jump*
  (8 %, at any moment): the sides take turns, as in one run of ``dtbench run``.

Below the tables stands what happens without either remedy: steps pooled over launches and tested as if they were
independent, and sides that run one after the other on a machine that drifts.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dtbench.comparison.comparison import Outcome
from dtbench.comparison.statistics import compare_samples

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], tuple[Values, Values]]
"""Gives relative deviations of both sides' launches, round by round."""

SPREAD = 0.02
SEED = 42
LAUNCHES = (4, 5, 10, 20)
CHANGES = (0.02, 0.05)
STEPS, STEP_SPREAD = 20, 1.5 * SPREAD
"""Of a launch, where steps are pooled: its own steps differ by half as much again as its median does from others'."""


def _alike(draw: Callable[[np.random.Generator, tuple[int, int]], Values]) -> Noise:
    """Return both sides independent launches."""

    def draw_sides(rng: np.random.Generator, launches: int) -> tuple[Values, Values]:
        first, second = draw(rng, (2, launches))
        return first, second

    return draw_sides


def _in_turns(draw: Callable[[np.random.Generator, int], Values]) -> Noise:
    """Deal out a machine's course to both sides as ``dtbench run`` does: every second round backwards."""

    def draw_sides(rng: np.random.Generator, launches: int) -> tuple[Values, Values]:
        course = (draw(rng, 2 * launches) + rng.normal(0, SPREAD / 2, 2 * launches)).reshape(launches, 2)
        course[1::2] = course[1::2, ::-1]
        return course[:, 0], course[:, 1]

    return draw_sides


def _remember(rng: np.random.Generator, count: int) -> Values:
    course = rng.normal(0, SPREAD * math.sqrt(1 - 0.9**2), count)
    course[0] = rng.normal(0, SPREAD)
    for place in range(1, count):
        course[place] += 0.9 * course[place - 1]
    return course


INDEPENDENT: dict[str, Noise] = {
    "normal": _alike(lambda rng, shape: rng.normal(0, SPREAD, shape)),
    "lognormal": _alike(lambda rng, shape: SPREAD / 2.16 * np.exp(rng.normal(0, 1, shape))),
    "heavy tails": _alike(lambda rng, shape: SPREAD / math.sqrt(3) * rng.standard_t(3, shape)),
    "two modes": _alike(lambda rng, shape: 0.06 * (rng.random(shape) < 0.3) + rng.normal(0, SPREAD / 5, shape)),
}
INTERLEAVED: dict[str, Noise] = {
    "normal, in turns": INDEPENDENT["normal"],
    "heavy tails, in turns": INDEPENDENT["heavy tails"],
    "two modes, in turns": INDEPENDENT["two modes"],
    "memory": _in_turns(_remember),
    "drift": _in_turns(lambda _rng, count: np.linspace(0, 0.1, count, dtype=np.float64)),
    "jump": _in_turns(lambda rng, count: np.where(np.arange(count) >= rng.integers(count), 0.08, 0.0)),
}


def count_found(noise: str, launches: int, change: float, tries: int) -> float:
    """Return the share of tries in which a difference was found; ``change``: the candidate's, relative."""
    draw = {**INDEPENDENT, **INTERLEAVED}[noise]
    rng = np.random.default_rng([SEED, launches, *noise.encode()])
    found = 0
    for _ in range(tries):
        baseline, candidate = (100 * np.exp(side) for side in draw(rng, launches))
        compared = compare_samples(
            baseline, candidate * (1 + change), is_interleaved=noise in INTERLEAVED, threshold=0.0
        )
        found += compared.outcome in (Outcome.HIGHER, Outcome.LOWER)
    return found / tries


def count_pooled(launches: int, tries: int) -> float:
    """Return the share of false alarms where all steps of all launches are tested as independent."""
    rng = np.random.default_rng([SEED, launches])
    levels = rng.normal(0, SPREAD, (tries, 2, launches, 1))
    steps = (levels + rng.normal(0, STEP_SPREAD, (tries, 2, launches, STEPS))).reshape(tries, 2, -1)
    return _welch_alarms(steps)


def count_in_sequence(launches: int, tries: int) -> float:
    """Return the share of false alarms where the drift of ``drift`` hits the one side first, then the other."""
    rng = np.random.default_rng([SEED, launches, 1])
    course = np.linspace(0, 0.1, 2 * launches) + rng.normal(0, SPREAD / 2, (tries, 2 * launches))
    return _welch_alarms(course.reshape(tries, 2, launches))


def _welch_alarms(sides: Values) -> float:
    """Test all tries at once; ``sides``: shape (tries, 2, values)."""
    parts = sides.var(axis=2, ddof=1) / sides.shape[2]
    score = np.abs(np.diff(sides.mean(axis=2), axis=1)[:, 0]) / np.sqrt(parts.sum(axis=1))
    freedom = parts.sum(axis=1) ** 2 / ((parts**2).sum(axis=1) / (sides.shape[2] - 1))
    return float(np.mean(2 * special.stdtr(freedom, -score) < 0.05))


def simulate(tries: int, launches: Sequence[int], changes: Sequence[float]) -> list[dict[str, object]]:
    """Return a row for each noise, number of launches and change; change 0: the share found is that of false alarms."""
    return [
        {"noise": noise, "launches": count, "change": change, "found": count_found(noise, count, change, tries)}
        for noise in (*INDEPENDENT, *INTERLEAVED)
        for count in launches
        for change in (0.0, *changes)
    ]


def show_table(title: str, rows: list[dict[str, object]], launches: Sequence[int]) -> str:
    """Return rows of one change as a Markdown table: a line for each noise, a column for each number of launches."""
    found = {(row["noise"], row["launches"]): row["found"] for row in rows}
    lines = [
        f"| {title} | {' | '.join(f'{count} launches' for count in launches)} |",
        "|---" * (len(launches) + 1) + "|",
    ]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        cells = " | ".join(f"{100 * float(str(found[noise, count])):.1f} %" for count in launches)
        lines.append(f"| {noise} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=4000)
    parser.add_argument("--launches", type=int, nargs="+", default=list(LAUNCHES))
    parser.add_argument("--changes", type=float, nargs="*", default=list(CHANGES))
    parser.add_argument("--json", action="store_true")
    wish = parser.parse_args()
    start_s = time.process_time()
    rows = simulate(wish.tries, wish.launches, wish.changes)
    pooled = [count_pooled(count, wish.tries) for count in wish.launches]
    in_sequence = [count_in_sequence(count, wish.tries) for count in wish.launches]
    if wish.json:
        print(json.dumps({"tries": wish.tries, "rows": rows, "pooled": pooled, "in_sequence": in_sequence}))
        return
    for change in (0.0, *wish.changes):
        title = f"+{100 * change:g} % found" if change else "false alarms"
        print(show_table(title, [row for row in rows if row["change"] == change], wish.launches), end="\n\n")
    for what, shares in (("steps pooled", pooled), ("drift, one side after the other", in_sequence)):
        print(f"for contrast, {what}: {', '.join(f'{100 * share:.0f} %' for share in shares)} false alarms")
    error = 100 * math.sqrt(0.05 * 0.95 / wish.tries)
    print(
        f"{wish.tries} tries each, standard error of 5 %: {error:.1f} %; {time.process_time() - start_s:.0f} s of CPU"
    )


if __name__ == "__main__":
    main()
