"""The page of what cannot run, made of the tables that ``dtbench check``, ``dtbench run`` and predictions ask."""

from collections.abc import Iterable, Iterator
from typing import Final

from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.rules.newer_knobs import NEWER
from dtbench.plan.rules.refusals import REFUSALS
from dtbench.plan.rules.rule import EVERYWHERE, Rule
from dtbench.plan.rules.table import LIMITS, RULES
from dtbench.prediction.obstacles import FORESEEN, OBSTACLES

_HEAD: Final = """# Rules

What must hold for a scenario to run, and what torch cannot do: `dtbench check` and `dtbench run` ask all of it first,
and say of each rule that does not hold which numbers or fields are in its way, and what works instead.

<!-- Made of dtbench/plan/rules by `python -m tests.docs`: change it there. -->
"""
_PLACES: Final = {DeviceKind.CPU: "CPU", DeviceKind.CUDA: "CUDA"}


def make_rules_page() -> str:
    """Return the page."""
    ours = [rule for rule in (*LIMITS, *RULES) if rule not in REFUSALS and rule not in NEWER]
    return "\n".join(
        [
            _HEAD,
            *_write("What must hold", ours, "must hold"),
            *_write("What torch cannot do", REFUSALS, "what happens"),
            *_write("What needs a newer torch", NEWER, "what"),
            *_write("What has a closed form", OBSTACLES, "must hold"),
            *_write_foreseen(),
        ]
    )


def _write(title: str, rules: Iterable[Rule], column: str) -> Iterator[str]:
    rules = list(rules)
    with_instead = any(rule.instead for rule in rules)
    yield f"## {title}\n"
    yield f"| rule | {column} | where |{' works instead |' if with_instead else ''}"
    yield f"|---|---|---|{'---|' if with_instead else ''}"
    for rule in rules:
        instead = ", ".join(f"`{path}={value}`" for path, value in rule.instead.items())
        cells = [rule.name, rule.says, _describe_where(rule), *([instead] if with_instead else [])]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _write_foreseen() -> Iterator[str]:
    """Say which fields a closed form stands for, in the order of the schema."""
    yield "| section | fields that a closed form stands for, set or not |"
    yield "|---|---|"
    for record, names in FORESEEN.items():
        known = [f"`{name}`" for name in record.model_fields if name in names and name != "kind"]
        yield f"| `{record.__name__}` | {', '.join(known) or 'none but its kind'} |"
    yield ""


def _describe_where(rule: Rule) -> str:
    places = "everywhere" if rule.devices == EVERYWHERE else ", ".join(_PLACES[one] for one in sorted(rule.devices))
    return places if rule.until is None else f"{places}, torch before {rule.until[0]}.{rule.until[1]}"
