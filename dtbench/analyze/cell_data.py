"""What one cell of a run wrote, as read back: the files of its launches, and the tables made of their traces."""

from dataclasses import dataclass, field

import pandas as pd

from dtbench.analyze.launch_tables import LaunchTables
from dtbench.analyze.undisturbed import LeftOut
from dtbench.store.layout import LaunchFolder
from dtbench.store.rank_records import RankRecord
from dtbench.store.records import CellRecord, LaunchRecord, OwnLoopCell


@dataclass(frozen=True)
class LaunchData:
    """Everything that one launch wrote, less the steps that other guests of its machine disturbed.

    Attributes:
        record: None for a launch that did not end.
        steps: columns as in ``tables.STEPS``.
        left_out: numbers of the steps that ``steps`` and ``tables`` lack.
    """

    folder: LaunchFolder
    record: LaunchRecord | None
    ranks: tuple[RankRecord, ...]
    steps: pd.DataFrame
    tables: LaunchTables
    left_out: LeftOut = field(default_factory=dict)


@dataclass(frozen=True)
class CellData:
    """Everything that one cell wrote; the run is incomplete when it never said how it ended."""

    cell: CellRecord | OwnLoopCell
    run_is_incomplete: bool
    launches: tuple[LaunchData, ...]
