"""The cells of a scenario planned together, with every reason against any of them in one error."""

from collections.abc import Callable, Iterable
from typing import Final

from dtbench.base.errors import PlanError
from dtbench.plan.plan import Plan
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.model import Custom
from dtbench.scenario.schema.repeat import find_mixed_repeat
from dtbench.scenario.schema.scenario import Scenario

MOST_BLOCKS: Final = 100_000
"""Of all cells together: a plan looks at every parameter of each (4 to 6 s of CPU for so many of a transformer)."""


def plan_each(
    file: ScenarioFile, plan: Callable[[Scenario], Plan], *, also: Callable[[Scenario], Iterable[str]] = lambda _: ()
) -> dict[str, Plan]:
    """Return the plan of every cell.

    Args:
        file: whose cells.
        plan: raises ``PlanError`` for a cell that cannot run.
        also: says what else is wrong with one.

    Raises:
        PlanError: names every cell that cannot be planned, and why.
    """
    refuse_too_many_blocks(file)
    plans: dict[str, Plan] = {}
    problems: list[str] = []
    for cell in file.cells:
        wrong = list(also(cell.scenario))
        try:
            plans[cell.name] = plan(cell.scenario)
        except PlanError as error:
            wrong = [*str(error).splitlines(), *wrong]
        problems += [f"{file.name}, cell `{cell.name}`: {line}" for line in wrong]
    mixed = find_mixed_repeat({cell.name: cell.scenario.repeat for cell in file.cells})
    problems += [] if mixed is None else [f"{file.name}: {mixed}"]
    if problems:
        raise PlanError("\n".join(problems))
    return plans


def refuse_too_many_blocks(file: ScenarioFile) -> None:
    """Refuse cells that together take too long to plan.

    Raises:
        PlanError: says how many blocks they have.
    """
    models = [cell.scenario.model for cell in file.cells]
    blocks = sum(model.layers for model in models if not isinstance(model, Custom))
    if len(models) > 1 and blocks > MOST_BLOCKS:  # of a single cell its own limit tells
        raise PlanError(
            f"{file.name}: {len(models)} cells have {blocks:,} blocks together (model.layers), more than "
            f"{MOST_BLOCKS:,}; no plan is made for that: take fewer cells or layers"
        )
