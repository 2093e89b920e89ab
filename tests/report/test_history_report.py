"""What a notebook gets of a history: its words, its tables, its figure, its page."""

from pathlib import Path

import pytest

import dtbench
from dtbench.base.errors import StoreError
from dtbench.report.notebook.history import HistoryReport
from dtbench.report.page.history_page import MOST_POINTS, history_page
from dtbench.report.page.page import Table
from tests.made_history import draw_values, make_history


def test_the_report_has_the_points_the_change_and_the_answer() -> None:
    report = HistoryReport(make_history(draw_values(0, 60, {30: 1.1})))
    assert str(report).splitlines()[0] == report.sentence == report.history.sentence
    assert list(report.points["value"]) == [point.value for point in report.history.points]
    (change,) = report.changes.to_dict("records")
    assert (change["last"], change["first"], change["meaning"]) == ("run029", "run030", "worse")
    assert change["low"] < change["ratio"] < change["high"]
    assert len(report.plot().axes) == 1
    assert "run029" in report._repr_html_()


def test_a_screen_has_the_newest_points_with_the_change_beside_the_first_behind_it() -> None:
    page = history_page(make_history(draw_values(0, 60, {50: 1.1})))
    part = page.find("points")
    assert part is not None
    (table,) = part.blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.words[:3]] == ["run059", "run058", "run057"]
    assert table.first == MOST_POINTS
    assert table.more == "and 40 older: --full, --json"
    assert [row[0] for row in table.words if "worse" in row[5]] == ["run050"]


def test_where_nothing_changed_there_is_no_table_of_changes() -> None:
    history = make_history(draw_values(1, 30))
    assert history_page(history).find("changes") is None
    assert HistoryReport(history).changes.empty


def test_words_that_are_none_and_a_folder_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean `step_time`"):
        dtbench.history("small", metric="step", results=tmp_path)
    with pytest.raises(ValueError, match="week"):
        dtbench.history("small", by="week", results=tmp_path)
    with pytest.raises(StoreError, match="no runs here"):
        dtbench.history("small", results=tmp_path)
