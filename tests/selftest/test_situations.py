"""Whatever a seed draws, every situation stays what it is: by its closed form it has the cause that it injects."""

from collections import Counter
from collections.abc import Iterator

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.base.units import MIB, NS_PER_MS
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.launch.cells import plan_cells
from dtbench.plan.plan import Machine
from dtbench.plan.traffic.link import service_ns
from dtbench.prediction.costs import known_costs
from dtbench.prediction.predict import Prediction, predict_first_step, predict_step
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.written import spell
from dtbench.selftest.draw import Draw
from dtbench.selftest.expectations import Counted, ForwardTook, Named, Ordered, Rebuilt
from dtbench.selftest.row import Row
from dtbench.selftest.sections import SHARED, Message, tier
from dtbench.selftest.situations import ROW_NAMES, draw_rows
from dtbench.selftest.words import write_scenario
from dtbench.store.records.run import CellRecord

SEEDS = range(20)
CPU = Machine(cpu_cores=2, cuda_devices=0)


def plan(row: Row) -> dict[str, CellRecord]:
    file = write_scenario("Does it stay what it is?", SHARED, row.cells)
    return {cell.name: cell for cell in plan_cells(file, CPU)}


def predict(cell: CellRecord) -> Prediction:
    return predict_step(cell.scenario, cell.plan, known_costs(cell.scenario, cell.plan))


def every(name: str) -> Iterator[tuple[Row, dict[str, CellRecord]]]:
    for seed in SEEDS:
        (row,) = draw_rows(seed, (name,))
        yield row, plan(row)


def test_a_seed_gives_the_same_numbers_whatever_rows_are_asked_for() -> None:
    rows = {row.name: row for row in draw_rows(7)}
    assert tuple(rows) == ROW_NAMES
    for name in ROW_NAMES:
        assert draw_rows(7, (name,)) == (rows[name],)
    assert draw_rows(8) != draw_rows(7)


def test_rows_that_look_at_the_same_cell_share_its_words() -> None:
    for seed in SEEDS:
        cells: dict[str, object] = {}
        for row in draw_rows(seed):
            for name, words in row.cells.items():
                assert cells.setdefault(name, words) == words


def test_a_row_that_is_not_there_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ScenarioError, match="no row of the selftest is called `tial`; did you mean `tail`\\?"):
        draw_rows(0, ("tial",))
    with pytest.raises(ScenarioError, match="the rows are hidden, exposed, tail"):
        draw_rows(0, ("xyz123",))


@pytest.mark.parametrize("name", ROW_NAMES)
def test_units_of_compute_are_20_ms_or_more(name: str) -> None:
    for _, cells in every(name):
        for cell in cells.values():
            assert isinstance(cell.scenario.model, Timed)
            costs = (cell.scenario.model.forward_ms, cell.scenario.model.backward_ms)
            assert all(cost == 0 or cost >= 20 for cost in costs)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_by_its_closed_form_a_row_has_the_cause_that_it_injects(name: str) -> None:
    for row, cells in every(name):
        for expected in row.expectations:
            if isinstance(expected, Named):
                causes, owners = sum_causes(predict(cells[expected.cell]), expected, cells[expected.cell].plan.ranks)
                assert causes.most_common(1)[0][0] is expected.cause, (row.claim, causes)
                assert owners.most_common(1)[0][0] in expected.owners, (row.claim, owners)
                others = causes.total() - causes[expected.cause]
                assert causes[expected.cause] > others + 2 * NS_PER_MS, "no noise makes another cause the largest"


def sum_causes(prediction: Prediction, expected: Named, ranks: int) -> tuple[Counter[Cause], Counter[str]]:
    """Sum exposed time of a purpose by cause, and by owner for the injected one."""
    causes: Counter[Cause] = Counter()
    owners: Counter[str] = Counter()
    for rank in range(ranks):
        for one in prediction.of(rank).collectives:
            for cause, exposed_ns in one.causes if one.purpose is expected.purpose else ():
                causes[cause] += exposed_ns
                owners[one.owner] += exposed_ns if cause is expected.cause else 0
    return causes, owners


@pytest.mark.parametrize("name", ROW_NAMES)
def test_counts_buckets_and_orders_are_those_of_plan_and_closed_form(name: str) -> None:
    for row, cells in every(name):
        for expected in row.expectations:
            match expected:
                case Counted(cell=cell, purpose=purpose, count=count, size_bytes=size_bytes):
                    lines = [line for line in cells[cell].plan.traffic or () if line.purpose is purpose]
                    assert (sum(one.count for one in lines), sum(one.size_bytes for one in lines)) == (
                        count,
                        size_bytes,
                    )
                case Rebuilt(cell=cell, first_bytes=first, later_bytes=later):
                    known = known_costs(cells[cell].scenario, cells[cell].plan)
                    predicted = predict_first_step(cells[cell].scenario, cells[cell].plan, known)
                    assert tuple(one.size_bytes for one in predicted.of(0).collectives) == first
                    assert tuple(one.size_bytes for one in predict(cells[cell]).of(0).collectives) == later
                case Ordered(cells=names):
                    assert len({predict(cells[name]).step_ns for name in names}) > 1
                case ForwardTook(cell=cell, expected_ns=expected_ns):
                    assert abs(predict(cells[cell]).of(0).forward_ns - expected_ns) < 1_000


def test_ranks_are_drawn_and_each_has_the_same_part_of_the_batch() -> None:
    drawn = {name: set[int]() for name in ("tail", "queued", "straggler")}
    for name, ranks in drawn.items():
        for _, cells in every(name):
            scenario = cells[name].scenario
            ranks.add(cells[name].plan.ranks)
            assert scenario.data.global_batch == 2 * cells[name].plan.ranks
    assert set(map(frozenset, drawn.values())) == {frozenset({2, 3})}


def test_the_sweep_of_caps_is_that_of_its_closed_form() -> None:
    (row,) = draw_rows(0, ("caps",))
    cells = plan(row)
    steps_ms = [predict(cells[f"caps_{cap}"]).step_ns / NS_PER_MS for cap in (1, 2, 3, 4, 6, 12)]
    assert steps_ms == [284, 272, 282, 292, 312, 372]  # MEASUREMENT.md, section 6


def test_of_hidden_communication_only_the_last_bucket_is_not() -> None:
    for _, cells in every("hidden"):
        step = predict(cells["hidden"]).of(0)
        assert step.hidden_comm_ns * 2 == step.comm_ns  # of two buckets
        assert step.exposed_comm_ns <= 4.1 * NS_PER_MS


def test_exposed_communication_is_all_of_it() -> None:
    for _, cells in every("exposed"):
        step = predict(cells["exposed"]).of(0)
        assert step.exposed_comm_ns == step.comm_ns


def test_uncompressed_buckets_would_queue() -> None:
    for _, cells in every("compressed"):
        scenario = cells["compressed"].scenario
        network, model = scenario.network, scenario.model
        assert isinstance(network, EmulatedNetwork)
        assert isinstance(model, Timed)
        block_bytes = 8 * model.dim * (model.hidden_dim or model.dim)
        whole_ns, half_ns = (
            service_ns(network, Operation.ALL_REDUCE, size_bytes, (0, 1), ("", 0))
            for size_bytes in (block_bytes, block_bytes // 2)
        )
        assert half_ns < model.backward_ms * NS_PER_MS < whole_ns


@pytest.mark.parametrize("algorithm", ["direct", "ring", "tree"])
@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER])
def test_a_tier_takes_what_is_wanted(algorithm: str, operation: Operation) -> None:
    for share in (0.0, 0.2, 0.8):
        costs = tier(15.3, Message(operation, MIB), latency_share=share, algorithm=algorithm)  # type: ignore[arg-type]
        network = EmulatedNetwork.model_validate({"kind": "emulated", "algorithm": algorithm, **costs})
        assert abs(service_ns(network, operation, MIB, (0, 1), ("", 0)) - 15.3 * NS_PER_MS) < 0.01 * NS_PER_MS


def test_draws_keep_to_their_ends_and_reach_them() -> None:
    draw = Draw.of(3, "any")
    assert {draw.whole(2, 4) for _ in range(100)} == {2, 3, 4}
    assert {draw.tenths(0.1, 0.3) for _ in range(100)} == {0.1, 0.2, 0.3}
    assert {draw.one_of("ab") for _ in range(100)} == {"a", "b"}


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (0.1048576, "0.1048576"),
        (20.0, "20.0"),
        (100.0, "100.0"),
        (1e-5, "1.0e-05"),
        (0.0, "0.0"),
        (("trace", "wait"), "[trace, wait]"),
        ({"a": {"b": False}}, "{a: {b: false}}"),
    ],
)
def test_values_are_spelled_as_yaml_reads_them(value: object, spelled: str) -> None:
    assert spell(value) == spelled  # type: ignore[arg-type]


def test_a_selftest_is_a_scenario_that_can_be_run_by_hand() -> None:
    (row,) = draw_rows(0, ("straggler",))
    file = write_scenario("Who is late?", SHARED, row.cells)
    assert file.question == "Who is late?"
    assert file.name == "selftest"
    (cell,) = file.cells
    assert isinstance(cell.scenario.model, Timed)
    assert cell.scenario.model.slow_rank is not None
    assert cell.scenario.parallel.kind == "ddp"
    assert Purpose.GRAD_REDUCE in {one.purpose for one in plan(row)["straggler"].plan.traffic or ()}
