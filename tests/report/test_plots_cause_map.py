"""The map of ranks and causes: its numbers, hosts where ranks are many, and which ranks lie far from the others."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtbench.base.vocabulary import Cause
from dtbench.report.plots.cause_map import CauseMap, map_causes
from dtbench.report.plots.names import plot_causes
from dtbench.report.plots.rank_map import MOST_ROWS

MS = 1_000_000
NA = pd.NA


def steps_of(ranks: int, steps: int = 2) -> pd.DataFrame:
    rows = [{"rank": rank, "step": step} for rank in range(ranks) for step in range(steps)]
    times = dict.fromkeys(("step_ns", "compute_ns", "comm_ns", "hidden_comm_ns", "exposed_comm_ns"), 9 * MS)
    return pd.DataFrame(rows).assign(**times).astype("Int64")


def causes_of(*rows: tuple[int, int, Any, Any]) -> pd.DataFrame:
    """Make collectives of (rank, step, ms exposed as it waited for a rank, ms exposed as it was issued late)."""
    names = ("rank", "step", "exposed_skew_ns", "exposed_late_issue_ns")
    made = [(rank, step, *(ms if ms is NA else ms * MS for ms in times)) for rank, step, *times in rows]
    return pd.DataFrame(made, columns=list(names)).astype("Int64").assign(exposed_tail_ns=0)


def alike(ranks: int, late: int) -> pd.DataFrame:
    """Make a job of which all ranks but one wait for that."""
    return causes_of(*((rank, step, 0 if rank == late else 6, 1) for rank in range(ranks) for step in range(2)))


def test_each_field_is_the_mean_over_the_steps_of_its_rank() -> None:
    found = map_causes(steps_of(2), causes_of((0, 0, 4, 1), (0, 0, 2, 0), (0, 1, 0, 0), (1, 0, 0, 3), (1, 7, 99, 99)))
    assert found.causes == [Cause.SKEW, Cause.LATE_ISSUE], "there is no tail"
    assert (found.times_ns / MS).tolist() == [[3, 0.5], [0, 1.5]]
    assert found.untold == 0


def test_what_is_not_known_is_no_zero_and_a_rank_that_issued_nothing_has_none() -> None:
    found = map_causes(steps_of(3), causes_of((0, 0, NA, 2), (0, 1, NA, 2), (1, 0, NA, 2), (1, 1, 4, 2)))
    skew, issue = (found.times_ns / MS).T.tolist()
    assert math.isnan(skew[0])
    assert (skew[1:], issue) == ([2, 0], [2, 2, 0])
    assert found.untold == 3
    figure = plot_causes(steps_of(3), causes_of((0, 0, NA, 2), (1, 1, 4, 2)))
    assert "at least so much: of 1 collective not every cause is known" in figure.get_supxlabel()


def test_a_rank_far_from_the_others_is_named_and_none_where_all_are_alike() -> None:
    found = map_causes(steps_of(64), alike(64, late=48))
    assert found.finding == "rank 48 waited for other ranks 0 ns (median 6.00 ms)"
    random = np.random.default_rng(0)
    times = 6 * MS + random.normal(0, 0.02 * MS, (64, 1))
    assert CauseMap(range(64), [Cause.SKEW], times).finding == "no rank lies far from the others"
    times[7:12] *= 2
    named = CauseMap(range(64), [Cause.SKEW], times).finding
    assert named.count("waited for other ranks 1") == 3
    assert named.endswith("; 2 more ranks far from the others")


@pytest.mark.parametrize("are_hosts_known", [True, False])
def test_a_thousand_ranks_share_rows_by_host_where_these_are_known_and_none_is_lost(*, are_hosts_known: bool) -> None:
    times_ns = np.full((1024, 1), 1.0 * MS)
    times_ns[777] = 9 * MS
    hosts = {rank: f"node{rank // 8}" for rank in range(1024)} if are_hosts_known else {}
    field = CauseMap(range(1024), [Cause.LATE_ISSUE], times_ns).fold(hosts, MOST_ROWS)
    assert len(field.rows) == (128 if are_hosts_known else 256)
    row = int(field.times_ns.argmax())
    assert field.rows[row] == ("node97" if are_hosts_known else "ranks 776-779")
    assert ("each row is a host" if are_hosts_known else "each row is 4 ranks") in field.below


def test_a_run_of_several_cells_has_a_map_each_and_one_without_causes_says_so() -> None:
    tables = [
        (steps_of(8).assign(cell=cell), (alike(8, late) if late else causes_of()).assign(cell=cell))
        for cell, late in (("ddp", 3), ("fsdp2", 5), ("none", 0))
    ]
    overlap, collectives = (pd.concat(parts, ignore_index=True) for parts in zip(*tables, strict=True))
    figure = plot_causes(overlap, collectives, cells=("ddp", "fsdp2", "none"))
    maps = [axes for axes in figure.axes if axes.images]
    titles = [axes.get_title(loc="left") for axes in maps]
    assert [title.split(" waited")[0] for title in titles] == ["ddp: rank 3", "fsdp2: rank 5"]
    assert [label.get_text() for label in maps[0].get_yticklabels()][:2] == ["rank 0", "rank 1"]
    empty = plot_causes(steps_of(2), causes_of())
    assert any("Of no step it is known why" in text.get_text() for axes in empty.axes for text in axes.texts)
