"""What one cell of a run wrote, as read back: the files of its launches, and the tables made of their traces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from dtbench.analyze.launch_tables import LaunchTables
from dtbench.analyze.undisturbed import LeftOut
from dtbench.store.layout import LaunchFolder
from dtbench.store.rank_records import RankRecord
from dtbench.store.records import CellRecord, Environment, LaunchRecord, OwnLoopCell


@dataclass(frozen=True)
class LaunchData:
    """Everything that one launch wrote, less the steps that other guests of its machine disturbed.

    Attributes:
        record: None for a launch that did not end.
        environment: of rank 0; None where it wrote none.
        steps: columns as in ``tables.STEPS``.
        left_out: numbers of the steps that ``steps`` and ``tables`` lack.
    """

    folder: LaunchFolder
    record: LaunchRecord | None
    environment: Environment | None
    ranks: tuple[RankRecord, ...]
    steps: pd.DataFrame
    tables: LaunchTables
    left_out: LeftOut = field(default_factory=dict)


@dataclass(frozen=True)
class CellData:
    """Everything that one cell wrote, as far as it can be read.

    Attributes:
        cell: its ``launches`` are those that can be read.
        run_is_incomplete: the run never said how it ended.
        launches: in the order of ``cell.launches``.
        unreadable: by index, what is wrong with each further launch, naming its file.
    """

    cell: CellRecord | OwnLoopCell
    run_is_incomplete: bool
    launches: tuple[LaunchData, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
