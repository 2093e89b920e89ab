"""A comparison's page of made numbers: each in its column, each change in its direction, each note said."""

import math

import pytest

from dtbench.base.columns import Better, Unit
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.comparison.comparison import CollectiveChange, Comparison, MetricChange, Outcome, Sample, Side
from dtbench.report.notebook.compared import ComparisonReport
from dtbench.report.page.comparison_page import MOST_OWNERS, comparison_page, outcome_words
from dtbench.report.page.page import Cell, Page, Table, Tone

MS = 1_000_000
STEP = MetricChange(
    metric="step_time",
    subject="",
    unit=Unit.NS,
    better=Better.LOWER,
    baseline=Sample(values=(100.0 * MS,), median=100.0 * MS),
    candidate=Sample(values=(125.0 * MS,), median=125.0 * MS),
    ratio=1.25,
    low=1.2,
    high=1.3,
    p_value=0.01,
    test=None,
    detectable=0.02,
    outcome=Outcome.HIGHER,
)


def moved(place: int) -> CollectiveChange:
    return CollectiveChange(
        owner=f"layers.{place}",
        operation=Operation.ALL_GATHER,
        purpose=Purpose.UNSHARD,
        exposed_ns=(1.0 * MS, 2.0 * MS),
        duration_ns=(3.0 * MS, 4.0 * MS),
        cause=Cause.TAIL,
        count=(1.0, 1.0),
    )


def compared(**more: object) -> Comparison:
    """Make a comparison, with some of its fields otherwise."""
    told: dict[str, object] = {
        "baseline": Side(label="old", paths=("old",), launches=8),
        "candidate": Side(label="new", paths=("new",), launches=8),
        "sentence": "slower",
        "clauses": ("slower",),
        "threshold": 0.02,
        "noise_floor": math.nan,
        "environment": (),
        "mechanism": (),
        "metrics": (STEP,),
        "collectives": (),
        "notes": (),
        **more,
    }
    return Comparison(**told)  # type: ignore[arg-type]


def compare(**more: object) -> Page:
    return comparison_page(compared(**more))


def table_of(page: Page, key: str) -> Table:
    (found,) = [block for part in page.parts for block in part.blocks if isinstance(block, Table) and block.key == key]
    return found


def test_launches_that_do_not_count_are_said_beside_those_that_do_and_with_the_causes() -> None:
    page = compare(
        candidate=Side(label="new", paths=("new",), launches=2, left_out=("launch1", "launch3")),
        collectives=(moved(1),),
    )
    assert page.answer[2].words == "candidate new: 2 launches; launch1, launch3 are left out (why: below)"
    assert table_of(page, "collectives").notes == ("of new's other launches alone: launch1, launch3 are left out",)
    assert table_of(compare(collectives=(moved(1),)), "collectives").notes == ()


@pytest.mark.parametrize(
    ("better", "outcome", "words"),
    [
        (Better.LOWER, Outcome.HIGHER, "worse"),
        (Better.LOWER, Outcome.LOWER, "better"),
        (Better.HIGHER, Outcome.HIGHER, "better"),
        (Better.HIGHER, Outcome.LOWER, "worse"),
        (Better.NEITHER, Outcome.HIGHER, "higher"),
        (Better.NEITHER, Outcome.LOWER, "lower"),
    ],
)
def test_what_is_established_is_better_or_worse_by_the_direction_of_its_metric(
    better: Better, outcome: Outcome, words: str
) -> None:
    change = STEP.model_copy(update={"better": better, "outcome": outcome})
    assert outcome_words(change) == words
    (row,) = table_of(compare(metrics=(change,)), "metrics").rows
    tone = {"better": Tone.GOOD, "worse": Tone.BAD}.get(words, Tone.PLAIN)
    assert row[-1] == Cell(words, tone)


def test_a_change_stands_behind_what_it_is_a_change_of() -> None:
    table = table_of(compare(), "metrics")
    assert [column.title for column in table.columns][1:4] == ["baseline", "candidate", "change"]
    assert table.words[0][:4] == ("step time", "100 ms", "125 ms", "+25.0 %")


def test_what_was_exposed_and_what_was_taken_stand_under_their_headers() -> None:
    table = table_of(compare(collectives=(moved(1),)), "collectives")
    assert [column.title for column in table.columns] == [
        *(
            "owner",
            "collective",
            "exposed\nbaseline",
            "exposed\ncandidate",
            "took\nbaseline",
            "took\ncandidate",
            "mostly",
        )
    ]
    assert table.words == [
        ("layers.1", "unshard all-gather", "1.000", "2.000", "3.000", "4.000", "nothing left to hide behind")
    ]


def test_each_side_of_what_moved_has_its_columns() -> None:
    table = ComparisonReport(compared(collectives=(moved(1),))).collectives
    (row,) = table.to_dict("records")
    assert {name: row[name] / MS for name in table.columns if name.endswith("_ns")} == {
        "baseline_exposed_ns": 1,
        "candidate_exposed_ns": 2,
        "baseline_duration_ns": 3,
        "candidate_duration_ns": 4,
    }


def test_owners_that_are_not_shown_first_are_counted() -> None:
    table = table_of(compare(collectives=tuple(map(moved, range(MOST_OWNERS + 3)))), "collectives")
    assert len(table.first_rows) == MOST_OWNERS
    assert [words for words in map(str, table.first_notes) if "and 3 more: see --json" in words]


def test_launches_far_from_the_others_are_named_and_so_is_the_noise_floor() -> None:
    page = compare(
        metrics=(STEP.model_copy(update={"outliers": ("new launch3",)}),), notes=("a note",), noise_floor=0.031
    )
    assert [line.words for line in page.notes] == [
        "a note",
        "far from the others in step time, and counted: new launch3",
    ]
    assert page.answer[-1].words == "noise floor: halves of one side differ by up to 3.1 % in step time"


def test_words_on_a_page_hold_no_markup_which_html_would_show_as_it_is() -> None:
    page = compare()
    said = [line.words for line in (*page.answer, *page.notes)]
    said += table_of(page, "metrics").said
    assert any("no difference where it lies within" in words for words in said)
    assert not any("*" in words for words in said)
