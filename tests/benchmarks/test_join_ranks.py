"""The benchmark of the join runs, says whether the join was right, and fills its table; nobody times it here."""

import pytest

from tests.benchmarks.join_ranks import Joined, find_exponent, main


def test_small_jobs_are_joined_rightly_and_no_bound_is_claimed_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ranks", "16", "32", "--collectives", "200"]) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("| ")][1:]
    assert [row[:2] for row in rows] == [[late, f"{ranks} x 200"] for late in ("one", "any") for ranks in (16, 32)]
    assert {row[-1] for row in rows} == {"yes"}
    assert " of 10 s" not in out
    assert out.count("exponent of CPU time over ranks") == 2


@pytest.mark.parametrize(
    ("join_s", "peak_bytes", "is_right", "holds"),
    [(9.0, 10**9, True, True), (11.0, 10**9, True, False), (9.0, 3 * 10**9, True, False), (9.0, 10**9, False, False)],
)
def test_a_bound_that_does_not_hold_is_told(join_s: float, peak_bytes: int, is_right: bool, holds: bool) -> None:
    assert Joined(4096, 2000, "any", join_s, peak_bytes, is_right).holds is holds


def test_the_exponent_is_one_where_twice_the_ranks_take_twice_the_time() -> None:
    several = [Joined(ranks, 10, "any", ranks / 100, 1, is_right=True) for ranks in (8, 16, 32)]
    assert find_exponent(several) == pytest.approx(1)
