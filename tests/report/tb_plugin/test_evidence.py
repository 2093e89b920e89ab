"""Take evidence out of a run, one kind at a time: nothing that the tabs say turns into zero."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dtbench.store.layout import RunFolder
from tests.runs.test_run_evidence import LOSSES, flatten

if TYPE_CHECKING:
    from tests.report.tb_plugin.conftest import Board

RUN = "quickstart/20260101T120000-aaaa"
ALL: dict[str, object] = {"run": RUN, "cell": "ddp", "launch": "all"}
ONE: dict[str, object] = {**ALL, "launch": 0}
ASKED: list[tuple[str, dict[str, object]]] = [
    ("overview", ALL),
    *(("overlap", {**ALL, "by": by}) for by in ("rank", "step", "purpose", "owner")),
    *(
        ("collectives", {**ONE, "grouped": grouped, "sort": "rank" if not grouped else "owner"})
        for grouped in ("", "owner")
    ),
    ("collective", {**ONE, "row": 4}),
]
ZEROS = ("0 ns", "0.0", "0.00", "0.000", "0", "0.0 %", "none")


def ask_all(board: "Board") -> dict[str, Any]:
    """Return everything that the tabs say, by its path; rows that a loss puts elsewhere are told by their numbers."""
    found: dict[str, Any] = {}
    for route, words in ASKED:
        document = json.loads(board.get(route, **words).data)
        found |= dict(flatten(document, f"{route} {words.get('by', words.get('grouped', ''))}"))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("loss", [one for one in LOSSES if one != "owners"])  # rows without owners are others
def test_what_a_run_lost_is_zero_in_no_tab(loss: str, logdir: Path, open_board: "type[Board]") -> None:
    whole = ask_all(open_board(logdir))
    LOSSES[loss](RunFolder(logdir / RUN).launch("ddp", 0))
    left = ask_all(open_board(logdir))
    same = [path for path in left if path in whole and whole[path] not in (*ZEROS, 0, None)]
    wrong = [f"{path}: {whole[path]} -> {left[path]}" for path in same if left[path] in ZEROS or left[path] == 0]
    assert not wrong, "\n".join(wrong)
