"""Collectives taken together: sums of times, medians of what is no sum."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from dtbench.report.tb_plugin.collectives import Query, group_collectives, list_collectives
from dtbench.traces.rows.collective_table import COLLECTIVES

EXAMPLE = Path(__file__).parents[3] / "results" / "example" / "cells" / "ddp" / "launch0" / "collectives.parquet"


def test_of_collectives_taken_together_times_add_up_and_size_and_speed_are_the_median() -> None:
    columns = list(COLLECTIVES.dtypes)  # the example is of a version that knew fewer causes
    table = pd.read_parquet(EXAMPLE).head(3).reindex(columns=columns)
    table["owner"], table["operation"], table["purpose"] = "bucket 0", "all_reduce", "grad_reduce"
    table["busbw"], table["size_bytes"] = [1e9, 2e9, 9e9], [1000, 2000, 9000]
    table["start_ns"], table["end_ns"] = [0, 0, 0], [1_000_000, 2_000_000, 9_000_000]
    page = group_collectives(
        table, Query(chosen={}, text="", owner=None, sort="duration_ns", descending=True, offset=0)
    )
    (row,) = page.rows
    shown = dict(zip((column.key for column in page.columns), row.words, strict=True))
    assert (shown["busbw"], shown["duration_ns"], shown["count"]) == ("2.00 GB/s", "12.0 ms", "3")
    assert shown["size_bytes"] == "1.95 KiB"


def test_of_a_table_that_lost_rows_no_sum_is_said_to_be_of_all() -> None:
    table = pd.read_parquet(EXAMPLE).reindex(columns=list(COLLECTIVES.dtypes))
    asked = Query(chosen={}, text="", owner=None, sort="exposed_ns", descending=True, offset=0)
    said = list_collectives(table, asked).sentence
    doubted = list_collectives(table, replace(asked, doubt="launch0: tables of rank 1 do not belong together"))
    assert doubted.sentence == f"not all is here (launch0: tables of rank 1 do not belong together): {said}"
