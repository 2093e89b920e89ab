"""Estimates of exposed communication in words: the answer first, and the same wherever it is said."""

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console, RenderableType
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dtbench.report.documents.run import document as run_document
from dtbench.report.event_files.dashboards import write_tensorboard
from dtbench.report.page.estimates import (
    agreement_sentence,
    agreement_tone,
    agreement_word,
    dispute_sentences,
    estimates_table,
    gain_sentence,
)
from dtbench.report.page.page import Line, Tone, as_line
from dtbench.report.page.run_page import answer_words, run_page
from dtbench.report.page.run_tables import ESTIMATES
from dtbench.report.page.sweep import cells_table
from dtbench.report.render.html import page_html
from dtbench.runs.exposure.unjudged import leave_unjudged
from dtbench.runs.summary import CellSummary, Disturbed, ExposureSummary, RunSummary
from tests.report.shown import (
    board_cell,
    facts_of,
    markdown_block,
    markdown_run,
    table_of,
    terminal_cell,
    terminal_run,
)

NAN = float("nan")
AGREEING = {"trace": 12.0, "ablation": 12.4, "wait": 11.8}
CONTENTION = "trace 12.0 ms against ablation 34.0 ms, 22.0 ms apart where 3.40 ms would pass: contention, so it is"
Exposure = Callable[..., ExposureSummary]
Cell = Callable[..., CellSummary]


@pytest.fixture
def agreeing(exposure_of: Exposure) -> ExposureSummary:
    return exposure_of({None: AGREEING, 0: AGREEING, 1: AGREEING}, serial_ms=145, overlapped_ms=142)


@pytest.fixture
def disputed(exposure_of: Exposure) -> ExposureSummary:
    means = {**AGREEING, "ablation": 34.0}
    return exposure_of({None: means, 0: AGREEING, 1: means}, {None: (CONTENTION, "and so on"), 1: ("on one",)})


def shown(renderable: RenderableType, width: int = 120) -> str:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (
            {"disturbed": (Disturbed(launch=0, phase=None, steps=72, left_alone=0, stolen_fraction=0.5, takers=()),)},
            "cores",
        ),
        ({"unseen_collectives": 4}, "4 collectives were launched and not seen to run"),
        ({"rank_doubts": ("launch0: the record of rank 1 is missing",)}, "launch0: the record of rank 1 is missing"),
    ],
    ids=["cores taken", "unseen collectives", "a lost record"],
)
@pytest.mark.parametrize("which", ["agreeing", "disputed"])
def test_estimates_by_which_nothing_may_be_judged_neither_agree_nor_differ(
    which: str,
    update: dict[str, Any],
    why: str,
    make_ddp: Cell,
    make_run: Callable[..., RunSummary],
    request: pytest.FixtureRequest,
) -> None:
    cell = make_ddp(update={"exposure": request.getfixturevalue(which), **update})
    found = leave_unjudged(cell)
    assert found is not None
    assert why in found.unjudged
    judged = cell.model_copy(update={"exposure": found})
    least = "at least " if "unseen_collectives" in update else ""
    assert agreement_sentence(found).startswith(f"not judged, since {found.unjudged}: trace {least}12.0 ms")
    assert estimates_table(found).words[0][1].startswith(f"{least}12.0")
    assert (agreement_word(judged), agreement_tone(judged)) == ("n/a", Tone.STRONG)
    assert {row[-1] for row in estimates_table(found).words} == {"n/a"}
    assert dispute_sentences(found) == []
    assert set(ESTIMATES.tabulate(make_run(judged))["agreement"]) == {"unknown"}
    gain = gain_sentence(judged) or ""
    assert ("gained" in gain) is (which == "agreeing" and "unseen_collectives" in update)  # clocks told that one


def test_estimates_that_nothing_speaks_against_stay_as_they_are(make_ddp: Cell, disputed: ExposureSummary) -> None:
    assert leave_unjudged(make_ddp(update={"exposure": disputed})) == disputed
    assert leave_unjudged(make_ddp()) is None


def test_agreement_is_one_sentence_with_all_figures(agreeing: ExposureSummary) -> None:
    assert agreement_sentence(agreeing) == "agree: trace 12.0 ms, ablation 12.4 ms, waits 11.8 ms"


def test_agreement_that_rests_on_large_errors_says_so(exposure_of: Exposure) -> None:
    exposure = exposure_of({None: {"trace": 45.0, "ablation": 32.0}}, error_ms=10)
    assert agreement_sentence(exposure) == "agree within their errors only: trace 45.0 ms, ablation 32.0 ms"


def test_a_dispute_leads_with_the_figures_that_differ_and_why(disputed: ExposureSummary) -> None:
    assert agreement_sentence(disputed) == f"DISPUTED: {CONTENTION}; and 1 more dispute"


def test_ranks_that_differ_are_named_although_their_mean_agrees(exposure_of: Exposure) -> None:
    rows = {None: AGREEING, 0: AGREEING, 1: AGREEING}
    assert agreement_sentence(exposure_of(rows, {1: ("so",)})).endswith("waits 11.8 ms; but rank 1 is disputed")
    assert agreement_sentence(exposure_of(rows, {0: ("so",), 1: ("so",)})).endswith("; but 2 ranks are disputed")


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ({"trace": NAN, "ablation": NAN}, "n/a: none is known"),
        ({"trace": 12.0, "ablation": NAN}, "nothing to compare: only trace 12.0 ms is known"),
        ({"trace": 12.0, "ablation": 50.0}, "not judged: trace 12.0 ms, ablation 50.0 ms"),
    ],
)
def test_what_is_not_known_is_no_agreement(exposure_of: Exposure, means: dict[str, float], said: str) -> None:
    assert agreement_sentence(exposure_of({None: means})) == said


def test_the_hidden_share_stands_beside_what_the_clock_says(
    make_ddp: Cell, agreeing: ExposureSummary, exposure_of: Exposure
) -> None:
    assert gain_sentence(make_ddp(update={"exposure": agreeing})) == (
        "hidden 60.0 % of the communication (17.5 ms), gained 2.1 % of the step (3.00 ms): 142 ms, and 145 ms where "
        "every collective is waited for at once"
    )
    slower = exposure_of({None: AGREEING}, serial_ms=100, overlapped_ms=103)
    assert "lost 3.0 % of the step (3.00 ms)" in str(gain_sentence(make_ddp(update={"exposure": slower})))
    for error_ms, said in (
        (1.1, "no gain can be told from none (within 3.30 ms): 142 ms, and 145 ms where"),
        (NAN, "2.1 % of the step (3.00 ms) shorter, with an error that is not known: 142 ms"),
    ):
        unsure = exposure_of({None: AGREEING}, serial_ms=145, overlapped_ms=142, error_ms=error_ms)
        assert said in str(gain_sentence(make_ddp(update={"exposure": unsure})))
    assert gain_sentence(make_ddp(update={"exposure": exposure_of({None: AGREEING})})) is None
    assert gain_sentence(make_ddp()) is None


def test_the_table_has_the_mean_first_and_an_error_with_every_number(disputed: ExposureSummary) -> None:
    section = estimates_table(disputed)
    assert [column.title for column in section.columns] == ["rank", "trace", "ablation", "waits", "agree?"]
    assert section.words[0] == ("mean", "12.00 ± 0.30", "34.00 ± 0.30", "11.80 ± 0.30", "disputed")
    assert [row[-1] for row in section.words] == ["disputed", "agree", "disputed"]


def test_an_estimate_that_is_not_known_has_no_error_either(exposure_of: Exposure) -> None:
    assert estimates_table(exposure_of({None: {"trace": 12.0, "wait": NAN}})).words[0][2] == "n/a"


def test_of_many_ranks_the_table_shows_some_and_says_so(exposure_of: Exposure) -> None:
    ranks: list[int | None] = [None, *range(20)]
    section = estimates_table(exposure_of(dict.fromkeys(ranks, AGREEING)))
    assert len(section.first_rows) == 17
    assert Line("and 4 more ranks: see --json", Tone.QUIET) in section.first_notes


def test_a_rank_is_disputed_in_a_sentence_only_where_the_mean_is_not(
    exposure_of: Exposure, disputed: ExposureSummary
) -> None:
    assert dispute_sentences(disputed) == [CONTENTION, "and so on"]
    rows = dict.fromkeys((None, *range(6)), AGREEING)
    many = exposure_of(rows, dict.fromkeys(range(6), ("so",)))
    assert dispute_sentences(many) == [f"rank {rank}: so" for rank in range(4)] + ["and 2 more disputes: see --json"]


def test_the_terminal_leads_with_the_answer_and_shows_the_table(make_ddp: Cell, disputed: ExposureSummary) -> None:
    text = shown(terminal_cell(make_ddp(update={"exposure": disputed})), width=80)
    lead = " ".join(text.partition("step time")[0].split())
    assert "estimates DISPUTED: trace 12.0 ms against ablation 34.0 ms" in lead
    assert "Exposed communication estimated several ways, per step; ms ± standard error\n" in text.replace(" \n", "\n")
    row = next(line for line in text.splitlines() if line.startswith("mean "))
    assert row.split() == ["mean", "12.00", "±", "0.30", "34.00", "±", "0.30", "11.80", "±", "0.30", "disputed"]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_a_cell_that_failed_before_any_estimate_gets_no_empty_table(make_ddp: Cell, exposure_of: Exposure) -> None:
    text = shown(terminal_cell(make_ddp(update={"exposure": exposure_of({None: {"trace": NAN, "wait": NAN}})})))
    assert "estimates      n/a: none is known" in text
    assert "estimated several ways" not in text


def test_a_cell_of_which_only_the_trace_was_asked_says_nothing_of_it(
    make_run: Callable[..., RunSummary], make_ddp: Cell
) -> None:
    run = make_run()
    places = [shown(terminal_run(run)), markdown_run(run), str(answer_words(run)), str(cells_table(run))]
    assert not any("estimate" in place for place in places)
    assert markdown_block(make_ddp(), "estimates") == ""
    assert ESTIMATES.tabulate(run).empty


def test_a_sweep_has_a_word_for_every_cell(
    make_run: Callable[..., RunSummary], make_ddp: Cell, agreeing: ExposureSummary, disputed: ExposureSummary
) -> None:
    cells = [
        make_ddp(update={"name": name, "exposure": exposure})
        for name, exposure in (("a", agreeing), ("b", disputed), ("c", None))
    ]
    section = cells_table(make_run(*cells))
    at = [column.title for column in section.columns].index("estimates")
    assert [row[at] for row in section.words] == ["agree", "disputed", "-"]
    assert not section.columns[at].is_number
    header = next(line for line in markdown_run(make_run(*cells)).splitlines() if line.startswith("| "))
    assert header.endswith("| estimates | state |")


def test_a_rank_that_is_disputed_alone_is_counted_in_a_sweep(make_ddp: Cell, exposure_of: Exposure) -> None:
    one = exposure_of({None: AGREEING, 0: AGREEING}, {0: ("so",)})
    assert agreement_word(make_ddp(update={"exposure": one})) == "1 rank disputed"


def test_a_notebook_says_it_in_the_same_words(
    make_run: Callable[..., RunSummary], make_ddp: Cell, agreeing: ExposureSummary
) -> None:
    lines = answer_words(make_run(make_ddp(update={"exposure": agreeing})))
    assert f"ddp: estimates {agreement_sentence(agreeing)}" in lines
    assert any(
        line.startswith("ddp: overlap hidden 60.0 % of the communication (17.5 ms), gained 2.1 %") for line in lines
    )


def test_a_data_frame_has_every_estimate_of_every_rank(
    make_run: Callable[..., RunSummary], make_ddp: Cell, disputed: ExposureSummary
) -> None:
    frame = ESTIMATES.tabulate(make_run(make_ddp(update={"exposure": disputed})))
    assert len(frame) == 9
    row = frame[(frame["rank"] == 1) & (frame["estimate"] == "ablation")].iloc[0]
    assert (row["cell"], row["mean_ns"], row["count"], row["agreement"]) == ("ddp", 34_000_000, 5, "disputed")
    assert frame["rank"].isna().sum() == 3


def test_json_has_every_estimate_and_nan_as_a_word(
    make_run: Callable[..., RunSummary], make_ddp: Cell, exposure_of: Exposure
) -> None:
    exposure = exposure_of({None: {"trace": 12.0, "ablation": NAN}}, {None: ("so",)}, notes=("why",))
    text = json.dumps(run_document(make_run(make_ddp(update={"exposure": exposure}))), allow_nan=False)
    document = json.loads(text)
    written = document["cells"][0]["exposure"]
    assert [one["mean_ns"] for one in written["rows"][0]["estimates"]] == [12_000_000.0, "NaN"]
    assert (written["rows"][0]["disputes"], written["serial_ns"], written["notes"]) == (["so"], "NaN", ["why"])
    assert RunSummary.model_validate_json(text).cells[0].exposure is not None


def test_tensorboard_gets_scalars_words_and_a_card(
    make_run: Callable[..., RunSummary],
    make_ddp: Cell,
    agreeing: ExposureSummary,
    disputed: ExposureSummary,
    steps: pd.DataFrame,
    purposes: pd.DataFrame,
    tmp_path: Path,
) -> None:
    run = make_run(make_ddp(update={"exposure": agreeing}))
    write_tensorboard(run, tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    reader = EventAccumulator(str(tmp_path / "tb" / "ddp"))
    reader.Reload()
    numbers = {tag: reader.Scalars(tag)[0].value for tag in reader.Tags()["scalars"]}
    assert numbers["summary/exposed_ablation_ms"] == pytest.approx(12.4)
    assert numbers["summary/exposed_wait_ms"] == pytest.approx(11.8)
    assert numbers["summary/overlap_gain_fraction"] == pytest.approx(3 / 145)
    text = bytes(reader.Tensors("estimates")[0].tensor_proto.string_val[0]).decode()
    assert "| mean | 12.00 ± 0.30 | 12.40 ± 0.30 | 11.80 ± 0.30 | agree |" in text
    (lead,) = (fact for fact in facts_of(board_cell(run), "lead") if fact.label == "estimates")
    assert (lead.words, lead.tone) == (agreement_sentence(agreeing), Tone.GOOD)
    other = board_cell(make_run(make_ddp(update={"exposure": disputed})))
    (lead,) = (fact for fact in facts_of(other, "lead") if fact.label == "estimates")
    assert lead.tone is Tone.WARNING
    warnings = [line for line in map(as_line, table_of(other, "estimates").notes) if line.tone is Tone.WARNING]
    assert [line.words for line in warnings] == [CONTENTION, "and so on"]


def test_markup_in_a_dispute_or_a_note_stays_text_everywhere(
    make_run: Callable[..., RunSummary], make_ddp: Cell, exposure_of: Exposure
) -> None:
    nasty = "[bold]x[/bold] <script>a|b</script> `c`"
    exposure = exposure_of({None: AGREEING, 0: AGREEING}, {None: (nasty,)}, notes=(nasty,))
    run = make_run(make_ddp(update={"exposure": exposure}))
    cell = run.cells[0]
    text = shown(terminal_cell(cell), width=200)
    assert f"estimates      DISPUTED: {nasty}" in text
    assert sum(nasty in line for line in text.splitlines()) == 3  # it leads, is listed, and is a note
    for markdown in (markdown_run(run), markdown_block(cell, "estimates")):
        assert "<script>" not in markdown
        assert r"\[bold\]x\[/bold\] &lt;script\>a\|b&lt;/script\> \`c\`" in markdown
    html = page_html(run_page(run))
    assert "<script>" not in html
    assert f"DISPUTED: {nasty}" in unescape(html)
