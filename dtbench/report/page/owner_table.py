"""Whose communication was exposed and why, as a table: ``tables.OWNERS``."""

from collections.abc import Sequence

import pandas as pd

from dtbench.runs.summary import OwnerSummary, RunSummary
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.tables import OWNERS


def tabulate_owners(rows: Sequence[ExposedOwner | OwnerSummary], windows: int) -> pd.DataFrame:
    """Make ``tables.OWNERS`` of rows whose times are sums over so many windows."""
    made = [
        {
            "owner": row.owner or "",
            "operation": str(row.operation or ""),
            "purpose": str(row.purpose),
            "cause": str(row.cause),
            "exposed_ns": row.exposed_ns / windows,
            "owner_exposed_ns": row.owner_exposed_ns / windows,
            "waited_for": row.waited_for,
            "known_of": str(row.part) if isinstance(row, OwnerSummary) and row.part else pd.NA,
        }
        for row in rows
    ]
    return pd.DataFrame(made, columns=list(OWNERS), dtype=object).astype(OWNERS)


def tabulate_run_owners(summary: RunSummary) -> pd.DataFrame:
    """Make the table of all cells of a run: ``run``, ``cell``, then ``tables.OWNERS``."""
    of_cells = [tabulate_owners(cell.owners, 1).assign(run=summary.run_id, cell=cell.name) for cell in summary.cells]
    stacked = pd.concat(of_cells, ignore_index=True) if of_cells else tabulate_owners((), 1).assign(run="", cell="")
    return stacked[["run", "cell", *OWNERS]]
