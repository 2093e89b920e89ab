"""The score of predictions, without its runs: what is drawn can be asked, and the score is counted by hand."""

from pathlib import Path

import pytest

from dtbench.runs.scaling.curve import Subject, predict_point
from dtbench.runs.scaling.links import Cluster
from dtbench.runs.scaling.measured import Measured
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.written import sections_of, write_scenario
from tests.benchmarks.predictions import LIES, SCORED, STRATEGIES, Drawn, Pair, describe, draw, fill_in, merge_record

MS = 1e6


def measured(world: int, host_ms: float) -> Measured:
    return Measured(world, (1e9, 1e9), (host_ms * MS, host_ms * MS), host_ms * MS, 0.0, 2)


def subject_of(drawn: Drawn) -> Subject:
    return Subject("cell", drawn.scenario, None, tuple(measured(world, 5.0 * world) for world in drawn.fitted))


@pytest.mark.parametrize("seed", range(len(STRATEGIES)))
def test_what_is_drawn_can_be_run_and_asked_at_every_number_of_ranks(seed: int) -> None:
    drawn = draw(seed)
    assert drawn.strategy == STRATEGIES[seed]
    model = drawn.scenario.model
    assert isinstance(model, Timed)
    assert min(model.forward_ms, model.backward_ms) >= 100
    cells = drawn.cells
    assert {world for world, _ in cells.values()} == {*drawn.fitted, *SCORED}
    assert len([link for _, link in cells.values() if link]) == 2
    written = write_scenario("made", "Is it?", {}, {name: sections_of(drawn.put(*cells[name])) for name in cells})
    assert {cell.name: cell.scenario for cell in written.cells} == {name: drawn.put(*cells[name]) for name in cells}
    for world, link in cells.values():
        pair = fill_in(Pair(seed, drawn.strategy, world, link, 1e9), subject_of(drawn))
        assert not pair.refused
        known = Subject("cell", drawn.put(world, link), None, subject_of(drawn).measured)
        assert pair.predicted_ns == predict_point(known, world, Cluster(None, None, max(SCORED))).step_ns


def test_a_score_is_counted_apart_for_eight_ranks_and_without_what_is_not_trusted() -> None:
    pairs = [
        Pair(0, "ddp", 6, "", 100.0, 101.0, 98.0, 104.0),
        Pair(0, "ddp", 4, "x2", 100.0, 98.0, 97.0, 99.0),
        Pair(0, "ddp", 8, "", 100.0, 110.0, 99.0, 121.0),
        Pair(1, "ddp", 8, "", 100.0, 500.0, 499.0, 501.0, doubt="others took the cores"),
        Pair(1, "ddp", 6, "", 100.0, refused="no closed form"),
    ]
    said = "\n".join(describe(pairs))
    assert "5 pairs, 1 not trusted by the harness, 1 refused, 3 kept" in said
    assert "6 ranks and other links: 2 pairs, off by 1.50% in the middle" in said
    assert "(goal 3% and 5%: met)" in said
    assert "6 ranks and other links: 1 of 2 intervals hold it; half width 2.00% in the middle" in said
    assert "8 ranks: 1 pairs, off by 10.00% in the middle" in said
    assert "(goal 5% and 8%: NOT met)" in said


def test_seeds_that_are_scored_on_several_days_are_recorded_together(tmp_path: Path) -> None:
    first, again, other = (Pair(seed, "ddp", 8, "", took_ns) for seed, took_ns in ((101, 1e9), (101, 2e9), (100, 3e9)))
    assert merge_record(tmp_path / "pairs.json", [first]) == [first]
    assert merge_record(tmp_path / "pairs.json", [other]) == [other, first]
    assert merge_record(tmp_path / "pairs.json", [again]) == [other, again]


def test_every_lie_moves_some_prediction() -> None:
    """Each as large as it is; what is calibrated under a lie, too, moves less, and that is for runs to say."""
    drawn = [draw(seed) for seed in range(len(STRATEGIES))]

    def predict_all() -> list[float | None]:
        return [
            fill_in(Pair(seed, one.strategy, world, link, 1e9), subject_of(one)).predicted_ns
            for seed, one in enumerate(drawn)
            for world, link in one.cells.values()
        ]

    truth = predict_all()
    for name, lie in LIES.items():
        with lie():
            assert predict_all() != truth, name
