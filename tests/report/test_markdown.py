"""The report as Markdown."""

import math
from collections.abc import Callable

import pytest

from dtbench.base.vocabulary import Stage, StageOutcome, StatePart
from dtbench.report.render.markdown import (
    environment_markdown,
    escape_markdown,
    receipts_markdown,
)
from dtbench.runs.stage_summary import RaisedOnRank, StageSummary
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.run import Environment, RunStatus
from tests.report.shown import markdown_block, markdown_run


def test_the_overview_has_a_row_per_cell_and_the_two_waits(make_run: Callable[..., RunSummary]) -> None:
    text = markdown_run(make_run())
    assert "| ddp | 2 | 142.0 | 140.5-143.5 | 7.21 k | 12.3 | none | 11.5 | 60.0 % | passed |" in text
    assert "- unshard wait: 24.5 ms per step (9.5 % of a profiled step)" in text


def test_pipes_and_html_in_names_cannot_break_the_table(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    text = markdown_run(make_run(make_ddp(update={"name": "a|b<script>"})))
    assert r"## a\|b&lt;script\>" in text
    assert "<script>" not in text


def test_a_failed_run_says_why(make_run: Callable[..., RunSummary]) -> None:
    assert "**This run FAILED: rank 1 died**" in markdown_run(make_run(status=RunStatus.FAILED, reason="rank 1 died"))


def test_every_knob_is_listed_with_what_was_asked_and_got(make_fsdp2_tp: Callable[..., CellSummary]) -> None:
    assert "| optimizer.fused | true | False | disagrees | torch fell back to foreach |" in receipts_markdown(
        make_fsdp2_tp()
    )


def test_the_environment_lists_versions_and_variables() -> None:
    environment = Environment(
        host="laptop",
        system="Linux",
        processor="x86_64",
        cores=2,
        memory_bytes=8 << 30,
        python="3.11.7",
        torch="2.13.0",
        cuda=None,
        nccl=None,
        packages={"numpy": "2.0"},
        devices=(),
        variables={"GLOO_SOCKET_IFNAME": "lo|x"},
        notes=(),
    )
    text = environment_markdown(environment)
    assert "| processor | x86\\_64, 2 cores, 8.00 GiB |" in text
    assert r"| GLOO\_SOCKET\_IFNAME | lo\|x |" in text
    on_rocm = environment_markdown(environment.model_copy(update={"hip": "7.1.2", "nccl": "2.26.6"}))
    assert "| HIP | 7.1.2 |\n| RCCL | 2.26.6 |" in on_rocm
    assert "CUDA" not in on_rocm


@pytest.mark.parametrize(
    ("words", "escaped"), [("a\nb", "a b"), ("`x`", r"\`x\`"), ("&amp;", "&amp;amp;"), ("a\\b", r"a\\b")]
)
def test_escaped_words_read_as_written(words: str, escaped: str) -> None:
    assert escape_markdown(words) == escaped


def test_stages_are_a_table_and_what_went_wrong_a_list(make_ddp: Callable[..., CellSummary]) -> None:
    row = StageSummary(
        part=StatePart.MODEL,
        stage=Stage.GATHER,
        outcome=StageOutcome.RAISED,
        duration_ns=math.nan,
        quartile1_ns=math.nan,
        quartile3_ns=math.nan,
        shortest_ns=math.nan,
        wait_ns=45e6,
        rounds=0,
        state_bytes=0,
        all_ranks_bytes=0,
        collectives=0,
        sent_bytes=0,
        planned=None,
        matches_plan=None,
        object_collectives=0,
        link_ns=math.nan,
        file_bytes=None,
        host_peak_bytes=0,
        device_peak_bytes=None,
        mismatched=0,
        mismatches=(),
        raised=(RaisedOnRank(rank=1, words="ValueError: a|b"),),
    )
    text = markdown_block(make_ddp(update={"stages": (row,)}), "stages")
    sentences = markdown_block(make_ddp(update={"stages": (row,)}), "stages:sentences")
    titles = "slowest rank | stalled | tensors of a rank | collectives | their size | host memory | bits are"
    assert f"| stage of the | {titles} |" in text
    assert "| model: gather | - | - | - | - | - | - | RAISED |" in text
    assert r"gather of the model, rank 1: ValueError: a\|b; stages after it did not run" in sentences
    assert markdown_block(make_ddp(), "stages") == ""
