"""What the commands print, on a terminal and into a pipe."""

import pytest

from dtbench.cli.console import print_table
from dtbench.report.page.page import Column

COLUMNS = (Column("cell"), Column("why"), Column("step", is_number=True))
ROWS = (("fsdp2_tp_with_sequence_parallel", "word " * 40, "1504.5"),)


def test_into_a_pipe_names_stay_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(COLUMNS, ROWS)
    head, _, first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("fsdp2_tp_with_sequence_parallel  word word")
    assert first.rstrip().endswith("1504.5")
    assert len(head) == 160


def test_a_width_that_is_asked_for_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_table(COLUMNS, ROWS)
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {60}
