"""The report as Markdown."""

from collections.abc import Callable

import pytest

from dtbench.analyze.summary import CellSummary, RunSummary
from dtbench.report.markdown import environment_markdown, escape_markdown, receipts_markdown, summary_markdown
from dtbench.store.records import Environment, RunStatus


def test_the_overview_has_a_row_per_cell_and_the_two_waits(make_run: Callable[..., RunSummary]) -> None:
    text = summary_markdown(make_run())
    assert "| ddp | 2 | 142.0 | 140.5-143.5 | 7.21 k | 12.3 | none | 11.5 | 60.0 % | passed |" in text
    assert "- unshard wait: 24.5 ms per step (9.5 % of a profiled step)" in text


def test_pipes_and_html_in_names_cannot_break_the_table(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    text = summary_markdown(make_run(make_ddp(update={"name": "a|b<script>"})))
    assert r"| a\|b&lt;script\> | 142.0 |" in text
    assert "<script>" not in text


def test_a_failed_run_says_why(make_run: Callable[..., RunSummary]) -> None:
    assert "**This run FAILED: rank 1 died**" in summary_markdown(
        make_run(status=RunStatus.FAILED, reason="rank 1 died")
    )


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


@pytest.mark.parametrize(
    ("words", "escaped"), [("a\nb", "a b"), ("`x`", r"\`x\`"), ("&amp;", "&amp;amp;"), ("a\\b", r"a\\b")]
)
def test_escaped_words_read_as_written(words: str, escaped: str) -> None:
    assert escape_markdown(words) == escaped
