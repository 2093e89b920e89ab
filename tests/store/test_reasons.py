"""Why a launch failed, in a line."""

import pytest

from dtbench.store.records.run import tell_reason_in_a_line


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            "rank 1 raised, last seen in step 3 (MEASURED); the end of its log:\n  | Traceback\n  | OSError: no space",
            "rank 1 raised, last seen in step 3 (MEASURED): OSError: no space",
        ),
        (
            "cell a: rank 1 raised; the end of its log:\n  | OSError: no\nb: rank 0 raised; the end of its log:\n  | b",
            "cell a: rank 1 raised: OSError: no",
        ),
        (f"rank 1 raised; the end of its log:\n  | {'x' * 300}", f"rank 1 raised: {'x' * 200}..."),
        ("rank 1 raised; the end of its log:", "rank 1 raised; the end of its log:"),
        ("the user stopped it\nand more", "the user stopped it"),
        ("", ""),
    ],
)
def test_the_last_line_of_the_log_stands_for_all_of_it(reason: str, line: str) -> None:
    assert tell_reason_in_a_line(reason) == line
