"""What a scenario file claims: functions that it reaches, checks that can fail, and the answer to its question.

These sections stand beside ``cells`` and belong to the file, not to a cell::

    functions: [distributed.DistributedDataParallel.no_sync] # counted in every cell; each must be called in one
    checks:
      - kind: bound
        value: purposes.grad_reduce.wait_ns # numbers are named as `dtbench report --json` has them
        cell: cap_4
        over: torch_default # a ratio; `minus` is a difference
        at_most: 0.9
        because: smaller buckets are full before backward is over
    answer: "Smaller buckets wait {purposes.grad_reduce.wait_ns of cap_4} instead of {...}."
"""

from collections.abc import Collection
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, model_validator

from dtbench.base.record import Record
from dtbench.base.units import MIB, NS_PER_MS
from dtbench.base.vocabulary import Cause, Purpose
from dtbench.scenario.checks.answer import read_slots
from dtbench.scenario.checks.values import Quantity, ValueName, read_value
from dtbench.scenario.mistakes import find_nearest, shorten
from dtbench.seeds.functions import FUNCTIONS

Number = Annotated[float, Field(allow_inf_nan=False)]


def _check_value(name: str) -> str:
    read_value(name)
    return name


_LABELS: Final = frozenset(one.label for one in FUNCTIONS)
MOST_CLAIMS: Final = {"functions": len(FUNCTIONS), "checks": 200}
"""Of one file, by section: each may be about every cell."""
MOST_ANSWER_LENGTH: Final = 4_000


def _check_label(label: str) -> str:
    outer = label.rpartition(".")[0]
    if label in _LABELS and outer in _LABELS and not label.endswith(".setter"):
        raise ValueError(f"`{label}` is made anew at every call of `{outer}`, so that it has no probe; name that one")
    if label in _LABELS:
        return label
    near = find_nearest(label, _LABELS)
    hint = f"did you mean `{near}`?" if near else "`dtbench coverage` lists them, and their files are their first word"
    raise ValueError(f"no function under study is called `{shorten(label)}`; {hint}")


Value = Annotated[str, AfterValidator(_check_value)]
Label = Annotated[str, AfterValidator(_check_label)]

_SUFFIXES: Final = {Quantity.TIME: "_ms", Quantity.SIZE: "_mib"}
_SCALES: Final = {"": 1.0, "_ms": float(NS_PER_MS), "_mib": float(MIB)}


class Bound(Record):
    """A number of a cell lies between two bounds; with ``over`` or ``minus``, as compared with another cell."""

    kind: Literal["bound"]
    value: Value
    """As ``dtbench report --json`` names it: ``step_time.median``, ``purposes.unshard.exposed_ns``."""
    cell: str | None = None
    """Left out: every cell."""
    over: str | None = None
    """Divide by the same number of this cell: the bounds are ratios."""
    minus: str | None = None
    """Subtract the same number of this cell."""
    per: Value | None = None
    """Divide by this other number of the same cell: the bounds are ratios."""
    at_least: Number | None = None
    """For counts, fractions and ratios."""
    at_most: Number | None = None
    """For counts, fractions and ratios."""
    at_least_ms: Number | None = None
    """For times."""
    at_most_ms: Number | None = None
    """For times."""
    at_least_mib: Number | None = None
    """For sizes."""
    at_most_mib: Number | None = None
    """For sizes."""
    because: str | None = None
    """Why it has to be so."""

    @property
    def name(self) -> ValueName:
        """The value's name, understood."""
        return read_value(self.value)

    @property
    def quantity(self) -> Quantity:
        """What its bounds are."""
        if self.share_of_cause is not None:
            return Quantity.FRACTION
        return Quantity.RATIO if self.over is not None or self.per is not None else self.name.quantity

    @property
    def share_of_cause(self) -> tuple[Purpose, Cause] | None:
        """The purpose of whose exposed time it bounds a cause's share; None: it is about something else."""
        match self.name.path:
            case ("purposes", purpose, "causes", cause, "exposed_ns") if self.per == f"purposes.{purpose}.exposed_ns":
                return Purpose(purpose), Cause(cause)
            case _:
                return None

    @property
    def low(self) -> float | None:
        """Lower bound in ns, bytes or as it is; None: there is none."""
        return self._find("at_least")

    @property
    def high(self) -> float | None:
        """Upper bound in ns, bytes or as it is; None: there is none."""
        return self._find("at_most")

    def _find(self, side: str) -> float | None:
        written = {suffix: getattr(self, f"{side}{suffix}") for suffix in _SCALES}
        return next((one * _SCALES[suffix] for suffix, one in written.items() if one is not None), None)

    @model_validator(mode="after")
    def _consistent(self) -> "Bound":
        if sum(one is not None for one in (self.over, self.minus, self.per)) > 1:
            raise ValueError("`over`, `minus` and `per` compare in three ways; write a check for each")
        if self.cell is not None and self.cell in (self.over, self.minus):
            raise ValueError(f"compares `{shorten(self.cell)}` with itself")
        self._refuse_units()
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError("the lower bound is above the upper one")
        return self

    def _refuse_units(self) -> None:
        """Refuse bounds in another unit than the number's, and a check without bounds."""
        right = _SUFFIXES.get(self.quantity, "")
        fits = f"`at_least{right}` and `at_most{right}`"
        sides = [f"{side}{suffix}" for side in ("at_least", "at_most") for suffix in _SCALES]
        given = [side for side in sides if getattr(self, side) is not None]
        if not given:
            raise ValueError(f"has no bound: write {fits}, or one of them")
        for name in given:
            if name not in (f"at_least{right}", f"at_most{right}"):
                raise ValueError(f"`{name}` does not fit {self.quantity.value}, write {fits}, or one of them")


class Order(Record):
    """The cells stand in this order by a number, smallest first."""

    kind: Literal["order"]
    value: Value
    """As ``dtbench report --json`` names it."""
    cells: tuple[str, ...]
    """Smallest first, at least two."""
    apart: Annotated[float, Field(ge=0, le=1_000, allow_inf_nan=False)] = 0.0
    """Each is larger than the one before by at least this fraction of it."""
    because: str | None = None
    """Why it has to be so."""

    @model_validator(mode="after")
    def _enough(self) -> "Order":
        if len(set(self.cells)) < max(2, len(self.cells)):
            raise ValueError("`cells` must name two or more cells, each once")
        return self


class InsidePrediction(Record):
    """The step time lies inside the bounds of its closed form, on both sides."""

    kind: Literal["prediction"]
    cell: str | None = None
    """Left out: every cell."""
    because: str | None = None
    """Why it has to be so."""


class KnobReceipt(Record):
    """What torch says became of a knob: it did what was asked, or it has no effect here."""

    kind: Literal["receipt"]
    knob: str
    """As receipts name it, such as ``parallel.static_graph``."""
    outcome: Literal["agrees", "no_effect"]
    """``no_effect``: the run says that the knob changes nothing here, and why."""
    cell: str | None = None
    """Left out: every cell."""
    because: str | None = None
    """Why it has to be so."""


class LeadingCause(Record):
    """One cause explains more of what is exposed than any other."""

    kind: Literal["cause"]
    leads: Cause
    """The cause."""
    purpose: Purpose | None = None
    """Of collectives of this purpose; left out: of all."""
    cell: str | None = None
    """Left out: every cell."""
    because: str | None = None
    """Why it has to be so."""


class EqualLosses(Record):
    """Cells train alike: their losses of the first five steps are equal."""

    kind: Literal["losses"]
    tolerance: Annotated[float, Field(ge=0, lt=1)]
    """Largest relative difference."""
    cells: tuple[str, ...] | None = None
    """Left out: all."""
    because: str | None = None
    """Why it has to be so."""

    @model_validator(mode="after")
    def _enough(self) -> "EqualLosses":
        if self.cells is not None and len(set(self.cells)) < max(2, len(self.cells)):
            raise ValueError("`cells` must name two or more cells, each once")
        return self


class AgreeingEstimates(Record):
    """Independent estimates of exposed communication (``measure.exposure``) agree."""

    kind: Literal["estimates"]
    cell: str | None = None
    """Left out: every cell."""
    because: str | None = None
    """Why it has to be so."""


Check = Annotated[
    Bound | Order | InsidePrediction | KnobReceipt | LeadingCause | EqualLosses | AgreeingEstimates,
    Discriminator("kind"),
]


def name_cells(check: Check) -> tuple[str, ...]:
    """Return the cells that a check names; empty: it is about all of them."""
    match check:
        case Order() | EqualLosses():
            return check.cells or ()
        case Bound():
            names = (check.cell, check.over, check.minus)
        case _:
            names = (check.cell, None, None)
    return tuple(name for name in names if name is not None)


class Checklist(Record):
    """What a file claims; all of it may be left out."""

    functions: tuple[Label, ...] = ()
    """Functions under study, by label: probed in every cell (as if in ``measure.probes``, unless lines are traced), and
    each must be called in at least one."""
    checks: tuple[Check, ...] = ()
    """What must hold for the answer to be true."""
    answer: Annotated[str, Field(max_length=MOST_ANSWER_LENGTH)] | None = None
    """One sentence that answers the question. ``{value of cell}`` stands for a number, and so do ``{value of cell over
    other}`` and ``{value of cell minus other}``; ``{lowest value}`` and ``{highest value}`` for the cell that has
    it."""

    @property
    def named_cells(self) -> tuple[str, ...]:
        """The cells that checks and answer name, each as often as they do."""
        in_checks = (name for check in self.checks for name in name_cells(check))
        return (*in_checks, *(name for slot in read_slots(self.answer or "") for name in slot.cells))

    def keep_cells(self, names: Collection[str]) -> "Checklist":
        """Return what is claimed of some cells alone: no answer and no functions, which are of all."""
        kept = tuple(check for check in self.checks if self._is_about(check, names))
        return Checklist(checks=kept)

    @staticmethod
    def _is_about(check: Check, names: Collection[str]) -> bool:
        named = name_cells(check)
        return all(name in names for name in named) and (len(names) > 1 or not isinstance(check, Order | EqualLosses))

    @property
    def is_empty(self) -> bool:
        """Whether the file claims nothing that could be wrong."""
        return not self.functions and not self.checks
