"""What is said of other settings: no help is claimed, and none denied, that an interval does not bear."""

from dataclasses import replace

import pytest

from dtbench.report.page.page import Table, words_of
from dtbench.report.page.settings_part import (
    NO_SETTINGS,
    Settings,
    say_not_asked,
    settings_lines,
    settings_notes,
    settings_part,
)
from dtbench.report.page.what_if_page import what_if_page
from dtbench.runs.settings.base import CostSource
from dtbench.runs.settings.forecast import Forecast, SettingAnswer

MS = 1e6


def answer(
    saving_ms: float, low_ms: float | None = None, high_ms: float | None = None, change: str = "a.b=1"
) -> SettingAnswer:
    low, high = (None if end is None else end * MS for end in (low_ms, high_ms))
    return SettingAnswer(change, "memory", (100 - saving_ms) * MS, saving_ms * MS, low, high)


def forecast(*answers: SettingAnswer) -> Forecast:
    return Forecast(100 * MS, 1 if answers[0].low_ns is None else 4, 0, answers, (("c.d=2", "there is none"),))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([answer(20, 15, 25), answer(3, -2, 8)], "of settings `a.b=1` saves most: 20.0 ms (20.0 %) of a measured step"),
        ([answer(1.9)], "no other setting is sure to help"),  # closed forms are off by more
        ([answer(20)], "saves most: 20.0 ms (20.0 %) of a measured step of 100 ms; one launch tells no interval."),
        ([answer(4, -1, 9)], "no other setting is sure to help: most is said of `a.b=1`, 4.00 ms of a measured step"),
        ([answer(0.5, -3, 4)], "no other setting is sure to help"),  # it may save 4 %
        ([answer(0.5)], "no other setting is sure to help"),  # nothing is known of how far that is off
        ([answer(0.4, 0.1, 0.7), answer(-9, -12, 0.9)], "no other setting that was asked for helps by more than 1.0 %"),
        ([answer(0.4, 0.1, 0.7), answer(-9, -12, 1.2)], "no other setting is sure to help"),
    ],
)
def test_help_is_claimed_and_denied_only_where_intervals_say_so(answers: list[SettingAnswer], said: str) -> None:
    (line,) = settings_lines(forecast(*answers), "ddp: ")
    assert line.words.startswith("ddp: ")
    assert said in line.words
    if answers[0].low_ns is not None and "saves most" in said:
        assert "90.0 % interval 15.0 ms to 25.0 ms" in line.words


def test_the_table_has_each_with_its_interval_and_cost() -> None:
    (table,) = settings_part("ddp", forecast(answer(20, 15, 25), answer(-3, -8, 2, "e.f=3")), several=True).blocks
    assert isinstance(table, Table)
    rows = [[words_of(cell) for cell in row] for row in table.rows]
    assert rows == [
        ["a.b=1", "80.0 ms", "20.0 ms", "20.0 %", "15.0 ms to 25.0 ms", "memory"],
        ["e.f=3", "103 ms", "-3.00 ms", "-3.0 %", "-8.00 ms to 2.00 ms", "memory"],
    ]


def test_a_page_says_what_they_are_of_and_of_which_cells_nothing_is_known() -> None:
    settings = Settings({"ddp": forecast(answer(20, 15, 25))}, {"one": "no cost is known", "two": "no cost is known"})
    page = what_if_page("run", {}, {}, {}, settings)
    assert [part.key for part in page.parts] == ["settings:ddp"]
    notes = [note.words for note in page.notes]
    assert any("their savings are of MEASURED steps" in words for words in notes)
    assert "ddp: `c.d=2` is not asked: there is none" in notes
    assert "settings of `one` and `two` are not asked: no cost is known" in notes
    assert not list(settings_notes(NO_SETTINGS))
    assert not [words for words in notes if "compute of blocks" in words or "`ddp` are not run" in words]
    assert not what_if_page("run", {}, {}, {}).parts


def test_a_page_says_of_which_cells_compute_was_found_and_how_far_such_closed_forms_may_be_off() -> None:
    found = replace(forecast(answer(20, 15, 25)), source=CostSource.REGIONS, off=0.031)
    notes = list(settings_notes(Settings({"timed": forecast(answer(20, 15, 25)), "real": found}, {})))
    assert notes[0].startswith("settings of `timed` are not run either")
    assert notes[1].startswith("intervals of `timed` hold the spread of launches and 2.0 % of a step, by which such")
    assert notes[2].startswith("settings of `real` are not run either")
    assert "compute of blocks was found from how long forward, backward and optimizer of these steps were" in notes[2]
    assert "exposed is 3.1 % of a step from what PROFILED steps showed (above 8.0 % nothing is said)" in notes[2]
    assert notes[3].startswith("intervals of `real` hold the spread of launches and 3.0 % of a step, by which such")
    (line,) = settings_lines(replace(forecast(answer(2.5)), source=CostSource.REGIONS), "")
    assert line.words.startswith("no other setting is sure to help")  # of one launch: 2.5 % is within 3
    (line,) = settings_lines(forecast(answer(5)), "")
    assert line.words.startswith("of settings `a.b=1` saves most")


def test_changes_that_are_not_asked_for_one_reason_are_one_note() -> None:
    refused = [
        ("latency: x0.5", "sizes do not tell"),
        ("no straggler", "one alone"),
        ("bandwidth: x2", "sizes do not tell"),
    ]
    assert list(say_not_asked(refused)) == [
        "`latency: x0.5` and `bandwidth: x2` are not asked: sizes do not tell",
        "`no straggler` is not asked: one alone",
    ]
