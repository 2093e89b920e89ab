"""From analyses to tables: each of ``tables.py`` as plain rows for JSON, or as a DataFrame for people and Parquet.

A row holds None where a number is not known. pandas is imported only where a DataFrame is asked for: it takes longer
to load than a small trace takes to read.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from dtbench.base.vocabulary import Cause
from dtbench.traces.causes.split import CauseSplit
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.rows.account_rows import comm_wait_rows, gap_rows, group_rows, lane_rows, overlap_tax_rows
from dtbench.traces.tables import (
    COLLECTIVES,
    COMM_WAITS,
    GAPS,
    GROUPS,
    LANES,
    OVERLAP,
    OVERLAP_TAX,
    PROBES,
    PURPOSES,
    WHOLE,
    Row,
)

if TYPE_CHECKING:
    import pandas as pd

    from dtbench.traces.rank.analysis import TraceAnalysis
    from dtbench.traces.who.collectives import Collective


_OTHERS: Final = (Cause.SKEW, Cause.BUBBLE)
_NEVER_LACKING: Final = ("rank", "step", "purpose", "count")
"""Columns that every version wrote, and that say what a row is of, or whether there is anything."""


@dataclass(frozen=True)
class Table:
    """One table that is derived from traces.

    Attributes:
        name: of the table and, with ``.parquet``, of its file.
        dtypes: columns in order, as in ``tables.py``.
        make_rows: its rows, in order of rank.
    """

    name: str
    dtypes: Mapping[str, str]
    make_rows: Callable[[Iterable["TraceAnalysis"]], Iterator[Row]]

    def tabulate(self, analyses: Iterable["TraceAnalysis"]) -> "pd.DataFrame":
        """Make the table; unknown numbers are NA.

        Columns are of objects at first: left to itself, a DataFrame takes integers beside a None for floats,
        and a float keeps the time of day only to some hundred nanoseconds.
        """
        import pandas as pd

        rows = list(self.make_rows(analyses))
        if not rows:
            return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in self.dtypes.items()})
        return pd.DataFrame(rows, columns=list(self.dtypes), dtype=object).astype(dict(self.dtypes))

    def fit(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Give a table that another version wrote these columns and types; what it lacks is NA, a word empty.

        Raises:
            TypeError, ValueError: a column holds what cannot be of its type, or is one that no row can be without.
        """
        if absent := [name for name in _NEVER_LACKING if name in self.dtypes and name not in frame]:
            raise ValueError(f"it has no column `{absent[0]}`")
        nullable = {name: dtype.replace("int", "Int").replace("float", "Float") for name, dtype in self.dtypes.items()}
        lacking = [name for name in self.dtypes if name not in frame]
        dtypes = {name: nullable[name] if name in lacking else dtype for name, dtype in self.dtypes.items()}
        fitted = frame.reindex(columns=list(self.dtypes))
        fitted = fitted.astype({name: dtype for name, dtype in dtypes.items() if fitted[name].dtype != dtype})
        words = [name for name, dtype in dtypes.items() if dtype == "string" and name != "lane"]  # NA in ``GAPS``
        for name in words:
            if fitted[name].hasnans:
                fitted[name] = fitted[name].fillna("")
        fitted.attrs = dict(frame.attrs)
        return fitted


def overlap_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.OVERLAP``."""
    for one in analyses:
        for step in one.steps:
            yield {"rank": one.rank, "step": step.step, **asdict(step.overlap)}


def whole_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.WHOLE``."""
    for one in analyses:
        account = asdict(one.whole)
        yield {"rank": one.rank, "window_ns": account.pop("step_ns"), **account}


def purpose_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.PURPOSES``."""
    for one in analyses:
        for step in one.steps:
            for purpose in step.purposes:
                yield {"rank": one.rank, "step": step.step, **asdict(purpose), "purpose": str(purpose.purpose)}


def probe_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.PROBES``."""
    for one in analyses:
        for step in one.steps:
            for function, time in step.probes.items():
                yield {"rank": one.rank, "step": step.step, "function": function, **asdict(time)}


def collective_rows(analyses: Iterable["TraceAnalysis"]) -> Iterator[Row]:
    """Give the rows of ``tables.COLLECTIVES``, for each rank in order of start.

    ``exposed_ns`` is the share over the collective's whole span, also the part that lies in another step's window.
    """
    for one in analyses:
        skews = one.skews or (CollectiveSkew(),) * len(one.collectives)
        splits = one.splits or (CauseSplit(()),) * len(one.collectives)
        for index, collective in enumerate(one.collectives):
            of = one.step_of[index]
            is_lost = one.lost.recorded is not None if of is None else one.steps[of].step in one.lost.steps
            yield {
                "rank": one.rank,
                "step": None if of is None else one.steps[of].step,
                **_describe(collective),
                **_describe_skew(skews[index]),
                **_bound_bandwidth(collective),
                **({"wait_ns": None} if is_lost else {}),
                "exposed_ns": (exposed_ns := one.timeline.exposed_of(index)),
                "hidden_ns": one.timeline.hidden_of(index),
                **_describe_split(splits[index], skews[index], is_known=exposed_ns is not None),
                "parameters": ", ".join(collective.parameters),
            }


def _describe(collective: "Collective") -> Row:
    is_seen = len(collective.span.starts_ns) > 0
    return {
        "group": collective.group,
        "axis": str(collective.axis or ""),
        "seq": collective.seq,
        "group_size": collective.group_size,
        "operation": str(collective.operation or ""),
        "purpose": str(collective.purpose),
        "region": str(collective.region or ""),
        "owner": collective.owner,
        "size_bytes": collective.size_bytes,
        "dtype": collective.dtype or "",
        "algorithm": collective.algorithm,
        "lane": collective.lane,
        "issue_ns": collective.issue_ns,
        "start_ns": collective.start_ns if is_seen else None,
        "end_ns": collective.end_ns if is_seen else None,
        "first_wait_ns": collective.first_wait_ns,
        "wait_ns": _wait_ns(collective),
        "awaited_by": collective.awaited_by,
    }


def _wait_ns(collective: "Collective") -> int | None:
    start_ns, end_ns = collective.first_wait_ns, collective.first_wait_end_ns
    return None if start_ns is None or end_ns is None or collective.is_wait_doubtful else end_ns - start_ns


def _describe_skew(skew: CollectiveSkew) -> Row:
    return {
        "skew_wait_ns": skew.skew_wait_ns,
        "last_rank": skew.last_rank,
        "transfer_ns": skew.transfer_ns,
        "algbw": None if math.isnan(skew.algbw) else skew.algbw,
        "busbw": None if math.isnan(skew.busbw) else skew.busbw,
    }


def _bound_bandwidth(collective: "Collective") -> Row:
    """Give what its bytes and its span tell of bandwidth: at least so much, whoever came last."""
    length_ns = collective.span.length_ns if collective.has_ended else None  # one that is cut off says too much
    algbw = algorithm_bandwidth(collective.size_bytes, length_ns)
    busbw = algbw * bus_factor(collective.operation, collective.group_size)
    return {
        "algbw_at_least": None if math.isnan(algbw) else algbw,
        "busbw_at_least": None if math.isnan(busbw) else busbw,
    }


def _describe_split(split: CauseSplit, skew: CollectiveSkew, *, is_known: bool) -> Row:
    """Give the causes; what waited for other ranks is no zero where nobody knows when those came."""
    parts = split.by_cause
    unseen = _OTHERS if skew.skew_wait_ns is None else ()
    nothing = {cause: 0 if is_known and cause not in unseen else None for cause in Cause}
    return {"cause": str(split.cause or ""), **{f"exposed_{cause}_ns": (nothing | parts)[cause] for cause in Cause}}


_WHOLE: Final = Table("whole", WHOLE, whole_rows)
_PURPOSES: Final = Table("purposes", PURPOSES, purpose_rows)
_COLLECTIVES: Final = Table("collectives", COLLECTIVES, collective_rows)
_OVERLAP: Final = Table("overlap", OVERLAP, overlap_rows)

LANE_TABLE: Final = Table("lanes", LANES, lane_rows)
GROUP_TABLE: Final = Table("groups", GROUPS, group_rows)
GAP_TABLE: Final = Table("gaps", GAPS, gap_rows)
COMM_WAIT_TABLE: Final = Table("comm_waits", COMM_WAITS, comm_wait_rows)
PROBE_TABLE: Final = Table("probes", PROBES, probe_rows)
OVERLAP_TAX_TABLE: Final = Table("overlap_tax", OVERLAP_TAX, overlap_tax_rows)

TABLES: Final = (
    _PURPOSES,
    _COLLECTIVES,
    LANE_TABLE,
    GROUP_TABLE,
    GAP_TABLE,
    COMM_WAIT_TABLE,
    OVERLAP_TAX_TABLE,
    PROBE_TABLE,
    _OVERLAP,
)
"""Every table that a launch keeps; ``overlap`` is written last: where it is, the others are."""


def tabulate_whole(analyses: Iterable["TraceAnalysis"]) -> "pd.DataFrame":
    """Make the table ``tables.WHOLE``."""
    return _WHOLE.tabulate(analyses)


def tabulate_overlap(analyses: Iterable["TraceAnalysis"]) -> "pd.DataFrame":
    """Make the table ``tables.OVERLAP``."""
    return _OVERLAP.tabulate(analyses)


def tabulate_purposes(analyses: Iterable["TraceAnalysis"]) -> "pd.DataFrame":
    """Make the table ``tables.PURPOSES``."""
    return _PURPOSES.tabulate(analyses)


def tabulate_collectives(analyses: Iterable["TraceAnalysis"]) -> "pd.DataFrame":
    """Make the table ``tables.COLLECTIVES``."""
    return _COLLECTIVES.tabulate(analyses)
