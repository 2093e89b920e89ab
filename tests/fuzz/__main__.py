"""Inputs by the ten thousand: ``python -m tests.fuzz traces --count 100000`` goes on where it stopped.

A number says everything about its input: ``--seed N`` does that one alone, and ``--keep FOLDER`` leaves its input
there. Of a command that was stopped the blocks that were done stand in ``build/fuzz``; ``--afresh`` forgets them.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from tests.fuzz import run_folders, scenarios, traces
from tests.fuzz.tries import Block, Fuzzer, describe, judge, meet, read_blocks, run, say, split, write_block

FUZZERS: Final[dict[str, Fuzzer]] = {
    "traces": traces.Traces(),
    "scenarios": scenarios.Scenarios(),
    "run_folders": run_folders.RunFolders(),
}
ROWS: Final = Path("build/fuzz")


def do_one(fuzzer: Fuzzer, number: int, keep: Path | None) -> int:
    """Do one try; gives the exit code."""
    done = meet(fuzzer, number)
    if keep is not None:
        keep.mkdir(parents=True)
        say(f"its input: {fuzzer.make(number, keep)}")
    say("\n".join([f"{number}: {done.outcome.answer}, {done.cpu_s:.2f} s", *done.outcome.wrong]))
    return bool(done.outcome.wrong)


def do_many(fuzzer: Fuzzer, numbers: range, *, rows: Path, workers: int) -> int:
    """Do the tries that are not done yet; gives the exit code."""

    def keep(block: Block) -> None:
        write_block(rows, block)
        for failure in block.failures:
            say(f"{failure['number']}: {'; '.join(failure['wrong'])}")

    run(fuzzer, split(numbers, read_blocks(rows), size=fuzzer.block), workers=workers, on_done=keep)
    blocks = read_blocks(rows)
    say(describe(blocks))
    numbers_wrong = [failure["number"] for block in blocks for failure in block.failures]
    if numbers_wrong:
        say(f"wrong: {' '.join(map(str, sorted(numbers_wrong)))}")
    return bool(numbers_wrong)


def main() -> int:
    """Run one fuzzer; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=FUZZERS)
    parser.add_argument("--count", type=int, default=1000, help="how many tries")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, help="this number alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="with --seed: leave the input in a new folder")
    parser.add_argument("--input", type=Path, metavar="FILE", help="judge this file or folder in place of a number")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--afresh", action="store_true", help="forget what was done before")
    wish = parser.parse_args()
    fuzzer, rows = FUZZERS[wish.kind], ROWS / f"{wish.kind}.jsonl"
    if wish.input is not None:
        outcome = judge(fuzzer, wish.input)
        say("\n".join([outcome.answer, *outcome.wrong]))
        return bool(outcome.wrong)
    if wish.seed is not None:
        return do_one(fuzzer, wish.seed, wish.keep)
    if wish.afresh:
        rows.unlink(missing_ok=True)
    return do_many(fuzzer, range(wish.first, wish.first + wish.count), rows=rows, workers=wish.workers)


if __name__ == "__main__":
    sys.exit(main())
