"""How many launches a scenario asks for: a number, or the rule that finds it while the run goes on."""

from collections.abc import Mapping

from dtbench.scenario.schema.scenario import AutoRepeat, Scenario


def resolve_repeat(scenario: Scenario) -> int | AutoRepeat:
    """Give the number of launches of a cell, or the rule that finds it, with nothing left to decide."""
    return AutoRepeat() if scenario.repeat == "auto" else scenario.repeat


def count_launches(repeat: int | AutoRepeat) -> int:
    """Give the launches that a cell has for certain."""
    return repeat.at_least if isinstance(repeat, AutoRepeat) else repeat


def describe_repeat(repeat: AutoRepeat) -> str:
    """Say a rule in a sentence without a period."""
    known = f"until step times or their ratios to the first cell's are known to {100 * repeat.precision:g} %"
    return f"{repeat.at_least} to {repeat.at_most} launches of each cell, {known} or {repeat.time_budget_s:g} s are up"


def find_mixed_repeat(scenarios: Mapping[str, Scenario]) -> str | None:
    """Say what is wrong where some cells repeat automatically and others do not, or by another rule; else None."""
    rules = {cell: resolve_repeat(scenario) for cell, scenario in scenarios.items()}
    (first, rule), *others = rules.items()
    differing = next((cell for cell, other in others if other != rule), None)
    if differing is None or not any(isinstance(one, AutoRepeat) for one in rules.values()):
        return None
    return (
        f"cells {first} and {differing} differ in `repeat`; `auto` launches all cells in turns, so write it once, "
        "above the cells"
    )
