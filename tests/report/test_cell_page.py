"""A cell's page of made numbers: the right one at each place, what is cut is summed, what is not known is n/a."""

import math
from collections.abc import Callable

import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.report.page.cell_page import MOST_OWNERS, MOST_PARAMETERS, cell_part
from dtbench.report.page.page import Cell, Tone, words_of
from dtbench.report.words.sentences import lead_waits, step_time_words
from dtbench.runs.summary import CellSummary, GradientWait, Interval, OwnerSummary
from tests.report.shown import table_of

MS = 1_000_000
Make = Callable[..., CellSummary]


def value_of(cell: str | Cell) -> float:
    assert isinstance(cell, Cell)
    assert cell.value is not None
    return float(cell.value)


def wait(place: int) -> GradientWait:
    return GradientWait(
        parameter=f"norm{place}", count=1, wait_ns=place * MS, since_issue_ns=50 * MS, hidden_ns=1, exposed_ns=2
    )


def test_a_share_of_what_was_not_all_seen_is_not_known(make_ddp: Make) -> None:
    for unseen, shares in ((0, ["60.0 %", "60.7 %"]), (2, ["n/a", "n/a"])):
        rows = table_of(cell_part(make_ddp(update={"unseen_collectives": unseen})), "breakdown").rows
        assert [words_of(row[-2]) for row in rows] == shares  # 18 of 30 ms, 17 of 28
        assert all(math.isnan(value_of(row[-2])) == (unseen > 0) for row in rows)
        assert all(value_of(row[-1]) > 0.07 for row in rows), "exposed of step: 12 and 11 ms of about 152"


def test_parts_of_a_step_stand_under_their_headers(make_ddp: Make) -> None:
    table = table_of(cell_part(make_ddp()), "breakdown")
    titles = [column.plain_title for column in table.columns]
    row = dict(zip(titles, table.rows[0], strict=True))
    told = {"compute": 110, "exposed comm": 12, "exposed copy": 1}
    assert {title: value_of(row[title]) for title in told} == {title: ms * MS for title, ms in told.items()}


def test_the_longest_waits_for_gradients_come_first_and_the_others_are_counted(make_ddp: Make) -> None:
    waits = tuple(map(wait, (3, 40, *range(4, 4 + MOST_PARAMETERS))))
    table = table_of(cell_part(make_ddp(update={"gradient_waits": waits})), "gradient_waits")
    times_ns = [value_of(row[1]) for row in table.rows]
    assert times_ns == sorted(times_ns, reverse=True)
    assert table.words[0][:3] == ("norm40", "40.0 ms", "50.0 ms")
    assert len(table.first_rows) == MOST_PARAMETERS
    assert [words for words in map(str, table.first_notes) if "and 2 parameters with shorter waits" in words]


def test_owners_that_are_not_shown_first_are_summed_in_a_row(make_ddp: Make) -> None:
    owners = tuple(
        OwnerSummary(
            owner=f"bucket {place}",
            operation=Operation.ALL_REDUCE,
            purpose=Purpose.GRAD_REDUCE,
            cause=Cause.TAIL,
            exposed_ns=MS,
            owner_exposed_ns=MS,
        )
        for place in range(MOST_OWNERS + 2)
    )
    table = table_of(cell_part(make_ddp(update={"owners": owners})), "owners")
    assert len(table.rows) == MOST_OWNERS + 2
    assert [words_of(cell) for cell in table.first_rows[-1]] == ["2 more", "", "", "", "2.000", "20.0 %"]
    assert table.words[0] == (
        *("bucket 0", "all-reduce", "grad_reduce", "nothing left to hide behind"),
        *("1.000", "10.0 %"),
    )


def test_of_unknown_causes_it_is_said_what_would_tell_them(make_ddp: Make) -> None:
    def unknown(owner: str, *missing: MissingInput) -> OwnerSummary:
        return OwnerSummary(
            owner=owner,
            operation=Operation.ALL_REDUCE,
            purpose=Purpose.GRAD_REDUCE,
            cause=Cause.UNKNOWN,
            exposed_ns=MS,
            owner_exposed_ns=MS,
            missing=missing,
        )

    owners = unknown("a", MissingInput.HOST, MissingInput.EVENTS), unknown("b", MissingInput.HOST)
    table = table_of(cell_part(make_ddp(update={"owners": owners})), "owners")
    assert "cause unknown, missing: why the host launched no compute beside it (2.00 ms)" in table.notes
    (advice,) = [note for note in map(str, table.notes) if note.startswith("cause unknown (")]
    assert "Find what the host did meanwhile" in advice
    silent = table_of(cell_part(make_ddp(update={"owners": (unknown("a"),)})), "owners")  # its table does not say it
    assert not [note for note in map(str, silent.notes) if "cause unknown" in note]


def test_what_differs_from_the_plan_is_bad_in_its_row_and_in_the_line_below(make_ddp: Make) -> None:
    (purpose,) = make_ddp().purposes
    other = purpose.model_copy(update={"matches_plan": False, "planned_count": 3, "planned_size_bytes": 1 << 20})
    table = table_of(cell_part(make_ddp(update={"purposes": (other,)})), "purposes")
    assert table.rows[0][3] == Cell("DIFFERS", Tone.BAD)
    (line,) = [note for note in table.notes if not isinstance(note, str) and note.tone is Tone.BAD]
    assert line.words == "grad_reduce: plan: 3 with 1.00 MiB, got 2 with 20.0 MiB"


def test_a_step_time_has_its_interval_and_the_middle_half_of_its_steps(make_ddp: Make) -> None:
    ends_ms = {"median": 100.0, "low": 90.0, "high": 120.0, "quartile1": 95.0, "quartile3": 110.0}
    times = Interval(count=7, **{name: ms * MS for name, ms in ends_ms.items()})
    assert step_time_words(make_ddp(update={"step_time": times})) == (
        "100 ms median of 7 steps, 95 % interval 90.0 ms to 120 ms within this launch, IQR 95.0 ms to 110 ms"
    )


@pytest.mark.parametrize(
    ("unlike", "waited_ns", "said"),
    [
        (Cause.TAIL, 1, "6.00 ms per step (3.9 %)"),
        (Cause.UNKNOWN, 1, "6.00 ms per step (3.9 %)"),
        (Cause.UNKNOWN, None, "at least 6.00 ms per step (at least 3.9 %)"),  # whose other end is not known
    ],
)
def test_a_pipelines_bubble_is_what_its_stages_stood_still_for_and_nothing_else(
    make_ddp: Make, unlike: Cause, waited_ns: int | None, said: str
) -> None:
    (purpose,) = make_ddp().purposes
    pipeline = purpose.model_copy(update={"purpose": Purpose.PIPELINE})
    owners = tuple(
        OwnerSummary(
            owner="to rank 1",
            operation=Operation.SEND,
            purpose=of,
            cause=cause,
            exposed_ns=ms * MS,
            owner_exposed_ns=12 * MS,
            skew_wait_ns=waited_ns,
        )
        for of, cause, ms in (
            (Purpose.PIPELINE, Cause.BUBBLE, 6),
            (Purpose.PIPELINE, unlike, 4),
            (Purpose.OTHER, Cause.BUBBLE, 2),
        )
    )
    told = dict(lead_waits(make_ddp(update={"purposes": (pipeline,), "owners": owners})))
    assert told["pipeline bubble"] == said  # of 152 ms
    none = [
        row.model_copy(update={"cause": unlike, "skew_wait_ns": ns})
        for row, ns in zip(owners, (1, waited_ns, 1), strict=True)
    ]
    told = dict(lead_waits(make_ddp(update={"purposes": (pipeline,), "owners": tuple(none[:2])})))
    assert told["pipeline bubble"].startswith("n/a: none was seen" if waited_ns is None else "0 ns per step")
