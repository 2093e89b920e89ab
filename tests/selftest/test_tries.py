"""Rows that failed are run once more: what is wrong fails again, and both tries stay on record."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.launch.wait_budget import WaitBudget
from dtbench.selftest.records import Check, RowOutcome, SelftestRecord

pytest.importorskip("torch", reason="planning a selftest asks for torch; install the extra `run`")


DISTURBED = "others had the machine"


@dataclass
class Ranks:
    """Stand for ranks: each try of a row ends as is said here."""

    results: Path
    failing: dict[str, list[str]]
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self, planned: Any, _results: Path, *, observer: Any, on_row: Callable[[RowOutcome], None], **_: object
    ) -> SelftestRecord:
        folder = self.results / f"run{len(self.ran)}"
        folder.mkdir(parents=True)
        rows = tuple(self._judge(row.name) for row in planned.rows)
        self.ran.append(tuple(row.row for row in rows))
        for row, cell in zip(rows, planned.cells, strict=True):
            observer.on_launch(cell.name, 0, cell.plan)
            on_row(row)
        return SelftestRecord(
            seed=planned.seed,
            run=str(folder),
            is_complete=True,
            passed=all(row.passed for row in rows),
            rows=rows,
        )

    def _judge(self, name: str) -> RowOutcome:
        reasons = self.failing.get(name, [])
        reason = reasons.pop(0) if reasons else ""
        check = Check(cell=name, what="step", expected="", got="", passed=not reason, reason=reason)
        disturbed = {name: 0.8} if reason == DISTURBED else {}
        return RowOutcome(row=name, claim="", passed=not reason, cells=(), checks=(check,), disturbed=disturbed)


@pytest.fixture
def selftest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Ranks, Any, int]]:
    def run(failing: dict[str, list[str]], *arguments: str) -> tuple[Ranks, Any, int]:
        ranks = Ranks(tmp_path, failing)
        monkeypatch.setattr("dtbench.selftest.run.run_selftest", ranks.run)
        monkeypatch.setattr("dtbench.cli.forks._may_fork", lambda _file: False)  # nothing runs
        monkeypatch.setattr("dtbench.cli.selftest._publish", lambda _run: None)
        words = ("--only", "tail", "--only", "hidden", "--max-wait", "0", "--json", *arguments)
        with pytest.raises(SystemExit) as ended:
            main(["selftest", "--seed", "7", *words])
        return ranks, json.loads(capsys.readouterr().out), int(str(ended.value.code))

    return run


def find(document: Any, name: str) -> Any:
    (row,) = (row for row in document["rows"] if row["row"] == name)
    return row


def test_a_row_that_a_stall_has_spoilt_passes_when_tried_again(
    selftest: Callable[..., tuple[Ranks, Any, int]], tmp_path: Path
) -> None:
    ranks, document, code = selftest({"tail": ["a stall"]})
    assert [set(rows) for rows in ranks.ran] == [{"tail", "hidden"}, {"tail"}]
    assert (code, document["passed"]) == (0, True)
    row = find(document, "tail")
    assert (row["passed"], row["earlier"], row["run"]) == (True, ["a stall"], str(tmp_path / "run1"))
    untouched = find(document, "hidden")
    assert (untouched["passed"], untouched["earlier"], untouched["run"]) == (True, [], None)
    assert json.loads((tmp_path / "run0" / "selftest.json").read_text(encoding="utf-8")) == document


def test_each_launch_waits_for_others_to_leave_the_machine_with_one_budget(
    selftest: Callable[..., tuple[Ranks, Any, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[WaitBudget] = []

    def wait(budget: WaitBudget) -> None:
        waited.append(budget)

    monkeypatch.setattr(WaitBudget, "wait", wait)
    selftest({"tail": ["a stall"]}, "--max-wait", "40")
    assert [one.left_s for one in waited] == [40.0] * 3
    assert len({id(one) for one in waited}) == 1


def test_a_row_that_is_wrong_fails_each_try(selftest: Callable[..., tuple[Ranks, Any, int]]) -> None:
    ranks, document, code = selftest({"tail": ["wrong", "wrong again", "and again"]}, "--tries", "3")
    assert len(ranks.ran) == 3
    assert (code, document["passed"]) == (12, False)
    row = find(document, "tail")
    assert row["earlier"] == ["wrong", "wrong again"]
    assert [check["reason"] for check in row["checks"]] == ["and again"]


@pytest.mark.parametrize(
    ("reasons", "tries", "runs"),
    [
        ([DISTURBED] * 9, "2", 4),
        ([DISTURBED, "wrong", "wrong"], "2", 3),
        ([DISTURBED, DISTURBED, "wrong"], "2", 4),
        (["wrong", DISTURBED, DISTURBED, DISTURBED], "2", 4),
        ([DISTURBED] * 9, "1", 1),
    ],
)
def test_a_row_of_which_others_left_nothing_is_tried_twice_more_than_asked(
    selftest: Callable[..., tuple[Ranks, Any, int]], reasons: list[str], tries: str, runs: int
) -> None:
    ranks, document, code = selftest({"tail": list(reasons)}, "--tries", tries)
    assert len(ranks.ran) == runs
    assert find(document, "tail")["earlier"] == reasons[: runs - 1]
    assert code == (12 if reasons[runs - 1 :] else 0)


def test_a_row_that_is_disturbed_is_no_reason_to_try_one_that_is_wrong_more_often(
    selftest: Callable[..., tuple[Ranks, Any, int]],
) -> None:
    ranks, _, code = selftest({"tail": ["wrong"] * 9, "hidden": [DISTURBED] * 9})
    assert (len(ranks.ran), code) == (2, 12)


def test_one_try_is_one_try(selftest: Callable[..., tuple[Ranks, Any, int]]) -> None:
    ranks, document, code = selftest({"tail": ["a stall"]}, "--tries", "1")
    assert (len(ranks.ran), code, find(document, "tail")["passed"]) == (1, 12, False)
