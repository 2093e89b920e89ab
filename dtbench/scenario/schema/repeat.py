"""What ``repeat:`` may say: a number of launches, or the rule that finds it while the run goes on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag, WrapSerializer, model_validator

from dtbench.base.record import Record


class AutoRepeat(Record):
    """Launch all cells in turns until their step times are known well enough, or time is up."""

    kind: Literal["auto"] = "auto"
    precision: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Largest half width of the 95 % interval of a cell's step time, or of its ratio to the first cell's, relative."""
    time_budget_s: Annotated[float, Field(gt=0, le=10_000_000)] = 1800.0
    """No round begins that would take the launches of all cells together beyond this."""
    at_least: Annotated[int, Field(ge=2, le=10_000)] = 4
    """Launches of each cell before precision or time are asked; comparisons need four."""
    at_most: Annotated[int, Field(ge=2, le=10_000)] = 40
    """Launches of each cell, whatever the precision."""

    @model_validator(mode="after")
    def _ordered(self) -> "AutoRepeat":
        if self.at_most < self.at_least:
            raise ValueError(f"at_most ({self.at_most}) is below at_least ({self.at_least})")
        return self


NUMBER, WORD, MAPPING = "[number]", "[word]", "[mapping]"
"""How pydantic's places of mistakes name the alternatives of ``Repeat``; no field is called so."""


def _find_alternative(value: object) -> str:
    match value:
        case str():
            return WORD
        case dict() | AutoRepeat():
            return MAPPING
        case _:
            return NUMBER


def _write_rule(repeat: int | AutoRepeat) -> object:
    return "auto" if isinstance(repeat, AutoRepeat) and not repeat.model_fields_set else repeat


if TYPE_CHECKING:
    Repeat = int | AutoRepeat
else:
    Repeat = Annotated[
        Annotated[PositiveInt, Tag(NUMBER)]
        | Annotated[Literal["auto"], Tag(WORD)]
        | Annotated[AutoRepeat, Tag(MAPPING)],
        Discriminator(_find_alternative),
        AfterValidator(lambda repeat: AutoRepeat() if repeat == "auto" else repeat),
        WrapSerializer(lambda repeat, write: write(_write_rule(repeat))),
    ]
    """The field of a cell: the word becomes the rule that it stands for, and stays a word in JSON."""


def count_launches(repeat: Repeat) -> int:
    """Return the launches that a cell has for certain."""
    return repeat.at_least if isinstance(repeat, AutoRepeat) else repeat


def describe_repeat(repeat: AutoRepeat) -> str:
    """Say a rule in a sentence without a period."""
    known = f"until step times or their ratios to the first cell's are known to {100 * repeat.precision:g} %"
    return f"{repeat.at_least} to {repeat.at_most} launches of each cell, {known} or {repeat.time_budget_s:g} s are up"


def find_mixed_repeat(rules: Mapping[str, Repeat]) -> str | None:
    """Say what is wrong where some cells repeat automatically and others do not, or by another rule; else None."""
    (first, rule), *others = rules.items()
    differing = next((cell for cell, other in others if other != rule), None)
    if differing is None or not any(isinstance(one, AutoRepeat) for one in rules.values()):
        return None
    return (
        f"cells {first} and {differing} differ in `repeat`; `auto` launches all cells in turns, so write it once, "
        "above the cells"
    )
