"""What of one torch differs from another, what that breaks in dtbench, and where; needs no torch."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.torch_versions import read_torch_release
from dtbench.worker.torch_facts.facts import ABSENT, Facts, Kind, is_enumerated, read_facts
from dtbench.worker.torch_facts.used import Uses, find_places

_MOST_PLACES: Final = 3

_OF_BUILD: Final = re.compile(r"nccl|cuda|ucc\b", re.IGNORECASE)
"""Names that a torch for CPU has not, or has otherwise."""

_BREAKS: Final[Mapping[Kind, str]] = {
    Kind.ENGINE: "which engine carries a job's collectives, and what it then writes into traces",
    Kind.CONFIG: "what compiled models do by default",
    Kind.VARIABLE: "what an environment sets without a receipt",
    Kind.TRACE: "how traces are read",
    Kind.FIELD: "how traces are read",
    Kind.WIRE: "the formulas of traffic, and predictions",
    Kind.ATTRIBUTE: "what is read in torch's objects",
}
"""What a difference breaks where no module of dtbench names the thing."""
_NEW: Final = "what dtbench neither asks for, wraps nor tells of yet"
_ROOMS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: ("dtbench.worker.network", "dtbench.traces.kinds"),
    Kind.CONFIG: ("dtbench.worker.models.options",),
    Kind.VARIABLE: ("dtbench.worker.machine.environment",),
    Kind.TRACE: ("dtbench.traces",),
    Kind.FIELD: ("dtbench.traces",),
    Kind.WIRE: ("dtbench.plan.traffic", "dtbench.prediction"),
}
"""Where it is broken then."""


@dataclass(frozen=True)
class Difference:
    """One thing that is otherwise.

    Attributes:
        kind: what kind of thing.
        name: of the thing.
        tested: what is said of it of the tested torch; None: it was not there.
        found: of this one; None: it is not there.
        breaks: what in dtbench depends on it.
        places: where, as ``module:line`` or a room.
    """

    kind: Kind
    name: str
    tested: str | None
    found: str | None
    breaks: str
    places: tuple[str, ...]

    @property
    def change(self) -> str:
        """What became of it."""
        if self.found is None:
            return "gone"
        return f"new: {self.found}" if self.tested is None else f"{self.tested} -> {self.found}"


@dataclass(frozen=True)
class TorchReport:
    """One torch held against a tested one.

    Attributes:
        torch: version of the one that is here.
        tested: version of the tested torch.
        differences: each thing that is otherwise.
        looked_at: facts of either.
        other_build: facts that were not compared, as they depend on whether a torch is built for a GPU.
        unrecorded: names that dtbench has used only since the tested torch was written down.
    """

    torch: str
    tested: str
    differences: tuple[Difference, ...]
    looked_at: int
    other_build: int
    unrecorded: int


def find_tested(torch: str, folder: Path) -> Path | None:
    """Return the facts of the tested torch nearest to a version: of its release, else the newest before it.

    Else the oldest after it; None where none is written down.
    """
    files = {read_torch_release(f"{path.stem}.0"): path for path in folder.glob("*.json")}
    release = read_torch_release(torch)
    before = [known for known in files if known <= release]
    nearest = max(before, default=None) or min(files, default=None)
    return None if nearest is None else files[nearest]


def compare_facts(tested: Facts, found: Facts, uses: Uses) -> TorchReport:
    """Hold one torch against a tested one.

    dtbench's source may have changed since the tested one was looked at: what only one of the looks was for is left
    out, and counted where it is of the later one.
    """
    differences: list[Difference] = []
    other_build = unrecorded = looked_at = 0
    is_other_build = (tested.cuda is None) is not (found.cuda is None)
    for kind in Kind:
        before, after = tested.facts.get(kind, {}), found.facts.get(kind, {})
        looked_at += len(before.keys() | after.keys())
        for name in sorted(before.keys() | after.keys()):
            old, new = (None if said == ABSENT else said for said in (before.get(name), after.get(name)))
            if old == new or (name not in after and not _is_looked_at(kind, name, found, uses)):
                continue
            if name not in before and not _was_looked_at(kind, name, tested):
                unrecorded += 1
            elif is_other_build and _OF_BUILD.search(name):
                other_build += 1
            else:
                differences.append(_explain(kind, name, old, new, uses))
    return TorchReport(found.torch, tested.torch, tuple(_fold(differences)), looked_at, other_build, unrecorded)


def _was_looked_at(kind: Kind, name: str, facts: Facts) -> bool:
    """Tell whether a look at a torch would have found a name, had the torch had it."""
    names, (home, _, last) = facts.facts.get(Kind.NAME, {}), name.rpartition(".")
    match kind:
        case Kind.NAME:
            is_nested = is_enumerated(names.get(home.rpartition(".")[0], ""))  # told with its class, not gone into
            return is_enumerated(names.get(home, "")) and not is_nested and not last.startswith("_")
        case Kind.PARAMETER:
            return names.get(name.partition("(")[0], ABSENT) != ABSENT
        case Kind.MEMBER:
            return names.get(home, ABSENT) != ABSENT
        case Kind.ATTRIBUTE:
            return any(one.rpartition(".")[2] == last for one in facts.facts.get(kind, {}))
    return True


def _is_looked_at(kind: Kind, name: str, facts: Facts, uses: Uses) -> bool:
    """Tell the same of a look for what the source uses now."""
    home, _, last = name.rpartition(".")
    is_private_of_class = is_enumerated(facts.facts.get(Kind.NAME, {}).get(home, "")) and last in uses.attributes
    is_function_in_text = home == "torch.distributed" and last in uses.literals
    return (
        is_private_of_class
        or is_function_in_text
        or (kind is Kind.ATTRIBUTE and last in uses.attributes)
        or _was_looked_at(kind, name, facts)
    )


def _fold(differences: Sequence[Difference]) -> Iterator[Difference]:
    """Yield what is gone, then what changed, then what is new; not what follows from another difference.

    That is: the parameters of a function that is gone, or new.
    """
    whole = tuple(f"{one.name}{mark}" for one in differences if None in (one.tested, one.found) for mark in "(.")
    left = [one for one in differences if not one.name.startswith(whole)]
    yield from sorted(left, key=lambda one: (one.found is not None, one.tested is None))


def _explain(kind: Kind, name: str, tested: str | None, found: str | None, uses: Uses) -> Difference:
    places = tuple(_find_uses(kind, name, uses))
    modules = dict.fromkeys(place.partition(":")[0] for place in places)
    docs = [uses.docs[module].rstrip(".") for module in modules if uses.docs.get(module)]
    is_new = tested is None and kind in (Kind.NAME, Kind.PARAMETER, Kind.MEMBER)
    breaks = _NEW if is_new else "; ".join(docs[:1]) or _BREAKS.get(kind, _NEW)
    return Difference(kind, name, tested, found, breaks, places or _ROOMS.get(kind, ()))


def _find_uses(kind: Kind, name: str, uses: Uses) -> Iterator[str]:
    """Yield where the source has the name, or for what stands in a trace, a text that it begins with."""
    match kind:
        case Kind.NAME | Kind.PARAMETER | Kind.MEMBER:
            yield from find_places(uses, name.partition("(")[0])
        case Kind.ATTRIBUTE:
            yield from uses.attributes.get(name.rpartition(".")[2], ())
        case Kind.TRACE | Kind.FIELD:
            shown = name.partition(": ")[2]
            readers = (text for text in uses.literals if shown.startswith(text) or text == shown)
            found = [place for text in sorted(readers, key=len, reverse=True)[:1] for place in uses.literals[text]]
            yield from (place for place in found if place.startswith(_ROOMS[kind]))
        case _:
            text = name.rpartition(".")[2]
            yield from uses.literals.get(text, ())


def report_on(found: Facts, uses: Uses, folder: Path) -> TorchReport | None:
    """Hold a torch against the nearest tested one of a folder; None where none is written down."""
    path = find_tested(found.torch, folder)
    return None if path is None else compare_facts(read_facts(path), found, uses)


def spell_places(places: Sequence[str]) -> str:
    """Name the first places, and count the others."""
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"{', '.join(places[:_MOST_PLACES])}{more}"
