"""The tab Overview: tiles of a cell, and the stages that its training state went through."""

import math
from collections.abc import Callable

import pytest

from dtbench.base.vocabulary import Stage, StageOutcome, StatePart
from dtbench.report.page.page import Line, Part, Prose, Tiles, Tone
from dtbench.runs.stage_summary import RaisedOnRank, StageSummary, StateStepsSummary
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.traces.known_part import KnownPart
from tests.report.shown import board_cell, table_of

MS, MIB = 1_000_000.0, 1 << 20
GATHER = StageSummary(
    part=StatePart.MODEL,
    stage=Stage.GATHER,
    outcome=StageOutcome.EQUAL,
    duration_ns=58.8 * MS,
    quartile1_ns=58 * MS,
    quartile3_ns=59 * MS,
    shortest_ns=59 * MS,
    wait_ns=45 * MS,
    rounds=5,
    state_bytes=MIB,
    all_ranks_bytes=2 * MIB,
    collectives=8,
    sent_bytes=MIB,
    planned=None,
    matches_plan=None,
    object_collectives=0,
    link_ns=math.nan,
    file_bytes=None,
    host_peak_bytes=24 << 10,
    device_peak_bytes=None,
    mismatched=0,
    mismatches=(),
)
STEPS = StateStepsSummary(
    before_ns=10 * MS,
    load_ns=20 * MS,
    first_ns=11 * MS,
    after_ns=12 * MS,
    alone_ns=10 * MS,
    beside_ns=13 * MS,
    blocked_ns=5 * MS,
    saved_ns=30 * MS,
    steps=4,
    in_flight=2.0,
    cost_ns=17 * MS,
    cost_low_ns=16 * MS,
    cost_high_ns=19 * MS,
    file_bytes=2 * MIB,
    cost_ns_per_mib=8.5 * MS,
    mismatched=0,
)


@pytest.fixture
def card(make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]) -> Callable[..., Part]:
    return lambda **changes: board_cell(make_run(make_ddp(update=changes)))


def sentences_of(part: Part) -> tuple[Line, ...]:
    """Return what is said below the table of stages."""
    block = part.find("stages:sentences")
    assert isinstance(block, Prose)
    return block.lines


def test_stages_are_the_reports_table(card: Callable[..., Part]) -> None:
    table = table_of(card(stages=(GATHER,)), "stages")
    assert [column.plain_title for column in table.columns][:3] == ["stage of the", "slowest rank", "stalled"]
    assert table.words == [("model: gather", "58.8 ms", "45.0 ms", "1.00 MiB", "8", "1.00 MiB", "+24.0 KiB", "equal")]
    assert card().find("stages") is None


def test_what_is_wrong_is_marked_and_what_is_known_to_be_broken_is_no_alarm(card: Callable[..., Part]) -> None:
    raised = (RaisedOnRank(rank=2, words="ValueError: <b>no</b> rank"),)
    for outcome, tone in ((StageOutcome.RAISED, Tone.BAD), (StageOutcome.BROKEN, Tone.WARNING)):
        broken = GATHER.model_copy(update={"outcome": outcome, "raised": raised, "rounds": 0})
        (line,) = sentences_of(card(stages=(broken,)))
        assert (line.words.startswith("gather of the model"), line.tone) == (True, tone)
        assert "rank 2: ValueError: <b>no</b> rank" in line.words, "the page shows it as text"


def test_what_a_load_and_a_save_cost_is_told_and_a_save_that_is_wrong_is_an_alarm(
    card: Callable[..., Part],
) -> None:
    load, save = sentences_of(card(stages=(GATHER,), state_steps=STEPS))
    assert "10.0 ms before a load, 11.0 ms right after it and 12.0 ms from then on" in load.words
    assert "17.0 ms of training in all (95 % interval 16.0 ms to 19.0 ms), 8.50 ms per MiB" in save.words
    unsure = {"cost_ns": math.nan, "cost_ns_per_mib": math.nan, "cost_low_ns": -4.0 * MS}
    _, save = sentences_of(card(stages=(GATHER,), state_steps=STEPS.model_copy(update=unsure)))
    assert "what it costs training in all cannot be told (95 % interval -4.00 ms to 19.0 ms)" in save.words
    wrong, *_ = sentences_of(card(stages=(GATHER,), state_steps=STEPS.model_copy(update={"mismatched": 3})))
    assert (wrong.tone, "3 keys" in wrong.words) == (Tone.BAD, True)


def test_a_tile_shows_a_number_and_says_below_of_what_it_is(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    part = KnownPart(steps=2, of_steps=8, counted="MEASURED steps")
    cell = make_ddp().model_copy(update={"timed_part": part})
    block = board_cell(make_run(cell)).find("tiles")
    assert isinstance(block, Tiles)
    tiles = {tile.label: tile for tile in block.tiles}
    for label in ("step time", "throughput"):
        assert tiles[label].words[0].isdigit(), tiles[label]
        assert tiles[label].detail.startswith("of 2 of 8 MEASURED steps: "), tiles[label]
