"""The tables of ``docs/faults.md``, from the rows: ``python -m tests.faults.tables`` writes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.faults import campaign, disk_full, signals
from tests.faults.rows import read_rows

PAGE: Final = Path(__file__).parents[2] / "docs" / "faults.md"

Row = Mapping[str, Any]


def describe_faults(rows: Sequence[Row]) -> str:
    """Return a line for each kind of fault, one for each phase and one for all."""
    lines = [
        "| fault | injected | met | its rank named alone | with another | another named alone | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in ("kind", "phase", "strategy", "network"):
        for word in dict.fromkeys(row["fault"][part] for row in rows):
            lines.append(_count_faults(f"{word}", [row for row in rows if row["fault"][part] == word]))
    return "\n".join([*lines, _count_faults("**all**", rows)])


def _count_faults(name: str, rows: Sequence[Row]) -> str:
    met = [row for row in rows if row["was_met"]]
    mine = [row for row in met if row["fault"]["rank"] in row["named"]]
    alone = sum(len(row["named"]) == 1 for row in mine)
    counts = (
        len(rows),
        len(met),
        alone,
        len(mine) - alone,
        len(met) - len(mine),
        sum(bool(row["wrong"]) for row in rows),
    )
    return f"| {name} | " + " | ".join(map(str, counts)) + " |"


def describe_signals(rows: Sequence[Row]) -> str:
    """Return a line for each way to stop a run, one for each phase and one for all."""
    lines = [
        "| sent, or phase | runs | launches complete before | and by `--resume` | wrong |",
        "|---|---|---|---|---|",
    ]
    for part in ("way", "phase"):
        for word in dict.fromkeys(row[part] for row in rows):
            lines.append(_count_signals(word, [row for row in rows if row[part] == word]))
    return "\n".join([*lines, _count_signals("**all**", rows)])


def _count_signals(name: str, rows: Sequence[Row]) -> str:
    counts = (
        len(rows),
        sum(row["complete"] for row in rows),
        sum(row["resumed"] for row in rows),
        sum(bool(row["wrong"]) for row in rows),
    )
    return f"| {name} | " + " | ".join(map(str, counts)) + " |"


def describe_disks(rows: Sequence[Row]) -> str:
    """Return a line for each exit code, and one for all."""
    lines = ["| exit code | full disks | launches complete before | wrong |", "|---|---|---|---|"]
    for code in sorted({row["exit_code"] for row in rows}):
        lines.append(_count_disks(str(code), [row for row in rows if row["exit_code"] == code]))
    return "\n".join([*lines, _count_disks("**all**", rows)])


def _count_disks(name: str, rows: Sequence[Row]) -> str:
    counts = (len(rows), sum(row["complete"] for row in rows), sum(bool(row["wrong"]) for row in rows))
    return f"| {name} | " + " | ".join(map(str, counts)) + " |"


TABLES: Final[Mapping[str, tuple[Path, Callable[[Sequence[Row]], str]]]] = {
    "faults": (campaign.ROWS, describe_faults),
    "signals": (signals.ROWS, describe_signals),
    "full disks": (disk_full.ROWS, describe_disks),
}


def with_tables(text: str) -> str:
    """Return the page with each table as its rows have it."""
    for name, (rows, describe) in TABLES.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        text = f"{before}{begin}{describe(read_rows(rows))}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
