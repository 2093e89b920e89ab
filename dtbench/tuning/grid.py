"""The points of a grid: each a cell with other values of some fields, with what speaks against running it.

A point cannot run where the schema or the plan refuses it, or where it is another job. It is the same as another one
where it says the same, or differs from it only in what decides when and with what collectives are issued, and they are
issued alike: a cap above the model's size makes one bucket, whatever it is.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

from dtbench.base.errors import PlanError, PredictionError, ScenarioError
from dtbench.base.record import Record
from dtbench.base.units import count_things
from dtbench.plan.plan import Machine, Plan, is_compiled_ddp, make_plan
from dtbench.plan.traffic.ddp import fill_buckets
from dtbench.plan.traffic.parameters import known_parameters
from dtbench.prediction.costs import Costs, UnitCosts, same_costs
from dtbench.prediction.predict import write_programs
from dtbench.runs.settings.candidates import AND
from dtbench.runs.settings.forecast import refuse_other_ranks, refuse_other_work
from dtbench.scenario.load import load_scenario
from dtbench.scenario.mistakes import AXIS_PREFIX, as_error
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario
from dtbench.scenario.sweeps.axes import key_of, show_node
from dtbench.scenario.sweeps.variations import MOST_CELLS
from dtbench.scenario.written import sections_of, spell, spell_scenario
from dtbench.scenario.yaml.document import Items, Node, to_plain
from dtbench.scenario.yaml.override import Override, read_overrides

OPTION: Final = "--over"

_ISSUE: Final[Mapping[type[Record], tuple[str, ...]]] = {
    Ddp: ("bucket_cap_mb", "bucket_cap_mb_list"),
    Fsdp1: ("backward_prefetch", "forward_prefetch"),
    Fsdp2: ("backward_prefetch", "forward_prefetch"),
}
"""Fields that change nothing but when, and with which parameters, collectives are issued."""

_SOME_NS: Final = 1_000_000
"""Of any block: programs are compared, whatever they take."""


@dataclass(frozen=True)
class OverAxis:
    """One field and the values that it is to have, each spelled as ``--set`` takes it."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One point of a grid.

    Attributes:
        name: of its cell in runs.
        change: fields with another value than in the unchanged cell, joined by ``AND``; empty: there is none.
        scenario: the changed cell; None: the schema refuses it.
        refused: why it cannot run, a clause; empty: it can.
        same_as: the point that it is the same as, by name, ``UNCHANGED`` for the cell as it is; None: it is like no
            other before it.
    """

    name: str
    change: str
    scenario: Scenario | None
    refused: str = ""
    same_as: str | None = None

    @property
    def may_run(self) -> bool:
        """Whether it can run and is no other point."""
        return not self.refused and self.same_as is None


@dataclass(frozen=True)
class Grid:
    """A cell and all points around it.

    Attributes:
        cell: name of the unchanged cell.
        scenario: of it.
        points: in the order of the product, the last axis fastest.
    """

    cell: str
    scenario: Scenario
    points: tuple[Point, ...]

    @property
    def runnable(self) -> tuple[str, ...]:
        """Names of the points that may run."""
        return tuple(point.name for point in self.points if point.may_run)

    def find(self, name: str) -> Point:
        """Return the point of a name."""
        return next(point for point in self.points if point.name == name)


def read_axes(typed: Sequence[str]) -> tuple[OverAxis, ...]:
    """Return the axes of a grid.

    Args:
        typed: of each an override of the matrix that it stands for, ``matrix.parallel.bucket_cap_mb=[1,4]``.

    Raises:
        ScenarioError: a value cannot be read or stands twice, a field is given twice, or there are too many points.
        PredictionError: a field changes more than how the same work is done.
    """
    read = read_overrides(typed)
    if read.mistakes:
        raise ScenarioError(str(as_error(read.mistakes)).replace("--sweep ", f"{OPTION} "))
    axes = tuple(map(_read_axis, read.overrides))
    fields = [axis.field for axis in axes]
    if twice := [field for field in fields if fields.count(field) > 1]:
        raise ScenarioError(f"{OPTION} {twice[0]} is given twice; write all its values in one")
    count = prod(len(axis.values) for axis in axes)
    if count > MOST_CELLS:
        raise ScenarioError(f"these are {count} points, and a grid has at most {MOST_CELLS}")
    return axes


def _read_axis(override: Override) -> OverAxis:
    field = override.place.path.removeprefix(AXIS_PREFIX)
    refuse_other_work(field)
    nodes = override.node.values if isinstance(override.node, Items) else (override.node,)
    keys = [key_of(node) for node in nodes]
    if twice := [node for place, node in enumerate(nodes) if keys[place] in keys[:place]]:
        raise ScenarioError(f"{OPTION} {field}: {show_node(twice[0])} stands twice")
    if not nodes:
        raise ScenarioError(f"{OPTION} {field}: there is no value")
    return OverAxis(field, tuple(map(_spell_node, nodes)))


def _spell_node(node: Node) -> str:
    plain: Any = to_plain(node)
    return spell(plain)


def make_grid(cell: str, scenario: Scenario, axes: Sequence[OverAxis], machine: Machine) -> Grid:
    """Return every point of a grid.

    Args:
        cell: name of the unchanged cell.
        scenario: of it.
        axes: at least one.
        machine: on which all are to run.

    Raises:
        ScenarioError: the schema refuses every point: a field is misspelt, say.
        PlanError: the unchanged cell cannot run, or no point can.
    """
    base_plan = make_plan(scenario, machine)
    unchanged = {(axis.field, value) for axis in axes for value in axis.values if _is_so(scenario, axis.field, value)}
    text = spell_scenario("What if?", sections_of(scenario))
    digits = len(str(prod(len(axis.values) for axis in axes)))
    seen: dict[Hashable, str] = {_find_key(scenario, base_plan): ""}
    points = []
    for number, values in enumerate(product(*(axis.values for axis in axes)), 1):
        settings = [(axis.field, value) for axis, value in zip(axes, values, strict=True)]
        name = _name_point(number, digits, cell)
        change = AND.join(f"{field}={value}" for field, value in settings if (field, value) not in unchanged)
        point = Point(name, change, None)
        try:
            point = replace(point, scenario=_lay(text, settings))
            points.append(_place(point, scenario, machine, seen))
        except (ScenarioError, PlanError, PredictionError) as error:
            points.append(replace(point, refused=_say_refusal(error)))
    _refuse_none(points)
    return Grid(cell, scenario, tuple(points))


def _refuse_none(points: Sequence[Point]) -> None:
    """Refuse a grid of which no point can run.

    Raises:
        ScenarioError: the schema refuses each.
        PlanError: they cannot run here.
    """
    if all(point.refused for point in points):
        reasons = list(dict.fromkeys(point.refused for point in points))
        more = f"; and {count_things(len(reasons) - 1, 'more reason')}" if len(reasons) > 1 else ""
        kind = ScenarioError if all(point.scenario is None for point in points) else PlanError
        raise kind(f"no point can run: {reasons[0]}{more}")


def _name_point(number: int, digits: int, cell: str) -> str:
    name = f"point_{number:0{digits}}"
    return name if name != cell else f"{name}x"


def _lay(text: str, settings: Sequence[tuple[str, str]]) -> Scenario:
    """Return the cell of a file with all settings at once, so that their order is of no matter.

    Raises:
        ScenarioError: the schema refuses it.
    """
    (cell,) = load_scenario(text, "base.yaml", [f"{field}={value}" for field, value in settings]).cells
    return cell.scenario


def _is_so(scenario: Scenario, field: str, value: str) -> bool:
    try:
        return _lay(spell_scenario("What if?", sections_of(scenario)), [(field, value)]) == scenario
    except ScenarioError:
        return False


def _say_refusal(error: Exception) -> str:
    return "; ".join(line.replace("--set ", "") for line in str(error).splitlines())


def _place(point: Point, base: Scenario, machine: Machine, seen: dict[Hashable, str]) -> Point:
    """Return a point with what it is the same as; ``seen`` gets it where it is new.

    Raises:
        PlanError: it cannot run.
        PredictionError: it is another job.
    """
    assert point.scenario is not None
    plan = make_plan(point.scenario, machine)
    refuse_other_ranks(base, point.scenario, "it")
    key = _find_key(point.scenario, plan)
    if key in seen:
        return replace(point, same_as=seen[key])
    seen[key] = point.name
    return point


def _find_key(scenario: Scenario, plan: Plan) -> Hashable:
    """Return what two scenarios share that do the same."""
    issued = _find_issued(scenario, plan)
    if issued is None:
        return scenario.model_dump_json()
    kind = type(scenario.parallel)
    plain = {name: kind.model_fields[name].get_default(call_default_factory=True) for name in _ISSUE[kind]}
    parallel = scenario.parallel.model_copy(update=plain)
    return scenario.model_copy(update={"parallel": parallel}).model_dump_json(), issued


def _find_issued(scenario: Scenario, plan: Plan) -> Hashable | None:
    """Return in what order a step issues what; None: that is not known."""
    parallel, parameters = scenario.parallel, known_parameters(scenario.model)
    if parameters is None or is_compiled_ddp(scenario):
        return None
    if isinstance(parallel, Ddp):
        buckets = fill_buckets(scenario, parallel, parameters)
        return tuple(tuple(item.name for item in bucket) for bucket in buckets)
    blocks = len({one.unit for one in parameters if one.unit})
    costs = same_costs(Costs(units=(UnitCosts(_SOME_NS, _SOME_NS),) * blocks), plan)
    try:
        return tuple(write_programs(scenario, plan, costs).items())
    except PredictionError:
        return None


def name_point(grid: Grid, name: str) -> str:
    """Return a point's change, or that it is the cell as it is."""
    return (grid.find(name).change if name else "") or "the unchanged cell"


def find_same(grid: Grid) -> Iterator[tuple[Point, str]]:
    """Yield the points that are the same as another, and that other's change."""
    for point in grid.points:
        if point.same_as is not None:
            yield point, name_point(grid, point.same_as)
