"""Rows of a campaign, one a try: what has one is not tried again."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows that are there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def read_recorded(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the rows of a campaign; a test that asks while there are fewer is skipped."""
    rows = read_rows(path)
    if len(rows) < count:
        pytest.skip(f"{len(rows)} of {count} tries are recorded; the campaign goes on where it stopped")
    return rows


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def go_on(about: str | None, attempt: Callable[[int], Any], *, count: int, rows: Path) -> None:
    """Make the tries that have no row yet, as the command line says; ends with 1 where anything was wrong.

    Args:
        about: what the command does.
        attempt: makes the try of a number; gives a dataclass with ``wrong``, and the number in it or in its first part.
        count: how many tries.
        rows: where they are kept.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=count, help="how many tries, from number 0")
    parser.add_argument("--only", type=int, nargs="*", help="these numbers, without writing rows")
    parser.add_argument("--rows", type=Path, default=rows)
    wish = parser.parse_args()
    done = {_number_of(row) for row in read_rows(wish.rows)}
    made = [] if wish.only else read_rows(wish.rows)
    for number in wish.only or [number for number in range(wish.count) if number not in done]:
        made.append(asdict(attempt(number)))
        row = json.dumps(made[-1])
        say(row)
        if not wish.only:
            with wish.rows.open("a", encoding="utf-8") as file:
                file.write(row + "\n")
    wrong = [row for row in made if row["wrong"]]
    say(f"{len(made)} tries, {len(wrong)} of them answered wrongly")
    raise SystemExit(bool(wrong))


def _number_of(row: dict[str, Any]) -> int:
    first = next(iter(row.values()))
    return int(first["number"] if isinstance(first, dict) else first)
