"""A slice of the faults: one of each kind, and one in each phase; the whole is ``python -m tests.faults.campaign``."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.launch import watch
from dtbench.launch.forked.servers import can_fork
from tests.faults import campaign, signals
from tests.faults.campaign import SAID, STALL_S, Fault, meet
from tests.faults.faulty_rank import FATES, PHASES
from tests.faults.rows import read_recorded
from tests.faults.tables import PAGE, with_tables

pytestmark = [pytest.mark.ranks, pytest.mark.skipif(not can_fork(), reason="faults are planted by Linux's means")]

SLICE = (0, 1, 8 + 1, 16 + 2, 24 + 3, 32 + 4, 40 + 5, 48 + 6, 7)


def test_the_slice_has_every_kind_and_every_phase() -> None:
    drawn = [Fault.draw(number) for number in SLICE]
    assert {fault.kind for fault in drawn} == set(FATES) == set(SAID)
    assert {fault.phase for fault in drawn} == set(PHASES)


@pytest.mark.quick("0", "9", "27", "45")
@pytest.mark.parametrize("number", SLICE)
def test_who_meets_a_fault_is_named_and_all_else_is_kept(
    number: int, forked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATIENT_TIMEOUT_NS", 2 * STALL_S * 1_000_000_000)
    fault = Fault.draw(number)
    outcome = meet(fault, () if fault.is_fresh else forked, tmp_path)
    assert not outcome.wrong, outcome


def test_of_all_faults_met_at_least_98_in_100_were_told_right_and_no_innocent_rank_was_blamed() -> None:
    rows = read_recorded(campaign.ROWS, 300)
    met = [row for row in rows if row["was_met"]]
    right = [row for row in met if row["fault"]["rank"] in row["named"]]
    assert len(right) >= 0.98 * len(met)
    assert not [row for row in met if row["named"] and row["fault"]["rank"] not in row["named"]]
    assert not [row for row in rows if row["wrong"]]


def test_no_signal_took_anything_from_a_launch_that_had_ended() -> None:
    rows = read_recorded(signals.ROWS, 100)
    assert not [row for row in rows if row["wrong"]]
    assert {row["way"] for row in rows} == set(signals.WAYS)


def test_the_page_has_the_tables_of_these_rows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page
