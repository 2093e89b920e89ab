"""What a timed model says: its sizes are an mlp's, its costs are in ms for people and in ns for everybody else."""

from dtbench.base.units import MIB
from dtbench.base.vocabulary import Region
from dtbench.plan.traffic.parameters import list_parameters
from dtbench.scenario.schema.model import Straggler, Timed

UNITS = Timed(kind="timed", layers=3, forward_ms=20.0, backward_ms=0.5)


def test_a_block_of_a_timed_model_is_one_mebibyte_if_nothing_else_is_said() -> None:
    sizes: dict[str, int] = {}
    for parameter in list_parameters(UNITS):
        sizes[parameter.unit] = sizes.get(parameter.unit, 0) + 4 * parameter.numel
    assert sizes == {"layers.0": MIB, "layers.1": MIB, "layers.2": MIB}


def test_a_block_takes_its_time_in_each_region_and_longer_on_the_slow_rank_alone() -> None:
    slow = UNITS.model_copy(update={"slow_rank": Straggler(rank=1, factor=1.5)})
    assert UNITS.cost_ns(1) == {Region.FORWARD: 20_000_000, Region.BACKWARD: 500_000}
    assert [slow.cost_ns(rank)[Region.FORWARD] for rank in range(3)] == [20_000_000, 30_000_000, 20_000_000]
    assert slow.cost_ns(1)[Region.BACKWARD] == 750_000
